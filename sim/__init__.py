"""The simulator: traces through the real routing, caching and scheduling code in virtual time."""
