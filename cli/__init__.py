"""The `radixgate` command."""
