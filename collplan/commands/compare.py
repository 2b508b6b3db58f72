"""``collplan compare``: the price of every algorithm, size by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from collplan.options import Json, Spec

if TYPE_CHECKING:
    from specs import PlanSpec


def command(
    source: Spec,
    sizes: Annotated[
        str | None,
        typer.Option(
            help="Bytes of the collective's count, like 1KiB,64KiB; the spec's own by default.",
            metavar="SIZE,...",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Price every algorithm of the spec's collective over a range of sizes.

    What an algorithm cannot do is said, not skipped in silence.
    """
    from collplan.inputs import open_spec
    from collplan.output import print_json, show_progress

    spec = open_spec(source)
    requests = [_with_bytes(spec, size) for size in _parse_sizes(spec, sizes)]
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    with show_progress(f"pricing {spec.collective.kind} on {spec.machine.n_ranks} ranks"):
        for request in requests:
            _price(request, rows, refused)
    best: dict[str, str] = {}
    for row in sorted(rows, key=lambda row: row["makespan_s"]):
        best.setdefault(str(row["bytes"]), row["candidate"])
    if as_json:
        print_json({"rows": rows, "best": best, "refused": refused})
    else:
        _print_rows(rows, best, refused)
    return 0 if rows else 1


def _parse_sizes(spec: PlanSpec, text: str | None) -> list[int]:
    from specs import parse_bytes
    from specs.errors import CollplanError

    collective = spec.collective
    if text is None or collective.kind == "barrier":
        return [collective.count * collective.itemsize]
    sizes = []
    for part in text.split(","):
        try:
            size = parse_bytes(part)
        except ValueError as error:
            raise CollplanError(f"--sizes: {error}") from None
        if size % collective.itemsize:
            raise CollplanError(
                f"--sizes: {part.strip()} is no multiple of the {collective.itemsize} bytes of "
                f"{collective.datatype}; give whole elements"
            )
        sizes.append(size)
    return sorted(set(sizes))


def _with_bytes(spec: PlanSpec, n_bytes: int) -> PlanSpec:
    if spec.collective.kind == "barrier":
        return spec
    count = n_bytes // spec.collective.itemsize
    return spec.replace(collective=spec.collective.replace(count=count))


def _price(spec: PlanSpec, rows: list[dict[str, Any]], refused: dict[str, str]) -> None:
    """Add a row for each algorithm that can serve `spec`; note why others cannot."""
    from executors.cost import cost_report, simulate
    from planner import compile_plan
    from planner.algorithms import registry
    from planner.errors import AlgorithmError
    from specs import AlgorithmChoice

    for algorithm in registry.of(spec.collective.kind):
        own = getattr(spec.algorithms, "name", None) == algorithm.name
        choice = spec.algorithms if own else AlgorithmChoice(name=algorithm.name)
        try:
            plan = compile_plan(spec.replace(algorithms=choice))
        except AlgorithmError as error:
            refused[algorithm.name] = str(error)
            continue
        report = cost_report(plan, simulate(plan, spec.machine.network))
        rows.append(
            {
                "candidate": str(choice),
                "bytes": spec.collective.count * spec.collective.itemsize,
                "makespan_s": report["makespan_s"],
            }
        )


def _print_rows(rows: list[dict[str, Any]], best: dict[str, str], refused: dict[str, str]) -> None:
    from collplan.output import format_bytes, format_seconds, print_line, print_table

    sizes = sorted({row["bytes"] for row in rows})
    times = {(row["candidate"], row["bytes"]): row["makespan_s"] for row in rows}
    candidates = sorted(
        dict.fromkeys(row["candidate"] for row in rows),
        key=lambda name: min(times[name, size] for size in sizes),
    )
    print_table(
        ["candidate", *map(format_bytes, sizes)],
        [
            [
                name,
                *(
                    ("*" if best[str(size)] == name else "") + format_seconds(times[name, size])
                    for size in sizes
                ),
            ]
            for name in candidates
        ],
    )
    for line in refused.values():
        print_line(f"not possible: {line}")
    print_line("* the best of its size")
