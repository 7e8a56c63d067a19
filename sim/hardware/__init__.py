"""How long a worker takes for what it computes: formula, presets, and how to measure one."""
