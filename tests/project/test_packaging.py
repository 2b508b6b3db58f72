"""The wheel: it builds, has every file that the package reads, and installs without a compiler."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import collplan
from folders import ROOT
from making_once import made_once

LAYERS = ("specs", "planner", "executors")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def run(*command: object, **settings: object) -> str:
    """Run a command and return what it printed; fail with its errors."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel, built from a copy of the files that the repository has."""
    folder = made_once(tmp_path_factory, "wheel", build_wheel)
    (found,) = (folder / "dist").iterdir()
    return found


def build_wheel(folder: Path) -> None:
    for name in ("collplan", *LAYERS):
        shutil.copytree(
            ROOT / name,
            folder / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    run(*PIP, "wheel", "-q", "--no-deps", "-w", folder / "dist", folder)


def files_of_the_package() -> set[str]:
    """Return the files that an installation needs, by their paths in it."""
    found = set()
    for name in ("collplan", *LAYERS):
        for path in (ROOT / name).rglob("*"):
            inside = path.relative_to(ROOT)
            is_linked = name == "collplan" and inside.parts[1:2] and inside.parts[1] in LAYERS
            if path.is_file() and "__pycache__" not in inside.parts and not is_linked:
                found.add(str(inside if name == "collplan" else Path("collplan") / inside))
    return found


@pytest.mark.system
def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == files_of_the_package()
    assert len(names) > 400


@pytest.mark.system
def test_the_wheel_suits_every_platform_and_states_what_it_is(wheel: Path) -> None:
    assert wheel.name == f"collplan-{collplan.__version__}-py3-none-any.whl"
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    data = email.message_from_string(archive.read(name).decode())
    assert data["License-Expression"] == "MIT"
    assert data["Requires-Python"] == ">=3.11"
    assert "mpi4py" in data["Keywords"]
    assert "Typing :: Typed" in data.get_all("Classifier", [])
    assert data["Description-Content-Type"] == "text/markdown"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(data.get_all("Provides-Extra", [])) == set(extras["optional-dependencies"])


@pytest.mark.system
def test_all_that_the_wheel_needs_comes_as_wheels(wheel: Path, tmp_path: Path) -> None:
    options = ("--ignore-installed", "--only-binary", ":all:", "--dry-run", "-q")
    run(*PIP, "install", *options, "--report", tmp_path / "report.json", wheel)
    assert '"numba"' in (tmp_path / "report.json").read_text()


@pytest.mark.system
def test_the_wheel_works_where_there_is_no_compiler(wheel: Path, tmp_path: Path) -> None:
    """Installed beside the packages of this environment, as the one above finds them."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    packages = Path(
        run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    )
    run(*PIP, "--python", python, "install", "-q", "--no-deps", wheel)
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {"PATH": str(tmp_path / "venv" / "bin"), "HOME": str(tmp_path)}
    spec = tmp_path / "spec.yaml"
    spec.write_text("machine: {ranks_per_node: 4}\ncollective: {kind: allreduce, count: 16}\n")

    def collplan_says(*arguments: object) -> str:
        return run(python.with_name("collplan"), *arguments, cwd=tmp_path, env=environment)

    code = "import collplan; print(collplan.__file__)"
    where = run(python, "-c", code, cwd=tmp_path, env=environment)
    assert Path(where.strip()).is_relative_to(packages)
    assert "wrote report.html" in collplan_says("report", spec, "-o", "report.html")
    assert "tasks" in collplan_says("compile", spec, "-o", "a.plan")
    assert "proved" in collplan_says("verify", "a.plan")
    assert "nodes" in collplan_says("help", "spec", "Machine")


def test_the_citation_and_the_package_state_the_same() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"] == collplan.__version__
    assert citation["license"] == project["license"]
    assert {one["name"] for one in citation["authors"]} == {
        one["name"] for one in project["authors"]
    }
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "abstract", "type"} <= citation.keys()


def test_every_extra_says_why_it_needs_its_packages() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    part = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\[", text, re.DOTALL)
    assert part is not None
    for name in ("test", "docs"):
        body = re.search(rf"^{name} = \[\n(.*?)^\]", part[1], re.DOTALL | re.MULTILINE)
        assert body is not None
        lines = [line for line in body[1].splitlines() if '"pytest>' not in line]
        assert all("#" in line for line in lines), lines
