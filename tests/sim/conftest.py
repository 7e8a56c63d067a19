"""Fixtures of tests with real processes: those of the end-to-end tests."""

from tests.e2e.conftest import fleet

__all__ = ["fleet"]
