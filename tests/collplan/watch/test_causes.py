"""Causes of time in collectives, from times that were written by hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from collplan.deciding.gains import Gain
from collplan.specs.errors import CollplanError
from collplan.watch.area import WORLD
from collplan.watch.causes import (
    WHOLE,
    algorithm_causes,
    causes_of,
    meetings_of,
    placement_causes,
    waiting_by_row,
)
from collplan.watch.trace import ProgramTrace, TracedCall, read_trace

Times = list[tuple[float, float]]


class Story:
    """Calls of ranks, in the order in which they are added."""

    def __init__(self, n_ranks: int) -> None:
        self.n_ranks = n_ranks
        self.calls: list[list[TracedCall]] = [[] for _ in range(n_ranks)]

    def meet(
        self, name: str, times: Iterable[tuple[float, float]], n_bytes: int = 8000, root: int = 0,
        site: str = "main (app.c:1)",
    ) -> None:  # fmt: skip
        """Add a collective, with the times at which each rank enters and leaves it."""
        order = len(self.calls[0]) + 1
        for rank, (enter_s, leave_s) in enumerate(times):
            self.calls[rank].append(
                TracedCall(
                    rank,
                    WORLD,
                    self.n_ranks,
                    rank,
                    order,
                    name,
                    root,
                    n_bytes,
                    site,
                    enter_s,
                    leave_s,
                )
            )

    def trace(self) -> ProgramTrace:
        """Return the calls of all ranks."""
        return ProgramTrace(tuple(tuple(calls) for calls in self.calls), 0)


def line_of(call: TracedCall) -> str:
    """Return a line of a rank's file, as the preloaded library writes it."""
    times = (round(one * 1e9) for one in (call.enter_s, call.leave_s))
    numbers = call.root, call.n_bytes, call.site, *times
    fields = call.key, call.size, call.member, call.order, call.name, *numbers
    return "\t".join(map(str, fields))


def test_time_is_split_into_waiting_and_transfer() -> None:
    story = Story(3)
    story.meet("allreduce", [(0.0, 5.0), (1.0, 5.0), (4.0, 5.0)])
    (one,) = meetings_of(story.trace())
    assert [one.waiting_of(call) for call in one.calls] == [4.0, 3.0, 0.0]
    assert one.waiting_s == pytest.approx(7 / 3)
    assert one.transfer_s == pytest.approx(1.0)
    assert one.lead_s == 3.0
    assert waiting_by_row([one]) == {("allreduce", 3, 13): pytest.approx(0.7)}


def test_ranks_wait_for_the_root_of_a_broadcast_only() -> None:
    story = Story(3)
    story.meet("bcast", [(2.0, 3.0), (0.0, 3.0), (9.0, 9.5)])
    (one,) = meetings_of(story.trace())
    assert [one.waiting_of(call) for call in one.calls] == [0.0, 2.0, 0.0]


def test_a_rank_that_leaves_before_the_last_one_comes_has_not_waited_for_it() -> None:
    story = Story(3)
    story.meet("reduce", [(0.0, 6.0), (0.0, 1.0), (5.0, 6.0)])
    (one,) = meetings_of(story.trace())
    assert [one.waiting_of(call) for call in one.calls] == [5.0, 0.0, 0.0]


def test_a_late_rank_is_the_cause_with_the_time_that_it_costs() -> None:
    story = Story(3)
    for turn in range(10):
        at_s = 10.0 * turn
        story.meet("allreduce", [(at_s, at_s + 4), (at_s + 1, at_s + 4), (at_s + 3, at_s + 4)])
    (cause,) = causes_of(meetings_of(story.trace()))
    assert (cause.kind, cause.site) == ("late_rank", "main (app.c:1)")
    assert "rank 2" in cause.remedy
    assert cause.seconds == pytest.approx(10 * (3 + 2) / 2)
    assert cause.gain_s == pytest.approx(10 * 2)
    assert set(asdict(cause)) == {"kind", "site", "seconds", "remedy", "gain_s"}


def test_ranks_that_are_late_in_turn_are_no_cause() -> None:
    story = Story(2)
    for turn in range(10):
        at_s, late = 10.0 * turn, turn % 2
        times = [(at_s, at_s + 3), (at_s + 2, at_s + 3)]
        story.meet("allreduce", times if late else times[::-1])
    assert causes_of(meetings_of(story.trace())) == []


def test_many_small_calls_are_one_cause() -> None:
    story = Story(2)
    for turn in range(100):
        story.meet("allreduce", [(turn, turn + 0.9)] * 2, 8)
    (cause,) = causes_of(meetings_of(story.trace()))
    assert cause.kind == "many_small"
    assert cause.seconds == pytest.approx(90.0)
    assert cause.gain_s == pytest.approx(90 * 0.99)


def test_small_calls_with_computation_between_them_are_not_fused() -> None:
    story = Story(2)
    for turn in range(100):
        story.meet("allreduce", [(10 * turn, 10 * turn + 0.9)] * 2, 8)
    assert causes_of(meetings_of(story.trace())) == []


def test_broadcasts_from_different_roots_are_serialized() -> None:
    story = Story(2)
    for turn in range(4):
        root = turn % 2
        times = [(turn, turn + 1.0), (turn, turn + 1.0)]
        times[root] = (turn + 0.5, turn + 1.0)
        story.meet("bcast", times, 100_000, root)
    (cause,) = causes_of(meetings_of(story.trace()))
    assert cause.kind == "serialized"
    assert cause.seconds == pytest.approx(4 * 0.75)
    assert cause.gain_s == pytest.approx(3 * 0.25)


def test_what_a_plan_saves_is_no_waiting() -> None:
    story = Story(2)
    story.meet("allreduce", [(0.0, 10.0), (8.0, 10.0)], site="sum (app.c:7)")
    gain = Gain("allreduce", 2, 8000, 8000, 1, 10.0, 8.0, "ring", 2.0, "by the model")
    assert gain.saved_s == 1.0
    (cause,) = algorithm_causes(meetings_of(story.trace()), [gain], 2)
    assert (cause.kind, cause.site, cause.seconds) == ("algorithm", "sum (app.c:7)", 2.0)
    assert cause.gain_s == 1.0
    assert "collplan tune -n 2 --collectives allreduce" in cause.remedy


@pytest.mark.parametrize(
    ("masks", "gain"),
    [
        ([{0}, {0}, {1}, {1}], 0.5),
        ([{0}, {1}, {2}, {3}], None),
        ([{0, 1}] * 4, 0.5),
        ([{0, 1, 2, 3}] * 4, None),
        ([], None),
    ],
)
def test_ranks_that_share_processors_beside_free_ones_are_placed_badly(
    masks: list[set[int]], gain: float | None
) -> None:
    story = Story(4)
    story.meet("allreduce", [(0.0, 2.0)] * 4)
    trace = replace(story.trace(), processors=tuple(map(frozenset, masks)))
    found = placement_causes(meetings_of(trace), trace, range(4))
    assert [one.gain_s for one in found] == ([] if gain is None else [2.0 * gain])
    for cause in found:
        assert (cause.kind, cause.site, cause.seconds) == ("placement", WHOLE, 2.0)
        assert "and 2 processors have no rank" in cause.remedy


def test_incomplete_collectives_are_left_out() -> None:
    story = Story(2)
    story.meet("barrier", [(0.0, 1.0)])
    assert meetings_of(story.trace()) == []


def test_files_of_ranks_are_read(tmp_path: Path) -> None:
    story = Story(2)
    story.meet("bcast", [(1.0, 2.5), (1.25, 2.5)])
    for rank, calls in enumerate(story.calls):
        lines = [f"host\t3\t{rank}", *map(line_of, calls)]
        (tmp_path / f"{rank}.calls").write_text("\n".join(lines))
    found = read_trace(tmp_path, 2)
    processors = frozenset([0]), frozenset([1])
    assert found == ProgramTrace(story.trace().ranks, 4, processors)


def test_missing_files_and_several_hosts_are_refused(tmp_path: Path) -> None:
    (tmp_path / "0.calls").write_text("one\t0\t0-3")
    with pytest.raises(CollplanError, match=r"rank 1 has written no times of calls .No such file"):
        read_trace(tmp_path, 2)
    (tmp_path / "1.calls").write_text("two\t0\t0-3")
    with pytest.raises(CollplanError, match="2 hosts, whose clocks are not compared"):
        read_trace(tmp_path, 2)
