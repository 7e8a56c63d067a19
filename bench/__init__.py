"""Benchmarks: each prints JSON with its raw numbers, and compares what it measures in one run."""
