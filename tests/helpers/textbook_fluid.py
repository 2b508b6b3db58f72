"""A fluid simulator by the textbook: all rates are computed anew after every event.

A second opinion on `executors/cost/fluid`, for small graphs: plain Python on the documents
themselves, which shares nothing with it.
"""

from __future__ import annotations

from typing import Any

TOGETHER_S = 1e-12

Document = dict[str, Any]


def arrivals(case: Document, platform: Document) -> list[float]:
    """Return when every message of a case arrives on a platform."""
    return _Run(case, platform).run()


def fair_rates(routes: dict[int, list[int]], bandwidth: list[float]) -> dict[int, float]:
    """Return the max-min fair rate of every flow, by its route."""
    users: dict[int, list[int]] = {}
    for flow, route in routes.items():
        for link in route:
            users.setdefault(link, []).append(flow)
    rates: dict[int, float] = {}
    left = dict(enumerate(bandwidth))
    n_open = {link: len(flows) for link, flows in users.items()}
    while n_open:
        narrowest = min(n_open, key=lambda link: left[link] / n_open[link])
        offer = left[narrowest] / n_open[narrowest]
        for flow in [flow for flow in users[narrowest] if flow not in rates]:
            rates[flow] = offer
            for link in routes[flow]:
                left[link] -= offer
                n_open[link] -= 1
                if n_open[link] == 0:
                    del n_open[link]
    return rates


class _Run:
    def __init__(self, case: Document, platform: Document) -> None:
        self.case, self.platform = case, platform
        self.bandwidth = [link["bandwidth_B_per_s"] for link in platform["links"]]
        self.arrived: dict[int, float] = {}
        self.timers: dict[int, float] = {}
        self.left: dict[int, float] = {}
        self.waiting = list(range(len(case["messages"])))

    def route(self, row: int) -> list[int]:
        source, target = self.case["messages"][row][:2]
        return [] if source == target else self.platform["routes"][source][target]

    def begin_what_is_ready(self, now: float) -> None:
        messages = self.case["messages"]
        ready = [
            row for row in self.waiting if all(one in self.arrived for one in messages[row][3])
        ]
        for row in ready:
            self.waiting.remove(row)
            source, target, n_bytes = messages[row][:3]
            delay = sum(self.platform["links"][link]["latency_s"] for link in self.route(row))
            if source == target:
                local = self.case["local"]
                delay = local["latency_s"] + n_bytes / local["bandwidth_B_per_s"]
            self.timers[row] = now + delay

    def run(self) -> list[float]:
        now = 0.0
        self.begin_what_is_ready(now)
        while self.timers or self.left:
            rates = fair_rates({row: self.route(row) for row in self.left}, self.bandwidth)
            ends = {row: now + left / rates[row] for row, left in self.left.items()}
            soon = min((*self.timers.values(), *ends.values()))
            for row in self.left:
                self.left[row] -= rates[row] * (soon - now)
            now = soon
            for row in [row for row, end in ends.items() if end <= now + TOGETHER_S]:
                del self.left[row]
                self.arrived[row] = now
            for row in [row for row, time in self.timers.items() if time <= now + TOGETHER_S]:
                del self.timers[row]
                if self.route(row):
                    self.left[row] = float(self.case["messages"][row][2])
                else:
                    self.arrived[row] = now
            self.begin_what_is_ready(now)
        return [self.arrived[row] for row in range(len(self.case["messages"]))]
