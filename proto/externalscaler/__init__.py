"""KEDA's contract for external scalers."""
