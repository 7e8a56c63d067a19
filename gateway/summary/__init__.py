"""Who holds which prefix: summaries in Redis, a mirror of them in memory, and KvSync feeding both.

Redis is shared by all gateways but never on the path of a request: what routes reads the mirror,
and the mirror goes on alone while Redis is away.
"""
