"""The house: layers, sizes, the committed schema, examples that stay valid."""

import ast
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from collplan.specs import ProgramSpec
from collplan.specs.loading import load_request
from folders import HELPERS
from import_graph import (
    LAYERS,
    ROOT,
    circles,
    contents,
    folder_graphs,
    import_graph,
    place,
    sources,
    syntax_nodes,
)

EXAMPLES = sorted(
    path for folder in ("examples", "examples/programs") for path in (ROOT / folder).glob("*.yaml")
)
PAPER_EXAMPLES = sorted((ROOT / "examples" / "papers").glob("*.yaml"))
BLOCK_MPI = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "mpi4py":
            raise ModuleNotFoundError(f"blocked: {name}", name=name)

sys.meta_path.insert(0, Blocked())
for top in sys.argv[1:]:
    package = importlib.import_module(top)
    names = [top] + [m.name for m in pkgutil.walk_packages(package.__path__, top + ".")]
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)
    print(top, len(names))
"""


def test_imports_go_one_way() -> None:
    order = {layer: place for place, layer in enumerate(LAYERS)}
    offences = [
        f"{'/'.join(one)} imports {'/'.join(other)}"
        for one, other in import_graph().edges
        if order[other[0]] > order[one[0]]
    ]
    assert offences == []


def test_no_two_classes_have_one_name() -> None:
    """A name tells in which part of the code one is; the glossary has one thing for each noun."""
    files = defaultdict(set)
    for path in (path for layer in LAYERS for path in sources(layer)):
        for node in syntax_nodes(path.read_text()):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(str(path.relative_to(ROOT)))
    # A spec and a step of an algorithm: users write both.
    assert files.pop("Reduce") == {"specs/collectives/regular.py", "planner/algorithms/rounds.py"}
    assert {name: found for name, found in files.items() if len(found) > 1} == {}


def test_no_file_imports_itself_through_others() -> None:
    assert circles(import_graph()) == []


def test_no_folder_imports_itself_through_others() -> None:
    graphs = folder_graphs(import_graph())
    assert {"planner", "executors/mpi", "collplan"} < set(graphs)
    assert {folder: found for folder in graphs if (found := circles(graphs[folder]))} == {}


def test_folders_stay_readable() -> None:
    for layer in LAYERS:
        loose = {path.name for path in (ROOT / layer).glob("*.py")}
        assert len(loose) <= 5, loose
    assert {path.stem for path in (ROOT / "executors").iterdir()} - {"__pycache__"} == {
        "__init__", "cost", "local", "mpi", "py"
    }  # fmt: skip


def test_functions_are_short_and_kernels_take_few_parameters() -> None:
    offences = [
        f"{path}: {one.name}: {one.n_lines} lines"
        for path in (path for layer in LAYERS for path in sources(layer))
        for one in contents(path).functions
        if one.n_lines > 60 or (one.is_compiled and one.n_parameters > 8)
    ]
    assert offences == []


def test_only_what_runs_under_mpi_knows_mpi() -> None:
    """Executors, programs of ranks, measurements, the drop-in, what is preloaded."""
    at_home = {
        ("executors", "mpi"),
        ("collplan", "programs"),
        ("collplan", "dropin"),
        ("collplan", "measure"),
        ("collplan", "preload"),
    }
    offences = [
        "/".join(place(path))
        for layer in LAYERS
        for path in sources(layer)
        if "mpi4py" in {name.partition(".")[0] for name, _ in contents(path).imports}
        and place(path)[:2] not in at_home
    ]
    assert offences == []


def test_the_proof_trusts_what_its_page_names() -> None:
    page = (ROOT / "docs" / "proof.md").read_text()
    table = page.partition("## Trusted base")[2].partition("The other way round")[0]
    verify = ("planner", "verify")
    trusted = {other for one, other in import_graph().edges if one[:2] == verify != other[:2]}
    for other in trusted:
        names = ["/".join(other) + ".py", *("/".join(other[:depth]) + "/" for depth in (1, 2))]
        assert any(f"`{name}`" in table for name in names), other
    second = sorted(HELPERS.glob("brute_*.py"))
    assert len(second) > 1
    used = {module for path in second for module, _ in contents(path).imports}
    ours = {name for name in used if name.startswith("collplan.")}
    columns = {"collplan.planner.plan.plan", "collplan.planner.plan.ragged"}
    assert ours <= {*columns, "collplan.specs"}, ours


def test_specs_planner_and_command_line_import_without_mpi() -> None:
    packages = {
        f"collplan.{name}"
        for name in ("specs", "planner", "executors.cost", "select", "exports", "reports", "cli")
    }
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_MPI, *sorted(packages)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    counts = dict(line.split() for line in done.stdout.splitlines())
    assert set(counts) == packages
    assert int(counts["collplan.planner"]) > 40


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from collplan.cli.main import main; main(['--help']); "
        "print(sorted({'numpy', 'numba', 'networkx', 'rich', 'mpi4py', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.quick
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_valid_and_name_the_schema(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = json.loads((path.parent / first.removeprefix(prefix)).read_text())
    assert schema["title"] == ("ProgramSpec" if path.parent.name == "programs" else "PlanSpec")
    is_emulated = path.stem.startswith("emulated_")  # takes the machine it is run on
    assert (load_request(path).machine.n_ranks > 1) != is_emulated


@pytest.mark.quick
@pytest.mark.parametrize("path", PAPER_EXAMPLES, ids=lambda p: p.stem)
def test_examples_of_papers_name_figure_and_schema_and_are_on_its_page(path: Path) -> None:
    """Their first lines say which figure of which paper they reproduce."""
    paper, place, _ = path.stem.split("_", 2)
    first, second, _ = path.read_text().split("\n", 2)
    kind = "figure" if place.startswith("fig") else "table"
    number = place.removeprefix("fig").removeprefix("tab")
    assert first.startswith(f"# Paper {paper.upper()}, {kind} {number}: ")
    prefix = "# yaml-language-server: $schema="
    schema = json.loads((path.parent / second.removeprefix(prefix)).read_text())
    is_program = isinstance(load_request(path), ProgramSpec)
    assert schema["title"] == ("ProgramSpec" if is_program else "PlanSpec")
    assert path.stem in (ROOT / "docs" / "how-to" / f"paper-{paper}.md").read_text()


def test_packages_are_typed() -> None:
    assert all((ROOT / layer / "py.typed").exists() for layer in LAYERS)
