"""Costs of single messages between nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collplan.select.wire import Wire
from collplan.specs import Network

LINK = {"L_ns": 1000, "o_ns": 100, "g_ns": 50, "G_ns_per_byte": 0.5, "O_ns_per_byte": 0.25}
SIZES = np.array([1.0, 101.0])


def wire_of(n_pairs: int = 0, **fields: Any) -> Wire:
    link = fields.pop("link", LINK)
    return Wire(Network.model_validate({"network": link, **fields}), n_pairs)


def test_bytes_after_the_first_hold_lanes_and_cores() -> None:
    wire = wire_of()
    assert wire.lane_ns(SIZES).tolist() == [50, 100]
    assert wire.lane_ns(SIZES, 3.0).tolist() == [50, 200]
    assert wire.core_ns(SIZES).tolist() == [100, 125]
    assert wire.latency_ns == 1100


def test_a_receiver_without_offload_takes_bytes_in_at_the_rate_of_the_lane() -> None:
    assert wire_of().arrival_ns(SIZES).tolist() == [100, 150]
    assert wire_of(link=LINK | {"offload": True}).arrival_ns(SIZES).tolist() == [100, 125]


@pytest.mark.parametrize(("n_pairs", "missing_ns"), [(8, 0), (9, 70)])
def test_queue_pairs_are_read_if_they_are_more_than_an_adapter_keeps(
    n_pairs: int, missing_ns: float
) -> None:
    wire = wire_of(n_pairs, nic={"transport": "rc", "connections": 8, "miss_ns": 70})
    assert wire.read_ns == wire.reading_ns == missing_ns
    assert wire.latency_ns == 1100 + missing_ns
    assert replace(wire, n_pairs=0).read_ns == 0


def test_long_messages_ask_before_they_set_out() -> None:
    wire = wire_of(handshake=True, eager_limit_bytes=100)
    assert wire.asking_ns(SIZES).tolist() == [0, 2200]
    assert wire_of(eager_limit_bytes=100).asking_ns(SIZES).tolist() == [0, 0]
