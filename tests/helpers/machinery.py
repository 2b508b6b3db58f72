"""A machine of known parameters, which calibration has to find again."""

from __future__ import annotations

from typing import Any

import numpy as np

NETWORK = {
    "network.numa.L_ns": 400.0,
    "network.numa.o_ns": 300.0,
    "network.numa.G_ns_per_byte": 0.1,
    "network.numa.O_ns_per_byte": 0.09,
    "network.network.L_ns": 20_000.0,
    "network.network.o_ns": 3_000.0,
    "network.network.g_ns": 5_000.0,
    "network.network.G_ns_per_byte": 8.0,
    "network.network.O_ns_per_byte": 1.5,
    "network.copy_ns_per_byte": 0.1,
    "network.reduce_ns_per_byte": 0.25,
    "network.strided_ns_per_byte": 0.3,
    "network.uncached_ns_per_byte": 0.4,
    "network.memory_ns_per_byte": 0.35,
}
LIMIT = 8000
CACHE = 1 << 20
LANES = 2
REPETITIONS = 21


class Machinery:
    """A machine of known parameters: measures itself, with noise and wild outliers."""

    def __init__(self, seed: int = 0, *, asks: bool = True) -> None:
        self.random = np.random.default_rng(seed)
        self.asks = asks

    def times(self, seconds: float) -> list[float]:
        """Return measurements of a time: 1 % noise, and one in ten 2 to 10 times as long."""
        noise = 1 + 0.01 * self.random.standard_normal(REPETITIONS)
        wild = self.random.random(REPETITIONS) < 0.1
        return (seconds * np.where(wild, self.random.uniform(2, 10, REPETITIONS), noise)).tolist()

    def measure(self) -> dict[str, Any]:
        """Return a document of measurements: two nodes of two ranks."""
        links = {"numa": [[0, 1], [2, 3]], "network": [[0, 2], [1, 3]]}
        messages = [(link, pair) for link, pairs in links.items() for pair in pairs]
        return {
            "format": "collplan-measurements",
            "version": 1,
            "host": "nowhere",
            "mpi": "MPI 1.0",
            "date": "2020-01-01 00:00 UTC",
            "place": {"rank_to_node": [0, 0, 1, 1], "rank_to_numa": [0, 0, 0, 0]},
            "ping_pongs": [self.ping_pong(*key, 4**i) for key in messages for i in range(12)],
            "bursts": [
                self.burst(*key, n_bytes, n)
                for key in messages
                for n_bytes, n in ((1, 4), (1, 8), (1, 32))
            ],
            "transfers": [
                self.transfer(*key, n_bytes) for key in messages for n_bytes in (1 << 16, 1 << 20)
            ],
            "late_receives": [
                {
                    "link": link,
                    "pair": pairs[0],
                    "bytes": n_bytes,
                    "delay_s": 0.02,
                    "seconds": [1e-5 if n_bytes <= LIMIT else 0.021] * 3,
                }
                for link, pairs in links.items()
                for n_bytes in (1 << 22, 1 << 16, 4096, LIMIT + 1, LIMIT)
            ],
            "lanes_at_once": [
                self.at_once(k, n_bytes) for k in (1, 2, 3, 4) for n_bytes in (1 << 18, 1 << 20)
            ],
            "local_work": [
                *(
                    self.local(work, layout, 1 << i)
                    for work in ("copy", "reduce")
                    for layout in ("contiguous", "strided")
                    for i in range(16, 27)
                ),
                self.local("copy", "contiguous", 1 << 26, ranks=2),
            ],
        }

    def ping_pong(self, link: str, pair: list[int], n_bytes: int) -> dict[str, Any]:
        short, per_byte = self.of(link, "L_ns") + 2 * self.of(link, "o_ns"), "G_ns_per_byte"
        ns = short + (n_bytes - 1) * self.of(link, per_byte)
        if self.asks and n_bytes > LIMIT:
            ns += 2 * (self.of(link, "L_ns") + self.of(link, "o_ns"))
        return {"link": link, "pair": pair, "bytes": n_bytes, "seconds": self.times(1e-9 * ns)}

    def burst(self, link: str, pair: list[int], n_bytes: int, n: int) -> dict[str, Any]:
        cpu = 1e-9 * (2_000 + n * self.of(link, "o_ns"))
        gap = max(self.of(link, "o_ns"), self.of(link, "g_ns"))
        return {
            "link": link,
            "pair": pair,
            "bytes": n_bytes,
            "messages": n,
            "send_cpu_s": self.times(cpu),
            "recv_cpu_s": self.times(cpu),
            "send_s": self.times(1e-9 * (2_000 + n * gap)),
        }

    def transfer(self, link: str, pair: list[int], n_bytes: int) -> dict[str, Any]:
        seconds = 1e-9 * (5_000 + n_bytes * self.of(link, "O_ns_per_byte"))
        times = {"send_cpu_s": self.times(seconds), "recv_cpu_s": self.times(seconds)}
        return {"link": link, "pair": pair, "bytes": n_bytes, **times}

    def at_once(self, k: int, n_bytes: int) -> dict[str, Any]:
        load = -(-k // LANES) * n_bytes
        ns = 50_000 + load * NETWORK["network.network.G_ns_per_byte"]
        return {"ranks": k, "bytes": n_bytes, "seconds": self.times(1e-9 * ns)}

    def local(self, work: str, layout: str, set_bytes: int, ranks: int = 1) -> dict[str, Any]:
        ns = NETWORK[f"network.{work}_ns_per_byte"]
        ns += NETWORK["network.strided_ns_per_byte"] * (layout == "strided")
        ns += NETWORK["network.uncached_ns_per_byte"] * (set_bytes > CACHE)
        if ranks > 1:
            ns = ranks * NETWORK["network.memory_ns_per_byte"]
        return {
            "work": work,
            "layout": layout,
            "bytes": 1 << 20,
            "working_set_bytes": set_bytes,
            "ranks": ranks,
            "seconds": self.times(1e-9 * ns * (1 << 20)),
        }

    @staticmethod
    def of(link: str, field: str) -> float:
        return NETWORK.get(f"network.{link}.{field}", 0.0)
