"""The machine part of a spec, from the ranks that run or from the job of a batch system."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collplan.executors.mpi.host.processes import affinity
from collplan.executors.mpi.host.topology import Adapter, NodeTopology, domains_of, read_node
from collplan.executors.mpi.launch.allocation import Allocation
from collplan.measure.calibration.fit import document_lines
from collplan.measure.lanes import node_of_ranks
from collplan.measure.timing import everywhere
from collplan.specs.errors import printable
from collplan.specs.explaining import explaining
from collplan.specs.machines.machine import Machine, place_ranks
from collplan.specs.syntax.numbers import write_rate

UNKNOWN: Final = "not known here: the default"
"""Comment on a field that keeps its default."""
_SHOWN_HOSTS: Final = 4


@dataclass(slots=True)
class MachineFile:
    """The fields of a machine with comments.

    Parameters
    ----------
    head : list of str
        Comments before the fields.
    fields : dict
        Values by field name of `Machine`.
    notes : dict
        Comments by field name.
    """

    head: list[str] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def put(self, name: str, value: Any, note: str) -> None:
        """Set a field, with a note on the source of its value."""
        self.fields[name], self.notes[name] = value, note

    def machine(self) -> Machine:
        """Return the machine; raise `SpecError` if the fields are not valid."""
        with explaining(Machine, before="machine: "):
            return Machine.model_validate(self.fields)

    def text(self) -> str:
        """Return the text of the file: YAML with a comment on every field."""
        notes = self.notes | {"network.network.G_ns_per_byte": self.notes.get("network", "")}
        lines = [*(f"# {line}" for line in self.head), *document_lines(self.fields, notes)]
        if "cores" not in self.fields:
            lines.append("# cores are not known here: as many as the fullest node has ranks")
        lines.append(
            "# All other costs of the network are defaults: 'collplan calibrate --machine' with "
            "this file measures them."
        )
        return "\n".join(lines) + "\n"


def describe_ranks(comm: Any, lanes: int | tuple[int, ...] | None = None) -> MachineFile:
    """Return the machine of the ranks that run, the same on every rank; collective over `comm`.

    Parameters
    ----------
    comm : MPI.Intracomm
        Communicator of the ranks.
    lanes : int or tuple of int, optional
        Lanes of a node if they are known, as on an emulated cluster.
    """
    lowest = node_of_ranks(comm)
    own = (read_node() if lowest[comm.rank] == comm.rank else None, domains_of(affinity()))
    seen = comm.gather(own)
    if comm.rank > 0:
        return everywhere(comm, None)
    firsts = list(dict.fromkeys(lowest))
    rank_to_node = tuple(firsts.index(rank) for rank in lowest)
    nodes = [seen[rank][0] for rank in firsts]
    found = describe(nodes, rank_to_node, "ranks that share memory share a node", lanes)
    _note_domains(found, rank_to_node, [domains for _, domains in seen], nodes)
    return everywhere(comm, found)


def describe_job(job: Allocation, here: NodeTopology) -> MachineFile:
    """Return the machine of a job of a batch system.

    Parameters
    ----------
    job : Allocation
        Nodes and tasks of the job.
    here : NodeTopology
        Topology of this node. It is used for all nodes of the job if this node is one of them.
    """
    known = here.host.partition(".")[0] in {name.partition(".")[0] for name in job.nodes}
    tasks = job.tasks or job.cpus
    note = f"from {job.source}"
    if tasks is None:
        tasks, note = (here.cores if known else 1,) * len(job.nodes), UNKNOWN
    if isinstance(job.order, str):
        machine = Machine(nodes=len(tasks), ranks_per_node=tasks, rank_order=job.order)
        rank_to_node = machine.rank_to_node
    else:
        rank_to_node = job.order
    if known:
        found = describe([here] * len(job.nodes), rank_to_node, f"from {job.source}")
        found.head.append(f"Cores, domains and lanes are those of {here.host}.")
    else:
        found = describe([], rank_to_node, f"from {job.source}")
        if job.cpus is not None:
            note = "processors that the job has on the smallest node"
            found.put("cores", max(*tasks, min(job.cpus)), note)
    found.head.insert(0, f"{job.scheduler}'s job on {_hosts(job.nodes)}.")
    if note == UNKNOWN:
        found.notes["ranks_per_node"] = UNKNOWN
    return found


def describe_node(here: NodeTopology) -> MachineFile:
    """Return the machine of this node alone, with one rank on each core."""
    found = describe([here], (0,) * here.cores, "this node alone")
    found.notes["ranks_per_node"] = "as many as there are cores; start ranks to have theirs"
    return found


def describe(
    nodes: Sequence[NodeTopology],
    rank_to_node: tuple[int, ...],
    source: str,
    lanes: int | tuple[int, ...] | None = None,
) -> MachineFile:
    """Return the machine of ranks on nodes.

    Parameters
    ----------
    nodes : sequence of NodeTopology
        Topology of every node; empty if the nodes are unknown.
    rank_to_node : tuple of int
        Node of every rank.
    source : str
        Source of this information, which becomes the note of fields.
    lanes : int or tuple of int, optional
        Lanes of a node if they are known; by default the number of network adapters.
    """
    per_node, order = place_ranks(rank_to_node)
    is_even = len(set(per_node)) == 1
    found = MachineFile()
    if nodes:
        found.head.append(f"Ranks on {_hosts(node.host for node in nodes)}.")
    found.put("nodes", len(per_node), source)
    found.put("ranks_per_node", per_node[0] if is_even else [*per_node], source)
    if not nodes:
        for name in ("numa_domains", "lanes"):
            found.put(name, Machine.model_fields[name].default, UNKNOWN)
    else:
        _put_cores(found, nodes, max(per_node))
        _put_lanes(found, nodes, lanes)
    found.put("rank_order", order if isinstance(order, str) else [*order], source)
    return found


def _put_cores(found: MachineFile, nodes: Sequence[NodeTopology], fullest: int) -> None:
    cores = [node.cores for node in nodes]
    domains = [len(node.domains) for node in nodes]
    note = _uneven("cores that may be used", cores)
    if fullest > min(cores):
        note = f"as many as ranks, which share the {min(cores)} there are"
    n_cores = max(fullest, min(cores))
    found.put("numa_domains", min(*domains, n_cores), _uneven("domains with such cores", domains))
    found.put("cores", n_cores, note)


def _put_lanes(
    found: MachineFile, nodes: Sequence[NodeTopology], lanes: int | tuple[int, ...] | None
) -> None:
    if lanes is not None:
        value = lanes if isinstance(lanes, int) else list(map(write_rate, lanes))
        found.put("lanes", value, "of the emulated cluster")
        return
    fewest = min(nodes, key=lambda node: len(node.adapters))
    adapters = fewest.adapters
    if not adapters:
        found.put("lanes", 1, UNKNOWN)
        return
    rates = [adapter.rate for adapter in adapters]
    differ = None not in rates and len(set(rates)) > 1
    note = _adapters(adapters)
    if len({node.adapters for node in nodes}) > 1:
        note += f" on {printable(fewest.host)}; nodes differ, others have more or other ones"
    if fewest.others:
        note += f"; not counted: {_adapters(fewest.others)}"
    known = [rate for rate in rates if rate is not None]
    found.put("lanes", list(map(write_rate, known)) if differ else len(adapters), note)
    if len(known) == len(rates):
        gap = 8e9 / max(known)
        note = f"nominal, of {_rate(max(known))}; calibrate measures what MPI gets"
        found.put("network", {"network": {"G_ns_per_byte": gap}}, note)


def _note_domains(
    found: MachineFile,
    rank_to_node: Sequence[int],
    bound: Sequence[tuple[int, ...]],
    nodes: Sequence[NodeTopology],
) -> None:
    """Add a note if ranks are bound to domains that differ from those of the machine."""
    machine = found.machine()
    if machine.numa_domains == 1:
        return
    by_node: defaultdict[int, list[str]] = defaultdict(list)
    fits = True
    for rank, own in enumerate(bound):
        node = rank_to_node[rank]
        domains = nodes[node].domains
        by_node[node].append(",".join(map(str, own)))
        index = machine.rank_to_numa[rank]
        fits = fits and index < len(domains) and own == (domains[index],)
    if not fits:
        where = " ".join(by_node[0])
        found.notes["numa_domains"] += (
            f"; the machine fills them in order, ranks of the first node may run in: {where}"
        )


def _uneven(what: str, numbers: Sequence[int]) -> str:
    if len(set(numbers)) == 1:
        return what
    return f"{what}, on the smallest node; others have up to {max(numbers)}"


def _adapters(adapters: Sequence[Adapter]) -> str:
    shown = []
    for one in adapters:
        rate = "of unknown rate" if one.rate is None else _rate(one.rate)
        shown.append(f"{printable(one.name)} ({one.fabric}, {rate})")
    return ", ".join(shown)


def _rate(rate: int) -> str:
    return f"{rate / 1e9:g} Gbit/s"


def _hosts(names: Iterable[str]) -> str:
    shown = [printable(name) for name in names]
    more = f" and {len(shown) - _SHOWN_HOSTS} more" if len(shown) > _SHOWN_HOSTS else ""
    return ", ".join(shown[:_SHOWN_HOSTS]) + more
