"""Damaged files of every format that collplan reads: each is read, or refused in one line.

Run ``.venv/bin/python benchmarks/random_files.py --seconds 600 --seed 1``, and add ``--formats`` to
choose some. The files are valid ones with keys, values, words, structure and bytes changed, and a
command reads them in a process of its own. It may not end by an exception, take more than 2 GiB of
memory, or more than 5 s of processor time. The same seed gives the same files in the same order.
Files that break a rule are kept below ``build/random_files``, with the command.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

ROOT: Final = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

import attack_files  # noqa: E402
import attack_networks  # noqa: E402
from attacking import Attack, Damage, Target  # noqa: E402

FOLDER: Final = ROOT / "build" / "random_files"
SLOW_S: Final = 5.0
BATCH: Final = 25
"""Files of one format, after which the next format follows."""

FORMATS: Final[dict[str, SearchStrategy[Attack]]] = {
    "specs": attack_files.attacks_by_specs(),
    "machines": attack_files.attacks_by_machines(),
    "goal": attack_files.attacks_by_goal(),
    "plans": attack_files.attacks_by_plans(),
    "tables": attack_files.attacks_by_tables(),
    "measurements": attack_files.attacks_by_measurements(),
    "graphml": attack_networks.attacks_by_graphml(),
    "links": attack_networks.attacks_by_links(),
    "graphs": attack_networks.attacks_by_graphs(),
    "placements": attack_networks.attacks_by_placements(),
    "counts": attack_networks.attacks_by_counts(),
    "msccl": attack_networks.attacks_by_schedules(),
    "recordings": attack_networks.attacks_by_recordings(),
}


def attack_often(
    name: str, n: int, number: int, judge: Callable[[Attack], None], *, shrinks: bool = False
) -> None:
    """Give a function `n` attacks of a format, which a seed determines.

    Parameters
    ----------
    name : str
        Name of the format.
    n, number : int
        Number of attacks, and the seed.
    judge : callable
        Function of an attack.
    shrinks : bool
        Whether the smallest attack is searched for which the function raises an error.
    """

    @seed(number)
    @settings(
        max_examples=n,
        database=None,
        deadline=None,
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
        suppress_health_check=list(HealthCheck),
    )
    @given(attack=FORMATS[name])
    def run(attack: Attack) -> None:
        judge(attack)

    run()


def disorder_of(damage: Damage) -> str | None:
    """Say what no file may cause, which includes a long time; None if all is in order."""
    slow = f"took {damage.seconds:.1f} s" if damage.seconds > SLOW_S else None
    return damage.describe_disorder() or slow


def keep(name: str, number: int, attack: Attack, damage: Damage) -> Path:
    """Write the files of an attack, its command, and its output into a new folder."""
    folder = FOLDER / f"{name}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in attack.files.items():
        (folder / file).write_bytes(content)
    said = f"collplan {shlex.join(attack.arguments)}\n\n{damage.out}\n{damage.err}"
    (folder / "output.txt").write_text(said)
    return folder


def main(arguments: list[str] | None = None) -> int:
    """Attack until the time is over; return 1 if a file broke a rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--formats", nargs="+", choices=sorted(FORMATS), default=list(FORMATS))
    options = parser.parse_args(arguments)
    found: dict[str, Counter[str]] = {name: Counter() for name in options.formats}
    slowest = dict.fromkeys(options.formats, 0.0)
    target, end, number = Target(), time.monotonic() + options.seconds, options.seed
    n_wrong = 0

    def judge(attack: Attack) -> None:
        nonlocal n_wrong
        if time.monotonic() > end:
            return
        damage: Any = target.run(attack)
        found[name][("read", "refuted", "refused")[min(max(damage.status, 0), 2)]] += 1
        slowest[name] = max(slowest[name], damage.seconds)
        if disorder := disorder_of(damage):
            n_wrong += 1
            print(f"{name}: {disorder}: {keep(name, n_wrong, attack, damage)}", flush=True)

    while time.monotonic() < end:
        for name in options.formats:
            attack_often(name, BATCH, number, judge)
        number += 1
    target.close()
    print(f"{'format':14}{'read':>9}{'refuted':>9}{'refused':>9}{'slowest':>10}")
    for name, counts in found.items():
        columns = "".join(f"{counts[way]:9}" for way in ("read", "refuted", "refused"))
        print(f"{name:14}{columns}{slowest[name]:8.1f} s")
    total = sum(counts.total() for counts in found.values())
    print(f"seed {options.seed}: {total} files, {n_wrong} of them broke a rule")
    return int(n_wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
