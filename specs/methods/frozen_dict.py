"""Mappings in specs, which are as immutable as the specs themselves."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A dict that cannot be changed.

    Examples
    --------
    >>> frozen = FrozenDict(radix=4)
    >>> frozen | {"blocks": 2}
    {'radix': 4, 'blocks': 2}
    >>> frozen["radix"] = 2
    Traceback (most recent call last):
    TypeError: specs are immutable; make another one with replace()
    """

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("specs are immutable; make another one with replace()")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)
