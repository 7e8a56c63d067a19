"""The Radixgate worker: a model over a paged, prefix-cached KV engine that reports its content."""
