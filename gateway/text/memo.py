"""A bounded memory of computed byte strings, least recently used out first; safe across threads."""

from collections import OrderedDict
from threading import Lock


class ByteMemo:
    """Maps text to bytes; keys and values together stay within `capacity` characters and bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._used = 0
        self._entries: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, key: str) -> bytes | None:
        """What was put for `key`, if it is still here; it becomes the most recently used."""
        with self._lock:
            value = self._entries.get(key)
            if value is not None:
                self._entries.move_to_end(key)
            return value

    def put(self, key: str, value: bytes) -> None:
        """Remember `value`, which is always the same for the same `key`."""
        with self._lock:
            if key not in self._entries:
                self._entries[key] = value
                self._used += len(key) + len(value)
            while self._used > self._capacity:
                old_key, old_value = self._entries.popitem(last=False)
                self._used -= len(old_key) + len(old_value)
