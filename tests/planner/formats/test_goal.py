"""GOAL schedules: read, refused, written and read back."""

from __future__ import annotations

import io
import time
from pathlib import Path

import numpy as np
import pytest

from collplan.executors.cost import simulate
from collplan.planner import compile_plan
from collplan.planner.errors import SizeMismatchError
from collplan.planner.formats.goal import GoalError, parse_goal, read_goal, write_goal
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import Buffer, Op, Plan
from collplan.planner.plan.ragged import INTENT, ON_START, Dependencies
from collplan.specs import Network, PlanSpec
from handmade import PlanBook
from looping import looped

EVERYTHING = """
// a schedule with every statement
num_ranks 2 /* two
ranks */
rank 0 {
l1: send 8b to 1 tag 7 cpu 1 nic 2
l2: calc 100 cpu 3   // on another core
l2 requires l1
l_3: recv 5b from 1
l_3 irequires l2
l_3 requires l1
}

rank 1 { a: recv 8b from 0 tag 7
b: send 5b to 0 nic 1 }
"""


def test_reads_every_statement() -> None:
    plan = parse_goal(EVERYTHING)
    check_format(plan)
    assert plan.op.tolist() == [Op.SEND, Op.COMPUTE, Op.RECV, Op.RECV, Op.SEND]
    assert plan.rank.tolist() == plan.node.tolist() == [0, 0, 0, 1, 1]
    assert plan.peer.tolist() == [1, -1, 1, 0, 0]
    assert plan.tag.tolist() == [7, -1, 0, 7, 0]
    assert plan.core.tolist() == [1, 3, 0, 0, 0]
    assert plan.lane.tolist() == [2, -1, 0, 0, 1]
    assert plan.duration_ns.tolist() == [0, 100, 0, 0, 0]
    assert plan.elements.tolist() == [8, 0, 5, 8, 5]
    assert plan.itemsize == 1
    assert plan.deps.indptr.tolist() == [0, 0, 1, 3, 3, 3]
    assert plan.deps.task.tolist() == [0, 1, 0]
    assert plan.deps.kind.tolist() == [INTENT, INTENT | ON_START, INTENT]


def test_reads_what_other_tools_write(tmp_path: Path) -> None:
    """No labels, spaces before units, a byte-order mark, tags of 32 bits, and larger receives."""
    path = tmp_path / "other.goal"
    path.write_text(
        "\ufeffnum_ranks 2\n"
        "rank 0 {\ncalc 1000\nsend 64 b to 1 tag 3000000001\nsend 8\tb to 1 tag 7\n"
        "}\n"
        "rank 1 {\nrecv 128b from 0 tag 3000000001\nrecv 8 b from 0 tag 7\n}\n",
        encoding="utf-8",
    )
    plan = read_goal(path)
    check_format(plan)
    assert plan.op.tolist() == [Op.COMPUTE, Op.SEND, Op.SEND, Op.RECV, Op.RECV]
    assert plan.tag.tolist() == [-1, 1, 0, 1, 0]
    assert plan.elements.tolist() == [0, 64, 8, 64, 8]
    assert simulate(plan, Network()).makespan_s > 0


def test_a_receive_smaller_than_its_message_stays_an_error() -> None:
    text = "num_ranks 2\nrank 0 {\nsend 8b to 1\n}\nrank 1 {\nrecv 4b from 0\n}"
    with pytest.raises(SizeMismatchError, match=r"sends 8 elements, .* expects 4"):
        simulate(parse_goal(text), Network())


def test_receives_do_not_overlap() -> None:
    text = "a: recv 5b from 0\nb: recv 7b from 0\nc: send 7b to 0\nd: send 5b to 0"
    plan = parse_goal(f"num_ranks 2\nrank 0 {{ }}\nrank 1 {{\n{text}\n}}")
    check_format(plan)
    assert [str(plan.task(row).writes[0]) for row in (0, 1)] == ["recv[0:5]", "recv[5:12]"]
    assert plan.buffer_sizes.tolist() == [[0, 0, 0], [7, 12, 0]]


@looped(
    "text, line, problem",
    [
        ("num_ranks 1\nrank 0 {\na: calc 1\nb requires a\n}", 4, "label b is not defined in rank"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na requires b\n}", 4, "label b is not defined in rank"),
        ("num_ranks 1\nrank 0 {\n\n a: frob 1\n}", 4, "cannot read 'a: frob 1'"),
        ("num_ranks 1\nrank 0 {\na: calc -1\n}", 3, "cannot read 'a: calc -1'"),
        ("num_ranks 1\nrank 0 {\na: calc 1 nic 1\n}", 3, "cannot read 'a: calc 1 nic 1'"),
        ("num_ranks 2\nrank 0 {\na: send 1b to 1 cpu 0 tag 1\n}", 3, "cannot read 'a: send 1b"),
        ("num_ranks 2\nrank 0 {\na: send 1 to 1\n}", 3, "cannot read 'a: send 1 to 1'"),
        ("num_ranks 1\nrank 0 {\na: calc 1\na: calc 2\n}", 4, "label a is defined twice"),
        ("num_ranks 2\nrank 0 {\na: recv 1b from -1\n}", 3, "a: any rank (-1)"),
        ("num_ranks 2\nrank 0 {\na: recv 1b from 1 tag -1\n}", 3, "a: any tag (-1)"),
        ("num_ranks 2\nrank 0 {\na: send 1b to 2\n}", 3, "a: rank 2 of 2"),
        ("num_ranks 2\nrank 0 {\na: send 1b to 1 tag 4294967296\n}", 3, "a: tag 4294967296"),
        ("num_ranks 2\nrank 0 {\nsend 1b to 1 tag 4294967296\n}", 3, "tag 4294967296"),
        (f"num_ranks 2\nrank 0 {{\na: send {10**30}b to 1\n}}", 3, "a: message too large"),
        (f"num_ranks 1\nrank 0 {{\na: calc {10**30}\n}}", 3, "a: 1000000"),
        ("num_ranks 1\nrank 0 {\na: calc 1 cpu 5000\n}", 3, "a: cpu 5000"),
        ("num_ranks 2\nrank 0 {\na: send 1b to 1 nic 5000\n}", 3, "a: nic 5000"),
        ("num_ranks 2\nrank 1 {\n}\nrank 0 {\n}", 2, "rank 1 where rank 0 is due"),
        ("num_ranks 2\nrank 0 {\n}\nrank 0 {\n}", 4, "rank 0 where rank 1 is due"),
        ("num_ranks 1\nrank 0 {\n}\nrank 1 {\n}", 4, "rank 1 of 1"),
        ("num_ranks 2\nrank 0 {\nrank 1 {\n}\n}", 3, "begins inside of a rank"),
        ("num_ranks 1\na: calc 1", 2, "stands outside of a rank"),
        ("num_ranks 2\nrank 0 {\n}\n", 3, "ends after 1 of 2 ranks, as if cut short"),
        ("num_ranks 2\nrank 0 {\na: calc 1\n", 3, "ends inside rank 0, as if cut short"),
        ("num_ranks 2\nrank 0 {\na: se", 3, "cannot read 'a: se'"),
        ("num_ranks 1\nrank 0 {\n}\n/* and", 4, "comment never ends"),
        ("/* two\nlines */ rank 0 {\n}", 2, "does not begin with 'num_ranks N'"),
        ("", 1, "does not begin with 'num_ranks N'"),
        ("num_ranks 0", 1, "0 ranks"),
        ("num_ranks 70000", 1, "70000 ranks"),
        ("num_ranks " + "9" * 5000, 1, "does not begin with 'num_ranks N'"),
        ("num_ranks 1\nrank 0 {\na: calc " + "9" * 5000 + "\n}", 3, "cannot read 'a: calc 999"),
        ("num_ranks 1\nrank " + "0" * 5000 + " {\n}", 2, "cannot read 'rank 000"),
        (f"num_ranks 1\nrank 0 {{\n{'a' * 20000} requires b\n}}", 3, "label aaaaa"),
    ],
)
def test_errors_name_file_line_and_way_out(text: str, line: int, problem: str) -> None:
    with pytest.raises(GoalError) as error:
        parse_goal(text, "x.goal")
    message = str(error.value)
    assert message.startswith(f"x.goal:{line}: {problem}")
    assert "; " in message
    assert "\n" not in message
    assert len(message) < 500


def test_comments_that_never_end_take_linear_time() -> None:
    begin = time.process_time()
    with pytest.raises(GoalError, match=r"^x\.goal:2: comment never ends"):
        parse_goal("num_ranks 1\n" + "/* " * 50_000, "x.goal")
    assert time.process_time() - begin < 5


def test_receives_beyond_the_range_of_offsets_are_refused() -> None:
    receives = "\n".join(f"l{i}: recv {2**48}b from 1" for i in range(2**14 + 1))
    with pytest.raises(GoalError, match=r"all receives together have 4\.61e\+18 bytes, at most"):
        parse_goal(f"num_ranks 2\nrank 0 {{\n{receives}\n}}\nrank 1 {{ }}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(GoalError, match=r"absent\.goal: no such file; give the path"):
        read_goal(tmp_path / "absent.goal")
    binary = tmp_path / "binary.goal"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoalError, match=r"binary\.goal: is not text"):
        read_goal(binary)


def goal_text(plan: Plan, network: Network | None = None) -> str:
    stream = io.StringIO()
    write_goal(plan, stream, network)
    return stream.getvalue()


def exchange() -> Plan:
    """Two ranks send each other 4 of int32 with equal tags, twice, then reduce and copy."""
    book = PlanBook([0, 1])
    for rank in (0, 1):
        send = (Buffer.SEND, 0, 4)
        recv, scratch = (Buffer.RECV, 0, 4), (Buffer.SCRATCH, 0, 4)
        one = book.add(Op.SEND, rank, [send], [], peer=1 - rank)
        two = book.add(Op.SEND, rank, [send], [], [(one, ON_START)], peer=1 - rank)
        book.add(Op.RECV, rank, [], [recv], peer=1 - rank)
        got = book.add(Op.RECV, rank, [], [scratch], peer=1 - rank)
        both = book.add(Op.REDUCE, rank, [recv, scratch], [recv], [got, got - 1])
        book.add(Op.COPY, rank, [recv], [scratch], [both, two])
    return book.plan()


def test_written_form() -> None:
    costs = Network(copy_ns_per_byte=0.26, reduce_ns_per_byte=1.2)
    assert goal_text(exchange(), costs).split("\nrank 1")[0] == (
        "num_ranks 2\n\nrank 0 {\n"
        "l0: send 16b to 1 tag 0\n"
        "l1: send 16b to 1 tag 1\n"
        "l1 irequires l0\n"
        "l2: recv 16b from 1 tag 0\n"
        "l3: recv 16b from 1 tag 1\n"
        "l4: calc 20\n"
        "l4 requires l3\n"
        "l4 requires l2\n"
        "l5: calc 5\n"
        "l5 requires l4\n"
        "l5 requires l1\n"
        "}\n"
    )


@pytest.mark.quick
@pytest.mark.parametrize("eager_limit_bytes", [0, 16, 1000])
def test_a_written_plan_has_the_same_makespan(eager_limit_bytes: int) -> None:
    network = Network(eager_limit_bytes=eager_limit_bytes)
    plan = exchange()
    again = parse_goal(goal_text(plan, network))
    assert np.array_equal(simulate(plan, network).end_ns, simulate(again, network).end_ns)


def test_priorities_become_positions() -> None:
    plan = parse_goal("num_ranks 1\nrank 0 {\na: calc 5\nb: calc 3\nc: calc 1\nc requires b\n}")
    plan = plan.replace(priority=[0, 2, 1])
    text = goal_text(plan)
    assert "l0: calc 5\nl1: calc 1\nl2: calc 3\nl1 requires l2\n" in text
    assert simulate(parse_goal(text)).start_ns.tolist() == [0, 8, 5]
    assert simulate(plan).start_ns.tolist() == [0, 5, 8]


def test_cores_and_lanes_survive() -> None:
    plan = parse_goal(EVERYTHING)
    again = parse_goal(goal_text(plan))
    assert again.lane.tolist() == plan.lane.tolist()
    # Cores other than a rank's own are numbered as they come.
    assert again.core.tolist() == [1, 2, 0, 0, 0]
    assert simulate(again).makespan_ns == simulate(plan).makespan_ns


def test_shared_memory_cannot_be_said() -> None:
    plan = parse_goal("num_ranks 2\nrank 0 {\na: calc 1\n}\nrank 1 {\nb: calc 1\n}")
    crossing = plan.replace(deps=Dependencies(np.array([0, 0, 1]), np.array([0]), np.array([0])))
    with pytest.raises(GoalError, match=r"#1 of rank 1 waits for #0 of rank 0 through shared"):
        write_goal(crossing, io.StringIO())


def test_an_old_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "plan.goal"
    path.write_text("old")
    write_goal(exchange(), path)
    assert read_goal(path).n_tasks == 12
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.goal"]
    with pytest.raises(GoalError, match="cannot be written"):
        write_goal(exchange(), tmp_path / "absent" / "plan.goal")


@looped("n_ranks", [2, 7, 8])
@looped(
    "kind, algorithm",
    [
        ("allreduce", "ring"),
        ("allreduce", "rabenseifner"),
        ("alltoall", "linear"),
        ("bcast", "chain"),
    ],
)
def test_a_compiled_plan_has_the_same_makespan(kind: str, algorithm: str, n_ranks: int) -> None:
    for count in (1, 1001, 20000):
        spec = PlanSpec.model_validate(
            {
                "machine": {"nodes": n_ranks, "ranks_per_node": 1},
                "collective": {"kind": kind, "count": count, "datatype": "int32"},
                "algorithms": algorithm,
            }
        )
        plan = compile_plan(spec)
        timeline = simulate(plan)
        again = simulate(parse_goal(goal_text(plan)), spec.machine.network)
        assert again.makespan_ns == timeline.makespan_ns
        assert len(again.end_ns) == plan.n_tasks
