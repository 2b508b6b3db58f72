"""Motions: permutations of ranks, or of positions of a group, that move whole blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Motion:
    """Permutations of a group's positions, one per block of `step` positions.

    Parameters
    ----------
    kind : {"shift", "xor"}
        Whether positions move by addition modulo `size`, or by exclusive or.
    size : int
        Number of positions of the group, a multiple of `step`. For ``xor``, both are powers of
        two.
    step : int
        Number of positions per block.

    Examples
    --------
    >>> [Motion("shift", 6, 2).move(rank, 2) for rank in (1, 5)]
    [5, 3]
    >>> [Motion("xor", 8, 2).move(rank, 2) for rank in (1, 5)]
    [5, 1]
    """

    kind: Literal["shift", "xor"]
    size: int
    step: int

    @property
    def n_blocks(self) -> int:
        """Return the number of permutations."""
        return self.size // self.step

    @property
    def generators(self) -> list[int]:
        """Return a few blocks whose motions, repeated and combined, are those of all blocks."""
        if self.kind == "shift":
            return [1]
        return [1 << bit for bit in range(self.n_blocks.bit_length() - 1)]

    def move(self, values: Any, block: Any) -> Any:
        """Move positions, or chunks numbered like them, from block 0 to `block`.

        Parameters
        ----------
        values : int or ndarray of int
            Positions, or numbers of chunks, from 0 to `size` - 1.
        block : int or ndarray of int

        Returns
        -------
        int or ndarray of int
        """
        if self.kind == "xor":
            return values ^ block * self.step
        return (values + block * self.step) % self.size

    def move_block(self, block: Any, by: Any) -> Any:
        """Return the block to which the motion of block `by` moves `block`."""
        return block ^ by if self.kind == "xor" else (block + by) % self.n_blocks

    def block_to(self, origin: Any, target: Any) -> Any:
        """Return the block whose motion moves block `origin` to block `target`."""
        return target ^ origin if self.kind == "xor" else (target - origin) % self.n_blocks
