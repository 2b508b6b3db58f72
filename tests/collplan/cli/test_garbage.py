"""Commands search for garbage rarely, and programs of users as often as without them."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import gc
import sys

usual = gc.get_threshold()
from collplan.cli.garbage import collect_rarely

collect_rarely()
assert gc.get_threshold()[0] > usual[0]
from collplan.cli.exec import run_program

sys.exit(run_program([sys.argv[1], *map(str, usual)], module=False))
"""


def test_a_program_has_the_usual_threshold(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import gc, sys\nassert [*map(str, gc.get_threshold())] == sys.argv[1:]\n")
    command = [sys.executable, "-c", PROGRAM, str(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_changes_for_those_who_import_it() -> None:
    before = gc.get_threshold()
    import collplan

    assert collplan.__doc__
    assert gc.get_threshold() == before
