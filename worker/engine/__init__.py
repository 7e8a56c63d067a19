"""The engine: sequences, the scheduler, the sampler and the step loop over a paged KV cache."""
