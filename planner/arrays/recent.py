"""Results that are kept for a while, because the next questions are often the same."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """Results by key, of which the least recently used are forgotten first.

    Threads may share an object. If two of them want the same result at the same time, both
    compute it.

    Parameters
    ----------
    most : int
        Largest total size of the results that are kept. A larger result is not kept.
    size : callable, optional
        Returns the size of a result. By default, every result has the size 1.

    Examples
    --------
    >>> squares = Recent(2)
    >>> [squares.find(n, lambda: n * n) for n in (3, 4, 5)]
    [9, 16, 25]
    >>> squares.get(3), squares.get(5)
    (None, 25)
    """

    def __init__(self, most: int, size: Callable[[Value], int] = lambda _: 1) -> None:
        self.most = most
        self._size = size
        self._kept: dict[Key, tuple[Value, int]] = {}
        self._total = 0
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """Return the result for a key, or None if it is not kept."""
        with self._lock:
            found = self._use(key)
        return None if found is None else found[0]

    def find(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the result for a key, which `make` computes if it is not kept."""
        with self._lock:
            found = self._use(key)
        if found is not None:
            return found[0]
        value = make()
        self.keep(key, value)
        return value

    def keep(self, key: Key, value: Value) -> None:
        """Keep a result, and forget others if they have no room beside it."""
        size = self._size(value)
        with self._lock:
            self._drop(key)
            if size > self.most:
                return
            self._kept[key] = value, size
            self._total += size
            while self._total > self.most:
                self._drop(next(iter(self._kept)))

    def values(self) -> list[Value]:
        """Return the results that are kept, the most recently used last."""
        with self._lock:
            return [value for value, _ in self._kept.values()]

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._kept.clear()
            self._total = 0

    def _use(self, key: Key) -> tuple[Value, int] | None:
        """Return a result and its size, which is now the most recently used one."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._kept[key] = found
        return found

    def _drop(self, key: Key) -> None:
        _, size = self._kept.pop(key, (None, 0))
        self._total -= size
