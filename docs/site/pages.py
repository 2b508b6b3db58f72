"""The folder of Markdown pages that the site is built from: those in docs/, and generated ones."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from os.path import normpath, relpath
from pathlib import Path
from typing import Any, Final

import graphviz

from api import ROOT, passes_page, python_pages
from collplan.planner.draw.rendering import render
from commands import command_pages
from fields import fields_page

DOCS: Final = ROOT / "docs"
LOOSE: Final = ("CHANGELOG.md", "CONTRIBUTING.md")
"""Pages that lie in the root of the repository, and on the site beside those of docs/."""
SCRIPTS: Final = Path(__file__).with_name("vendor")
STYLE: Final = Path(__file__).with_name("style.css")
FONT: Final = "Helvetica"
EXAMPLES: Final = "reference/examples.md"
_FENCE: Final = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"(?P<text>!?\[[^\]]*\])\((?P<target>[^)\s]+)\)")


def write_pages(folder: Path) -> None:
    """Write all pages of the site, and the files that they show, into a folder."""
    ignored = shutil.ignore_patterns("*.py", "site", "__pycache__", "*.ipynb", ".ipynb_checkpoints")
    shutil.copytree(DOCS, folder, ignore=ignored)
    for notebook in sorted((DOCS / "notebooks").glob("*.ipynb")):
        write_notebook(notebook, folder / "notebooks")
    for page in sorted(folder.rglob("*.md")):
        source = DOCS / page.relative_to(folder)
        _write(page, adapted(page.read_text(), source, DOCS, folder))
    for name in LOOSE:
        _write(folder / name, adapted((ROOT / name).read_text(), ROOT / name, ROOT, folder))
    _write(folder / "stylesheets" / STYLE.name, STYLE.read_text())
    for script in SCRIPTS.glob("*.js"):
        _write(folder / "javascripts" / script.name, script.read_text())
    _write(folder / EXAMPLES, examples_page())
    _write(folder / "reference/spec-fields.md", fields_page())
    _write(folder / "reference/passes.md", passes_page())
    for name, text in command_pages():
        _write(folder / "reference/commands" / f"{name}.md", text)
    for name, text in python_pages():
        _write(folder / "reference/python" / f"{name}.md", text)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def adapted(text: str, page: Path, base: Path, folder: Path) -> str:
    """Return a page's text with links and diagrams as the site has them.

    Parameters
    ----------
    text : str
        The page, as it is in the repository.
    page : Path
        Its file.
    base : Path
        The folder whose place the root of the site takes for this page.
    folder : Path
        The root of the site's pages.
    """
    own = page.relative_to(base)
    kept: list[str] = []

    def keep(match: re.Match[str]) -> str:
        kept.append(match[0])
        if match[1] == "mermaid":
            name = f"images/{own.stem}-{len(kept)}.svg"
            _write(folder / name, picture(match[2]))
            kept[-1] = f"![A diagram]({relpath(name, own.parent)})"
        return f"\0{len(kept) - 1}\0"

    def link(match: re.Match[str]) -> str:
        return relinked(match, page, own)

    text = _LINK.sub(link, _FENCE.sub(keep, text))
    return re.sub("\0(\\d+)\0", lambda match: kept[int(match[1])], text)


def relinked(match: re.Match[str], page: Path, own: Path) -> str:
    """Return a link with the target that it has on the site, or its text if it has none."""
    text, target = match["text"], match["target"]
    path, _, anchor = target.partition("#")
    if "://" in target or not path:
        return match[0]
    file = Path(normpath(page.parent / path))
    if file.is_relative_to(DOCS):
        new = relpath(file.relative_to(DOCS), own.parent)
    elif file.name in LOOSE or file == ROOT / "README.md":
        new = relpath(file.name.replace("README", "index"), own.parent)
    elif file.parent == ROOT / "examples" and file.is_file():
        new, anchor = relpath(EXAMPLES, own.parent), file.name.replace(".", "")
    elif file.exists():
        return f"{text.strip('![]')} (`{file.relative_to(ROOT)}`)"
    else:
        return match[0]
    return f"{text}({new}{'#' if anchor else ''}{anchor})"


def picture(diagram: str) -> str:
    """Return a Mermaid flow chart of nodes, subgraphs and arrows as SVG."""
    graph = graphviz.Digraph(
        graph_attr={"bgcolor": "white", "fontname": FONT},
        node_attr={"shape": "box", "fontname": FONT, "height": "0.3"},
        edge_attr={"color": "gray50"},
    )
    inside = graph
    for line in map(str.strip, diagram.splitlines()[1:]):
        if line.startswith("subgraph "):
            group = line.split()[1]
            inside = graphviz.Digraph(f"cluster_{group}")
            inside.attr(label=group, color="gray80")
        elif line == "end":
            graph.subgraph(inside)
            inside = graph
        elif "-->" in line:
            inside.edge(*map(str.strip, line.split("-->")))
        elif line:
            name, _, label = line.rstrip("]").partition("[")
            inside.node(name, label=label)
    return render(graph.source, "svg").decode()


def examples_page() -> str:
    """Return the page with the text of every example."""
    lines = [
        "# Examples\n\nThe folder `examples/` of the repository has these files. Commands on "
        "this site use them by that path.\n"
    ]
    for path in sorted((ROOT / "examples").iterdir()):
        if path.is_file():
            language = {".py": "python", ".yaml": "yaml"}.get(path.suffix, "text")
            lines.append(f"## {path.name}\n\n```{language}\n{path.read_text()}```\n")
    return "\n".join(lines)


def write_notebook(path: Path, folder: Path) -> None:
    """Write an executed notebook as a page of the same name, with its pictures beside it."""
    from nbconvert import MarkdownExporter

    names = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
    text, resources = MarkdownExporter().from_filename(str(path), resources=names)
    _write(folder / f"{path.stem}.md", text)
    for name, content in resources["outputs"].items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def completed(nav: list[Any], folder: Path) -> list[Any]:
    """Return the navigation with every "..." replaced by pages.

    After the name of a folder, it stands for the pages of the folder; alone, for pages of the root
    that are not listed elsewhere. Sections without pages are left out.
    """
    listed = set(_pages_of(nav))
    loose = [page.name for page in sorted(folder.glob("*.md")) if page.name not in listed]

    def complete(part: Any) -> list[Any]:
        if isinstance(part, list):
            return [one for entry in part for one in complete(entry)]
        if isinstance(part, dict):
            ((title, inner),) = part.items()
            pages = complete(inner) if isinstance(inner, list) else inner
            return [{title: pages}] if pages else []
        if not part.endswith("..."):
            return [part]
        inside = part.removesuffix("...")
        pages = sorted(
            (folder / inside).glob("*.md"), key=lambda page: (page.stem != "collplan", page)
        )
        return [str(page.relative_to(folder)) for page in pages] if inside else loose

    return complete(nav)


def _pages_of(part: Any) -> Iterator[str]:
    """Generate the pages that a part of the navigation lists."""
    if isinstance(part, str):
        yield part
    else:
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _pages_of(inner)
