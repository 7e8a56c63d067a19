"""Routing policies: ours, and those of others from their published descriptions."""
