"""Radixgate: the contract that clients, gateways and workers share.

Messages and services are in `radixgate.v1`, prefix hashes in `radixgate.prefix`, namespaces in
`radixgate.namespace`, and the client in `radixgate.client`.
"""

from importlib.metadata import version

__version__ = version("radixgate")
