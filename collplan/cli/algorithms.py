"""``collplan algorithms``: registered algorithms with their requirements."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from collplan.cli.options import Json, Options, argument, option
from collplan.reports.output import print_json, print_line, print_table
from collplan.specs.errors import CollplanError, show_value

if TYPE_CHECKING:
    from collplan.planner.algorithms import Algorithm


class KnownLibrary(StrEnum):
    """Libraries whose algorithms are known."""

    mpich = "mpich"
    openmpi = "openmpi"
    ucc = "ucc"
    nccl = "nccl"


class AlgorithmsOptions(Options):
    """Options of ``collplan algorithms``."""

    kind: str | None = argument("[KIND]", "List only algorithms of this collective.", default=None)
    like: KnownLibrary | None = option(
        "LIBRARY", "List the algorithms of mpich, openmpi, ucc or nccl, and which of ours each is."
    )
    as_json: Json = False


def command(options: AlgorithmsOptions) -> None:
    """List the algorithms with their requirements."""
    from collplan.planner.algorithms import registry
    from collplan.specs.collectives.collective import COLLECTIVES

    kind, kinds = options.kind, registry.kinds()
    if options.like is not None:
        _list_library(options.like, kind, as_json=options.as_json)
        return
    if kind in COLLECTIVES:
        # The algorithms of a regular collective also serve its vector form.
        kind = COLLECTIVES[kind].regular or kind
    if kind is not None and kind not in kinds:
        valid = dict.fromkeys([*kinds, *COLLECTIVES])
        raise CollplanError(f"{show_value(kind)} is not a collective; valid: {', '.join(valid)}")
    rows = [
        _describe(algorithm)
        for each in (kinds if kind is None else (kind,))
        for algorithm in registry.of(each)
    ]
    if options.as_json:
        print_json({"algorithms": rows})
        return
    print_table(
        ["algorithm", "options", "needs", ""],
        [
            [
                f"{row['kind']}/{row['name']}",
                ", ".join(f"{name}={value}" for name, value in row["options"].items()),
                ", ".join(row["needs"]),
                row["summary"],
            ]
            for row in rows
        ],
    )
    print_line(
        "also for every collective: auto, the planner's choice; mpich, MPICH's default choice; "
        "and but for neighborhoods: native, the MPI library's own collective"
    )


def _list_library(name: str, kind: str | None, *, as_json: bool) -> None:
    """Print the algorithms of a library with their collplan counterparts."""
    from collplan.libraries.counterparts import algorithms_of

    library = algorithms_of(name)
    kinds = dict.fromkeys(row.collective for row in library.rows)
    if kind is not None and kind not in kinds:
        raise CollplanError(
            f"{library.title} has no algorithms of {show_value(kind)}; valid: {', '.join(kinds)}"
        )
    rows = [row for row in library.rows if kind in (None, row.collective)]
    if as_json:
        listed = [
            {
                "kind": row.collective,
                "name": row.title,
                "ours": row.ours_text or None,
                "remark": row.remark,
            }
            for row in rows
        ]
        print_json({"library": library.title, "source": library.source, "algorithms": listed})
        return
    print_table(
        [f"{library.title}, {library.source}", "ours", ""],
        [[f"{row.collective}/{row.title}", row.ours_text or "none", row.remark] for row in rows],
    )


def _describe(algorithm: Algorithm) -> dict[str, Any]:
    return {
        "kind": algorithm.kind,
        "name": algorithm.name,
        "summary": algorithm.summary,
        "options": dict(algorithm.options or {}),
        "needs": algorithm.needs,
    }
