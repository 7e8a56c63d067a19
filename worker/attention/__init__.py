"""Attention over the paged KV cache: one interface, one implementation a kind of device."""
