"""MSCCL's XML: the format's own examples are proved and run, and plans come back as they were."""

from __future__ import annotations

import re
import tarfile
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from collplan.executors.local import run_local
from collplan.planner import compile_plan
from collplan.planner.algorithms import registry
from collplan.planner.errors import DeadlockError, PlanError, RaceError, UnequalBitsError
from collplan.planner.formats.msccl import BLOCKS, IN_PLACE, KINDS, read_msccl
from collplan.planner.formats.msccl_read import MscclError, parse_schedule
from collplan.planner.formats.msccl_schedule import Schedule
from collplan.planner.formats.msccl_write import NAMES, write_msccl
from collplan.planner.metrics import measure
from collplan.planner.plan.plan import Op
from collplan.planner.verify import verify
from collplan.specs import Machine
from collplan.specs.collectives.collective import COLLECTIVES
from collplan.specs.errors import CollplanError
from looping import looped, naming
from oracle import check_result, make_spec

ARCHIVE = Path(__file__).parent / "msccl" / "examples.tar.xz"


@cache
def examples() -> dict[str, bytes]:
    """Return the files of the archive."""
    with tarfile.open(ARCHIVE) as archive:
        found = {one.name: archive.extractfile(one).read() for one in archive.getmembers()}
    return {name: text for name, text in found.items() if name.endswith(".xml")}


CUSTOM = [name for name in examples() if "alltonext" in name]
"""Schedules of collectives that nobody else has."""
PIPELINES = [name for name in examples() if "pipeline" in name]
"""Schedules that call themselves allreduce, but send every vector along a line of GPUs."""
CORRECT = [name for name in examples() if name not in (*CUSTOM, *PIPELINES)]
UNLIKE = [name for name in CORRECT if re.search("ap-1pass|1step-4_1", name)]
"""Schedules of allreduces in which each GPU combines operands from its own one on."""


def read(folder: Path, content: bytes | str, **options):
    path = folder / "schedule.xml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_msccl(path, **options)


def test_the_archive_has_all_examples() -> None:
    assert len(examples()) == 52
    assert len(CORRECT) == 48


@pytest.mark.many
@looped("name", CORRECT)
@pytest.mark.long
def test_examples_are_proved_and_compute_their_collective(name: str, tmp_path: Path) -> None:
    plan = read(tmp_path, examples()[name], datatype="int32" if name in UNLIKE else "float32")
    verify(plan)
    check_result(plan)
    kind = plan.spec.collective.kind
    assert kind in name.replace("ar_", "allreduce").replace("ag", "allgather") or "nd" in name
    if CORRECT.index(name) % 4 == 0:
        longer = read(tmp_path, examples()[name], count=3 * plan.spec.collective.count, op="max")
        verify(longer)
        check_result(longer)


@pytest.mark.parametrize("name", UNLIKE)
def test_orders_of_gpus_own_are_refused_where_sums_round(name: str, tmp_path: Path) -> None:
    plan = read(tmp_path, examples()[name])
    with pytest.raises(UnequalBitsError, match="sum of float32 rounds, so that they may differ"):
        verify(plan)
    check_result(plan)
    verify(read(tmp_path, examples()[name], op="max"))


@pytest.mark.parametrize("name", CUSTOM)
def test_custom_collectives_are_checked_for_races_and_deadlocks(name: str, tmp_path: Path) -> None:
    plan = read(tmp_path, examples()[name])
    assert plan.spec is None
    verify(plan)


@pytest.mark.parametrize("name", PIPELINES)
def test_pipelines_are_no_allreduce(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanError) as error:
        verify(read(tmp_path, examples()[name]))
    assert error.value.kind == "missing"


def without_last(text: str, kind: str) -> str:
    """Return a schedule without the first step of a kind that is the last one of its block."""
    changed, n = re.subn(
        rf'\n *<step s="\d+" type="{kind}"[^>]*hasdep="0"/>(\s*</tb>)', r"\1", text, count=1
    )
    assert n == 1
    return changed


def with_circle(text: str) -> str:
    """Return a schedule in which a thread block begins by waiting for its own end."""
    blocks = re.finditer(r'<tb id="(\d+)".*?</tb>', text, re.S)
    block = next(one for one in blocks if 's="1"' in one[0])
    last, dep = re.findall(r'<step s="(\d+)"', block[0])[-1], r'depid="-?\d+" deps="-?\d+"'
    waiting = re.sub(dep, f'depid="{block[1]}" deps="{last}"', block[0], count=1)
    return text.replace(block[0], waiting)


def with_larger_receive(text: str) -> str:
    """Return a schedule in which one message is received as nothing."""
    changed, n = re.subn(r'(type="r" [^>]*cnt=)"1"', r'\1"0"', text, count=1)
    assert n == 1
    return changed


def with_other_source(text: str) -> str:
    """Return a schedule in which one message has the element beside the right one."""
    one = r'<step s="\d+" type="s" srcbuf="(\w)" srcoff="(\d+)" dstbuf="\w" dstoff="\d+" cnt="1"'
    step = re.search(one, text)
    room = int(re.search(rf'{step[1]}_chunks="(\d+)"', text)[1])
    other = step[0].replace(f'srcoff="{step[2]}"', f'srcoff="{(int(step[2]) + 1) % room}"')
    return text.replace(step[0], other, 1)


WRONG = {"missing", "postcondition", "duplicate", "undefined", "operand_order"}
CORRUPTIONS = (
    (lambda text: without_last(text, "s"), {"unmatched_recv"}),
    (lambda text: without_last(text, "r"), {"unmatched_send"}),
    (with_circle, {"deadlock"}),
    (with_larger_receive, {"size_mismatch"}),
    (with_other_source, WRONG | {"race"}),
)


@pytest.mark.many
@looped("name", CORRECT[::2])
@pytest.mark.long
def test_corrupted_copies_are_caught_with_their_kind(name: str, tmp_path: Path) -> None:
    text, n_caught = examples()[name].decode(), 0
    for corrupt, kinds in CORRUPTIONS:
        try:
            wrong = corrupt(text)
        except (AssertionError, StopIteration, TypeError):
            continue  # this schedule has no such step
        with pytest.raises(PlanError) as error:
            verify(read(tmp_path, wrong, op="max"))
        assert error.value.kind in kinds, (corrupt, error.value)
        n_caught += 1
    assert n_caught > 0


@pytest.mark.parametrize("name", ["ndv4_ap2ll.xml", "ncv4_ar_hier_12_Simple.xml"])
def test_missing_dependencies_are_races(name: str, tmp_path: Path) -> None:
    """Without what orders them, reductions read chunks that may not have come."""
    text = re.sub(r'depid="-?\d+" deps="-?\d+"', 'depid="-1" deps="-1"', examples()[name].decode())
    with pytest.raises(RaceError):
        verify(read(tmp_path, text))


SWAP = """<algo name="swap" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2"
 coll="alltoall" inplace="1"><gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">
 <tb id="0" send="1" recv="1" chan="0">
  <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
  <step s="1" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1"/>
 </tb></gpu><gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0">
 <tb id="0" send="0" recv="0" chan="0">
  <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
  <step s="1" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1"/>
 </tb></gpu></algo>"""


def test_messages_that_would_wait_for_each_other_land_in_scratch(tmp_path: Path) -> None:
    """MSCCL sends before anybody receives: both GPUs may send what they receive next."""
    plan = read(tmp_path, SWAP)
    verify(plan)
    check_result(plan)
    assert plan.buffer_sizes[:, 2].tolist() == [1, 1]
    assert [task.op for task in plan.tasks() if task.rank == 0] == [Op.SEND, Op.RECV, Op.COPY]
    both_receive = SWAP.replace('s="0" type="s"', 's="0" type="X"').replace('type="r"', 'type="s"')
    with pytest.raises(DeadlockError, match=r"4 steps wait for each other: step 0 \(r\) of thread"):
        read(tmp_path, both_receive.replace('type="X"', 'type="r"'))


@pytest.mark.many
@pytest.mark.parametrize("kind", NAMES)
@looped("n_ranks", [1, 2, 3, 7, 8])
def test_a_round_trip_gives_the_same_metrics(kind, n_ranks, tmp_path) -> None:
    """Those whose messages have several pieces do not fit."""
    path = tmp_path / "plan.xml"
    ways = (False, True) if kind in IN_PLACE else (False,)
    for number, algorithm in enumerate(registry.legal(kind, n_ranks, commutative=True)):
        for in_place in ways if n_ranks > 3 else ways[:: (-1) ** number][:1]:
            is_rooted = COLLECTIVES[kind].is_rooted
            root = (n_ranks - 1) * ((number + in_place) % 2) if is_rooted else 0
            spec = make_spec(
                kind, algorithm.name, n_ranks, count=4 * n_ranks, datatype="int32", op="max",
                in_place=in_place, root=root,
            )  # fmt: skip
            plan = compile_plan(spec)
            pieces = [len(task.writes or task.reads) for task in plan.tasks()]
            with naming(algorithm.name, in_place, root):
                if max(pieces, default=1) > 1 or len(plan.patterns) > 1:
                    with pytest.raises(MscclError, match="of several pieces"):
                        write_msccl(plan, path)
                    continue
                written = write_msccl(plan, path)
                again = read_msccl(
                    path, count=4 * n_ranks, datatype="int32", op="max", root=root,
                    machine=spec.machine,
                )  # fmt: skip
                verify(again)
                assert measure(again) == measure(plan)
                check_result(again)
                whole = 4 * n_ranks * (n_ranks if kind in BLOCKS else 1)
                assert whole % written.n_chunks == 0


def test_lanes_are_those_of_the_machine(tmp_path: Path) -> None:
    machine = {"nodes": 2, "ranks_per_node": 4, "lanes": 2}
    spec = make_spec(
        "allreduce", "auto", 8, machine, count=64, datatype="float64", op="sum",
        decomposition="hierarchical",
    )  # fmt: skip
    plan = compile_plan(spec)
    write_msccl(plan, tmp_path / "plan.xml", protocol="LL", between=(1, 1 << 20))
    again = read_msccl(
        tmp_path / "plan.xml", machine=spec.machine, count=64, datatype="float64", op="sum"
    )
    assert measure(again) == measure(plan)
    assert measure(again).lane_bytes > 0
    schedule = parse_schedule((tmp_path / "plan.xml").read_bytes())
    assert (schedule.protocol, schedule.min_bytes, schedule.max_bytes) == ("LL", 1, 1 << 20)
    with pytest.raises(CollplanError, match=r"machine: has 4 ranks, .* is for 8 GPUs"):
        read_msccl(tmp_path / "plan.xml", machine=Machine(ranks_per_node=4))


def test_plans_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "plan.xml"
    machine = {"nodes": 2, "ranks_per_node": 2}
    refused = (
        (compile_plan(make_spec("scan", "auto", 4, count=4)), "scan is no collective of MSCCL"),
        (compile_plan(make_spec("alltoall", "bruck", 4, count=4)), "is of several pieces"),
        (compile_plan(make_spec("bcast", "linear", 4, count=0)), "moves no elements"),
        (
            compile_plan(make_spec("allreduce", "linear", 4, count=8).replace(transport="shared")),
            "use messages as transport",
        ),
        (compile_plan(make_spec("bcast", "binomial", 4, count=8), rank=0), "programs of all ranks"),
        (
            compile_plan(
                make_spec("allreduce", "native", 4, machine, count=8, decomposition="full_lane")
            ),
            "is no step of MSCCL",
        ),
        (
            compile_plan(
                make_spec(
                    "allreduce",
                    "auto",
                    4,
                    count=8,
                    datatype="uint64",
                    op={"name": "affine", "commutative": False},
                )
            ),
            "MSCCL's operations commute",
        ),
    )
    for plan, words in refused:
        with pytest.raises(MscclError, match=words):
            write_msccl(plan, path)
    assert not path.exists()


def test_limits_of_the_runtime_are_noted(tmp_path: Path) -> None:
    plan = compile_plan(make_spec("bcast", "chain", 2, count=2, root=1))
    assert write_msccl(plan, tmp_path / "x.xml").notes == (
        "the root is 1, which MSCCL's files do not say",
    )
    spec = make_spec(
        "bcast", "chain", 3, count=4096, datatype="int32",
        passes=[{"name": "segment", "max_bytes": 128}],
    )  # fmt: skip
    (note,) = write_msccl(compile_plan(spec), tmp_path / "x.xml").notes
    assert note.startswith("128 steps of a thread block, MSCCL's runtime takes 64")


ALGO = '<algo name="x" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="0">'
GPU = '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">'
TB = '<tb id="0" send="1" recv="-1" chan="0">'
STEP = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/>'
END = '</gpu><gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0"/></algo>'


@pytest.mark.quick
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no element found"),
        ("<algo", "unclosed token"),
        ("<a/>", "element 'a' in the file"),
        ("<algo/>", "'algo' has no attribute 'coll'"),
        (ALGO.replace('"2" coll', '"0" coll') + "</algo>", "ngpus is '0'; give a number from 1"),
        (ALGO + "</algo>", "gpu 0 of 2 is missing"),
        (ALGO + GPU + "</gpu>" + GPU + "</gpu></algo>", "gpu 0 is listed twice"),
        (ALGO + GPU + TB + "</tb>" + TB + "</tb>" + END, "has two thread blocks 0"),
        (ALGO + GPU + TB.replace('"1"', '"0"') + "</tb>" + END, "has itself as peer"),
        (ALGO + GPU + TB + STEP.replace('"s"', '"q"') + "</tb>" + END, "step type 'q'"),
        (ALGO + GPU + TB + STEP.replace('"s"', '"r"') + "</tb>" + END, "without a peer"),
        (ALGO + GPU + TB + STEP + STEP + "</tb>" + END, "step 0 where 1 is due"),
        (ALGO + GPU + TB + STEP.replace('cnt="1"', 'cnt="3"') + "</tb>" + END, "which has 2"),
        (ALGO + GPU + TB + STEP.replace('"i"', '"z"') + "</tb>" + END, "srcbuf is 'z'"),
        (
            ALGO + GPU + TB + STEP.replace("/>", ' depid="4" deps="0"/>') + "</tb>" + END,
            "depends on step 0 of thread block 4, which gpu 0 does not have",
        ),
        (
            ALGO + GPU + TB + "</tb>" + TB.replace('id="0"', 'id="1"') + "</tb>" + END,
            "thread block 1 sends to gpu 1 on channel 0, as block 0 does",
        ),
        ("<!DOCTYPE algo>" + ALGO + "</algo>", "declares a document type"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, words: str) -> None:
    with pytest.raises(MscclError, match=r"^<msccl>:\d+: ") as error:
        parse_schedule(text.encode())
    assert words in str(error.value)


def test_counts_and_collectives_that_do_not_fit(tmp_path: Path) -> None:
    with pytest.raises(CollplanError, match="divides them into 2 equal chunks; give a multiple"):
        read(tmp_path, ALGO + GPU + END, count=3)
    scattered = ALGO.replace("allreduce", "reducescatter")
    with pytest.raises(MscclError, match="in place, which MSCCL does in another way"):
        read(tmp_path, scattered.replace('inplace="0"', 'inplace="1"') + GPU + END)
    odd = scattered.replace('nchunksperloop="2"', 'nchunksperloop="3"')
    with pytest.raises(MscclError, match="nchunksperloop is 3, which 2 GPUs do not divide"):
        read(tmp_path, odd + GPU + END)
    outside = ALGO.replace('nchunksperloop="2"', 'nchunksperloop="1"') + GPU + TB
    wide = STEP.replace('srcoff="0"', 'srcoff="1"')
    with pytest.raises(MscclError, match="chunk 1 of buffer 'i' of gpu 0 lies outside"):
        read(tmp_path, outside + wide + "</tb>" + END)


def test_broadcasts_and_names(tmp_path: Path) -> None:
    """The input of a broadcast is the output's memory; copies from one to the other vanish."""
    text = ALGO.replace("allreduce", "broadcast") + GPU + (
        '<tb id="0" send="1" recv="-1" chan="0">'
        '<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/>'
        '<step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/></tb></gpu>'
        '<gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0"><tb id="0" send="-1" recv="0" chan="0">'
        '<step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="2"/></tb></gpu>'
        "</algo>"
    )  # fmt: skip
    plan = read(tmp_path, text)
    verify(plan)
    check_result(plan)
    assert plan.n_tasks == 2
    assert {KINDS[name] for name in NAMES.values()} == set(NAMES)
    assert isinstance(parse_schedule(text.encode()), Schedule)


def test_custom_schedules_run_on_bytes(tmp_path: Path) -> None:
    plan = read(tmp_path, examples()[CUSTOM[0]], count=2)
    sent = [np.full(n, rank, np.uint8) for rank, n in enumerate(plan.buffer_sizes[:, 0])]
    received = [np.zeros(n, np.uint8) for n in plan.buffer_sizes[:, 1]]
    run_local(plan, sent, received)
    assert any(buffer.any() for buffer in received)
