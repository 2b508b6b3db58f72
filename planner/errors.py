"""Errors of plans; every message names the tasks."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collplan.specs.errors import CollplanError, show_value


class PlanError(CollplanError):
    """A plan that is not legal; the base of every specific violation."""

    kind = "plan"


class PlanFormatError(PlanError):
    """Columns that are malformed: lengths, types, ranges, extents outside a buffer."""

    kind = "format"


class PlanFileError(PlanError):
    """A plan file that cannot be read: cut short, another version, not a plan."""

    kind = "file"


class AlgorithmError(CollplanError):
    """An algorithm, decomposition or pass that cannot do what the spec asks of it."""


class OwnCodeError(AlgorithmError):
    """An algorithm or a pass of the user's own that fails, or whose steps are no steps."""


_PACKAGE: Final = str(Path(__file__).parents[1])
_LIBRARIES: Final = (_PACKAGE, *(sysconfig.get_path(name) for name in ("stdlib", "purelib")))
"""Folders of code that users did not write."""


@contextmanager
def mended(before: str) -> Iterator[None]:
    """Raise `OwnCodeError` in place of any error of code that a user wrote.

    Its line begins with `before`, and names the file and the line of the user's code. Errors of
    collplan that the code raises keep their type.
    """
    try:
        yield
    except CollplanError as error:
        if str(error).startswith(before.removesuffix(": ")):
            raise
        raise type(error)(f"{before}{error}") from None
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [one for one in frames if not one.filename.startswith((*_LIBRARIES, "<string>"))]
        where = f" ({Path(theirs[-1].filename).name}:{theirs[-1].lineno})" if theirs else ""
        text = f"{type(error).__name__}: {show_value(str(error), plain=True)}".removesuffix(": ")
        raise OwnCodeError(f"{before}{text}{where}; mend it") from None


class AsymmetricError(AlgorithmError):
    """A plan is not the same on all nodes, so it cannot be folded."""


class MemoryLimitError(AlgorithmError):
    """A plan that takes more memory to compile or to simulate than there is."""


class MatchError(PlanError):
    """Sends and receives that do not pair up."""

    kind = "match"


class UnmatchedSendError(MatchError):
    """A message nobody receives."""

    kind = "unmatched_send"


class UnmatchedRecvError(MatchError):
    """A receive nobody sends to."""

    kind = "unmatched_recv"


class SizeMismatchError(MatchError):
    """A message whose two ends have different sizes."""

    kind = "size_mismatch"


class MatchOrderError(MatchError):
    """Messages of one pair and tag whose order of starts is not fixed on both sides."""

    kind = "match_order"


class CallError(MatchError):
    """Members of a group that call a collective of the MPI library in different ways."""

    kind = "call"


class DeadlockError(PlanError):
    """Tasks that wait for each other; the message shows a minimal cycle."""

    kind = "deadlock"


class StageError(PlanError):
    """A task inside start that waits for what runs later, or one that waits for a wait."""

    kind = "stage"


class RaceError(PlanError):
    """Two conflicting accesses to one place that nothing orders."""

    kind = "race"


class StepError(PlanError):
    """The plan of a program has other tasks than its steps."""

    kind = "step"


class PostconditionError(PlanError):
    """A buffer that does not hold what the collective promises."""

    kind = "postcondition"


class UndefinedReadError(PostconditionError):
    """A result that depends on memory nobody has written."""

    kind = "undefined"


class DuplicateContributionError(PostconditionError):
    """A result that contains some rank's contribution twice."""

    kind = "duplicate"


class MissingContributionError(PostconditionError):
    """A result that lacks some rank's contribution."""

    kind = "missing"


class OperandOrderError(PostconditionError):
    """A non-commutative reduction whose operands are not in rank order."""

    kind = "operand_order"


class UnequalBitsError(PostconditionError):
    """Ranks that combine the same result in different orders, with an operation that rounds."""

    kind = "unequal_bits"


class IrreproducibleError(PostconditionError):
    """A result that is not combined in the order that its level of reproducibility asks for."""

    kind = "irreproducible"


class OverwrittenInputError(PostconditionError):
    """A plan that writes to a buffer it may only read."""

    kind = "overwritten_input"
