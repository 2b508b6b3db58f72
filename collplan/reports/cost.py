"""A cost report as text: parts of the time, use of resources, and the critical path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from collplan.reports.output import format_bytes, format_seconds, print_line, print_table

_MOST_LINES: Final = 40
"""Number of lines of the critical path to show; the middle of a longer one is left out."""
_MOST_KINDS: Final = 3
"""Largest number of kinds of time in a report without the critical path."""
MOST_LINES: Final = 15
"""Largest number of lines of a report without the critical path."""
_NAMED: Final = 8
"""Largest number of ranks that a text lists."""
_TOWARDS: Final = {"send": "to", "recv": "from"}

Report = dict[str, Any]
Row = tuple[str, ...]


def print_cost(report: Report, *, has_path: bool = True) -> None:
    """Print a report that `cost_report` has returned.

    Without the critical path, the report has at most `MOST_LINES` lines: rare kinds of time are
    left out, and so is the use of cores and lanes if there are lines on links or adapters.
    """
    makespan, steps = report["makespan_s"], report["critical_path"]
    print_line(
        f"makespan {format_seconds(makespan)}: {report['n_tasks']} tasks simulated in "
        f"{format_seconds(report['simulate_s'], report.get('kernels_s', 0.0))}"
    )
    if report["n_copies"] > 1:
        print_line(
            f"folded: all {report['n_copies']} nodes do the same; one was simulated, node 0, "
            "and its tasks are shown"
        )
    for native, phase in report["priced_as"].items():
        print_line(f"{native} is priced as MPICH's default: {phase}")
    if report["bound_s"]:
        print_line(
            f"{makespan / report['bound_s']:.3g} × the bound: {report['bound']} take "
            f"{format_seconds(report['bound_s'])}"
        )
    if makespan == 0:
        return
    is_short = not has_path
    kinds = _breakdown_rows(report, _MOST_KINDS if is_short else None)
    print_table(("time goes to", "", "of the makespan"), kinds, is_tight=is_short)
    if report["queued_s"] > 0:
        print_line(
            f"{format_seconds(report['queued_s'])} of it passed while the path's next task was "
            "ready, but its core, lane or port busy"
        )
    if has_path or not ("links" in report or report["pcie_reads"]):
        print_table(
            ("in use", "number", "least", "median", "busiest", "which"),
            list(_usage_rows(report)),
            is_tight=is_short,
        )
    if report["pcie_reads"] is not None:
        print_line(_adapters(report))
    if "links" in report:
        for line in link_lines(report["links"]):
            print_line(line)
    if is_short:
        print_line(f"critical path: {len(steps)} tasks; --path shows them")
        return
    print_line(f"critical path: {len(steps)} tasks, each waiting for the one above")
    print_table(("from", "takes", "", "task", "on", "waited for"), path_rows(report))


def _breakdown_rows(report: Report, most: int | None) -> list[Row]:
    """Return a row for each kind of time, or for the `most` kinds that take longest."""
    total = report["makespan_ns"]
    longest = sorted(report["breakdown"].values(), reverse=True)[:most]
    return [
        (kind, format_seconds(ns / 1e9), f"{ns / total:.1%}")
        for kind, ns in report["breakdown"].items()
        if ns > 0 and ns >= longest[-1]
    ]


def _usage_rows(report: Report) -> Iterator[Row]:
    """Generate a line for each kind of resource that is used."""
    makespan = report["makespan_s"]
    lanes, cores = report["lanes"], report["cores"]
    used = [
        ("lanes, out", "lane", lanes, [lane["out_busy_s"] / makespan for lane in lanes]),
        ("lanes, in", "lane", lanes, [lane["in_busy_s"] / makespan for lane in lanes]),
        ("cores", "core", cores, [core["utilisation"] for core in cores]),
    ]
    for kind, noun, places, shares in used:
        if not any(shares):
            continue
        busiest = max(shares)
        place = places[shares.index(busiest)]
        alike = sum(share > busiest - 0.005 for share in shares)
        others = f" and {alike - 1} more" if alike > 1 else ""
        yield (
            kind,
            str(len(shares)),
            *(f"{share:.0%}" for share in (min(shares), median(shares), busiest)),
            f"{noun} {place[noun]} of node {place['node']}{others}",
        )


def _adapters(report: Report) -> str:
    """Return a line on the number of reads of queue pairs that were not in the adapters' caches."""
    reads = [lane["pcie_reads"] for lane in report["lanes"]]
    low, high = min(reads), max(reads)
    each = f"{high:,}" if low == high else f"{low:,} to {high:,}"
    return (
        f"adapters: {report['pcie_reads']:,} PCIe reads of queue pairs, {each} on each of "
        f"{len(reads)} lanes"
    )


def link_lines(links: Report) -> Iterator[str]:
    """Generate lines on the links between adapters: bytes, the busiest link, and its users.

    Parameters
    ----------
    links : dict
        Report of `LinkUse.report`.
    """
    reach = links["bytes_by_reach"]
    total = sum(reach.values())
    if total == 0 or links["busiest"] is None:
        return
    yield (
        f"links: {links['n_used']:,} of {links['n_links']:,} used; of {_bytes(total)} between "
        f"nodes {reach['switch'] / total:.0%} stay behind a switch, {reach['group'] / total:.0%} "
        f"in a group, {reach['global'] / total:.0%} ({_bytes(reach['global'])}) go between groups"
    )
    busiest, halves = links["busiest"], links["halves"]
    others = f", and {busiest['alike'] - 1} more" if busiest["alike"] > 1 else ""
    yield (
        f"busiest link: {busiest['link']} ({busiest['class']}){others}: "
        f"{_bytes(busiest['bytes'])} take {format_seconds(busiest['busy_s'])}, "
        f"{busiest['utilisation']:.0%} of the makespan; {busiest['messages']} messages of "
        f"{_ranks(busiest['senders'])} to {_ranks(busiest['receivers'])}"
    )
    if halves["bound_s"] > 0:
        yield (
            f"bisection: {_bytes(halves['bytes'])} from one half of the nodes to the other take "
            f"{format_seconds(halves['bound_s'])} over the links between groups that they use"
        )


def _bytes(n_bytes: float) -> str:
    return format_bytes(round(n_bytes))


def _ranks(ranks: Sequence[int]) -> str:
    """Return a short text for a list of ranks."""
    named = ", ".join(map(str, ranks[:_NAMED]))
    more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {named}{more}"


def path_rows(report: Report, most: int = _MOST_LINES) -> list[Row]:
    """Return the lines of the critical path, with repeated parts folded.

    If there are more than `most` lines, the middle is left out.

    Parameters
    ----------
    report : dict
        Report that `cost_report` has returned.
    most : int
        Largest number of lines, apart from the line that replaces the middle.
    """
    steps = report["critical_path"]
    rows: list[Row] = []
    starts: list[int] = []
    for part in fold(steps, report["n_ranks"]):
        rows += _fold_rows(steps, part, report["n_ranks"])
        starts += range(part.first, part.first + part.period)
    if len(rows) <= most:
        return rows
    head, tail = most // 2, len(rows) - most // 2
    # Do not cut a bracket in two.
    while head > 0 and rows[head][2][-1:] in ("│", "┘"):
        head -= 1
    while tail < len(rows) and rows[tail][2][-1:] in ("│", "┘"):
        tail += 1
    if tail == len(rows):
        return rows[:head]
    begin, end = steps[starts[head]]["begin_s"], steps[starts[tail]]["begin_s"]
    left_out = starts[tail] - starts[head]
    note = f"… {left_out} more tasks, all of them with --json"
    return [
        *rows[:head],
        (format_seconds(begin), format_seconds(end - begin), "", note, "", ""),
        *rows[tail:],
    ]


def _fold_rows(steps: Sequence[Report], part: Fold, n_ranks: int) -> Iterator[Row]:
    for i in range(part.first, part.first + part.period):
        step, before = steps[i], steps[i - 1] if i else None
        bracket = ""
        if part.times > 1:
            place = i - part.first
            brackets = "┐" + "│" * (part.period - 2) + "┘" if part.period > 1 else " "
            count = f"{part.times} ×" if place == 0 else "  "
            bracket = f"{count} {brackets[place]}".rstrip()
        of = range(i, part.first + part.times * part.period, part.period)
        takes = [steps[j]["takes_s"] for j in of]
        name = _Namer(steps[part.first]["rank"], part.shift, n_ranks)
        yield (
            format_seconds(step["begin_s"]),
            _each(takes) if part.times > 1 else format_seconds(takes[0]),
            bracket,
            _task(step, name),
            _place(step, part.shift),
            _reason(step, before, name),
        )


class _Namer:
    """Names of ranks: their numbers, or offsets from a rank i that changes with each repetition."""

    def __init__(self, origin: int, shift: int, n_ranks: int) -> None:
        self.origin, self.shift, self.n_ranks = origin, shift, n_ranks

    def __call__(self, rank: int) -> str:
        if self.shift == 0:
            return str(rank)
        offset = (rank - self.origin) % self.n_ranks
        if offset > self.n_ranks // 2:
            offset -= self.n_ranks
        return f"i{offset:+d}" if offset else "i"


def _task(step: Report, name: _Namer) -> str:
    rank, op = name(step["rank"]), step["op"]
    size = f" {format_bytes(step['bytes'])}" if op != "compute" else ""
    text = f"rank {rank}: {op}{size}"
    if op in _TOWARDS:
        text += f" {_TOWARDS[op]} {name(step['peer'])}"
    if name.shift and rank == "i":
        step_by = name.shift if name.shift <= name.n_ranks // 2 else name.shift - name.n_ranks
        text += f", i = {name.origin}, {(name.origin + step_by) % name.n_ranks}, …"
    return text


def _place(step: Report, shift: int) -> str:
    lane = f"lane {step['lane']}" if step["lane"] is not None else ""
    if shift:
        return lane
    core = f"node {step['node']}, core {step['core']}"
    return f"{core}, {lane}" if lane else core


def _reason(step: Report, before: Report | None, name: _Namer) -> str:
    if before is None:
        return "nothing"
    holder = f"rank {name(before['rank'])}'s {before['op']}"
    if step["waited_for"] == "message":
        return "its message" if step["op"] == "recv" else f"its match, {holder}"
    if step["waited_for"] == "dependency":
        return holder
    resource = step["resource"]
    what = {
        "core": "the core",
        "processor": "a processor",
        "port": f"the port {resource.get('direction', '')}",
    }.get(resource["kind"], f"lane {resource.get('lane')} {resource.get('direction', '')}")
    return f"{what}, held by {holder}"


def _each(seconds: Sequence[float]) -> str:
    low, high = format_seconds(min(seconds)), format_seconds(max(seconds))
    return f"{low} each" if low == high else f"{low} to {high}"


_LONGEST_PERIOD: Final = 8
_FEWEST_TIMES: Final = 3


@dataclass(frozen=True, slots=True)
class Fold:
    """A group of steps on a path, and its number of repetitions.

    Parameters
    ----------
    first : int
        Index of the first step.
    period : int
        Number of steps in the group.
    times : int
        Number of times that the group occurs; 1 if it does not repeat.
    shift : int
        Difference between the ranks of one repetition and of the previous one.
    """

    first: int
    period: int = 1
    times: int = 1
    shift: int = 0


def fold(steps: Sequence[dict[str, Any]], n_ranks: int) -> list[Fold]:
    """Fold a critical path.

    Two steps are equal if they have the same operation, number of bytes and lane, the same
    distance to their peer, and waited for the same kind of event or resource. From one repetition
    to the next, ranks may change by a constant number.

    Parameters
    ----------
    steps : sequence of dict
        Steps, as in `critical_path` of a cost report.
    n_ranks : int
        Number of ranks, modulo which ranks are counted.

    Returns
    -------
    list of Fold
        Groups of steps in order, which cover the path.

    Examples
    --------
    >>> step = {"op": "send", "bytes": 8, "lane": 0, "waited_for": "message", "resource": None}
    >>> ring = [{**step, "rank": rank, "peer": (rank + 1) % 4} for rank in (2, 3, 0, 1)]
    >>> fold(ring, n_ranks=4)
    [Fold(first=0, period=1, times=4, shift=1)]
    """
    keys = [_key(step, n_ranks) for step in steps]
    ranks = [int(step["rank"]) for step in steps]
    folds: list[Fold] = []
    first = 0
    while first < len(steps):
        best = Fold(first)
        for period in range(1, _LONGEST_PERIOD + 1):
            found = _repeat(keys, ranks, n_ranks, first, period)
            if found.times >= _FEWEST_TIMES and found.times * period > best.times * best.period:
                best = found
        folds.append(best)
        first += best.times * best.period
    return folds


def _repeat(
    keys: list[tuple[Any, ...]], ranks: list[int], n_ranks: int, first: int, period: int
) -> Fold:
    """Return the fold of the `period` steps from `first`, with all their repetitions."""
    end = first + period
    if end >= len(keys):
        return Fold(first, period)
    shift = (ranks[end] - ranks[first]) % n_ranks
    while (
        end < len(keys)
        and keys[end] == keys[end - period]
        and (ranks[end] - ranks[end - period]) % n_ranks == shift
    ):
        end += 1
    return Fold(first, period, (end - first) // period, shift)


def _key(step: dict[str, Any], n_ranks: int) -> tuple[Any, ...]:
    """Return the properties of a step that must be equal in all repetitions."""
    resource, peer = step["resource"], step["peer"]
    return (
        step["op"],
        step["bytes"],
        step["lane"],
        step["waited_for"],
        None if peer is None else (peer - step["rank"]) % n_ranks,
        None if resource is None else (resource["kind"], resource.get("lane")),
    )
