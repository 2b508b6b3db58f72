"""Phases of recorded runs, worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collplan.measure.phases import compare_phases
from collplan.planner.plan.phases import Phase
from collplan.planner.plan.plan import Op, Plan
from mpi_plans import PlanWriter


def two_phases() -> Plan:
    """Rank 0 sends to 1 in phase 0; in phase 1 rank 1 copies and sends back; 2 is empty."""
    writer = PlanWriter([[1, 1, 0]] * 2)
    writer.send(0, 1)
    came = writer.recv(1, 0)
    copied = writer.add(Op.COPY, 1, after=[came], phase=1)
    writer.send(1, 0, after=[copied], phase=1)
    writer.recv(0, 1, phase=1)
    return writer.plan().replace(phases=tuple(map(Phase, ("to", "fro", "unused"))))


def interval(phase: dict[str, Any], what: str) -> tuple[float, float]:
    return phase[f"{what}_begin_s"], phase[f"{what}_end_s"]


def test_phases_of_a_timeline_by_hand() -> None:
    """
    ::

        ns          100  200  300  400  500  600  700
        rank 0       [send 0  ]
                     [recv 4 .........................]
        rank 1  [recv 1 .......]
                                 [copy]    [send 3]
    """
    start = np.array([100.0, 0, 300, 500, 100])
    end = np.array([250.0, 200, 400, 600, 700])
    to, fro = compare_phases(two_phases(), (start, end), (start / 2, end * 2))
    assert (to["name"], fro["name"]) == ("to", "fro")
    # From the send, not from the receive that was posted before it.
    assert interval(to, "measured") == (100e-9, 250e-9)
    assert interval(fro, "measured") == (300e-9, 700e-9)
    assert interval(to, "simulated") == (50e-9, 500e-9)
    assert interval(fro, "simulated") == (150e-9, 1400e-9)
    assert to["error"] == pytest.approx(450 / 150 - 1)
    assert fro["error"] == pytest.approx(1250 / 400 - 1)


def test_a_phase_of_receives_begins_with_the_first() -> None:
    plan = two_phases()
    plan = plan.replace(phase=np.where(plan.op == Op.RECV, 2, plan.phase))
    start, end = np.array([1.0, 2, 30, 40, 5]), np.array([6.0, 20, 35, 50, 60])
    found = compare_phases(plan, *[(start, end)] * 2)
    measured = {phase["name"]: interval(phase, "measured") for phase in found}
    assert measured == {"to": (1e-9, 6e-9), "fro": (30e-9, 50e-9), "unused": (2e-9, 60e-9)}
