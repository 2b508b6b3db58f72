"""The table of algorithms that MPI libraries have, too, and under which names rules select them."""

from __future__ import annotations

from typing import Final

from collplan.exports import mpich, openmpi, ucc
from collplan.exports.selection import Target
from collplan.planner.algorithms import registry
from collplan.specs.collectives.collective import traits_of
from collplan.specs.methods.named_option import AlgorithmChoice
from export_tables import sweep
from export_tables import table as tuning_table

HEADER: Final = "| collective | collplan | Open MPI | MPICH | UCC |\n|---|---|---|---|---|"
NONE: Final = "–"


def table() -> str:
    """Return a row for each algorithm that a library has, for 4 ranks and default options."""
    rows = [
        f"| {kind} | `{name}` | {' | '.join(cells)} |"
        for kind in registry.kinds()
        if not traits_of(kind).has_edges
        for name in sorted(one.name for one in registry.of(kind))
        if set(cells := _cells(kind, name)) != {NONE}
    ]
    return "\n".join([HEADER, *rows])


def _cells(kind: str, name: str) -> list[str]:
    one = tuning_table(sweep(kind, {0: {name: 1}})).sweeps[0]
    choice = AlgorithmChoice(name=name)
    answers = (
        openmpi.equivalent(True, True, one, choice, 0),
        mpich.equivalent(one, choice, 0),
        ucc.equivalent(one, choice, 0),
    )
    return [_cell(answer) for answer in answers]


def _cell(answer: Target | str) -> str:
    """Return a library's name of an algorithm, with the setting that makes it the same."""
    if isinstance(answer, str):
        return NONE
    form = " ".join(option for option in answer.options if option.startswith(("tree", "k=")))
    if answer.setting is not None:
        form = f"{answer.setting[0].removeprefix('UCC_TL_UCP_')}={answer.setting[1]}"
        form = form.replace("coll_tuned_bcast_algorithm_knomial_radix", "radix")
    return f"`{answer.name}`" + (f" `{form}`" if form else "")
