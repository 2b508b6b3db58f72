"""A check of the finished site: links and anchors lead somewhere, and nothing is loaded from away.

Zensical checks the links that it finds in Markdown; this check sees all that is in the HTML.
"""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADING = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("link", "href"),
}
"""Attributes that a browser loads without a click."""
LINKING = {*LOADING, ("a", "href")}


class _Page(HTMLParser):
    """The anchors and the links of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str, str]] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" or (tag, name) == ("a", "name"):
                self.anchors.add(value or "")
            if (tag, name) in LINKING and value:
                self.links.append((tag, name, value))


def problems(folder: Path) -> list[str]:
    """Return a line for every link of a site that is broken or loads from another host."""
    pages = {path: _Page(path) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links begin at the root of whatever host serves it
            continue
        for tag, name, link in dict.fromkeys(page.links):
            problem = _problem(path, tag, name, link, pages)
            if problem:
                found.append(f"{path.relative_to(folder)}: {link} {problem}")
    return found


def _problem(path: Path, tag: str, name: str, link: str, pages: dict[Path, _Page]) -> str | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        is_loaded = (tag, name) in LOADING and parts.scheme != "data"
        return "is loaded from another host" if is_loaded else None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        return "leads to no file"
    is_page = target in pages
    if parts.fragment and is_page and unquote(parts.fragment) not in pages[target].anchors:
        return "leads to no anchor"
    return None
