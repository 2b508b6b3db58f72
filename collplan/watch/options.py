"""Choice of what the watcher of a node reports."""

from __future__ import annotations

from typing import Final, NamedTuple

HANG_AFTER_S: Final = 30.0
"""Default of `WatchOptions.hang_after_s` in ``collplan exec``, in seconds."""


class WatchOptions(NamedTuple):
    """Choice of what is reported about ranks that wait.

    Parameters
    ----------
    hang_after_s : float
        Time in seconds after which a call that does not complete is reported; 0 for never.
    is_checking : bool
        Whether calls of ranks that differ are reported at once.
    """

    hang_after_s: float = 0.0
    is_checking: bool = False

    @property
    def is_on(self) -> bool:
        """True if ranks write what they do."""
        return self.is_checking or self.hang_after_s > 0

    def words(self) -> list[str]:
        """Return the options as two arguments of a script, for `of_words`."""
        return [repr(float(self.hang_after_s)), str(int(self.is_checking))]


def of_words(hang_after: str, check: str) -> WatchOptions:
    """Return the options that `WatchOptions.words` has written."""
    return WatchOptions(float(hang_after), check == "1")
