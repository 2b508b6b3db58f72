"""Read schedules in MSCCL's XML, which have steps of thread blocks on chunks for every GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn
from xml.parsers import expat

from collplan.planner.errors import PlanFormatError
from collplan.planner.formats.msccl_schedule import (
    FUSED,
    RECEIVES,
    SENDS,
    Schedule,
    Step,
    ThreadBlock,
)
from collplan.specs.errors import show_value
from collplan.specs.syntax.documents import foreign_reader

MAX_BYTES: Final = 1 << 26
"""Size of the largest file that is read, in bytes."""
MAX_STEPS: Final = 1 << 18
MAX_GPUS: Final = 1 << 12
MAX_CHUNKS: Final = 1 << 24
_PARENTS: Final = {"algo": None, "gpu": "algo", "tb": "gpu", "step": "tb"}
_TYPES: Final = ("nop", "cpy", "re", *sorted(SENDS | RECEIVES))
_NUMBER: Final = re.compile(r"-?\d{1,18}", re.ASCII)


class MscclError(PlanFormatError):
    """An MSCCL XML file that cannot be read or written; read errors begin with file:line."""

    kind = "msccl"


def read_schedule(path: str | Path) -> Schedule:
    """Read a schedule from a file.

    Document types are refused, because the expansion of their entities can make small files large.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Schedule

    Raises
    ------
    MscclError
        If the file is not a valid schedule. The message has file and line, problem, and remedy.
    """
    place = Path(path)
    with foreign_reader(place, "schedule", "give one of MSCCL", MscclError):
        size = place.stat().st_size
        content = b"" if size > MAX_BYTES else place.read_bytes()
    if size > MAX_BYTES:
        raise MscclError(f"{path}: has {size} bytes, at most {MAX_BYTES} are read; give a smaller")
    return parse_schedule(content, str(path))


def parse_schedule(content: bytes, name: str = "<msccl>") -> Schedule:
    """Read a schedule from the bytes of an XML document; errors name `name` as the file.

    Raises
    ------
    MscclError
        If it is not a valid schedule. The message has name and line, problem, and remedy.
    """
    return _MscclReader(name).read(content)


class _MscclReader:
    """Reader of a document, with the elements that it has read so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.parser = expat.ParserCreate()
        self.parser.StartDoctypeDeclHandler = self._refuse_doctype
        self.parser.StartElementHandler = self._begin
        self.parser.EndElementHandler = self._end
        self.open: list[str] = []
        self.schedule: Schedule | None = None
        self.blocks: set[tuple[int, int]] = set()
        self.gpu = -1

    def read(self, content: bytes) -> Schedule:
        try:
            self.parser.Parse(content, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            self._fail(f"is no XML ({reason})", "give the file as MSCCL reads it", error.lineno)
        except (LookupError, ValueError) as error:
            self._fail(f"is in an encoding that is not read ({error})", "give it in UTF-8")
        if self.schedule is None:
            self._fail("has no element 'algo'", "give a schedule of MSCCL")
        schedule = self.schedule
        missing = [gpu for gpu in range(schedule.n_gpus) if gpu not in schedule.chunks]
        if missing:
            self._fail(f"gpu {missing[0]} of {schedule.n_gpus} is missing", "list every GPU")
        schedule.check_connections(lambda line, what, way: self._fail(what, way, line))
        return schedule

    def _refuse_doctype(self, *_: Any) -> NoReturn:
        self._fail("declares a document type, which schedules do not have", "remove it")

    def _begin(self, tag: str, attributes: dict[str, str]) -> None:
        parent = self.open[-1] if self.open else None
        if tag not in _PARENTS or _PARENTS[tag] != parent:
            inside = "the file" if parent is None else f"'{parent}'"
            self._fail(
                f"element {show_value(tag)} in {inside}", "elements are algo, gpu, tb and step"
            )
        self.open.append(tag)
        getattr(self, f"_add_{tag}")(attributes)

    def _end(self, _tag: str) -> None:
        self.open.pop()

    def _add_algo(self, attributes: Mapping[str, str]) -> None:
        self.schedule = Schedule(
            name=attributes.get("name", ""),
            collective=self._word(attributes, "coll"),
            protocol=attributes.get("proto", ""),
            n_gpus=self._number(attributes, "ngpus", 1, MAX_GPUS),
            n_channels=self._number(attributes, "nchannels", 0, MAX_GPUS),
            n_chunks=self._number(attributes, "nchunksperloop", 1, MAX_CHUNKS),
            min_bytes=self._bytes(attributes, "minBytes"),
            max_bytes=self._bytes(attributes, "maxBytes"),
            # Files of msccl-tools do not state whether they also run out of place.
            is_in_place=self._number(attributes, "inplace", 0, 1) == 1
            and self._number(attributes, "outofplace", 0, 1, 0) == 0,
        )

    def _add_gpu(self, attributes: Mapping[str, str]) -> None:
        schedule = self._known()
        gpu = self._number(attributes, "id", 0, schedule.n_gpus - 1)
        if gpu in schedule.chunks:
            self._fail(f"gpu {gpu} is listed twice", "list every GPU once")
        schedule.chunks[gpu] = {
            buffer: self._number(attributes, f"{buffer}_chunks", 0, MAX_CHUNKS) for buffer in "ios"
        }
        self.gpu = gpu

    def _add_tb(self, attributes: Mapping[str, str]) -> None:
        schedule = self._known()
        number = self._number(attributes, "id", 0, MAX_STEPS)
        if (self.gpu, number) in self.blocks:
            self._fail(f"gpu {self.gpu} has two thread blocks {number}", "number them")
        self.blocks.add((self.gpu, number))
        send, recv = (
            self._number(attributes, way, -1, schedule.n_gpus - 1) for way in ("send", "recv")
        )
        if self.gpu in (send, recv):
            self._fail(f"thread block {number} of gpu {self.gpu} has itself as peer", "use 'cpy'")
        channel = self._number(attributes, "chan", 0, MAX_STEPS)
        line = self.parser.CurrentLineNumber
        schedule.blocks.append(ThreadBlock(self.gpu, number, send, recv, channel, line))

    def _add_step(self, attributes: Mapping[str, str]) -> None:
        schedule = self._known()
        block = schedule.blocks[-1]
        kind = self._word(attributes, "type")
        if kind not in _TYPES:
            self._fail(f"step type {show_value(kind)}", f"types are {', '.join(_TYPES)}")
        number = self._number(attributes, "s", 0, MAX_STEPS)
        if number != len(block.steps):
            self._fail(f"step {number} where {len(block.steps)} is due", "number steps in order")
        if schedule.n_steps >= MAX_STEPS:
            self._fail(f"more than {MAX_STEPS} steps", "give a smaller schedule")
        for kinds, peer, way in ((SENDS, block.send, "send"), (RECEIVES, block.recv, "recv")):
            if kind in kinds and peer < 0:
                self._fail(
                    f"step '{kind}' in a thread block without a peer", f"give its '{way}' a GPU"
                )
        on_block, on_step = (
            self._number(attributes, name, -1, MAX_STEPS, -1) for name in ("depid", "deps")
        )
        source, dest, count = self._places(kind, attributes)
        order = self._number(attributes, "order", -1, MAX_CHUNKS, -1)
        line = self.parser.CurrentLineNumber
        block.steps.append(Step(kind, source, dest, count, on_block, on_step, order, line))
        schedule.n_steps += 1

    def _places(
        self, kind: str, attributes: Mapping[str, str]
    ) -> tuple[tuple[str, int], tuple[str, int], int]:
        """Return the source and the destination of a step, and its number of chunks."""
        if kind == "nop":
            return ("i", 0), ("o", 0), 0
        count = self._number(attributes, "cnt", 0, MAX_CHUNKS)
        found = []
        for name, is_used in (
            ("src", kind in ("s", "cpy", "re") or (kind in FUSED and kind != "rcs")),
            ("dst", kind not in ("s", "rrs")),
        ):
            buffer = self._word(attributes, f"{name}buf") if is_used else "i"
            offset = self._number(attributes, f"{name}off", 0, MAX_CHUNKS) if is_used else 0
            if buffer not in ("i", "o", "s"):
                self._fail(f"{name}buf is {show_value(buffer)}", "buffers are i, o and s")
            room = self._known().chunks[self.gpu][buffer]
            if is_used and offset + count > room:
                self._fail(
                    f"chunks {offset} to {offset + count} of buffer '{buffer}', which has {room}",
                    f"stay inside {buffer}_chunks",
                )
            found.append((buffer, offset))
        return found[0], found[1], count

    def _known(self) -> Schedule:
        assert self.schedule is not None, "elements are inside 'algo'"
        return self.schedule

    def _word(self, attributes: Mapping[str, str], name: str) -> str:
        if name not in attributes:
            self._fail(f"'{self.open[-1]}' has no attribute '{name}'", "add it")
        return attributes[name]

    def _bytes(self, attributes: Mapping[str, str], name: str) -> int | None:
        return None if name not in attributes else self._number(attributes, name, 0, 1 << 59)

    def _number(
        self,
        attributes: Mapping[str, str],
        name: str,
        low: int,
        high: int,
        default: int | None = None,
    ) -> int:
        if name not in attributes and default is not None:
            return default
        text = self._word(attributes, name)
        value = int(text) if _NUMBER.fullmatch(text) else None
        if value is None or not low <= value <= high:
            self._fail(f"{name} is {show_value(text)}", f"give a number from {low} to {high}")
        return value

    def _fail(self, problem: str, way_out: str, line: int | None = None) -> NoReturn:
        place = self.parser.CurrentLineNumber if line is None else line
        raise MscclError(f"{self.name}:{place}: {problem}; {way_out}")
