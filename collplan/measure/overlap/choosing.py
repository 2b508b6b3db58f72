"""Turn what is asked for into a sweep, or say what is wrong with it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Final

from collplan.measure.overlap.methods import BLOCKING, CHAINS, DATATYPE, ITEMSIZE, TREES, Sweep
from collplan.planner.passes.progress.cores import POLICIES
from collplan.planner.passes.progress.tree_model import tree_height
from collplan.specs import Machine
from collplan.specs.errors import CollplanError

MOST_LEVELS: Final = 3
"""Levels that are tried where none are asked for: 0 to so many, as in the paper."""
_EVERY: Final = 8
"""Up to so many communication cores every number is tried by default: there the best S changes."""
_STEPS: Final = 16
_READ_AT_ONCE: Final = ("bcast", "gather", "scatter", "allreduce")


def plan_sweep(
    kind: str,
    n_bytes: int,
    machine: Machine,
    ranks: Sequence[int] | None = None,
    levels: Sequence[int] | None = None,
    policies: Sequence[str] | None = None,
    transport: str | None = None,
) -> Sweep:
    """Return what to run, with what was not asked for filled in.

    Parameters
    ----------
    kind, n_bytes, machine, ranks, levels, policies, transport
        As of `Sweep`; options of the command line by that name. By default ranks
        share memory where that leaves a tree or chain of transfers: not where all
        read the root's buffer, or blocks where they lie.

    Raises
    ------
    CollplanError
        If they don't make sense, alone or together.
    """
    _check_kind(kind)
    if n_bytes <= 0 or n_bytes % ITEMSIZE:
        raise CollplanError(
            f"--bytes: {n_bytes} bytes are not 1 or more of the {ITEMSIZE} bytes of {DATATYPE}; "
            f"give whole elements"
        )
    n_cores = machine.cores_per_node
    chosen = tuple(sorted(set(default_ranks(n_cores) if ranks is None else ranks)))
    for n_ranks in chosen:
        if not 1 <= n_ranks < n_cores:
            raise CollplanError(
                f"--ranks: {n_ranks} ranks on {n_cores} cores leave none for communication; "
                f"use 1 to {n_cores - 1}, or raise --cores"
            )
    if not chosen:
        raise CollplanError(
            f"--cores: {n_cores} cores have none left beside 2 ranks; give 3 or more, which then "
            f"share the processors there are"
        )
    split: tuple[int, ...] = ()
    placed: tuple[str, ...] = ()
    if kind in CHAINS:
        placed = _policies(kind, levels, policies)
    else:
        split = _levels(kind, chosen[-1], levels, policies)
    if transport is None:
        transport = "messages" if kind in _READ_AT_ONCE else "shared"
    sweep = Sweep(kind, n_bytes, machine, chosen, split, placed, transport)
    sweep.spec(chosen[-1], BLOCKING)  # raises where bytes are too many
    return sweep


def default_ranks(n_cores: int) -> list[int]:
    """Return numbers of ranks below `n_cores`: all where communication cores are few.

    Examples
    --------
    >>> default_ranks(8), default_ranks(64)[:3], default_ranks(64)[-9:]
    ([2, 3, 4, 5, 6, 7], [4, 8, 12], [52, 56, 57, 58, 59, 60, 61, 62, 63])
    """
    step = -(-n_cores // _STEPS)
    return [n for n in range(2, n_cores) if n % step == 0 or n_cores - n <= _EVERY]


def _check_kind(kind: str) -> None:
    kinds = TREES | CHAINS
    if kind in kinds:
        return
    close = difflib.get_close_matches(kind, kinds, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise CollplanError(
        f"--collective: {kind!r} is neither tree nor chain; {hint}valid: {', '.join(kinds)}"
    )


def _policies(
    kind: str, levels: Sequence[int] | None, policies: Sequence[str] | None
) -> tuple[str, ...]:
    if levels is not None:
        raise CollplanError(f"--levels: {kind} runs as a chain, which has none; use --policy")
    chosen = tuple(dict.fromkeys(POLICIES if policies is None else policies))
    for policy in chosen:
        if policy not in POLICIES:
            raise CollplanError(f"--policy: there is no {policy!r}; valid: {', '.join(POLICIES)}")
    return chosen


def _levels(
    kind: str, most_ranks: int, levels: Sequence[int] | None, policies: Sequence[str] | None
) -> tuple[int, ...]:
    if policies is not None:
        raise CollplanError(f"--policy: {kind} runs as a tree, whose levels split; use --levels")
    height = int(tree_height(most_ranks))
    if levels is None:
        return tuple(range(min(MOST_LEVELS, height) + 1))
    for level in levels:
        if not 0 <= level <= height:
            raise CollplanError(
                f"--levels: {level} levels, a tree of {most_ranks} ranks has {height}; "
                f"use 0 to {height}"
            )
    return tuple(sorted(set(levels)))
