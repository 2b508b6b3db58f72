"""Add an algorithm: an allgather around a ring in both directions at once.

Registers it, proves it on 1 to 12 ranks, draws it on 6, and prices it beside
those that come with collplan. Needs no MPI.

    python examples/own_algorithm.py [PICTURE.svg]
"""

from __future__ import annotations

import sys

from collplan import PlanSpec, compile, draw, parse_spec, simulate, verify
from collplan.planner.algorithms.registry import algorithm
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at


@algorithm("allgather", "double_ring")
def double_ring(group: Group) -> Rounds:
    """Pass every block both ways around the ring, half as far each.

    Notes
    -----
    ⌊p/2⌋ steps of two messages; (p - 1)·c per rank, which is optimal.
    """
    me, size = group.positions, group.size
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))
    for step in range(size // 2):
        held = group.input if step == 0 else group.output
        behind, ahead = (me - step) % size, (me + step) % size
        right = Message(me, (me + 1) % size, at(held, behind), at(group.output, behind))
        left = Message(me, (me - 1) % size, at(held, ahead), at(group.output, ahead))
        # With an even number of ranks the opposite block comes once, from the left.
        is_last_of_even = 2 * step + 2 == size
        yield Round(right) if is_last_of_even else Round(right, left)


def spec(name: str, n_ranks: int, count: int = 1) -> PlanSpec:
    """Return an allgather of `count` doubles a rank, one rank per node."""
    return parse_spec(
        {
            "machine": {"nodes": n_ranks},
            "collective": {"kind": "allgather", "count": count, "datatype": "float64"},
            "algorithms": name,
        }
    )


def main() -> None:
    """Prove it, draw it, price it."""
    for n_ranks in range(1, 13):
        verify(compile(spec("double_ring", n_ranks)))
    print("proved on 1 to 12 ranks")
    path = sys.argv[1] if len(sys.argv) > 1 else "double_ring.svg"
    print("wrote", draw(compile(spec("double_ring", 6)), path))
    print(f"{'16 ranks':<12} {'8 B':>10} {'8 KiB':>10} {'1 MiB':>10}")
    for name in ("bruck", "ring", "double_ring"):
        plans = [compile(spec(name, 16, count)) for count in (1, 1024, 131072)]
        times_us = [simulate(plan).makespan_s * 1e6 for plan in plans]
        print(f"{name:<12}", *(f"{time:>7.1f} µs" for time in times_us))


if __name__ == "__main__":
    main()
