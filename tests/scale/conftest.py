"""Fixtures of the tests of scaling."""

from tests.gateway.conftest import valkey

__all__ = ["valkey"]
