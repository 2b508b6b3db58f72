"""Tuning tables: the fastest choice by collective, message size and placement of ranks."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from collplan.planner.formats.output_files import write_text
from collplan.planner.plan.views import view
from collplan.specs.collectives.collective_base import LEVELS_OF_BITS, Reproducible
from collplan.specs.errors import CollplanError, SpecError, show_value
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import Machine
from collplan.specs.machines.network import Network
from collplan.specs.syntax.base import SpecModel
from collplan.specs.syntax.calling import explains_calls
from collplan.specs.syntax.documents import read_document, write_yaml
from collplan.specs.syntax.numbers import (
    Natural,
    NumberOfCores,
    NumberOfDomains,
    NumberOfLanes,
    NumberOfNodes,
)
from collplan.tables.sweep import (
    NATIVE,
    NATIVE_LABEL,
    Choice,
    NodePlacement,
    Sweep,
    name_with_counts,
)

PLANNED: Final = Choice()
"""The choice of a plan by the planner alone, where nothing was measured and native is not free."""
VERSION: Final = 1
"""Version of the file format."""
FARTHEST_RANKS: Final = 2
"""Largest ratio of numbers of ranks at which a sweep decides for another number of nodes."""
FARTHEST_BYTES: Final = 2
"""Ratio of a size to the largest of a sweep above which a decision is said to be extrapolated."""


class Fingerprint(SpecModel):
    """The machine and the software versions for which a table is valid.

    Parameters
    ----------
    cpu : str
        Model name of the processors.
    cores_per_node : int
        Processor cores per node.
    nodes : int
        Number of nodes that were tuned on. It is not compared, as sweeps have placements.
    lanes : int or None
        Lanes per node, if known.
    mpi : str
        Name and version of the MPI library.
    mpi4py, numpy, collplan : str
        Version of the package.
    mpiexec : str
        Family of the launcher. It is not compared, as it does not change times.
    """

    cpu: str
    cores_per_node: NumberOfCores
    nodes: NumberOfNodes = 1
    lanes: NumberOfLanes | None = None
    mpi: str
    mpi4py: str
    numpy: str
    collplan: str
    mpiexec: str

    def differences(self, other: Fingerprint) -> list[tuple[str, Any, Any]]:
        """Return the fields that differ, each with both values.

        A value that is unknown in one of the fingerprints does not differ. The patch versions
        of numpy and mpi4py, the launcher and the number of nodes are not compared.
        """
        found = []
        for name in type(self).model_fields:
            value, other_value = getattr(self, name), getattr(other, name)
            if name in ("nodes", "mpiexec") or value is None or other_value is None:
                continue
            is_close = name in ("numpy", "mpi4py") and _minor(value) == _minor(other_value)
            if value != other_value and not is_close:
                found.append((name, value, other_value))
        return found


def _minor(version: str) -> list[str]:
    """Return the major and minor numbers of a version."""
    return version.split(".")[:2]


@dataclass(frozen=True, slots=True)
class Decision:
    """The choice for a call, and its reason.

    Parameters
    ----------
    choice : Choice
    label : str
        Label of the choice in the table.
    why : str
        Reason, as shown to users.
    native_s, chosen_s : float or None
        Times of the native collective and of the choice at the nearest measured size, in
        seconds; None if they were not measured.
    is_known : bool
        Whether a sweep covers the placement. If none does, the choice is native, and the
        cost model may know a better one.
    computation_s : float or None
        Computation time in seconds that these times include, if non-blocking calls were
        measured; None for blocking calls.
    level : str
        Level of `reproducible` that the plan must have. Beyond ``ranks``, no call may be native.
    """

    choice: Choice
    label: str
    why: str
    native_s: float | None = None
    chosen_s: float | None = None
    is_known: bool = True
    computation_s: float | None = None
    level: Reproducible = "ranks"

    @property
    def needs_plan(self) -> bool:
        """Return whether calls may not run natively, as nobody knows the order of operands then."""
        return self.level != "ranks"

    @property
    def gain_s(self) -> float | None:
        """Time that the choice saves over native, in seconds; None if it was not measured."""
        if self.native_s is None or self.chosen_s is None:
            return None
        return self.native_s - self.chosen_s


class TuningTable(SpecModel):
    """A tuning table: sweeps of collectives that were measured on one machine.

    Parameters
    ----------
    version : int
        Version of the file format.
    fingerprint : Fingerprint
        Machine and software that the sweeps were measured on.
    numa_domains : int
        NUMA domains per node of the machine that plans were made for.
    network : Network
        Network of the machine that plans were made for. Choices that are left to the cost
        model depend on it.
    n_sweeps : int or None
        Number of sweeps in the file, with which a truncated file is detected.
    sweeps : tuple of Sweep
        Measured sweeps, no two of the same collective, counts and placement.
    """

    version: Literal[1] = VERSION
    fingerprint: Fingerprint
    numa_domains: NumberOfDomains = 1
    network: Network = Network()
    n_sweeps: Natural | None = None
    sweeps: tuple[Sweep, ...]

    def _check(self) -> None:
        if self.n_sweeps not in (None, len(self.sweeps)):
            raise ValueError(
                f"n_sweeps is {self.n_sweeps}, there are {len(self.sweeps)}: the file is "
                f"truncated; restore it, or tune again"
            )
        for key, n_times in Counter(sweep.key for sweep in self.sweeps).items():
            if n_times > 1:
                kind, _, counts, placement, *_ = key
                name = name_with_counts(kind, counts)
                raise ValueError(f"{name} on {placement} is there twice; keep one sweep")

    def __repr__(self) -> str:
        """Return the numbers of sweeps and points."""
        n_points = sum(len(sweep.points) for sweep in self.sweeps)
        return f"<TuningTable: {len(self.sweeps)} sweeps, {n_points} points>"

    def _repr_html_(self) -> str:
        """Return the winners as an HTML table for notebooks."""
        table: str = view("table_html", self)
        return table

    def machine(self, placement: NodePlacement) -> Machine:
        """Return the machine for which plans on a placement are compiled.

        Raises
        ------
        SpecError
            If the placement does not fit the machine.
        """
        fullest = max(placement.ranks_per_node)
        with explaining(Machine, before="placement: "):
            return Machine(
                nodes=len(placement.ranks_per_node),
                ranks_per_node=placement.ranks_per_node,
                rank_order=placement.rank_order,
                numa_domains=min(self.numa_domains, fullest),
                lanes=self.fingerprint.lanes or 1,
                network=self.network,
            )

    def decide(
        self,
        kind: str,
        n_bytes: int,
        ranks: int,
        placement: NodePlacement,
        op_commutes: bool | None = None,
        counts: str | None = None,
        *,
        overlaps: bool = False,
        rounds: bool = True,
    ) -> Decision:
        """Return the choice for a call of a collective, and its reason.

        A sweep of the same placement decides if there is one. Otherwise sweeps of similar
        placements do: a single node with another number of ranks, or another number of
        nodes with equally many ranks each, in the same order. If such sweeps have fewer and
        more ranks than the call, the nearer one decides, see `Sweep.winner_towards`. If they
        lie on one side only, the nearest one decides if it has several nodes and its number
        of ranks differs by a factor of at most `FARTHEST_RANKS`. In all other cases the
        choice is native. Calls that overlap computation use sweeps of such calls first, and
        sweeps of blocking calls if none of those decides.

        Parameters
        ----------
        kind : str
            Kind of the collective.
        n_bytes : int
            Message size in bytes: of the vector, of one block, or of all blocks if counts
            differ per rank.
        ranks : int
            Number of ranks.
        placement : NodePlacement
            Placement of the ranks on nodes.
        op_commutes : bool or None
            Whether the operation commutes; None if the collective has no operation.
        counts : str or None
            Description of counts that differ per rank, see `counts_in_words`. Sweeps of
            other counts never decide.
        overlaps : bool
            Whether the call is non-blocking and overlaps computation.
        rounds : bool
            Whether the operation rounds. If it does, only sweeps of the strongest level of
            `reproducible` decide that the table has for the collective, and the choice is
            `PLANNED` instead of native if that level is not ``ranks``.
        """
        call = kind, op_commutes, counts
        level = self.level_of(kind, op_commutes) if rounds else "ranks"
        decision = self._decide(call, n_bytes, ranks, placement, overlaps=overlaps, level=level)
        if level != "ranks" and decision.choice.native:
            why = f"{decision.why}; results must be reproducible between {level}"
            decision = Decision(PLANNED, PLANNED.label, why, decision.native_s)
        return replace(decision, level=level)

    def _decide(
        self,
        call: tuple[str, bool | None, str | None],
        n_bytes: int,
        ranks: int,
        placement: NodePlacement,
        *,
        overlaps: bool,
        level: Reproducible,
    ) -> Decision:
        """Return the choice by the sweeps of a level, or of any level if there are no others."""
        kind, _, counts = call
        there = {False: self.sweeps_of(*call), True: self.sweeps_of(*call, overlaps=True)}
        for key, some in there.items():
            there[key] = [sweep for sweep in some if sweep.reproducible == level] or some
        nearest, beyond = _around(there[overlaps], ranks, placement)
        if nearest is None and overlaps:
            nearest, beyond = _around(there[False], ranks, placement)
        if nearest is None:
            why = f"no sweep of {name_with_counts(kind, counts)} on {placement}"
            return Decision(NATIVE, NATIVE_LABEL, why, is_known=False)
        if beyond is None:
            return _winner(nearest, nearest.winner_at(n_bytes), n_bytes)
        label = nearest.winner_towards(beyond, ranks, n_bytes)
        return _winner(nearest, label, n_bytes, f", as {beyond.placement} lies beyond")

    def level_of(self, kind: str, op_commutes: bool | None = None) -> Reproducible:
        """Return the strongest level of `reproducible` of the complete sweeps of a collective."""
        found = {
            sweep.reproducible
            for sweep in self.sweeps
            if sweep.complete and (sweep.collective, sweep.op_commutes) == (kind, op_commutes)
        }
        return max(found, key=LEVELS_OF_BITS.index, default="ranks")

    def sweeps_of(
        self,
        kind: str,
        op_commutes: bool | None = None,
        counts: str | None = None,
        *,
        overlaps: bool = False,
    ) -> list[Sweep]:
        """Return the complete sweeps of a collective; see `decide` for the parameters."""
        call = kind, op_commutes, counts
        return [
            sweep
            for sweep in self.sweeps
            if (sweep.collective, sweep.op_commutes, sweep.counts) == call
            and sweep.complete
            and (sweep.computation_s is not None) == overlaps
        ]

    def check(self, fingerprint: Fingerprint) -> None:
        """Check that the table is valid for a machine and its software.

        Raises
        ------
        CollplanError
            If the fingerprints differ. The message names the first field that differs, both
            values and the way out.
        """
        differences = self.fingerprint.differences(fingerprint)
        if differences:
            name, tuned, now = differences[0]
            more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
            raise CollplanError(
                f"fingerprint.{name}: the table was tuned with {tuned}, here is {now}{more}; "
                f"tune here, or say --force to use it here"
            )


def _around(
    sweeps: Sequence[Sweep], ranks: int, placement: NodePlacement
) -> tuple[Sweep | None, Sweep | None]:
    """Return the sweep that decides for a placement, and a sweep for interpolation.

    The second sweep is on the other side of the number of ranks. Each may be None.
    """
    for sweep in sweeps:
        if sweep.placement == placement:
            return sweep, None
    akin = [sweep for sweep in sweeps if sweep.placement.is_akin(placement)]
    fewer = max((s for s in akin if s.ranks < ranks), key=_ranks, default=None)
    more = min((s for s in akin if s.ranks > ranks), key=_ranks, default=None)
    if fewer is not None and more is not None:
        # Of two sweeps with equal ratios, the one with fewer ranks decides.
        is_more_nearer = more.ranks * fewer.ranks < ranks * ranks
        return (more, fewer) if is_more_nearer else (fewer, more)
    nearest = fewer or more
    if nearest is None or not nearest.placement.is_like(placement):
        return None, None
    is_near = max(ranks, nearest.ranks) <= FARTHEST_RANKS * min(ranks, nearest.ranks)
    return (nearest if is_near else None), None


def _winner(sweep: Sweep, label: str, n_bytes: int, interpolated: str = "") -> Decision:
    """Return the decision for a winner of a sweep, with its times at the nearest size."""
    point = sweep.point_near(n_bytes, label)
    native = point.times.get(NATIVE_LABEL)
    sizes = [one.bytes for one in sweep.points]
    beyond = ""
    if n_bytes > FARTHEST_BYTES * max(sizes):
        beyond = f", extrapolated: {max(sizes)} is the largest size of the table"
    return Decision(
        choice=sweep.choices[label],
        label=label,
        why=f"won at {point.bytes} bytes on {sweep.placement}{interpolated}{sweep.beside}{beyond}",
        native_s=None if native is None else native.median_s,
        chosen_s=point.times[label].median_s,
        computation_s=sweep.computation_s,
    )


def _ranks(sweep: Sweep) -> int:
    return sweep.ranks


@explains_calls("load_table")
def load_table(path: str | Path) -> TuningTable:
    """Read a table from a YAML or JSON file.

    Parameters
    ----------
    path : str or Path
        A ``.json`` file is read as JSON, any other as YAML.

    Raises
    ------
    SpecError
        If the file can't be read, is truncated, or does not hold a table. The message is one
        line that names the file, the field and the way out.
    """
    return parse_table(read_document(Path(path), "tuning table"), source=str(path))


def parse_table(document: Any, *, source: str | None = None) -> TuningTable:
    """Convert a mapping that was read from YAML or JSON to a table.

    Parameters
    ----------
    document : mapping
        Fields of the table.
    source : str, optional
        Name of the file, with which error messages begin.

    Raises
    ------
    SpecError
        If the document does not describe a table.
    """
    prefix = f"{source}: " if source else ""
    if not isinstance(document, Mapping):
        kind = "empty" if document is None else f"a {type(document).__name__}"
        raise SpecError(f"{prefix}the table is {kind}, not a mapping; collplan tune writes one")
    if "collective" in document:
        raise SpecError(f"{prefix}is a spec; a tuning table has fingerprint and sweeps; give one")
    if document.get("version", VERSION) != VERSION:
        raise SpecError(
            f"{prefix}version: {show_value(document['version'])} is of another collplan, "
            f"this one reads {VERSION}; tune again"
        )
    with explaining(TuningTable, before=prefix):
        return TuningTable.model_validate(dict(document))


def save_table(table: TuningTable, path: str | Path) -> None:
    """Write a table to a YAML or JSON file atomically.

    Parameters
    ----------
    table : TuningTable
    path : str or Path
        A ``.json`` file is written as JSON, any other as YAML.

    Raises
    ------
    CollplanError
        If the file can't be written; an existing file is then left unchanged.
    """
    path = Path(path)
    counted = table.replace(n_sweeps=len(table.sweeps))
    document = counted.model_dump(mode="json", exclude_none=True)
    if path.suffix == ".json":
        text = json.dumps(document, indent=1) + "\n"
    else:
        # Innermost mappings, such as a time or a placement, go on one line each.
        text = write_yaml(document, default_flow_style=None, width=1000)
    write_text(path, text)
