"""Traces: read from files of several formats, or generated from a seed."""
