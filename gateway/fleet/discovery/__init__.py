"""Which pods there are, from Kubernetes: what it lists, and what that says of each worker."""
