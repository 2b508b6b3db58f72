"""Random schedules, and the simulator's rules once more, written as plainly as they are said."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import numpy as np

from collplan.executors.cost import Loggps
from collplan.planner.formats.goal import parse_goal
from collplan.planner.plan.plan import Op, Plan
from collplan.planner.plan.ragged import ON_START
from collplan.specs import Network

PARAMETERS = (
    "L=2500,o=1500,g=1000,G=6,O=0,S=65535",
    "L=1000,o=200,g=50,G=1,O=1,S=512",
    "L=5000,o=100,g=3000,G=2,O=0,S=1000000000",
    "L=0,o=0,g=0,G=1,O=0,S=100",
    "L=3,o=1,g=2,G=1,O=1,S=0",
)


def random_schedule(seed: int, n_ranks: int, n_statements: int) -> str:
    """Return a GOAL schedule that cannot deadlock while all messages are eager.

    Statements depend on ones drawn before, wherever in the file those stand.
    """
    random = Random(seed)
    ranks: list[list[tuple[int, str]]] = [[] for _ in range(n_ranks)]
    tags = defaultdict(itertools.count)
    for drawn in range(n_statements):
        source, dest = random.randrange(n_ranks), random.randrange(n_ranks)
        if source == dest:
            ns = random.choice([0, 1, 100, random.randrange(5000)])
            ranks[source].append((drawn, f"calc {ns}"))
            continue
        size = random.choice([1, 8, random.randrange(1, 3000), 70000])
        tag = next(tags[source, dest])
        ranks[source].append((drawn, f"send {size}b to {dest} tag {tag}"))
        place = random.choice([len(ranks[dest]), random.randrange(len(ranks[dest]) + 1)])
        ranks[dest].insert(place, (drawn, f"recv {size}b from {source} tag {tag}"))
    lines = [f"num_ranks {n_ranks}"]
    for rank, statements in enumerate(ranks):
        lines.append(f"rank {rank} {{")
        lines += [f"l{drawn}: {body}" for drawn, body in statements]
        drawn_before: list[int] = []
        for drawn in sorted(drawn for drawn, _ in statements):
            for _ in range(random.choice([0, 1, 1, 2]) if drawn_before else 0):
                word = random.choice(["requires", "requires", "requires", "irequires"])
                lines.append(f"l{drawn} {word} l{random.choice(drawn_before[-6:])}")
            drawn_before.append(drawn)
        lines.append("}")
    return "\n".join(lines)


def on_machine(text: str, nodes: list[int], cores: list[int], n_lanes: int = 1) -> Plan:
    """Return a schedule whose ranks live on given nodes and cores; lanes are the destination's."""
    plan = parse_goal(text)
    node, core = np.array(nodes), np.array(cores)
    lane = core % n_lanes
    receiver = np.where(plan.op == Op.RECV, plan.rank, plan.peer)
    return plan.replace(
        core=core[plan.rank],
        lane=np.where(plan.op <= Op.RECV, lane[receiver], -1),
        rank_node=node,
        rank_core=core,
        rank_lane=lane,
        shared_sizes=np.zeros(max(nodes) + 1, dtype=np.int64),
    )


def network(text: str = PARAMETERS[0], **changes: object) -> Network:
    return Loggps.parse(text).replace(**changes)


@dataclass
class Rules:
    """LogGPS with one rank per node and one lane, one event after the other."""

    plan: Plan
    parameters: Network
    events: list[tuple[float, int, str, int]] = field(default_factory=list)
    n_stamps: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        n = self.plan.n_ranks
        self.cpu, self.out, self.into = [0.0] * n, [0.0] * n, [0.0] * n
        self.rank = self.plan.rank.tolist()
        self.followers: dict[int, list[tuple[int, bool]]] = defaultdict(list)
        self.missing = np.diff(self.plan.deps.indptr).tolist()
        for row in range(self.plan.n_tasks):
            for i in range(self.plan.deps.indptr[row], self.plan.deps.indptr[row + 1]):
                on_start = bool(self.plan.deps.kind[i] & ON_START)
                self.followers[int(self.plan.deps.task[i])].append((row, on_start))
        self.arrived: dict[int, int] = {}
        self.posted: set[int] = set()
        self.ready: list[int] = [row for row, count in enumerate(self.missing) if not count]

    def makespan_ns(self, partner: list[int]) -> float | None:
        """Return the makespan, or None for a deadlock."""
        self.partner = partner
        self.announce()
        while self.events:
            now, stamp, what, row = heapq.heappop(self.events)
            rank = self.rank[row]
            lane = {"send": self.out, "message": self.into}.get(what)
            free = self.cpu[rank] if lane is None else max(self.cpu[rank], lane[rank])
            if what != "recv" and free > now:
                heapq.heappush(self.events, (free, stamp, what, row))
                continue
            getattr(self, what)(now, row)
            self.announce()
        return max(self.cpu) if self.done == self.plan.n_tasks else None

    def push(self, time: float, what: str, row: int) -> None:
        self.n_stamps += 1
        heapq.heappush(self.events, (time, self.n_stamps, what, row))

    def announce(self) -> None:
        order = [Op.SEND, Op.RECV, Op.COMPUTE]
        key = {row: (self.rank[row], order.index(self.plan.op[row]), row) for row in self.ready}
        for row in sorted(self.ready, key=key.__getitem__):
            rank, what = self.rank[row], Op(self.plan.op[row]).name.lower()
            lane = self.out[rank] if what == "send" else 0.0
            self.push(max(self.cpu[rank], lane), what, row)
        self.ready = []

    def tell(self, row: int, starts: bool) -> None:
        self.done += not starts
        for follower, on_start in self.followers[row]:
            if on_start is starts:
                self.missing[follower] -= 1
                if not self.missing[follower]:
                    self.ready.append(follower)

    def compute(self, now: float, row: int) -> None:
        self.cpu[self.rank[row]] = now + float(self.plan.duration_ns[row])
        self.tell(row, starts=True)
        self.tell(row, starts=False)

    def send(self, now: float, row: int) -> None:
        link, rank, more = self.parameters.network, self.rank[row], int(self.plan.elements[row]) - 1
        self.cpu[rank] = now + link.o_ns + more * link.O_ns_per_byte
        self.out[rank] = now + link.g_ns + more * link.G_ns_per_byte
        self.push(now + link.o_ns + link.L_ns, "message", self.partner[row])
        self.tell(row, starts=True)
        if more + 1 <= self.parameters.eager_limit_bytes:
            self.tell(row, starts=False)

    def recv(self, now: float, row: int) -> None:
        self.tell(row, starts=True)
        self.posted.add(row)
        if row in self.arrived:
            self.match(now, row)

    def message(self, now: float, row: int) -> None:
        link, rank, more = self.parameters.network, self.rank[row], int(self.plan.elements[row]) - 1
        self.cpu[rank] = now + link.o_ns + more * max(link.O_ns_per_byte, link.G_ns_per_byte)
        self.into[rank] = now + link.g_ns + more * link.G_ns_per_byte
        self.arrived[row] = 1
        if row in self.posted:
            self.match(now, row)

    def match(self, now: float, row: int) -> None:
        self.tell(row, starts=False)
        if self.plan.elements[row] > self.parameters.eager_limit_bytes:
            send = self.partner[row]
            sender = self.rank[send]
            self.cpu[sender], self.out[sender] = (
                max(self.cpu[sender], now),
                max(self.out[sender], now),
            )
            self.tell(send, starts=False)


TWO_TO_TWO = """
num_ranks 4
rank 0 {
s: send 101b to 2 tag 0
}
rank 1 {
s: send 101b to 3 tag 0
}
rank 2 {
r: recv 101b from 0 tag 0
}
rank 3 {
r: recv 101b from 1 tag 0
}
"""
"""Two senders and their receivers, for nodes whose ranks share a lane."""

LATE_RECEIVE = """
num_ranks 2
rank 0 {
s: send 1001b to 1
after: calc 1
after requires s
}
rank 1 {
busy: calc 5000
r: recv 1001b from 0
r requires busy
}
"""
"""The receive is posted at 5,000, long after the message could have come."""


def sending_to(destinations: list[int], n_bytes: int = 1) -> Plan:
    """Return a plan in which rank 0 sends to others, one message after another."""
    n_ranks = max(destinations) + 1
    lines = ["rank 0 {"]
    for i, rank in enumerate(destinations):
        lines.append(f"s{i}: send {n_bytes}b to {rank} tag {i}")
        if i:
            lines.append(f"s{i} requires s{i - 1}")
    lines.append("}")
    for rank in range(1, n_ranks):
        lines.append(f"rank {rank} {{")
        for i, to in enumerate(destinations):
            if to == rank:
                lines.append(f"r{i}: recv {n_bytes}b from 0 tag {i}")
        lines.append("}")
    return parse_goal(f"num_ranks {n_ranks}\n" + "\n".join(lines))
