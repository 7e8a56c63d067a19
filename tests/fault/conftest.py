"""Fixtures of the fault tests: the fleet of the end-to-end tests."""

from tests.e2e.conftest import fleet

__all__ = ["fleet"]
