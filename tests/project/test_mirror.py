"""Tests lie like the source tree, so that the test of a module is found by its name.

A module ``a/b/c.py`` is tested by ``tests/a/b/test_c.py`` or, with all of its folder, by
``tests/a/test_b.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from folders import ROOT
from import_graph import LAYERS, sources

TESTS = ROOT / "tests"
ELSEWHERE = {
    "specs/syntax/base.py": "specs/test_request.py",
    "specs/errors.py": "specs/test_loading.py",
    "specs/collectives/collective_base.py": "specs/collectives/test_collective.py",
    "specs/explaining.py": "specs/test_loading.py",
    "specs/collectives/regular.py": "specs/collectives/test_collective.py",
    "specs/collectives/vectors.py": "specs/collectives/test_counts.py",
    "planner/blueprint/exchange.py": "planner/lowering/test_exchange.py",
    "planner/blueprint/locations.py": "planner/test_decompose.py",
    "planner/collective/reference.py": "specs/collectives/test_elements.py",
    "planner/discovery.py": "collplan/test_own_algorithms.py",
    "planner/errors.py": "planner/test_verify.py",
    "planner/formats/goal_read.py": "planner/formats/test_goal.py",
    "planner/formats/msccl_read.py": "planner/formats/test_msccl.py",
    "planner/formats/msccl_schedule.py": "planner/formats/test_msccl.py",
    "planner/formats/msccl_write.py": "planner/formats/test_msccl.py",
    "planner/rewrite/merge_tasks.py": "planner/passes/coalescing/test_coalesce_requests.py",
    "planner/rewrite/rebuild.py": "planner/passes/test_segment.py",
    "planner/rewrite/remap_buffers.py": "planner/passes/coalescing/test_coalesce_requests.py",
    "planner/passes/scheduling/message_graph.py": "planner/passes/scheduling/test_prioritize.py",
    "collplan/__main__.py": "project/test_shadowing.py",
    "collplan/deciding/gains.py": "collplan/cli/test_profile.py",
    "collplan/measure/program_run.py": "collplan/api/test_bound_program.py",
    "collplan/measure/guideline.py": "collplan/cli/test_bench.py",
    "collplan/measure/lanes.py": "collplan/cli/test_bench.py",
    "collplan/measure/timing.py": "collplan/measure/test_run.py",
    "collplan/reports/designs.py": "collplan/select/test_alltoall_designs.py",
    "collplan/reports/overlap.py": "collplan/cli/test_overlap.py",
    "collplan/reports/tuning.py": "collplan/test_tune.py",
    "collplan/select/compared.py": "collplan/select/test_comparison.py",
    "collplan/select/entries.py": "collplan/select/test_comparison.py",
    "collplan/select/message_costs.py": "collplan/select/test_costs.py",
    "collplan/select/search.py": "collplan/select/test_auto.py",
    "collplan/select/work.py": "collplan/select/test_costs.py",
    "planner/machine_code/boxing.py": "planner/machine_code/test_kernel.py",
    "planner/machine_code/compiling.py": "planner/machine_code/test_kernel.py",
    "planner/arrays/rounding.py": "executors/cost/test_machine.py",
}
"""Modules that are tested only as parts of others: base classes, records, tables, printed text."""
BESIDE = {"project", "examples", "benchmarks", "helpers"}
"""Folders of tests that are of no layer."""


def own_test(module: Path) -> Path | None:
    """Return the test that a module's name leads to, if there is one."""
    folder = TESTS / module.parent
    found = [folder / f"test_{module.stem}.py"]
    if len(module.parts) > 2:
        found.append(folder.parent / f"test_{folder.name}.py")
    return next((path for path in found if path.exists()), None)


def test_every_module_has_its_test_by_name() -> None:
    modules = [
        path.relative_to(ROOT)
        for layer in LAYERS
        for path in sources(layer)
        if path.name != "__init__.py"
    ]
    assert len(modules) > 200
    missing = {str(module) for module in modules if own_test(module) is None}
    assert missing == set(ELSEWHERE)


@pytest.mark.quick
@pytest.mark.parametrize("module", ELSEWHERE)
def test_modules_tested_elsewhere_exist_and_so_do_their_tests(module: str) -> None:
    assert (ROOT / module).exists()
    assert (TESTS / ELSEWHERE[module]).exists()


def test_every_folder_of_tests_has_its_folder_of_sources() -> None:
    folders = {path.parent.relative_to(TESTS) for path in TESTS.rglob("test_*.py")}
    strangers = {
        str(folder)
        for folder in folders
        if folder.parts[0] not in BESIDE and not (ROOT / folder).is_dir()
    }
    assert strangers == set()
