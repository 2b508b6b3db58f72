"""Structures: candidates share the tables of components that are the same in both."""

from __future__ import annotations

import pytest

from collplan.select.estimate import estimate, program_of_sample
from collplan.select.structures import Structures, is_even, n_copies_of, work_of
from collplan.specs import PlanSpec

MACHINE = {"nodes": 4, "ranks_per_node": 4, "lanes": 2}


def spec_of(count: int, **more: object) -> PlanSpec:
    return PlanSpec.model_validate(
        {
            "machine": MACHINE,
            "collective": {"kind": "allreduce", "count": count},
            "decomposition": "full_lane",
            **more,
        }
    )


def blocks_of(structures: Structures, spec: PlanSpec) -> list[str]:
    program = program_of_sample(spec)
    return [block.structure.name for block in structures.blocks(program, None, ())]


def test_components_that_do_the_same_share_a_structure() -> None:
    structures = Structures()
    first = blocks_of(structures, spec_of(1600, algorithms={"lane": "ring"}))
    second = blocks_of(structures, spec_of(1600, algorithms={"lane": "recursive_doubling"}))
    assert len(first) == len(second) == 3
    assert [one == other for one, other in zip(first, second, strict=True)] == [True, False, True]
    assert len(structures.kept.values()) == 4


def test_structures_serve_smaller_counts_whose_pieces_have_elements() -> None:
    structures = Structures()
    estimate(spec_of(1600), structures=structures)
    known = list(structures.kept.values())
    estimate(spec_of(800), structures=structures)
    assert set(structures.kept.values()) == set(known)
    assert not known[0].serves(3200)
    assert not known[0].serves(0)


def test_only_messages_inside_nodes_depend_on_the_transport() -> None:
    structures = Structures()
    for transport in ("messages", "shared"):
        spec = spec_of(1600, transport=transport, algorithms={"lane": "ring", "node": "ring"})
        blocks = structures.blocks(program_of_sample(spec), None, ())
        shares = [bool(block.shared_phases.any()) for block in blocks]
        assert shares == ([False] * 3 if transport == "messages" else [True, False, True])


def test_messages_over_links_of_a_topology_are_one_structure() -> None:
    network = {"topology": {"kind": "fat_tree", "down": [2, 2], "oversubscription": 2}}
    spec = spec_of(1600, machine={**MACHINE, "network": network})
    assert len(Structures().blocks(program_of_sample(spec), None, ())) == 1


def test_old_structures_are_forgotten_where_there_are_many_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collplan.select.structures.MOST_ROWS", 100)
    structures = Structures()
    estimate(spec_of(1600), structures=structures)
    n_rows = sum(one.n_rows for one in structures.kept.values())
    estimate(spec_of(1600, decomposition="hierarchical"), structures=structures)
    assert n_rows <= 100 or len(structures.kept.values()) == 1
    assert sum(one.n_rows for one in structures.kept.values()) <= 100


def test_plans_of_equal_shares_are_even() -> None:
    program = program_of_sample(spec_of(1600, algorithms={"lane": "ring"}))
    assert is_even(program)
    assert not is_even(program_of_sample(spec_of(1601)))
    assert n_copies_of(program, None) == 1  # all ranks are there
    assert n_copies_of(program, tuple(range(12))) == 4
    assert "lane" in work_of(program.blueprint.spec, program)
