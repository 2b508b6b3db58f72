"""Tables of links, and classes of links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from collplan.planner.arrays import Floats, Ints

HOST, SWITCH, GROUP, GLOBAL = range(4)
"""Classes of links: of hosts, of the switches near them, within groups, and between groups."""
LINK_CLASSES: Final = ("host", "switch", "group", "global")


def named(ends: Callable[[int], tuple[str, str]]) -> Callable[[int], str]:
    """Return a function from the number of a link to a name made of its ends."""
    return lambda link: " to ".join(ends(link))


@dataclass(frozen=True, eq=False)
class LinkList:
    """Unidirectional links.

    Parameters
    ----------
    bandwidth : ndarray of float64, shape (n_links,)
        Bandwidth in bytes per second.
    latency_ns : ndarray of float64, shape (n_links,)
        Latency in nanoseconds.
    link_class : ndarray of int8, shape (n_links,)
        Class as an index into `LINK_CLASSES`.
    name : function
        Function from the number of a link to its name.
    ends : function or None
        Function from the number of a link to the names of the hosts or switches at its ends, or
        None if these are unknown.
    """

    bandwidth: Floats
    latency_ns: Floats
    link_class: Ints
    name: Callable[[int], str]
    ends: Callable[[int], tuple[str, str]] | None = None


def fill(
    walk: Callable[..., None], tables: tuple[Any, ...], source: Ints, target: Ints
) -> tuple[Ints, Ints]:
    """Return the links of routes in CSR form, which a kernel computes.

    Parameters
    ----------
    walk : function
        Kernel that is called with the tables, `source`, `target`, `begin` and `links`. If `links`
        is empty, it writes the length of route i to ``begin[i + 1]``. Otherwise, it writes the
        links of route i to `links` from ``begin[i]`` on.
    tables : tuple
        First arguments of the kernel.
    source, target : ndarray of int64, shape (n_routes,)
        Hosts at both ends of every route.

    Returns
    -------
    begin : ndarray of int64, shape (n_routes + 1,)
        Offsets of the routes in `links`, followed by the end of the last route.
    links : ndarray of int32
        Links in the order of routes.
    """
    begin = np.zeros(len(source) + 1, dtype=np.int64)
    walk(*tables, source, target, begin, np.empty(0, dtype=np.int32))
    begin = np.cumsum(begin)
    links = np.empty(begin[-1], dtype=np.int32)
    if len(links):
        walk(*tables, source, target, begin, links)
    return begin, links
