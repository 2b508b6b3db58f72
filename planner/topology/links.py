"""Tables of links, and the classes that links have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Floats, Ints

HOST, SWITCH, GROUP, GLOBAL = range(4)
"""Classes of links: of a host; of messages that stay near; in a group; between groups."""
LINK_CLASSES: Final = ("host", "switch", "group", "global")


def named(ends: Callable[[int], tuple[str, str]]) -> Callable[[int], str]:
    """Return the names of links by their ends."""
    return lambda link: " to ".join(ends(link))


@dataclass(frozen=True, eq=False)
class LinkList:
    """Links of one direction each.

    Parameters
    ----------
    bandwidth : ndarray of float64
        Bytes per second.
    latency_ns : ndarray of float64
    link_class : ndarray of int8
        As named above.
    name : function
        From a link's number to its name.
    ends : function or None
        From a link's number to the hosts or switches at its ends; None where these are unknown.
    """

    bandwidth: Floats
    latency_ns: Floats
    link_class: Ints
    name: Callable[[int], str]
    ends: Callable[[int], tuple[str, str]] | None = None


def fill(
    walk: Callable[..., None], tables: tuple[Any, ...], source: Ints, target: Ints
) -> tuple[Ints, Ints]:
    """Return the links of routes in CSR form, as a kernel walks over them.

    Parameters
    ----------
    walk : function
        Gets the tables, `source`, `target`, `begin` and `links`. Where there is no room for
        links, it writes the length of route i to ``begin[i + 1]``; else links from
        ``begin[i]`` on.
    tables : tuple
    source, target : ndarray of int64
        Hosts of every route.
    """
    begin = np.zeros(len(source) + 1, dtype=np.int64)
    walk(*tables, source, target, begin, np.empty(0, dtype=np.int32))
    begin = np.cumsum(begin)
    links = np.empty(begin[-1], dtype=np.int32)
    if len(links):
        walk(*tables, source, target, begin, links)
    return begin, links
