"""Traces that are made up: the shapes of traffic that caching is for, or is no use for."""
