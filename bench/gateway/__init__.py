"""What the gateway adds to a request, and how soon it knows of an eviction: see `__main__`."""
