"""Hash of two hosts, which spreads routes over links."""

from __future__ import annotations

from collplan.planner.machine_code.kernel import inner


@inner
def spread(seed: int, one: int, other: int, turn: int) -> int:
    """Return a pseudorandom number below 2**31, which is the same for the same arguments."""
    # All products fit into 64 bits, because the kernel may be interpreted.
    x = (seed + 0x2545F491) & 0x7FFFFFFF
    for value in (one, other, turn):
        x = ((x ^ value) * 0x45D9F3B + 0x1B873593) & 0x7FFFFFFF
        x ^= x >> 15
        x = (x * 0x2C1B3C6D) & 0x7FFFFFFF
        x ^= x >> 12
    return x
