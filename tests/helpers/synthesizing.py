"""Schedules that a search writes, as algorithms for as long as a test runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collplan import compile as compile_plan
from collplan import parse_spec, verify
from collplan.own_algorithms import ask_for, import_own
from collplan.planner.algorithms import registry
from collplan.planner.plan.plan import Plan
from command_line import CommandLine


@contextmanager
def registered(path: Path) -> Iterator[None]:
    """Import a file with algorithms, and forget them at the end."""
    before = {kind: dict(registry._algorithms[kind]) for kind in registry.kinds()}
    try:
        ask_for([path])
        import_own()
        yield
    finally:
        for kind, names in before.items():
            registry._algorithms[kind] = names


class Synthesis:
    """The command, its file, and plans with the algorithm in it."""

    def __init__(self, collplan: CommandLine, name: str = "searched") -> None:
        self.collplan, self.name = collplan, name
        self.path = collplan.folder / f"{name}.py"
        self.machine: dict[str, Any] = {}
        self.collective: dict[str, Any] = {}

    def search(
        self, machine: dict[str, Any], collective: dict[str, Any], *words: object
    ) -> dict[str, Any]:
        """Run the command on a spec and return what it prints."""
        self.machine, self.collective = machine, collective
        spec = self.collplan.folder / "spec.json"
        spec.write_text(json.dumps({"machine": machine, "collective": collective}))
        outcome = self.collplan("synthesize", spec, "-o", self.path, *words, "--json")
        assert outcome.status == 0, outcome
        return outcome.json()

    def plan(self, **changes: Any) -> Plan:
        """Return the proved plan of the searched collective, with some of its fields changed."""
        document = {
            "machine": self.machine,
            "collective": self.collective | changes,
            "algorithms": self.name,
        }
        plan = compile_plan(parse_spec(document))
        verify(plan)
        return plan
