"""The documentation: its Python and its commands run and print what the pages say they print."""

from __future__ import annotations

import doctest
import importlib
import re
import shlex
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from collplan.cli.main import main
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.compiler.folded import compile_folded
from collplan.planner.draw import draw
from collplan.select import sweep
from collplan.specs import load_spec, parse_spec
from collplan.specs.loading import is_program, parse_program
from folders import ROOT
from mpi_launching import mpi_python, mpiexec_of, run

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if DOCS / "site" not in page.parents)
README = ROOT / "README.md"
LOOSE = (README, ROOT / "CONTRIBUTING.md")
NAMES = (
    "plan", "proof", "cost-model", "cost-report", "algorithms", "decompositions", "executing",
    "emulation", "benchmarks", "comparing", "calibrating", "overlap", "alltoall",
    "alltoall-model", "neighborhoods",
    "exporting", "tuning", "drop-in", "specs", "architecture", "scale", "irregular",
    "networks", "synthesis", "gallery", "cluster", "unchanged-programs", "watching",
    "programs", "report", "index", "dask", "interchange", "notebooks", "glossary",
    *(f"tutorials/{name}" for name in ("first-plan", "first-program", "first-table")),
    *(
        f"how-to/{name}"
        for name in (
            "which-allreduce", "mpi4py-program", "job-script", "write-an-algorithm", "shell",
            *("paper-a", "paper-b", "paper-c", "paper-d"),
        )
    ),
)  # fmt: skip
IMAGES = {
    "allreduce": ("allreduce_small", "auto"),
    "allgather_two_lanes": ("allgather_two_lanes", "rank"),
    "bcast": ("bcast", "auto"),
    "bcast_hierarchical": ("bcast_hierarchical", "task"),
    "bcast_full_lane": ("bcast_full_lane", "task"),
    "allgather_mesh": ("allgather_mesh", "rank"),
    "neighbor_alltoallv": ("neighbor_alltoallv", "task"),
    "overlap_reduce": ("overlap_reduce", "task"),
    "paper_b_bcast": ("papers/b_fig2_bcast", "task"),
}
FOLDED = ("allreduce_8192",)
"""Images of folded plans, of the specs of that name beside the pages."""
MEASURED = ("bcast_guideline", "compare_hydra", "alltoall_ohio_a", "atlas_prices")
"""Images of times, which are measured or take long to simulate: no test draws them again."""
MODELLED = {
    "dragonfly_job": ("draw", "examples/networks/dragonfly_job.yaml", "--by", "network", "-o"),
    "overlap_constant": ("overlap", "--machine", "knl64", "--plot"),
    "overlap_doubling": ("overlap", "--machine", "knl64", "--collective", "gather", "--plot"),
    "panel_steps": (*("draw", "examples/programs/panel.yaml", "--timeline", "--by", "step", "-o"),),
    "timelines": (
        *("draw", "examples/bcast_hierarchical.yaml", "--timeline"),
        *("--beside", "examples/bcast_full_lane.yaml", "-o"),
    ),
    "shuffled_job": (
        *("compare", "examples/networks/shuffled_job.yaml", "--sizes", "16KiB,256KiB,1MiB,16MiB"),
        *("--candidates", "rabenseifner,rabenseifner mapped,bine,bine mapped,ring,ring mapped"),
        "--plot",
    ),
}
"""Images that a command plots."""
MAX_IMAGE_BYTES = 150_000
MADE = (
    *("algorithms.md", "architecture.md", "index.md", "scale.md", "gallery.md"),
    *("spec.schema.json", "program.schema.json"),
)
"""Files that `make pages` writes, all or in part, besides the pictures of the gallery."""
SHELLS = ("", "bash", "sh")
"""Languages of blocks that no test can run as they are: they say why, or are `console`."""
_BLOCK = re.compile(
    r"(?:<!-- (?P<about>from|file|not run:|output varies:) (?P<told>[^\n]+) -->\n)?"
    r"^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
_INDENTED = re.compile(r"^[ \t]+```(\w*)\n.*?^[ \t]+```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_WALL_CLOCK = re.compile(r"\bin \d[\d.]* (?:ns|µs|ms|s)\b")
_KERNELS = re.compile(
    r" \(and [^)]* to compile kernels, once\)|^collplan: compiling kernels.*\n", re.M
)
"""Lines that only the first run prints."""
SECONDS = "0.1"
"""Time for measurements and simulations whose output is not compared."""
RANKS = "2"
"""Number of ranks where it may be any, and the output is not compared."""
ANY_RANKS = {"tune", "exec"}
"""Commands that take any number of ranks."""
STARTING = {"run", "exec", "tune", "emulate", "bench", "profile", "calibrate"}
"""Words of commands that start MPI, unless one of the next options is among them."""
NOT_STARTING = {"--help", "--list", "--simulate"}
_SETTING = re.compile(r"[A-Z_]+=")
_STATUS = re.compile(r"\s+# exit status (\d)$")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, and what the comment before it says.

    ``from FILE``: the text is a part of the file. ``file FILE``: commands of the page find a file
    of this name and text. ``not run: REASON``: it needs what a test does not have. ``output varies:
    REASON``: commands are run, and what they print is not compared.
    """

    page: Path
    line: int
    language: str
    text: str
    about: str | None
    told: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        about, told = match["about"], match["told"] or ""
        yield Block(page, line, match["language"], match["text"], about, told)


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Generate every command of a block with the lines shown under it."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own that looks like the repository to whoever reads examples."""
    for name in ("examples", "tests", "docs", "benchmarks"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep, "usable_processors", lambda: 1)
    return tmp_path


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS if page.is_relative_to(DOCS) else ROOT).with_suffix(""))


def marked(page: Path) -> Any:
    """Return a page as a parameter, with the mark of those whose commands start MPI."""
    lines = [
        line
        for block in blocks(page)
        if block.language == "console" and block.about != "not run:"
        for line, _ in commands(block)
    ]
    marks = [pytest.mark.system] if any(map(starts_mpi, lines)) else []
    return pytest.param(page, marks=marks, id=name_of(page))


def starts_mpi(line: str) -> bool:
    """Say whether a command starts MPI; what is refused does not get so far."""
    words = set(line.split())
    return "mpiexec" in words or bool(
        words & STARTING and not words & NOT_STARTING and not _STATUS.search(line)
    )


@pytest.mark.long
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", [marked(page) for page in (*PAGES, *LOOSE)])
def test_pages_do_what_they_say(page: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": page.stem}
    for block in blocks(page):
        if block.about == "from":
            assert block.text in (ROOT / block.told).read_text(), block.place
        elif block.about == "file":
            Path(block.told).write_text(block.text)
        elif block.language == "python" and block.about != "not run:":
            check_python(block, names)
        elif block.language == "console":
            for command, shown in commands(block):
                check_command(block, command, shown, capfd)
        elif block.language == "yaml":
            document = yaml.safe_load(block.text)
            (parse_program if is_program(document) else parse_spec)(document)


def test_blocks_that_are_not_run_say_why() -> None:
    """Every command of a page is in a block that tests run, or that says why they do not."""
    silent = [
        block.place
        for page in [*PAGES, *LOOSE]
        for block in blocks(page)
        if (block.language in SHELLS or re.search(r"^\$ ", block.text, re.MULTILINE))
        and block.language != "console"
        and block.about != "not run:"
    ]
    indented = {one for page in [*PAGES, *LOOSE] for one in _INDENTED.findall(page.read_text())}
    assert indented <= {"text"}, (
        "blocks of commands begin in the first column: tests see them there"
    )
    assert not silent, "put '<!-- not run: REASON -->' before, or make it a console block"


def test_scripts_of_all_batch_systems_are_alike() -> None:
    """The page shows Slurm's, and of PBS's the beginning, which differs in comments and `N`."""
    scripts = [
        [line for line in block.text.splitlines() if not re.match(r"#|N=|cd ", line)]
        for block in blocks(DOCS / "how-to" / "job-script.md")
        if block.language == "bash"
    ]
    tunes, runs, *heads = scripts
    assert heads == [tunes[:2]] == [runs[:2]]
    assert [len(script) for script in (tunes, runs)] == [6, 3]


def check_python(block: Block, names: dict[str, Any]) -> None:
    """Run the examples of a block and compare what they print, as doctest does."""
    test = doctest.DocTestParser().get_doctest(
        block.text, names, block.page.stem, str(block.page), block.line
    )
    assert test.examples, f"{block.page}:{block.line}: no '>>>', and not from a file"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    runner.run(test, out=report.append, clear_globs=False)
    assert runner.failures == 0, "".join(report)
    names.update(test.globs)


def check_command(block: Block, line: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    place = f"{block.place}: {line}"
    stated = _STATUS.search(line)
    words = shlex.split(line[: stated.start()] if stated else line)
    settings = dict(word.split("=", 1) for word in takewhile(_SETTING.match, words))
    words = words[len(settings) :]
    if block.about == "output varies:":
        given = {"--seconds": SECONDS} | ({"-n": RANKS} if words[1] in ANY_RANKS else {})
        for option in given.keys() & set(words):
            words[words.index(option) + 1] = given[option]
    capfd.readouterr()
    if block.about == "not run:":
        check_words(words, place)
        return
    if words[0] == "collplan" and words[1] != "--import":
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            status = main(words[1:])
        output = capfd.readouterr()
        text = output.out + output.err
    else:
        done = run(program(words, place))
        status, text = done.returncode, done.stdout + done.stderr
    assert status == (int(stated[1]) if stated else 0), f"{place}\n{text}"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if shown.strip() and block.about != "output varies:":
        matches = doctest.OutputChecker().check_output(plain(shown), plain(text), flags)
        assert matches, f"{place} printed\n{text}"


def check_words(words: list[str], place: str) -> None:
    """Check what can be checked of a command that is not run: its options, and its script."""
    if words[0] == "collplan":
        assert main([*words[1:], "--help"]) == 0, place
    scripts = [word for word in words if word.endswith(".py") and "/" in word]
    assert all((ROOT / script).is_file() for script in scripts), place
    assert words[0] == "collplan" or scripts, f"{place}: neither collplan nor a script"


def program(words: list[str], place: str) -> list[str]:
    """Return the words that run a script, under MPICH where the command names mpiexec.

    A command that imports an algorithm has a process of its own, and this one does not keep it.
    """
    python = mpi_python("mpich")
    if words[0] == "collplan":
        return [str(python), "-m", *words]
    if words[0] == "mpiexec":
        words = [str(mpiexec_of(python)), *words[1:]]
    assert "python" in words, f"{place}: neither collplan nor a script"
    at = words.index("python")
    return [*words[:at], str(python), *words[at + 1 :]]


def plain(text: str) -> str:
    """Return printed text without empty lines, its wall-clock times alike."""
    text = _KERNELS.sub("", text)
    lines = (line.rstrip() for line in _WALL_CLOCK.sub("in TIME", text).splitlines())
    return "\n".join(line for line in lines if line) + "\n"


def test_pages_are_there() -> None:
    assert {name_of(page) for page in PAGES} == set(NAMES)


@pytest.mark.quick
@pytest.mark.parametrize("page", [*PAGES, *LOOSE, ROOT / "CHANGELOG.md"], ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if file.resolve().is_relative_to(DOCS / "reference"):
            continue  # generated pages, whose links `make docs` checks
        assert file.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.quick
@pytest.mark.parametrize("name", IMAGES)
def test_images_show_what_is_drawn_today(name: str, tmp_path: Path) -> None:
    path = DOCS / "images" / f"{name}.svg"
    example, by = IMAGES[name]
    fresh = tmp_path / "fresh.svg"
    draw(compile_plan(load_spec(ROOT / "examples" / f"{example}.yaml")), fresh, by)
    assert path.stat().st_size < MAX_IMAGE_BYTES
    # Coordinates depend on graphviz's release and fonts; words and shapes don't.
    assert words_of(path) == words_of(fresh)


@pytest.mark.parametrize("name", FOLDED)
def test_images_of_folded_plans_are_current(name: str, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh.svg"
    draw(compile_folded(load_spec(DOCS / f"{name}.yaml")), fresh)
    assert words_of(DOCS / "images" / f"{name}.svg") == words_of(fresh)


@pytest.mark.parametrize("name", MODELLED)
@pytest.mark.long
def test_plots_show_what_is_plotted_today(name: str, tmp_path: Path) -> None:
    path, fresh = DOCS / "images" / f"{name}.svg", tmp_path / "fresh.svg"
    assert main([*MODELLED[name], str(fresh)]) == 0
    assert path.stat().st_size < MAX_IMAGE_BYTES
    # Coordinates depend on matplotlib's release; words don't.
    assert [words for _, words in words_of(path)] == [words for _, words in words_of(fresh)]


def words_of(path: Path) -> list[tuple[str, str]]:
    """Return every element's kind and text; fails where a file is no XML."""
    return [
        (element.tag.rpartition("}")[2], (element.text or "").strip())
        for element in ElementTree.parse(path).iter()
    ]


def test_every_image_is_used() -> None:
    text = "".join(page.read_text() for page in PAGES)
    drawn = {path.name for path in (DOCS / "images").iterdir()}
    assert drawn == {f"{name}.svg" for name in (*IMAGES, *FOLDED, *MODELLED, *MEASURED)}
    assert all(f"images/{name}" in text for name in drawn)


@pytest.fixture(scope="module")
def writing() -> Iterator[ModuleType]:
    """The program of `make pages`; its folder is on the path for its own imports."""
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("write_pages")
    sys.path.remove(str(DOCS))


def test_what_is_made_from_the_code_is_current(writing: ModuleType) -> None:
    stale = [name for name in MADE if (DOCS / name).read_text() != writing.text_of(name)]
    assert not stale, f"out of date in docs/: {', '.join(stale)}; run: make pages"


def test_the_gallery_has_a_current_picture_of_every_algorithm(writing: ModuleType) -> None:
    found = {path.name: path.read_text() for path in (DOCS / "gallery").iterdir()}
    drawn = writing.pictures()
    assert found == drawn, "docs/gallery is out of date; run: make pages"
    assert all(len(picture) < 10_000 for picture in drawn.values())


def test_one_command_writes_all_that_is_made_from_the_code(
    writing: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind, one file: a page that has lost a row, a picture, and one of no algorithm."""
    assert writing.NAMES == MADE
    shutil.copytree(DOCS / "gallery", tmp_path / "gallery")
    page, lost, left = (tmp_path / name for name in ("index.md", "gallery/a.svg", "gallery/b.svg"))
    whole = writing.text_of(page.name)
    page.write_text(re.sub(r"^\| alltoall \|.*\n", "", whole, flags=re.MULTILINE))
    assert page.read_text() != whole
    kept = {path.name: path.read_text() for path in (tmp_path / "gallery").iterdir()}
    left.write_text("a picture of an algorithm that is gone")
    monkeypatch.setattr(writing, "DOCS", tmp_path)
    monkeypatch.setattr(writing, "NAMES", [page.name])
    monkeypatch.setattr(writing.gallery, "FOLDER", tmp_path / "gallery")
    monkeypatch.setattr(writing, "pictures", lambda: {**kept, lost.name: "a new picture"})
    assert writing.write_all() == [page, lost, left]
    assert page.read_text() == whole
    assert (lost.read_text(), left.exists()) == ("a new picture", False)
    assert writing.write_all() == []
    with pytest.raises(ValueError, match="lost its marks"):
        writing.with_part("no marks", "algorithms", "")


def test_tables_have_every_algorithm(writing: ModuleType) -> None:
    table = writing.algorithm_tables.table()
    for kind in registry.kinds():
        assert all(f"| `{algorithm.name}`" in table for algorithm in registry.of(kind))
    rows = [line for line in writing.algorithm_tables.libraries().splitlines() if line[:2] == "| "]
    assert all(line.split(" | ")[2] or line.split(" | ")[3].strip("| ") for line in rows)


def test_pictures_of_the_gallery_have_a_line_per_message(writing: ModuleType) -> None:
    script = writing.gallery
    plan = compile_plan(parse_spec(script.spec_of(registry.find("bcast", "binomial"))))
    text = script.picture(plan)
    assert text.count("L") == 7
    assert "M14 18L102 38" in text, "rank 0 sends to rank 4 in the first round"
    assert text.count("<text") == 8
