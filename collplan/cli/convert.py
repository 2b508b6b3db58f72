"""``collplan convert``: conversion of another project's schedule into a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from collplan.cli.inputs import announce_compiling, prove_small
from collplan.cli.options import Json, Options, argument, option, output_file, parse_size
from collplan.planner.errors import PlanError
from collplan.reports.output import print_result
from collplan.reports.progress import spinner
from collplan.specs.errors import CollplanError
from collplan.specs.loading import load_machine, machine_at_hand
from collplan.specs.syntax.numbers import MAX_COUNT

if TYPE_CHECKING:
    from collplan.planner.plan.plan import Plan
    from collplan.specs import Machine


class ConvertOptions(Options):
    """Options of ``collplan convert``."""

    source: Path = argument("FILE.xml", "A schedule in MSCCL's XML.")
    output: Path = output_file(
        "The plan file to write.", "-o", "--output", metavar="PLAN", default=...
    )
    size: str | None = option(
        "SIZE", "Bytes of the collective's count, like 1MiB; by default one element per chunk."
    )
    datatype: str = option(None, "Datatype of the elements.", default="float32")
    op: str = option(None, "Operation of reductions.", default="sum")
    root: int = option("RANK", "Root, which MSCCL's files do not say.", default=0, min=0)
    machine: str | None = option(
        "FILE|PRESET", "Machine whose ranks the GPUs are; one node by default."
    )
    as_json: Json = False


def command(options: ConvertOptions) -> int:
    """Read a schedule in MSCCL's XML, prove it, and write it as a plan file.

    The plan can be shown, drawn, priced and run like any other. Very large schedules are not
    proved, and a warning says so. Exit status 1 if the schedule is wrong; the counter-example
    names steps or tasks, and no plan is written.
    """
    from collplan.planner.formats.msccl import plan_of
    from collplan.planner.formats.msccl_read import MscclError, read_schedule
    from collplan.planner.formats.npz import save

    announce_compiling()
    source = options.source
    try:
        with spinner(f"reading {source}"):
            schedule = read_schedule(source)
            plan = plan_of(
                schedule,
                str(source),
                machine=_machine(options.machine),
                count=_count(options),
                datatype=options.datatype,
                op=options.op,
                root=options.root,
            )
        is_proved = prove_small(plan, source)
    except MscclError:
        raise
    except PlanError as error:
        text = str(error) if str(error).startswith(str(source)) else f"{source}: {error}"
        refuted = {"ok": False, "error": str(error), "kind": error.kind}
        print_result(refuted, f"{error.kind}: {text}", as_json=options.as_json)
        return 1
    save(plan, options.output)
    needs = {
        "thread_blocks": len(schedule.blocks),
        "channels": schedule.n_channels,
        "protocol": schedule.protocol,
        "min_bytes": schedule.min_bytes,
        "max_bytes": schedule.max_bytes,
    }
    document = {
        "ok": True,
        "proved": is_proved,
        "output": str(options.output),
        "collective": schedule.collective,
        "in_place": schedule.is_in_place,
        "n_ranks": plan.n_ranks,
        "n_chunks": schedule.n_chunks,
        "n_steps": schedule.n_steps,
        "n_tasks": plan.n_tasks,
        "left_out": needs,
    }
    print_result(document, _report(plan, document), as_json=options.as_json)
    return 0


def _machine(source: str | None) -> Machine | None:
    return machine_at_hand() if source is None else load_machine(source)


def _count(options: ConvertOptions) -> int | None:
    from collplan.specs import numpy_dtype
    from collplan.specs.collectives.predefined import check_datatype

    try:
        itemsize = numpy_dtype(check_datatype(options.datatype)).itemsize
    except ValueError as error:
        raise CollplanError(f"--datatype: {error}") from None
    if options.size is None:
        return None
    n_bytes = parse_size("--size", options.size)
    if n_bytes % itemsize or n_bytes // itemsize > MAX_COUNT:
        raise CollplanError(
            f"--size: {n_bytes} bytes are not 0 to {MAX_COUNT} whole elements of "
            f"{options.datatype}, {itemsize} bytes each; give such a size"
        )
    return n_bytes // itemsize


def _report(plan: Plan, document: dict[str, Any]) -> str:
    needs = document["left_out"]
    place = " in place" if document["in_place"] else ""
    done = "proved" if document["proved"] else "read"
    lines = [
        f"{done}: {document['collective']}{place} on {document['n_ranks']} GPUs, "
        f"{document['n_chunks']} chunks: {document['n_steps']} steps are {plan.n_tasks} tasks",
        f"left out, as only MSCCL's runtime needs them: {needs['thread_blocks']} thread blocks, "
        f"{needs['channels']} channels, {_described(needs)}",
    ]
    if plan.spec is None and document["proved"]:
        lines.append(
            f"collplan does not know the collective {document['collective']}: it proved that "
            f"messages match, and that there are no deadlocks and no races, but not the result"
        )
    return "\n".join([*lines, f"wrote {document['output']}"])


def _described(needs: dict[str, Any]) -> str:
    """Return the protocol and the range of sizes of a schedule in words, if they are given."""
    protocol = needs["protocol"]
    words = [f"protocol {protocol}" if protocol else "no protocol"]
    low, high = needs["min_bytes"], needs["max_bytes"]
    if low is not None and high is not None:
        words.append(f"sizes from {low} to {high} bytes")
    elif low is not None:
        words.append(f"sizes from {low} bytes")
    elif high is not None:
        words.append(f"sizes up to {high} bytes")
    return ", ".join(words)
