"""The documentation site: it builds, refuses broken links, is complete, and loads nothing."""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import collplan
from browser import SCREENSHOTS, new_page
from collplan.cli.group import COMMANDS
from collplan.planner.passes.registry import pass_registry
from collplan.reports.spec_fields import definitions
from folders import ROOT
from making_once import made_once

SITE = ROOT / "docs" / "site"
pytest.importorskip("zensical", reason="the extra docs builds the site")


@pytest.fixture(scope="module")
def modules() -> Iterator[Any]:
    """The program that builds the site; its folder is on the path for its own imports."""
    sys.path.insert(0, str(SITE))
    import api
    import build
    import pages

    yield {"api": api, "build": build, "pages": pages}
    sys.path.remove(str(SITE))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, in a folder that a browser can open."""

    def make(folder: Path) -> None:
        done = build(copied(folder))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "built the site" in done.stdout

    return made_once(tmp_path_factory, "site", make) / "build" / "docs" / "html"


def copied(folder: Path) -> Path:
    """Copy what the site is made from, so that a test can change it."""
    shutil.copytree(ROOT / "docs", folder / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("collplan", "specs", "planner", "executors", "examples", "tests", "benchmarks"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "docs" / "site" / "build.py")],
        env={**os.environ, "PYTHONPATH": str(folder), "NO_COLOR": "1"},
        capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize(
    "broken",
    [
        {"[a page](nowhere.md)": "nowhere.md", "[a heading](other.md#nowhere)": "other.md#nowhere"},
        {
            '<a href="nowhere.html">raw HTML</a>': "nowhere.html leads to no file",
            '<a href="other.html#nowhere">raw HTML</a>': "other.html#nowhere leads to no anchor",
            '<img src="https://example.org/x.png">': "x.png is loaded from another host",
        },
        {},
    ],
    ids=["Markdown", "HTML", "none"],
)
def test_broken_links_fail(
    broken: dict[str, str],
    tmp_path: Path,
    modules: Any,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On a site of two pages, which the program builds as it builds the whole one."""

    def write_two(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "index.md").write_text("\n\n".join(["# A page", "[b](other.md)", *broken, ""]))
        (folder / "other.md").write_text("# Another page")
        for name in ("stylesheets/style.css", "javascripts/iframe-worker.js"):
            (folder / name).parent.mkdir()
            (folder / name).touch()

    build = modules["build"]
    monkeypatch.setattr(build, "write_pages", write_two)
    monkeypatch.setattr(build, "completed", lambda nav, folder: ["index.md", "other.md"])
    monkeypatch.setenv("NO_COLOR", "1")
    status = build.build(tmp_path / "site")
    said = re.sub(r"\x1b\[[\d;]*m", "", "".join(capfd.readouterr()))
    assert (status != 0) == bool(broken), said
    assert all(complaint in said for complaint in broken.values()), said
    assert ("built the site" in said) == (not broken)


@pytest.mark.long
def test_every_public_name_has_an_entry(html: Path, modules: Any) -> None:
    folder = html / "reference" / "python"
    api = modules["api"]
    front = (folder / "collplan.html").read_text()
    assert set(api.public_names()) == {f"collplan.{name}" for name in collplan.__all__}
    headings = dict(re.findall(r'<h2 id="([^"]*)"[^>]*>(.*?)</h2>', front, re.DOTALL))
    missing = [
        name
        for name, home in api.public_names().items()
        if name not in re.split(r"[\s<>]+", headings.get(home, ""))
    ]
    others = "".join(
        (folder / f"{name}.html").read_text() for name in ("returned", "extending", "more")
    )
    for source in (api.example_sources(), api.block_sources()):
        missing += [name for name in api.imported_names(source) if f'id="{name}"' not in others]
    assert not missing
    assert 'id="collplan.planner.plan.plan.Plan.n_ranks"' in front, "members have entries, too"


@pytest.mark.long
def test_every_command_option_field_and_pass_has_an_entry(html: Path) -> None:
    for name in COMMANDS:
        page = (html / "reference" / "commands" / f"{name}.html").read_text()
        assert f"collplan {name}" in page
        assert f'{name}.html"' in (html / "reference" / "commands" / "collplan.html").read_text()
    tune = (html / "reference" / "commands" / "tune.html").read_text()
    assert "--keep-within" in tune.replace("&#45;", "-")
    fields = (html / "reference" / "spec-fields.html").read_text()
    for name, one in definitions().items():
        part = fields.partition(f'id="{name.lower()}"')[2].partition("<h2")[0]
        assert all(f"<code>{field.name}</code>" in part for field in one.fields), name
    passes = (html / "reference" / "passes.html").read_text()
    assert all(f">{name}</" in passes or f"{name}<a" in passes for name in pass_registry)


@pytest.mark.long
def test_every_page_is_in_the_navigation(html: Path) -> None:
    pages = html.parent / "pages"
    text = (html.parent / "mkdocs.yml").read_text()
    listed = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(yaml.safe_load(text)["nav"])))
    assert listed == {str(page.relative_to(pages)) for page in pages.rglob("*.md")}


def test_notebooks_become_pages(tmp_path: Path, modules: Any) -> None:
    said = {"output_type": "stream", "name": "stdout", "text": "twelve\n"}
    shown = {
        "output_type": "display_data",
        "metadata": {},
        "data": {"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'/>", "text/plain": "x"},
    }
    outputs = [said, shown]
    cell = {"execution_count": 1, "metadata": {}, "outputs": outputs, "source": "print('twelve')"}
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# A notebook"},
        {"cell_type": "code", **cell},
    ]
    path = tmp_path / "one.ipynb"
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4})
    )
    modules["pages"].write_notebook(path, tmp_path / "notebooks")
    text = (tmp_path / "notebooks" / "one.md").read_text()
    assert text.startswith("# A notebook")
    assert "print('twelve')" in text
    (picture,) = re.findall(r"!\[svg\]\((one_files/[^)]*)\)", text)
    assert (tmp_path / "notebooks" / picture).read_text().startswith("<svg")


def test_the_navigation_is_completed(tmp_path: Path, modules: Any) -> None:
    for name in ("index", "new", "notebooks/b", "notebooks/a", "commands/run", "commands/collplan"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.md").write_text("# A page")
    nav = [
        {"Home": "index.md"},
        {"Notebooks": ["notebooks/..."]},
        {"Empty": ["nothing/..."]},
        {"Reference": [{"Commands": ["commands/..."]}, {"More": ["..."]}]},
    ]
    commands = ["commands/collplan.md", "commands/run.md"]
    assert modules["pages"].completed(nav, tmp_path) == [
        {"Home": "index.md"},
        {"Notebooks": ["notebooks/a.md", "notebooks/b.md"]},
        {"Reference": [{"Commands": commands}, {"More": ["new.md"]}]},
    ]
    assert modules["pages"].completed([*nav, "new.md"], tmp_path)[2] == {
        "Reference": [{"Commands": commands}]
    }


def test_links_are_those_of_the_site(modules: Any) -> None:
    pages = modules["pages"]

    def adapted(text: str) -> str:
        page = ROOT / "docs" / "how-to" / "shell.md"
        return str(pages.adapted(text, page, ROOT / "docs", Path("unused")))

    assert adapted("[x](../plan.md#limits)") == "[x](../plan.md#limits)"
    assert adapted("[x](../../README.md)") == "[x](../index.md)"
    assert adapted("[x](../../CHANGELOG.md)") == "[x](../CHANGELOG.md)"
    assert adapted("[x](../../examples/pab.py)") == "[x](../reference/examples.md#pabpy)"
    assert adapted("[x](../../pyproject.toml)") == "x (`pyproject.toml`)"
    assert (
        adapted("```python\na[0](../../README.md)\n```\n")
        == "```python\na[0](../../README.md)\n```\n"
    )


@pytest.fixture(scope="module")
def address(html: Path) -> Iterator[str]:
    """A local server of the site."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    handler = functools.partial(Quiet, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everybody_can_read_it(scheme: str, html: Path, browser: Any) -> None:
    """Names and contrasts, as axe-core checks them, in light and dark mode."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    pages = ("index", "tutorials/first-plan", "reference/python/collplan", "reference/spec-fields")
    page = new_page(browser, color_scheme=scheme, viewport={"width": 1400, "height": 900})
    for name in pages if scheme == "light" else pages[:2]:
        page.goto(f"{html.as_uri()}/{name}.html")
        page.wait_for_load_state("networkidle")
        found = axe.run(page).response["violations"]
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not serious, f"{name}: {[(one['id'], one['nodes'][0]['html']) for one in serious]}"
    assert page.evaluate("document.body.dataset.mdColorScheme") == (
        "slate" if scheme == "dark" else "default"
    )
    page.close()


@pytest.mark.parametrize("way", ["folder", "server"])
def test_the_search_works_and_nothing_is_loaded_from_away(
    way: str, html: Path, address: str, browser: Any
) -> None:
    base = f"{html.as_uri()}/" if way == "folder" else address
    page = new_page(browser, viewport={"width": 1400, "height": 900})
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if message.type == "error" else None,
    )
    for name in ("architecture", "reference/python/collplan", "tutorials/first-plan", "index"):
        page.goto(f"{base}{name}.html")
        page.wait_for_load_state("networkidle")
    (ROOT / SCREENSHOTS).mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(ROOT / SCREENSHOTS / f"site-{way}.png"))
    page.keyboard.press("Control+k")
    page.keyboard.type("rabenseifner")
    page.get_by_text(re.compile(r"\d+ results")).wait_for()
    page.screenshot(path=str(ROOT / SCREENSHOTS / f"site-{way}-search.png"))
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(f"{base}reference/commands/tune.html")
    page.screenshot(path=str(ROOT / SCREENSHOTS / f"site-{way}-narrow.png"))
    away = [url for url in requests if not url.startswith((base, "data:", "blob:"))]
    assert not away
    assert not errors
    page.close()


def test_a_copied_console_block_has_commands_only(html: Path, browser: Any) -> None:
    page = new_page(browser, viewport={"width": 1400, "height": 900})
    page.goto(f"{html.as_uri()}/tutorials/first-plan.html")
    # The site's button marks the block so, and copies its visible text.
    whole, copied_text = page.evaluate(
        """() => {
            const code = [...document.querySelectorAll("code")].find(
                one => one.querySelector(".gp") && one.querySelector(".go"));
            code.setAttribute("data-md-copying", "");
            return [code.textContent, code.innerText];
        }"""
    )
    commands = [line[2:] for line in whole.splitlines() if line.startswith("$ ")]
    assert 0 < len(commands) < len(whole.splitlines())
    assert [line for line in copied_text.splitlines() if line] == commands
    page.close()
