"""Build the documentation site into build/docs/html, or fail where a link or anchor is broken.

python docs/site/build.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from links import problems
from pages import ROOT, completed, write_pages

CONFIGURATION: Final = Path(__file__).with_name("mkdocs.yml")
FOLDER: Final = ROOT / "build" / "docs"


def build(folder: Path) -> int:
    """Build the site below a folder, which is emptied first; return the exit status."""
    shutil.rmtree(folder, ignore_errors=True)
    write_pages(folder / "pages")
    settings: dict[str, Any] = yaml.safe_load(CONFIGURATION.read_text())
    settings["nav"] = completed(settings["nav"], folder / "pages")
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False))
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run([*command, "-f", str(folder / "mkdocs.yml")], check=False)
    if done.returncode:
        return done.returncode
    found = problems(folder / "html")
    sys.stderr.writelines(f"{line}\n" for line in found)
    if not found:
        sys.stdout.write(f"built the site; open {folder / 'html' / 'index.html'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(build(FOLDER))
