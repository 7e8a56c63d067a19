"""The KV cache: which tokens' keys and values are held, in which blocks, in which format.

`KVManager` is the only door for the engine. Nothing here knows of time, threads or requests.
"""
