"""Passes and decompositions as texts: the plan before, and the plan after.

A file in ``texts`` has a spec, and the text of its plan without passes, or with all but the last
one, and then with all of them. ``python tests/planner/test_texts.py`` writes the texts anew: read
what has changed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from collplan.planner import compile_plan
from collplan.planner.formats.text import to_text
from collplan.planner.formats.text_read import from_text
from collplan.planner.passes.registry import pass_registry
from collplan.planner.verify import verify
from collplan.specs import PlanSpec, parse_spec

TEXTS = Path(__file__).parent / "texts"
NEEDS_TREES = ("split_tree", "place_progress")
"""Passes that need the trees of phases, which texts do not have."""
LINE = "\n--- {}\n"
BEFORE, AFTER = LINE.format("before"), LINE.format("after")


def without_last_pass(spec: PlanSpec) -> PlanSpec:
    return spec.replace(passes=spec.passes[:-1])


def parts_of(path: Path) -> tuple[str, PlanSpec, str, str]:
    """Return the document, the spec, and the texts before and after the last pass."""
    document, _, texts = path.read_text(encoding="utf-8").partition(BEFORE)
    before, _, after = texts.partition(AFTER)
    return document, parse_spec(yaml.safe_load(document)), before, after


@pytest.mark.quick
@pytest.mark.parametrize("path", sorted(TEXTS.glob("*.txt")), ids=lambda path: path.stem)
def test_the_last_pass_makes_the_second_text_of_the_first(path: Path) -> None:
    _, spec, before, after = parts_of(path)
    if not spec.passes:  # a decomposition
        assert to_text(compile_plan(spec)) == before
        verify(from_text(before, spec))
        return
    first, last = without_last_pass(spec), spec.passes[-1]
    assert to_text(compile_plan(first)) == before
    assert to_text(compile_plan(spec)) == after
    one = pass_registry[last.name]
    if one.level == "plan" and last.name not in NEEDS_TREES:
        assert to_text(one.rewrite(from_text(before, first), **last.options)) == after
    verify(from_text(after, spec))


def test_every_pass_has_a_text() -> None:
    found = {one.name for path in TEXTS.glob("*.txt") for one in parts_of(path)[1].passes}
    assert found == set(pass_registry)


if __name__ == "__main__":
    for one in TEXTS.glob("*.txt"):
        document, asked, *_ = parts_of(one)
        texts = [BEFORE, to_text(compile_plan(without_last_pass(asked)))]
        if asked.passes:
            texts += [AFTER, to_text(compile_plan(asked))]
        one.write_text(document.rstrip() + "".join(texts), encoding="utf-8")
