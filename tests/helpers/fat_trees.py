"""Platforms and message graphs of any size: fat trees of two levels, and some patterns on them."""

from __future__ import annotations

import random
from typing import Any

Document = dict[str, Any]
Message = list[Any]


def fat_tree(
    n_leaves: int,
    per_leaf: int,
    n_spines: int,
    bandwidth: float = 12.5e9,
    latency_s: float = 250e-9,
) -> Document:
    """Return a platform of leaf switches with hosts, each connected to all spine switches.

    The spine of a route is the target's number modulo the number of spines.
    """
    n_hosts = n_leaves * per_leaf
    numbers: dict[tuple[str, int, int], int] = {}
    for host in range(n_hosts):
        for way in ("out", "in"):
            numbers[way, host, 0] = len(numbers)
    for leaf in range(n_leaves):
        for spine in range(n_spines):
            for way in ("up", "down"):
                numbers[way, leaf, spine] = len(numbers)

    def route(a: int, b: int) -> list[int] | None:
        if a == b:
            return None
        found, spine = [numbers["out", a, 0]], b % n_spines
        if a // per_leaf != b // per_leaf:
            found += [numbers["up", a // per_leaf, spine], numbers["down", b // per_leaf, spine]]
        return [*found, numbers["in", b, 0]]

    link = {"bandwidth_B_per_s": bandwidth, "latency_s": latency_s}
    return {
        "hosts": n_hosts,
        "links": [{"name": "-".join(map(str, name)), **link} for name in numbers],
        "routes": [[route(a, b) for b in range(n_hosts)] for a in range(n_hosts)],
    }


def pairwise(n_hosts: int, n_bytes: int, n_rounds: int) -> list[Message]:
    """Return rounds of an alltoall: host i sends to i + round, one message after another."""
    return [
        [i, (i + step) % n_hosts, n_bytes, [(step - 2) * n_hosts + i] if step > 1 else []]
        for step in range(1, n_rounds + 1)
        for i in range(n_hosts)
    ]


def exchange(n_hosts: int, n_bytes: int, n_rounds: int) -> list[Message]:
    """Return rounds of an alltoall between partners: hosts wait for their messages both ways.

    Hosts are a power of two; the partner of host i is i xor round.
    """

    def before(i: int, step: int) -> list[int]:
        return [(step - 2) * n_hosts + one for one in (i, i ^ (step - 1))] if step > 1 else []

    return [
        [i, i ^ step, n_bytes, before(i, step)]
        for step in range(1, n_rounds + 1)
        for i in range(n_hosts)
    ]


def ring(n_hosts: int, n_bytes: int, n_rounds: int) -> list[Message]:
    """Return rounds of a ring: each host passes on what it has received."""
    return [
        [i, (i + 1) % n_hosts, n_bytes, [(step - 1) * n_hosts + (i - 1) % n_hosts] if step else []]
        for step in range(n_rounds)
        for i in range(n_hosts)
    ]


def scattered(messages: list[Message], n_hosts: int, seed: int = 1) -> list[Message]:
    """Return messages between the same hosts in a random order, as a job's nodes often are."""
    host = random.Random(seed).sample(range(n_hosts), n_hosts)
    return [[host[source], host[target], *rest] for source, target, *rest in messages]
