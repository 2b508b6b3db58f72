"""The house: layers, sizes, the committed schema, examples that stay valid."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collplan.cli.schema import schema_text
from collplan.specs import load_spec

ROOT = Path(__file__).parents[1]
LAYERS = ("specs", "planner", "executors", "collplan")

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


def sources(layer: str) -> list[Path]:
    files = sorted((ROOT / layer).rglob("*.py"))
    assert files
    return files


def imported_modules(path: Path) -> set[str]:
    """Return what a file imports; our own folders without the package they are linked into."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add(node.module or "")
    return {re.sub(r"^collplan\.(?=specs|planner|executors)", "", name) for name in names}


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_one_way(layer: str) -> None:
    above = set(LAYERS[LAYERS.index(layer) + 1 :])
    offences = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sources(layer)
        for name in imported_modules(path)
        if name.partition(".")[0] in above
    ]
    assert offences == []


def test_only_executors_that_run_under_mpi_know_mpi() -> None:
    offences = [
        str(path.relative_to(ROOT))
        for layer in LAYERS
        for path in sources(layer)
        if "mpi4py" in {name.partition(".")[0] for name in imported_modules(path)}
        and path.relative_to(ROOT).parts[:2] not in {("executors", "mpi"), ("executors", "comm")}
    ]
    assert offences == []


def test_specs_planner_and_command_line_import_without_mpi() -> None:
    packages = {f"collplan.{name}" for name in ("specs", "planner", "executors.cost", "commands")}
    done = subprocess.run(
        [sys.executable, "-c", BLOCK_MPI, *sorted(packages)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
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
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_committed_schema_is_current() -> None:
    committed = (ROOT / "docs" / "spec.schema.json").read_text()
    assert committed == schema_text(), "run: collplan schema -o docs/spec.schema.json"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.stem)
def test_examples_are_valid_and_name_the_schema(path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    prefix = "# yaml-language-server: $schema="
    assert first.startswith(prefix)
    schema = json.loads((path.parent / first.removeprefix(prefix)).read_text())
    assert schema["title"] == "PlanSpec"
    is_emulated = path.stem.startswith("emulated_")  # takes the machine it is run on
    assert (load_spec(path).machine.n_ranks > 1) != is_emulated


def test_packages_are_typed() -> None:
    assert all((ROOT / layer / "py.typed").exists() for layer in LAYERS)
