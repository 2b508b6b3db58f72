"""Read the tree of switches from Slurm's ``topology.conf`` or ``topology.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from collplan.specs.errors import SpecError, show_value
from collplan.specs.syntax.documents import MAX_BYTES, parse_yaml, read_text
from collplan.specs.syntax.host_list import expand_hosts

_ENTRY: Final = re.compile(r"(?<!\w)(\w+)\s*=\s*(\S+)")
_WAY_OUT: Final = "give Slurm's topology.conf or topology.yaml"

Children = dict[str, tuple[str, ...]]
"""Names of the switches below each switch; none below a switch of level 1."""


def read_switches(path: Path) -> dict[str, Any]:
    """Return the switches of a ``topology.conf`` or ``topology.yaml``, as fields of a placement.

    Of the topologies in a ``topology.yaml``, the first one with ``cluster_default: true`` counts,
    or else the first one. The blocks of a block topology are switches.

    Switches are in the order of the file, but those below one switch follow each other. A single
    switch above all others is left out, as it separates no hosts. Switches of the same level that
    have the same switches below them, as the roots of a fat tree, count as one. A switch that is
    below no other one is a group by itself.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict
        The fields `switches` and `upper_switches` of a placement.

    Raises
    ------
    SpecError
        If the file cannot be read, no line has ``SwitchName`` and ``Nodes``, or the switches are
        no tree.
    """
    hosts, children = _read_yaml(path) if path.suffix in (".yaml", ".yml") else _read(path)
    if not hosts:
        raise SpecError(f"{path}: has no line with SwitchName and Nodes; {_WAY_OUT}")
    levels = _levels(path, hosts, children)
    order = levels[-1] if levels else []
    upper: list[tuple[int, ...]] = []
    for level in levels[-2::-1]:
        # Of switches that count as one, only the first is in its level.
        kept = set(level)
        below = [[one for one in children[name] if one in kept] for name in order]
        upper.insert(0, tuple(map(len, below)))
        order = [one for some in below for one in some]
    if upper and len(upper[-1]) == 1:
        upper.pop()
    return {"switches": [hosts[name] for name in order], "upper_switches": upper}


def _read(path: Path) -> tuple[dict[str, str], Children]:
    """Return the hosts of each switch of level 1, and the switches below each switch."""
    text = read_text(path, "topology.conf", _WAY_OUT, most=MAX_BYTES)
    hosts: dict[str, str] = {}
    children: Children = {}
    # A backslash continues a line.
    for line in text.replace("\\\n", " ").splitlines():
        entries = {key.lower(): value for key, value in _ENTRY.findall(line.partition("#")[0])}
        name = entries.get("switchname")
        if name is None:
            continue
        if name in children:
            raise _error(path, name, "is defined twice", "give each switch one line")
        children[name] = ()
        if "nodes" in entries:
            hosts[name] = entries["nodes"]
        elif "switches" in entries:
            try:
                children[name] = expand_hosts(entries["switches"])
            except ValueError as error:
                raise _error(path, name, f"has a list Switches: {error}", _WAY_OUT) from None
    return hosts, children


def _read_yaml(path: Path) -> tuple[dict[str, str], Children]:
    """Return the same as `_read` for a ``topology.yaml``."""
    text = read_text(path, "topology.yaml", _WAY_OUT, most=MAX_BYTES)
    found = parse_yaml(text, str(path))
    if not isinstance(found, list) or not all(isinstance(one, Mapping) for one in found):
        raise SpecError(f"{path}: is not a list of topologies; {_WAY_OUT}")
    chosen = next((one for one in found if one.get("cluster_default") is True), None)
    topology = chosen or (found[0] if found else {})
    hosts: dict[str, str] = {}
    children: Children = {}
    for kind, listed, key in (("tree", "switches", "switch"), ("block", "blocks", "block")):
        fields = topology.get(kind)
        entries = fields.get(listed, []) if isinstance(fields, Mapping) else []
        for entry in entries if isinstance(entries, list) else []:
            name = entry.get(key) if isinstance(entry, Mapping) else None
            if not isinstance(name, str):
                raise SpecError(f"{path}: {show_value(entry)} has no name; give it a {key}")
            if name in children:
                raise _error(path, name, "is defined twice", "give each switch one entry")
            children[name] = ()
            nodes, below = entry.get("nodes"), entry.get("children")
            if isinstance(nodes, str):
                hosts[name] = nodes
            elif isinstance(below, str):
                try:
                    children[name] = expand_hosts(below)
                except ValueError as error:
                    raise _error(path, name, f"has children: {error}", _WAY_OUT) from None
            else:
                raise _error(path, name, "has no nodes or children", "give a text of their names")
    if not hosts:
        raise SpecError(f"{path}: has no switch or block with nodes; {_WAY_OUT}")
    return hosts, children


def _levels(path: Path, hosts: Mapping[str, str], children: Children) -> list[list[str]]:
    """Return the names of the switches per level, from level 1 up, each in the order of the file.

    Switches with none above them get one in `children`, if there are further levels.

    Raises
    ------
    SpecError
        If a switch does not exist, is below two different switches, or is not one level below.
    """
    level = dict.fromkeys(hosts, 0)
    found, left = [list(hosts)], {name: below for name, below in children.items() if below}
    for name, below in left.items():
        for other in below:
            if other not in children:
                way_out = "define it in a line of its own"
                raise _error(path, name, f"has the switch {show_value(other)} below it", way_out)
    while left:
        ready = {name: below for name, below in left.items() if level.keys() >= set(below)}
        if not ready:
            problem = "has itself or a switch without nodes below it"
            raise _error(path, next(iter(left)), problem, "make it a tree")
        for name, below in ready.items():
            if {level[other] for other in below} != {len(found) - 1}:
                problem = f"is above switches of other levels than {len(found)}"
                raise _error(path, name, problem, "put a switch on each level between them")
        found.append(list(_distinct(path, ready)))
        level |= dict.fromkeys(ready, len(found) - 1)
        linked = {other for below in children.values() for other in below}
        for other in (one for one in found[-2] if one not in linked):
            # It gets a switch above it that the file does not have.
            children[f"above {other}"] = (other,)
            found[-1].append(f"above {other}")
        left = {name: below for name, below in left.items() if name not in ready}
    return found


def _distinct(path: Path, switches: Children) -> Iterator[str]:
    """Generate the first of all switches with the same switches below them."""
    above: dict[str, tuple[str, ...]] = {}
    for name, below in switches.items():
        if above.get(below[0]) == below:
            continue
        if not above.keys().isdisjoint(below):
            other = next(one for one in below if one in above)
            problem = f"and another switch have {show_value(other)} below them, but not all others"
            raise _error(path, name, problem, "give each switch one parent, or all the same")
        above |= dict.fromkeys(below, below)
        yield name


def _error(path: Path, switch: str, problem: str, way_out: str) -> SpecError:
    return SpecError(f"{path}: switch {show_value(switch)} {problem}; {way_out}")


def first_hosts(
    n_switches: int, upper: Sequence[Sequence[int]], hosts_per_switch: Sequence[int]
) -> list[int]:
    """Return the number of the first host of each switch of level 1 in a topology.

    Parameters
    ----------
    n_switches : int
        Number of switches of level 1.
    upper : sequence of sequence of int
        Number of switches below each switch, per level from level 2 up.
    hosts_per_switch : sequence of int
        Number of hosts below a switch of the topology, per level from level 1 up. Levels that it
        does not have are not considered.

    Raises
    ------
    ValueError
        If a level counts more or fewer switches than there are below it, or a switch has more
        switches below it than one of the topology.

    Examples
    --------
    >>> first_hosts(3, [[2, 1]], [4, 16, 64])
    [0, 4, 16]
    """
    n_below = n_switches
    for i, numbers in enumerate(upper):
        if sum(numbers) != n_below:
            raise ValueError(
                f"upper_switches[{i}] counts {sum(numbers)} switches, there are {n_below}; "
                f"make them agree"
            )
        n_below = len(numbers)
    n_upper = min(len(upper), len(hosts_per_switch) - 1)
    n_top = len(upper[n_upper - 1]) if n_upper else n_switches
    starts = [i * hosts_per_switch[n_upper] for i in range(n_top)]
    for level in range(n_upper, 0, -1):
        each, whole = hosts_per_switch[level - 1], hosts_per_switch[level]
        most = max(upper[level - 1])
        if most * each > whole:
            raise ValueError(
                f"a switch of level {level + 1} has {most} switches below it, those of the "
                f"topology have {whole // each}; make them agree"
            )
        starts = [
            start + j * each
            for start, n in zip(starts, upper[level - 1], strict=True)
            for j in range(n)
        ]
    return starts
