"""Passes that change nothing: the line that says so, and where none must be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import collplan
from collplan.api.compiling import compile_spec
from collplan.planner.passes import pass_registry
from collplan.specs import PlanSpec, parse_spec
from command_line import CommandLine

ALLTOALL: dict[str, Any] = {
    "machine": {"nodes": 4, "ranks_per_node": 2},
    "collective": {"kind": "alltoall", "count": 4},
    "decomposition": "hierarchical",
}
RING: dict[str, Any] = {
    "machine": {"ranks_per_node": 4},
    "collective": {"kind": "allreduce", "count": 16},
    "algorithms": "ring",
}
APART: dict[str, Any] = {**RING, "machine": {"nodes": 4, "ranks_per_node": 1}}
LEADERS: dict[str, Any] = {
    "machine": {"nodes": 2, "ranks_per_node": 2},
    "collective": {"kind": "bcast", "count": 4},
    "decomposition": {"name": "multi_leader", "leaders": 2},
}
ON_A_STAR: dict[str, Any] = {
    **APART,
    "machine": {"nodes": 4, "network": {"topology": {"kind": "fat_tree", "down": [4]}}},
}
IDLE: dict[str, tuple[dict[str, Any], object]] = {
    "coalesce_requests": (ALLTOALL, "coalesce_requests"),
    "double_buffer": (RING, "double_buffer"),
    "map_ranks": (ON_A_STAR, "map_ranks"),
    "limit_requests": (RING, {"name": "limit_requests", "remote": 0, "local": 0, "receives": 0}),
    "place_progress": (RING, {"name": "place_progress", "policy": "numa"}),
    "prioritize": (RING, "prioritize"),
    "segment": (RING, "segment"),
    "share": (APART, "share"),
    "slice_vector": (RING, {"name": "slice_vector", "slices": 1}),
    "split_lanes": (LEADERS, {"name": "split_lanes", "leaders": 2}),
    "split_tree": ({**RING, "algorithms": "reduce_bcast"}, "split_tree"),
}


def spec_of(base: dict[str, Any], *passes: object) -> PlanSpec:
    return parse_spec({**base, "passes": list(passes)})


def idle_of(spec: PlanSpec, rank: int | None = None) -> list[str]:
    idle: list[str] = []
    compile_spec(spec, rank=rank, idle=idle)
    return idle


@pytest.fixture
def collplan_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.quick
@pytest.mark.parametrize("name", sorted(set(pass_registry) - {"add_compute"}))
def test_every_pass_says_what_it_needs_where_it_changes_nothing(name: str) -> None:
    base, choice = IDLE[name]
    # What has its order already is what the pass itself has ordered.
    before = [choice] if name == "prioritize" else []
    (line,) = idle_of(spec_of(base, *before, choice))
    assert line.startswith(f"passes.{name}: it changes nothing in this plan; it needs ")
    assert not line.endswith("something to change")


def test_commands_warn_and_json_has_the_warning(collplan_line: CommandLine) -> None:
    """An alltoall that says hierarchical, but not that ranks share memory, is another algorithm."""
    spec = collplan_line.write_spec(**ALLTOALL, algorithms="auto", passes=["coalesce_requests"])
    said = collplan_line("verify", spec)
    assert said.status == 0
    assert said.err.startswith("collplan: warning: passes.coalesce_requests: it changes nothing")
    assert said.err.endswith("transport: shared\n")
    for command in ("compile", "cost", "show", "verify"):
        (line,) = collplan_line(command, spec, "--json").json()["warnings"]
        assert f"collplan: warning: {line}\n" == said.err
    # Nothing is left of one command in the next.
    shared = collplan_line.write_spec(
        **ALLTOALL, algorithms="auto", transport="shared", passes=["coalesce_requests"]
    )
    outcome = collplan_line("verify", shared, "--json")
    assert outcome.err == ""
    assert "warnings" not in outcome.json()


def test_in_python_it_is_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"passes\.segment: it changes nothing"):
        collplan.compile(spec_of(RING, "segment"))
    collplan.compile(spec_of(RING, {"name": "segment", "max_bytes": 8}))


@pytest.mark.quick
@pytest.mark.parametrize(
    "base",
    [
        {**ALLTOALL, "passes": ["coalesce_requests", "double_buffer"], "transport": "shared"},
        {**RING, "collective": {"kind": "allreduce", "count": 2**20}, "decomposition": "auto",
         "algorithms": "auto"},
        {**RING, "transport": "shared"},
        {**APART, "transport": "shared"},  # a transport is not a pass
    ],
)  # fmt: skip
def test_nothing_is_said_where_a_pass_works_or_nobody_asked_for_it(base: dict[str, Any]) -> None:
    assert idle_of(parse_spec(base)) == []


@pytest.mark.parametrize(
    ("base", "passes"),
    [
        (ALLTOALL, ["coalesce_requests", "segment"]),
        (ALLTOALL, [{"name": "segment", "max_bytes": 16}, "double_buffer"]),
        ({**ALLTOALL, "transport": "shared"}, ["double_buffer", "coalesce_requests"]),
        ({**RING, "transport": "shared"}, ["coalesce_requests", "double_buffer"]),
        (APART, ["share", "limit_requests"]),
        (
            {**RING, "machine": {"nodes": 2, "ranks_per_node": [3, 1]}, "transport": "shared"},
            ["segment"],
        ),
    ],
)
def test_what_is_idle_on_all_ranks_is_idle_in_the_plan(
    base: dict[str, Any], passes: list[object]
) -> None:
    """So ranks that compile their own programs can agree on it."""
    spec = spec_of(base, *passes)
    of_ranks = [set(idle_of(spec, rank)) for rank in range(spec.machine.n_ranks)]
    assert set.intersection(*of_ranks) == set(idle_of(spec))
