"""Closed forms of alltoalls beside the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from auto_alltoalls import auto, makespan_s
from collplan.planner.blueprint.exchange import Exchange
from collplan.planner.decompose import draft
from collplan.select.alltoall_cost import exchange_ns, first_come
from collplan.select.alltoall_designs import DESIGNS
from collplan.specs import Machine
from cost_networks import twice_as_slow


@pytest.mark.many
@pytest.mark.parametrize("count", [1, 1024, 65536])
@pytest.mark.parametrize("machine", ["uneven", "hydra", "cyclic", "5x3"])
def test_closed_forms_of_exchanges_are_near_the_simulator(machine, count):
    for name in ("chochia", "node_aware", "khorassani", "ohio_v1", "ohio_v2"):
        spec = DESIGNS[name].of(auto(machine, count))
        exchange = draft(spec).exchange
        price_ns = exchange_ns(exchange, spec.machine, 1, is_coalesced=bool(spec.passes))
        assert 0.7 <= price_ns * 1e-9 / makespan_s(spec) <= 1.2, name


def test_servers_serve_in_the_order_of_coming():
    rng = np.random.default_rng(7)
    for n in (0, 1, 200):
        server, ready = rng.integers(0, 9, n), rng.integers(0, 50, n).astype(float)
        works = rng.integers(0, 9, n).astype(float)
        free, expected = dict.fromkeys(range(9), 0.0), np.zeros(n)
        for i in np.argsort(ready, kind="stable"):
            expected[i] = max(free[int(server[i])], ready[i])
            free[int(server[i])] = expected[i] + works[i]
        assert np.allclose(first_come(server, ready, works), expected)


@pytest.mark.parametrize("nodes", [2, 3, 7, 8])
def test_one_node_stands_for_all_that_are_alike(nodes, monkeypatch):
    machine = {"nodes": nodes, "ranks_per_node": 4, "lanes": 2}
    for name in ("chochia", "node_aware", "khorassani", "ohio_v1", "ohio_v2"):
        spec = DESIGNS[name].of(auto("one node", 1024).replace(machine=Machine(**machine)))
        assert draft(spec).exchange.is_even
        of_one = exchange_ns(draft(spec).exchange, spec.machine, 1, is_coalesced=True)
        with monkeypatch.context() as patch:
            patch.setattr(Exchange, "is_even", False)
            of_all = exchange_ns(draft(spec).exchange, spec.machine, 1, is_coalesced=True)
        # Where blocks come at the same time, rounding decides which is served first.
        assert of_one == pytest.approx(of_all, rel=0.1), name


@pytest.mark.parametrize("machine", ["uneven", "hydra", "cyclic", "5x3"])
def test_prices_are_sums_of_times_of_the_network(machine):
    """So all double with them, whatever the design does."""
    for name in ("chochia", "node_aware", "khorassani", "ohio_v1", "ohio_v2"):
        spec = DESIGNS[name].of(auto(machine, 64))
        exchange = draft(spec).exchange
        slow = spec.machine.replace(network=twice_as_slow(spec.machine.network))
        for is_coalesced in (False, True):
            once, twice = (
                exchange_ns(exchange, one, 1, is_coalesced=is_coalesced)
                for one in (spec.machine, slow)
            )
            assert twice == pytest.approx(2 * once, rel=1e-12), name
