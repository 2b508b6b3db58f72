"""Measurements of a calibration, as raw times before any fit, and their file format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, ValidationError

from collplan.specs.errors import CollplanError, SpecError, show_value
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.documents import MAX_BYTES, parse_json, read_text
from collplan.specs.syntax.numbers import (
    MAX_RANKS,
    Bytes,
    Natural,
    Node,
    NumberOfDomains,
    NumberOfLanes,
    NumberOfRanks,
    Positive,
    PositiveBytes,
    Rank,
    Seconds,
)

FORMAT: Final = "collplan-measurements"
VERSION: Final = 1
_WAY_OUT: Final = "give a file that --measurements has written"

LinkClass = Literal["numa", "node", "network"]
LINKS: Final[tuple[LinkClass, ...]] = get_args(LinkClass)
"""All classes of links, from the shortest distance to the longest."""
Work = Literal["copy", "reduce"]
WORKS: Final[tuple[Work, ...]] = get_args(Work)
Layout = Literal["contiguous", "strided"]
Times = Annotated[tuple[Seconds, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Effort:
    """Limits of the time that measuring takes.

    Parameters
    ----------
    point_s : float
        Approximate time in s to measure one point.
    longest_s : float
        Time in s above which a message is left out.
    least, most : int
        Smallest and largest number of repetitions of a point.
    tries : int
        Number of late receives of each size.
    pairs : int
        Number of pairs of ranks to measure for each class of links.
    turns : int
        Number of times that each pair is measured, with other measurements between them.
    largest_set : int
        Bytes of the largest working set of copies and reductions.
    """

    point_s: float
    longest_s: float
    least: int
    most: int
    tries: int
    pairs: int
    turns: int
    largest_set: int

    @property
    def n_steps(self) -> int:
        """Return the largest number of progress calls during a measurement."""
        return len(LINKS) * self.pairs * self.turns + 2


THOROUGH: Final = Effort(
    0.04, 0.1, least=5, most=40, tries=3, pairs=3, turns=3, largest_set=1 << 26
)
QUICK: Final = Effort(0.02, 0.01, least=3, most=5, tries=1, pairs=1, turns=1, largest_set=1 << 22)


class Place(SpecModel):
    """Places of the ranks.

    Parameters
    ----------
    rank_to_node, rank_to_numa : tuple of int
        Node of every rank, and its NUMA domain within the node.
    numa_domains : int
        Number of NUMA domains of a node that ranks were bound to; 1 if they were not bound.
    lanes : int or None
        Lanes per node, if known beforehand.
    processors : int or None
        Number of processors of the host that all nodes share; None if every node is a host.
    ranks_per_core : float
        Number of ranks per core. If it is above 1, waiting ranks sleep.
    """

    rank_to_node: Annotated[tuple[Node, ...], Field(min_length=2)]
    rank_to_numa: tuple[Natural, ...]
    numa_domains: NumberOfDomains = 1
    lanes: NumberOfLanes | None = None
    processors: Positive | None = None
    ranks_per_core: Annotated[float, Field(gt=0, le=MAX_RANKS)] = 1.0

    def _check(self) -> None:
        if len(self.rank_to_numa) != len(self.rank_to_node):
            raise ValueError(
                f"rank_to_numa lists {len(self.rank_to_numa)} ranks, rank_to_node "
                f"{len(self.rank_to_node)}; give both for every rank"
            )
        if set(self.rank_to_node) != set(range(max(self.rank_to_node) + 1)):
            raise ValueError("rank_to_node leaves a node out; number nodes from 0")


class _OfPair(SpecModel):
    link: LinkClass
    pair: tuple[Rank, Rank]
    turn: Natural = 0

    @property
    def unit(self) -> tuple[tuple[int, int], int]:
        """Return the pair and the turn, which have all measurements of a link."""
        return self.pair, self.turn


class PingPong(_OfPair):
    """Half round trips of a message between two ranks while all others sleep."""

    bytes: Bytes
    seconds: Times


class Burst(_OfPair):
    """Many messages sent at once to a rank that starts to receive after they have arrived.

    Parameters
    ----------
    link, pair, bytes
        Class of the link, the two ranks, and bytes per message.
    messages : int
        Number of messages.
    send_cpu_s, recv_cpu_s : tuple of float
        Processor time of each side for all messages in s, without its idle polls.
    send_s : tuple of float
        Time in s until all messages have left the sender.
    """

    bytes: Bytes
    messages: Positive
    send_cpu_s: Times
    recv_cpu_s: Times
    send_s: Times


class Transfer(_OfPair):
    """Processor time of a long message between two ranks that sleep while it is transferred.

    Parameters
    ----------
    link, pair, bytes
        Class of the link, the two ranks, and bytes of the message.
    send_cpu_s, recv_cpu_s : tuple of float
        Processor time of each side in s, without its polls.
    """

    bytes: PositiveBytes
    send_cpu_s: Times
    recv_cpu_s: Times


class LateReceive(_OfPair):
    """Times of sends to a rank that receives `delay_s` later; an eager send does not wait."""

    bytes: Bytes
    delay_s: Annotated[Seconds, Field(gt=0)]
    seconds: Times


class LanesAtOnce(SpecModel):
    """Times of the first `ranks` ranks of a node that send `bytes` each to the next at once."""

    ranks: NumberOfRanks
    bytes: PositiveBytes
    seconds: Times


class Rounds(SpecModel):
    """Rounds of a dissemination: in each, all ranks send and wait, as in a collective.

    Parameters
    ----------
    rounds : int
        Number of rounds.
    seconds : tuple of float
        Time of all rounds on the slowest rank in s, for each repetition.
    """

    rounds: Positive
    seconds: Times


class LocalWork(SpecModel):
    """Copies or reductions, as the engine does them.

    Parameters
    ----------
    work, layout
        Kind of work, and layout of its operands: contiguous or strided.
    bytes : int
        Bytes written.
    working_set_bytes : int
        Total bytes of the buffers that are read and written.
    ranks : int
        Number of ranks of the node that do the same work at once.
    seconds : tuple of float
        Time of the slowest rank in s, for each repetition.
    """

    work: Work
    layout: Layout
    bytes: PositiveBytes
    working_set_bytes: PositiveBytes
    ranks: NumberOfRanks = 1
    seconds: Times


class Measurements(SpecModel):
    """All measurements of a machine.

    Parameters
    ----------
    host, mpi, date : str
        Host, MPI library, and date and time, as text for readers.
    place : Place
        Places of the ranks.
    ping_pongs, bursts, transfers, late_receives, lanes_at_once, local_work
        Measured times, one entry per point.
    rounds : Rounds or None
        Times of rounds among all ranks; None if every rank had a core of its own.
    """

    format: Literal["collplan-measurements"] = FORMAT
    version: Literal[1] = VERSION
    host: str
    mpi: str
    date: str
    place: Place
    ping_pongs: Annotated[tuple[PingPong, ...], Field(min_length=1)]
    bursts: Annotated[tuple[Burst, ...], Field(min_length=1)]
    transfers: Annotated[tuple[Transfer, ...], Field(min_length=1)]
    late_receives: tuple[LateReceive, ...] = ()
    lanes_at_once: tuple[LanesAtOnce, ...] = ()
    local_work: Annotated[tuple[LocalWork, ...], Field(min_length=1)]
    rounds: Rounds | None = None

    def _check(self) -> None:
        # Pairs and turns are resampled, so each must have all measurements a link is fitted to.
        for link, unit in sorted({(entry.link, entry.unit) for entry in self.ping_pongs}):
            (one, other), turn = unit
            between = f"between ranks {one} and {other}" + (f" in turn {turn}" if turn else "")
            for name in ("ping_pongs", "bursts", "transfers"):
                entries = getattr(self, name)
                sizes = [one.bytes for one in entries if (one.link, one.unit) == (link, unit)]
                if not sizes:
                    raise ValueError(
                        f"{name}: there is none over {link} {between}, which has ping_pongs"
                    )
                if name != "transfers" and min(sizes) > SMALL:
                    text = f"none over {link} is of {SMALL} bytes or less"
                    raise ValueError(f"{name}: {text} {between}")
        for work in WORKS:
            if not any(
                entry.work == work and entry.layout == "contiguous" and entry.ranks == 1
                for entry in self.local_work
            ):
                raise ValueError(f"local_work: there is no contiguous {work} of one rank")

    def to_text(self) -> str:
        """Return the text of the file: JSON with one line per entry."""
        document = self.model_dump(mode="json")
        lines = []
        for name, value in document.items():
            if isinstance(value, list) and value:
                entries = ",\n".join(f"  {json.dumps(entry)}" for entry in value)
                lines.append(f"{json.dumps(name)}: [\n{entries}\n]")
            else:
                lines.append(f"{json.dumps(name)}: {json.dumps(value)}")
        return "{\n" + ",\n".join(lines) + "\n}\n"


SMALL: Final = 64
"""Largest message in bytes that takes as long as an empty one."""


def load_measurements(path: Path) -> Measurements:
    """Read a file of measurements.

    Raises
    ------
    CollplanError
        If the file cannot be read, or does not hold measurements of this version.
    """
    text = read_text(path, "file of measurements", _WAY_OUT, most=MAX_BYTES)
    try:
        document = parse_json(text, str(path))
    except SpecError:
        raise CollplanError(f"{path}: is not JSON; {_WAY_OUT}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CollplanError(f"{path}: holds no measurements; {_WAY_OUT}")
    if document.get("version") != VERSION:
        raise CollplanError(
            f"{path}: version is {show_value(document.get('version'))}, "
            f"this collplan reads {VERSION}; measure again"
        )
    try:
        return Measurements.model_validate(document)
    except ValidationError as error:
        detail = error.errors()[0]
        where = ".".join(map(str, detail["loc"]))
        text = detail["msg"].removeprefix("Value error, ")
        raise CollplanError(
            f"{path}: {where + ': ' if where else ''}{text}; measure again"
        ) from None
