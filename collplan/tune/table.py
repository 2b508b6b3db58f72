"""Tuning tables: what to run for which collective and message size on a machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from collplan.planner.formats.output_files import write_text
from collplan.planner.plan.views import view
from collplan.specs.base import SpecModel
from collplan.specs.documents import read_document, write_yaml
from collplan.specs.errors import CollplanError, SpecError, show_value
from collplan.specs.explaining import explaining
from collplan.specs.machine import Machine
from collplan.specs.network import Network
from collplan.specs.numbers import (
    Natural,
    NumberOfCores,
    NumberOfDomains,
    NumberOfLanes,
    NumberOfNodes,
)
from collplan.tune.sweep import NATIVE, NATIVE_LABEL, Choice, Placement, Sweep, name_with_counts

VERSION: Final = 1
"""Of the tables' format."""
FARTHEST_RANKS: Final = 2
"""Up to how many times as many ranks, or as few, a sweep speaks for."""


class Fingerprint(SpecModel):
    """Conditions under which a table holds: machine, MPI and versions.

    Parameters
    ----------
    cpu : str
        The processors' model.
    cores_per_node : int
    nodes : int
        How many were tuned on; not compared, as sweeps know their placements.
    lanes : int or None
        Lanes per node, if known.
    mpi : str
        The library and its version.
    mpi4py, numpy, collplan : str
        Their versions.
    mpiexec : str
        The family of what started the ranks; not compared, as it changes no times.
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
        """Return every field that differs, with both values; what one does not know fits.

        Of numpy and mpi4py the last number may differ: it changes no times. Nor
        does what starts the ranks, once they run.
        """
        found = []
        for name in type(self).model_fields:
            mine, theirs = getattr(self, name), getattr(other, name)
            if name in ("nodes", "mpiexec") or mine is None or theirs is None:
                continue
            is_close = name in ("numpy", "mpi4py") and _feature(mine) == _feature(theirs)
            if mine != theirs and not is_close:
                found.append((name, mine, theirs))
        return found


def _feature(version: str) -> list[str]:
    return version.split(".")[:2]


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of what to run, and its reason.

    Parameters
    ----------
    choice : Choice
    label : str
        The choice's in the table.
    why : str
        In words.
    native_s, chosen_s : float or None
        What the table measured nearby; None where it did not.
    is_known : bool
        Whether it can be decided without the cost model; otherwise it is native because no
        sweep speaks for the placement.
    computation_s : float or None
        Where it was measured without blocking: the computation beside it, which these times
        contain.
    """

    choice: Choice
    label: str
    why: str
    native_s: float | None = None
    chosen_s: float | None = None
    is_known: bool = True
    computation_s: float | None = None

    @property
    def gain_s(self) -> float | None:
        """Return how much faster than native the choice was; None if that was not measured."""
        if self.native_s is None or self.chosen_s is None:
            return None
        return self.native_s - self.chosen_s


class TuningTable(SpecModel):
    """The best choices on a machine: sweeps of collectives over sizes.

    Parameters
    ----------
    version : int
        Of the format.
    fingerprint : Fingerprint
        What it was measured on.
    numa_domains : int
        Of a node, as plans were made for.
    network : Network
        As plans were made for: what is chosen by model depends on it.
    n_sweeps : int or None
        How many sweeps there must be, so that a file that was cut is seen.
    sweeps : tuple of Sweep
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
                f"n_sweeps is {self.n_sweeps}, there are {len(self.sweeps)}: the file was cut; "
                f"restore it, or tune again"
            )
        for key, n_times in Counter(sweep.key for sweep in self.sweeps).items():
            if n_times > 1:
                kind, _, counts, placement, _ = key
                name = name_with_counts(kind, counts)
                raise ValueError(f"{name} on {placement} is there twice; keep one sweep")

    def __repr__(self) -> str:
        """Return its size in words: its sweeps are too long to read."""
        n_points = sum(len(sweep.points) for sweep in self.sweeps)
        return f"<TuningTable: {len(self.sweeps)} sweeps, {n_points} points>"

    def _repr_html_(self) -> str:
        """Return the winners for notebooks."""
        table: str = view("table_html", self)
        return table

    def machine(self, placement: Placement) -> Machine:
        """Return the machine that plans for a placement are made for.

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
        placement: Placement,
        op_commutes: bool | None = None,
        counts: str | None = None,
        *,
        overlaps: bool = False,
    ) -> Decision:
        """Return what to run for a collective, and why.

        The sweep of this placement decides. Without one, placements akin to it do: one node
        of more or fewer ranks, or another number of nodes as full as these in the same order.
        Of two with fewer and with more ranks, the nearer decides, see `Sweep.winner_towards`.
        Of several nodes, a sweep of up to `FARTHEST_RANKS` times as many ranks or few decides
        alone. Otherwise it is native. For calls that overlap computation, sweeps that were
        measured so go first.

        Parameters
        ----------
        kind : str
            Of the collective.
        n_bytes : int
            Of MPI's count: of the vector, of one block, or of all blocks if counts differ.
        ranks : int
        placement : Placement
            Where the ranks are.
        op_commutes : bool or None
            Whether the operation commutes; None where there is none.
        counts : str or None
            Of `counts_in_words`, where counts differ per rank. A sweep of other counts never
            decides.
        overlaps : bool
            Whether the call does not block.
        """
        asked = kind, op_commutes, counts
        nearest, beyond = _around(self.sweeps_of(*asked, overlaps=overlaps), ranks, placement)
        if nearest is None and overlaps:
            nearest, beyond = _around(self.sweeps_of(*asked), ranks, placement)
        if nearest is None:
            why = f"no sweep of {name_with_counts(kind, counts)} on {placement}"
            return Decision(NATIVE, NATIVE_LABEL, why, is_known=False)
        if beyond is None:
            label, also = nearest.winner_at(n_bytes), ""
        else:
            label = nearest.winner_towards(beyond, ranks, n_bytes)
            also = f", as {beyond.placement} lies beyond"
        point = nearest.point_near(n_bytes, label)
        native = point.times.get(NATIVE_LABEL)
        also += nearest.beside
        return Decision(
            choice=nearest.choices[label],
            label=label,
            why=f"won at {point.bytes} bytes on {nearest.placement}{also}",
            native_s=None if native is None else native.median_s,
            chosen_s=point.times[label].median_s,
            computation_s=nearest.computation_s,
        )

    def sweeps_of(
        self,
        kind: str,
        op_commutes: bool | None = None,
        counts: str | None = None,
        *,
        overlaps: bool = False,
    ) -> list[Sweep]:
        """Return the complete sweeps of a collective; parameters are those of `decide`."""
        asked = kind, op_commutes, counts
        return [
            sweep
            for sweep in self.sweeps
            if (sweep.collective, sweep.op_commutes, sweep.counts) == asked
            and sweep.complete
            and (sweep.computation_s is not None) == overlaps
        ]

    def check(self, fingerprint: Fingerprint) -> None:
        """See that the table is of this machine, MPI and these versions.

        Raises
        ------
        CollplanError
            Naming the first field that differs, both values and the way out.
        """
        different = self.fingerprint.differences(fingerprint)
        if different:
            name, mine, theirs = different[0]
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            raise CollplanError(
                f"fingerprint.{name}: the table was tuned with {mine}, here is {theirs}{more}; "
                f"tune here, or say --force to use it here"
            )


def _around(
    sweeps: Sequence[Sweep], ranks: int, placement: Placement
) -> tuple[Sweep | None, Sweep | None]:
    """Return the sweep that decides for a placement, and the one beyond it, if it lies between."""
    for sweep in sweeps:
        if sweep.placement == placement:
            return sweep, None
    akin = [sweep for sweep in sweeps if sweep.placement.is_akin(placement)]
    fewer = max((s for s in akin if s.ranks < ranks), key=_ranks, default=None)
    more = min((s for s in akin if s.ranks > ranks), key=_ranks, default=None)
    if fewer is not None and more is not None:
        # Of two as near, the one with fewer ranks.
        is_up = more.ranks * fewer.ranks < ranks * ranks
        return (more, fewer) if is_up else (fewer, more)
    nearest = fewer or more
    if nearest is None or not nearest.placement.is_like(placement):
        return None, None
    is_near = max(ranks, nearest.ranks) <= FARTHEST_RANKS * min(ranks, nearest.ranks)
    return (nearest if is_near else None), None


def _ranks(sweep: Sweep) -> int:
    return sweep.ranks


def load_table(path: str | Path) -> TuningTable:
    """Read a table from a YAML or JSON file.

    Parameters
    ----------
    path : str or Path
        A ``.json`` file is read as JSON, any other as YAML.

    Raises
    ------
    SpecError
        If the file can't be read, was cut, or does not hold a table; one line that names
        the file, the field and the way out.
    """
    return parse_table(read_document(Path(path), "tuning table"), source=str(path))


def parse_table(document: Any, *, source: str | None = None) -> TuningTable:
    """Turn a mapping, as YAML or JSON give it, into a table.

    Parameters
    ----------
    document : mapping
        The table's fields.
    source : str, optional
        Where the document comes from; error messages begin with it.

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
    """Write a table as YAML or JSON, so that it is there whole or not at all.

    Parameters
    ----------
    table : TuningTable
    path : str or Path
        A ``.json`` file is written as JSON, any other as YAML.

    Raises
    ------
    CollplanError
        If it can't be written; what was there stays as it is.
    """
    path = Path(path)
    counted = table.replace(n_sweeps=len(table.sweeps))
    document = counted.model_dump(mode="json", exclude_none=True)
    if path.suffix == ".json":
        text = json.dumps(document, indent=1) + "\n"
    else:
        # Leaves in one line each: a time, a choice, a placement.
        text = write_yaml(document, default_flow_style=None, width=1000)
    write_text(path, text)
