"""Plan files: a zip archive of .npy columns, which `numpy.load` can also open.

Nothing is pickled, and files are checked before memory is allocated, so that
untrusted files can be read. Members are not compressed, because the output of
deflate depends on the version of zlib, and the file of a plan has the same bytes
on every machine. Instead, columns are stored in the narrowest sufficient integers,
and constant columns as a single element.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from collplan.planner.arrays import Ints
from collplan.planner.errors import PlanFileError, PlanFormatError
from collplan.planner.formats.output_files import replacing
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.origin import KnownProgram, Origin
from collplan.planner.plan.phases import GroupCall, Phase, Trees
from collplan.planner.plan.plan import COLUMNS, CSR_PARTS, TABLES, Plan
from collplan.planner.rewrite.fold import require_unfolded
from collplan.specs.collectives.predefined import NO_DATATYPE, check_datatype, check_operation
from collplan.specs.errors import SpecError, show_value
from collplan.specs.syntax.calling import explains_calls
from collplan.specs.syntax.documents import foreign_reader

if TYPE_CHECKING:
    from collplan.specs.request import PlanSpec

FORMAT: Final = "collplan"
VERSION: Final = 4
FORMER_MEMBERS: Final = {3: {"node.npy"}, VERSION: set[str]()}
"""Members of files of the versions that can be read, which nothing needs any more."""
META: Final = "plan.json"

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_WIDTHS: Final = ("|i1", "<i2", "<i4", "<i8")
_ROW_NAMES: Final = ("tasks", "ranks", "nodes", "patterns", *CSR_PARTS, "awaited")
_MAX_ROWS: Final = 2**31 - 1
_PHASE_NAMES: Final = ("kind", "algorithm", "role", "tree", "step")
_MAY_BE_CONSTANT: Final = ("reads.pattern", "writes.pattern", "deps.kind", "foreign.indptr")
_TABLE_SHAPES: Final[dict[str, tuple[str, int | None]]] = {
    "patterns": ("patterns", 4),
    "buffer_sizes": ("ranks", 3),
    "shared_sizes": ("nodes", None),
    "mirrors": ("ranks", 2),
}
"""Number of rows (by name) and columns of tables that do not have one entry per rank."""


@dataclass(frozen=True, slots=True)
class _Member:
    """Requirements on one member of the archive."""

    rows: str
    dtype: npt.DTypeLike
    extra_rows: int = 0
    columns: int | None = None
    may_be_constant: bool = False

    def shape(self, rows: dict[str, int]) -> tuple[int, ...]:
        n = rows[self.rows] + self.extra_rows
        return (n,) if self.columns is None else (n, self.columns)


def _members() -> dict[str, _Member]:
    """Return every member by name, in the order of the file.

    For every number of rows, there is a member that cannot be constant. Therefore a small file
    cannot request much memory.
    """
    members = {
        name: _Member("tasks", dtype, may_be_constant=True) for name, dtype in COLUMNS.items()
    }
    for part, kind in CSR_PARTS.items():
        for column, dtype in kind.TYPES.items():
            name = f"{part}.{column}"
            rows = {"indptr": "tasks", "awaited": "awaited"}.get(column, part)
            extra_rows, is_repeating = int(column == "indptr"), name in _MAY_BE_CONSTANT
            members[name] = _Member(rows, dtype, extra_rows, may_be_constant=is_repeating)
    for name, dtype in TABLES.items():
        rows, columns = _TABLE_SHAPES.get(name, ("ranks", None))
        members[name] = _Member(rows, dtype, columns=columns)
    return members


_MEMBERS: Final = _members()


@explains_calls("save_plan")
def save(plan: Plan, path: str | Path) -> None:
    """Write `plan` to `path`; the same plan gives the same bytes.

    Parameters
    ----------
    plan : Plan
        Any plan, of all ranks or of one rank.
    path : str or Path
        File to write. An existing file is replaced atomically, and is kept on failure.

    Raises
    ------
    PlanFileError
        If the file cannot be written.
    """
    require_unfolded(plan, "saved")
    arrays = {name: np.asarray(attrgetter(name)(plan)) for name in _MEMBERS}
    may_be_constant = [name for name, member in _MEMBERS.items() if member.may_be_constant]
    constant = [name for name in may_be_constant if _is_constant(arrays[name])]
    places = (plan.n_tasks, plan.n_ranks, plan.n_nodes, len(plan.patterns))
    n_rows = *places, *(len(getattr(plan, part)) for part in CSR_PARTS), len(plan.foreign.awaited)
    meta = {
        "format": FORMAT,
        "version": VERSION,
        "rows": dict(zip(_ROW_NAMES, n_rows, strict=True)),
        "constant": constant,
        "itemsize": plan.itemsize,
        "only_rank": plan.only_rank,
        "phases": [phase.name for phase in plan.phases],
        "components": list(map(_component, plan.phases)),
        "spec": None if plan.origin is None else plan.origin.document,
    }
    with replacing(path, PlanFileError) as file, zipfile.ZipFile(file, "w") as archive:
        _write_member(archive, META, json.dumps(meta, indent=1).encode())
        for name, array in arrays.items():
            stored = _narrow(array[:1] if name in constant else array)
            header = _npy_header(stored.dtype.str, stored.shape)
            _write_member(archive, f"{name}.npy", header + stored.tobytes())


def _component(phase: Phase) -> dict[str, Any]:
    """Return a phase for JSON, without those newer fields that have their default values."""
    component = asdict(phase)
    for newer in ("calls", "step"):
        if not component[newer]:
            del component[newer]
    if phase.radix == _usual_radix(phase.tree):
        del component["radix"]
    return component


def _usual_radix(tree: str) -> int:
    """Return the default radix for a shape of trees."""
    return 2 if tree == "binomial" else 0


def _is_constant(array: Ints) -> bool:
    """Return whether all values are equal, independent of the memory layout of the column."""
    return len(array) > 1 and (array.strides == (0,) or bool((array == array[0]).all()))


def _narrow(array: Ints) -> Ints:
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    for width in _WIDTHS:
        limits = np.iinfo(np.dtype(width))
        if limits.min <= low and high <= limits.max:
            break
    return np.ascontiguousarray(array, dtype=np.dtype(width))


def _npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """Return a version 1.0 .npy header; numpy's header differs between its releases."""
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    preamble = len(np.lib.format.MAGIC_PREFIX) + 4
    text += " " * (-(preamble + len(text) + 1) % 64) + "\n"
    return np.lib.format.magic(1, 0) + len(text).to_bytes(2, "little") + text.encode("latin1")


def _write_member(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.create_system = 3  # Windows would write 0
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)


@explains_calls("load_plan")
def load(path: str | Path) -> Plan:
    """Read a plan file, and check every entry.

    Parameters
    ----------
    path : str or Path
        A file that `save` has written.

    Returns
    -------
    Plan
        Plan that is equal to the saved plan, including its spec.

    Raises
    ------
    PlanFileError
        If the file is missing, truncated, damaged, or not a plan of this version.
    PlanFormatError
        If its columns are malformed: for example, if a task depends on a row that does
        not exist, an extent exceeds its buffer, or the size of elements is not that of
        the datatype.

    Notes
    -----
    The spec is validated, and compared with the columns, at the first access to
    ``plan.spec``, which raises the same errors. The execution of a plan does not access it.
    """
    path = Path(path)
    way_out = "compile the spec again"
    with foreign_reader(path, "plan file", way_out, PlanFileError), path.open("rb") as file:
        start = file.read(2)
        if start != b"PK":
            begin = f"it begins with {start!r}, not with b'PK'" if start else "it is empty"
            _refuse(path, f"not a plan file: {begin}", way_out)
        with zipfile.ZipFile(file) as archive:
            return _ArchiveReader(path, archive).plan()


def _refuse(path: Path, problem: str, way_out: str, cause: Exception | None = None) -> NoReturn:
    line = " ".join(f"{path}: {problem}; {way_out}".split())
    raise PlanFileError(line) from cause


@dataclass(frozen=True, eq=False)
class FileSpec(Origin):
    """The spec in a plan file, which is validated at the first access.

    Parameters
    ----------
    stored : dict
        Spec as stored in the file. Only its datatype and operation have been checked.
    path : Path
        Path of the file, for messages.
    """

    stored: dict[str, Any]
    path: Path

    @property
    def document(self) -> Mapping[str, Any]:
        """Return the spec as stored in the file."""
        return self.stored

    def spec_of(self, plan: Plan) -> PlanSpec:
        """Return the spec; raise an error if it is invalid or contradicts the plan's columns."""
        from collplan.planner.verify.spec_check import check_buffers, check_spec

        # Absurd numbers or nesting can cause any error.
        with foreign_reader(self.path, "plan file", "compile the spec again", PlanFileError):
            spec = self._spec
            try:
                check_spec(plan, spec)
                check_buffers(plan, spec)
            except PlanFormatError as error:
                raise PlanFormatError(f"{self.path}: {error}") from error
        return spec

    @cached_property
    def _spec(self) -> PlanSpec:
        from collplan.specs.loading import parse_spec

        try:
            spec = parse_spec(self.stored)
        except SpecError as error:
            problem = str(error).splitlines()[0]
            _refuse(self.path, f"{META}: spec: {problem}", "compile the spec again", error)
        collective = spec.collective
        operation = None if collective.op is None else collective.op.name
        if (self.datatype, self.operation) != (collective.datatype, operation):
            problem = f"{META}: spec: the collective lacks its datatype or operation"
            _refuse(self.path, problem, "compile the spec again")
        return spec


class _ArchiveReader:
    """Reader of an open archive, whose errors name the file."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive = path, archive
        self.meta: dict[str, Any] = {}
        self.rows: dict[str, int] = {}

    def refuse(self, problem: str, way_out: str = "compile the spec again") -> NoReturn:
        _refuse(self.path, problem, way_out)

    def plan(self) -> Plan:
        self.check_members()
        self.read_meta()
        arrays: dict[str, Any] = {
            name: self.read_column(name, member) for name, member in _MEMBERS.items()
        }
        for part, kind in CSR_PARTS.items():
            columns = {name: arrays.pop(f"{part}.{name}") for name in kind.TYPES}
            arrays[part] = kind(**columns)
        try:
            plan = Plan(
                **arrays,
                itemsize=self.meta["itemsize"],
                only_rank=self.meta["only_rank"],
                phases=self.phases(),
                origin=self.origin(),
            )
            check_format(plan)
        except PlanFormatError as error:
            raise PlanFormatError(f"{self.path}: {error}") from error
        return plan

    def check_members(self) -> None:
        """Refuse archives without metadata, and members that are compressed or too large."""
        entries = self.archive.infolist()
        names = [entry.filename for entry in entries]
        if META not in names:
            self.refuse(f"not a plan file: it has no member {META}")
        size = self.path.stat().st_size
        for entry in entries:
            if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
                self.refuse(f"member {show_value(entry.filename)} is compressed, must be stored")
            if entry.file_size > size:
                self.refuse(
                    f"member {show_value(entry.filename)} claims {entry.file_size} bytes, "
                    f"the whole file has {size}"
                )

    def read_meta(self) -> None:
        meta = json.loads(self.archive.read(META))
        if not isinstance(meta, dict) or meta.get("format") != FORMAT:
            self.refuse(f"not a plan file: {META} does not say format '{FORMAT}'")
        version = meta.get("version")
        if type(version) is not int or version not in FORMER_MEMBERS:
            self.refuse(
                f"plan file of version {show_value(version)}, "
                f"this collplan reads {' and '.join(map(str, FORMER_MEMBERS))}",
                "install the collplan that wrote it, or compile the spec again",
            )
        expected = {META, *(f"{name}.npy" for name in _MEMBERS)} | FORMER_MEMBERS[version]
        names = self.archive.namelist()
        for name in sorted(expected.symmetric_difference(names)):
            self.refuse(
                f"member {show_value(name)} is {'missing' if name in expected else 'not known'}"
            )
        if len(names) != len(expected):
            self.refuse(f"{len(names)} members, must be {len(expected)}")
        rows = meta.get("rows")
        if not isinstance(rows, dict) or set(rows) != set(_ROW_NAMES):
            self.refuse(f"{META}: rows must name {', '.join(_ROW_NAMES)}")
        for name, n in rows.items():
            self.check_int(f"rows.{name}", n, 0, _MAX_ROWS)
        self.check_int("itemsize", meta.get("itemsize"), 1, 2**16)
        if meta.get("only_rank") is not None:
            self.check_int("only_rank", meta["only_rank"], 0, rows["ranks"] - 1)
        for key in ("phases", "constant"):
            entries = meta.get(key)
            if not isinstance(entries, list) or not all(isinstance(e, str) for e in entries):
                self.refuse(f"{META}: {key} must be a list of names, not {show_value(entries)}")
        meta.setdefault("only_rank", None)
        self.meta, self.rows = meta, rows

    def check_int(self, name: str, value: object, low: int, high: int) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(
                f"{META}: {name} is {show_value(value)}, must be a number from {low} to {high}"
            )

    def read_column(self, name: str, member: _Member) -> Ints:
        constant = name in self.meta["constant"]
        if constant and not member.may_be_constant:
            self.refuse(f"column {name} is marked constant, which it cannot be")
        whole = member.shape(self.rows)
        shape = (1,) if constant else whole
        content = self.archive.read(f"{name}.npy")
        largest = np.dtype(member.dtype)
        for width in _WIDTHS:
            header, dtype = _npy_header(width, shape), np.dtype(width)
            if content.startswith(header) and dtype.itemsize <= largest.itemsize:
                break
        else:
            said = content[10:80].decode("ascii", "replace").strip()
            self.refuse(
                f"column {name} must hold integers of at most {largest.itemsize} bytes in shape "
                f"{shape}, its header says {show_value(said)}"
            )
        n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        if len(content) != len(header) + n_bytes:
            self.refuse(
                f"column {name} has {len(content) - len(header)} bytes, shape {shape} takes "
                f"{n_bytes}"
            )
        array = np.frombuffer(content, dtype, offset=len(header)).reshape(shape)
        return np.broadcast_to(array.astype(largest, copy=False), whole)

    def phases(self) -> tuple[Phase, ...]:
        """Return the phases of the plan; files of older releases have only their names."""
        named = tuple(map(Phase.parse, self.meta["phases"]))
        if "components" not in self.meta:
            return named
        components = self.entries("components", self.meta["components"])
        phases = tuple(self.phase(f"components.{i}", one) for i, one in enumerate(components))
        if [phase.name for phase in phases] != self.meta["phases"]:
            self.refuse(f"{META}: components must be those that phases names")
        groups = [trees.groups for phase in phases for trees in phase.trees]
        groups += [tuple(call.members for call in phase.calls) or ((0,),) for phase in phases]
        ranks = [rank for some in groups for group in some for rank in group]
        if not all(groups) or not all(0 <= rank < self.rows["ranks"] for rank in ranks):
            self.refuse(f"{META}: components must be of ranks 0 to {self.rows['ranks'] - 1}")
        return phases

    def phase(self, place: str, stored: Any) -> Phase:
        """Return one phase, with default values for missing fields."""
        self.require(place, stored, dict, "mapping")
        names = {key: stored[key] for key in _PHASE_NAMES if key in stored}
        for key, name in names.items():
            self.require(f"{place}.{key}", name, str, "string")
        radix = stored.get("radix", _usual_radix(names.get("tree", "")))
        if type(radix) is not int or radix < 0 or radix == 1:
            self.refuse(f"{META}: {place}.radix: Input should be 0, or a valid integer from 2 on")
        trees = enumerate(self.entries(f"{place}.trees", stored.get("trees", [])))
        calls = enumerate(self.entries(f"{place}.calls", stored.get("calls", [])))
        return Phase(
            **names,
            trees=tuple(self.trees(f"{place}.trees.{i}", one) for i, one in trees),
            calls=tuple(self.call(f"{place}.calls.{i}", one) for i, one in calls),
            radix=radix,
        )

    def call(self, place: str, stored: Any) -> GroupCall:
        self.require(place, stored, dict, "mapping")
        return GroupCall(self.numbers(f"{place}.members", stored.get("members")))

    def trees(self, place: str, stored: Any) -> Trees:
        self.require(place, stored, dict, "mapping")
        groups = enumerate(self.entries(f"{place}.groups", stored.get("groups")))
        return Trees(
            tuple(self.numbers(f"{place}.groups.{i}", one) for i, one in groups),
            self.numbers(f"{place}.up", stored.get("up")),
            self.numbers(f"{place}.down", stored.get("down")),
        )

    def numbers(self, place: str, stored: Any) -> tuple[int, ...]:
        """Return a list of ranks or rounds as a tuple."""
        for i, number in enumerate(self.entries(place, stored)):
            if type(number) is not int or not 0 <= number <= _MAX_ROWS:
                self.refuse(f"{META}: {place}.{i}: Input should be a valid integer")
        return tuple(stored)

    def entries(self, place: str, stored: Any) -> list[Any]:
        self.require(place, stored, list, "list")
        found: list[Any] = stored
        return found

    def require(self, place: str, value: object, kind: type, name: str) -> None:
        if not isinstance(value, kind):
            self.refuse(f"{META}: {place}: Input should be a valid {name}")

    def origin(self) -> Origin | None:
        """Return the spec or program of the plan; None if the file has none."""
        stored = self.meta.get("spec")
        if stored is None:
            return None
        self.require("spec", stored, dict, "mapping")
        if "steps" in stored:
            return self.program(stored)
        collective = stored.get("collective")
        self.require("spec.collective", collective, dict, "mapping")
        try:
            datatype = check_datatype(collective.get("datatype", NO_DATATYPE))
            if (op := collective.get("op")) is not None:
                self.require("spec.collective.op", op, dict, "mapping")
                self.require("spec.collective.op.name", op.get("name"), str, "string")
                check_operation(op["name"], datatype)
        except ValueError as error:
            self.refuse(f"{META}: spec.collective: {error}")
        return FileSpec(stored, self.path)

    def program(self, stored: dict[str, Any]) -> KnownProgram:
        """Return the program that a file states; its proof compares it with the columns."""
        from collplan.specs.loading import parse_program

        try:
            return KnownProgram(parse_program(stored))
        except SpecError as error:
            self.refuse(f"{META}: spec: {str(error).splitlines()[0]}")
