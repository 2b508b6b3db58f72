"""Commands search for garbage rarely, and those who import the package as often as without it."""

from __future__ import annotations

import gc
import subprocess
import sys


def test_a_command_has_another_threshold() -> None:
    lines = "import gc", "from collplan.cli.garbage import collect_rarely"
    code = "; ".join([*lines, "n = gc.get_threshold()[0]; collect_rarely()"])
    code += "; assert gc.get_threshold()[0] > n"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_nothing_changes_for_those_who_import_it() -> None:
    before = gc.get_threshold()
    import collplan

    assert collplan.__doc__
    assert gc.get_threshold() == before
