"""Algorithms of one's own that are wrong: one line with algorithm, round, step and limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.algorithms.registry import algorithm as register
from collplan.planner.algorithms.registry import registry
from collplan.planner.algorithms.rounds import Copy, Group, Message, Round, Rounds, at
from collplan.planner.errors import AlgorithmError, PlanError
from collplan.planner.passes import registry as passes_registry
from collplan.planner.verify import verify
from collplan.specs import parse_spec


def ring(
    source: Callable[[Any], Any] = lambda me: me,
    dest: Callable[[Any], Any] = lambda me: (me + 1) % 4,
    space: Any = 1,
    n: Any = 1,
) -> Callable[[Group], Rounds]:
    def rounds(group: Group) -> Rounds:
        me = np.arange(group.size)
        yield Round(Copy(me, at(group.input, me), at(group.output, me)))
        for t in range(group.size - 1):
            chunk = at(space, (me - t) % group.size, n)
            yield Round(Message(source(me), dest(me), chunk, at(group.output, me - t, n)))

    return rounds


def raising(group: Group) -> Rounds:
    yield Round()
    yield Round(Copy(0, (), group.options["absent"]))


def lazily_raising(_group: Group) -> Rounds:
    yield Round.of(Copy(1 // i, (), ()) for i in (1, 0))


def messages(_group: Group) -> Any:
    yield Message(0, 1)


def words(_group: Group) -> Any:
    yield Round("copy")  # type: ignore[arg-type]


def numbers(_group: Group) -> Any:
    yield Round(Message(0, 1, (1, 2), (3,)))  # type: ignore[arg-type]


WRONG: dict[str, tuple[Callable[[Group], Any], str]] = {
    "beyond": (
        ring(dest=lambda me: me + 1),
        "round 2: step 1, a Message: from 3 to 4: dest is 4; positions",
    ),
    "below": (
        ring(source=lambda me: me - 1),
        "a Message: from -1 to 1: source is -1; positions are 0 to 3",
    ),
    "space": (ring(space=2), "a Message: from 0 to 1: read: space is 2; spaces are 0 to 1"),
    "chunks": (ring(n=9), "a Message: from 0 to 1: read: n is 9, the space has 4 chunks; give"),
    "floats": (ring(source=lambda me: me / 1), "source is array([0., 1., 2., 3.]); give a whole"),
    "lists": (ring(dest=lambda me: [1, 2, 3, 0]), "dest is [1, 2, 3, 0]; give a whole number"),
    "lengths": (ring(dest=lambda _: np.arange(3)), "source and dest have 4 and 3 entries; give"),
    "fewer": (ring(n=np.ones(3, int)), "read: n has 3 entries for 4 steps; give as many, or one"),
    "raising": (raising, "round 2: KeyError: 'absent' (test_checking.py:"),
    "lazy": (lazily_raising, "round 1: ZeroDivisionError: "),
    "messages": (messages, "is not a Round; yield Round(Message(...), ...)"),
    "words": (words, "round 1: step 1 is 'copy'; steps are Message, Copy, Reduce, Call"),
    "numbers": (numbers, "read: 1 are no chunks; use at(space, first, n)"),
    "nothing": (lambda _: None, "returns None; let it yield rounds"),
}  # fmt: skip


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Group], Any]], Any]:
    """Return a function that compiles an allgather of 4 ranks by an algorithm."""
    known = {**registry._algorithms["allgather"]}
    monkeypatch.setitem(registry._algorithms, "allgather", known)

    def compiled(rounds: Callable[[Group], Any]) -> Any:
        known.pop("mine", None)
        register("allgather", "mine")(rounds)
        return compile_plan(
            parse_spec(
                {
                    "machine": {"ranks_per_node": 4},
                    "collective": {"kind": "allgather", "count": 3},
                    "algorithms": "mine",
                }
            )
        )

    return compiled


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line(name: str, own: Callable[[Any], Any]) -> None:
    rounds, expected = WRONG[name]
    with pytest.raises(AlgorithmError) as refused:
        own(rounds)
    line = str(refused.value)
    assert line.startswith("allgather/mine: ")
    assert expected in line
    assert "\n" not in line


def test_a_right_one_is_proved(own: Callable[[Any], Any]) -> None:
    verify(own(ring()))


def test_a_counter_example_names_the_last_writer_and_its_round(own: Callable[[Any], Any]) -> None:
    def wrong(group: Group) -> Rounds:
        yield from ring()(group)
        yield Round(Message(0, 1, at(group.output, 0), at(group.output, 2)))

    with pytest.raises(PlanError, match=r"#\d+ rank 1: .* wrote it last, in round 5 of allgather"):
        verify(own(wrong))
    with pytest.raises(PlanError, match=r"not element 0 of rank 1, as nothing writes it"):
        verify(own(ring(dest=lambda me: me)))


def only_itself(group: Group) -> Rounds:
    me = group.positions
    yield Round(Copy(me, at(group.input, me), at(group.output, me)))


def wrong_block(group: Group) -> Rounds:
    yield from only_itself(group)
    me, size = group.positions, group.size
    for t in range(size - 1):
        read, write = at(group.output, me - t), at(group.output, me - t + 1)
        yield Round(Message(me, (me + 1) % size, read, write))


def too_early(group: Group) -> Rounds:
    yield from only_itself(group)
    me, size = group.positions, group.size
    for t in range(size - 1):
        passed_on = at(group.output, me - t - 1)
        yield Round(Message(me, (me + 1) % size, passed_on, passed_on))


def more_is_written(group: Group) -> Rounds:
    me = group.positions
    yield Round(Message(me, (me + 1) % group.size, at(group.input, me), at(group.output, me, 2)))


def adding(n_rounds: int) -> Callable[[Group], Rounds]:
    def rounds(group: Group) -> Rounds:
        me, size = group.positions, group.size
        given, result = group.whole(group.input), group.whole(group.output)
        yield Round(Copy(me, given, result))
        for _ in range(n_rounds):
            yield Round(Message(me, (me + 1) % size, given, result, result))

    return rounds


def no_rounds(_group: Group) -> Rounds:
    return iter(())


REFUTED: dict[str, tuple[str, Callable[[Group], Rounds], str]] = {
    "only itself": (
        "allgather", only_itself,
        "rank 0 recv[3] holds undefined memory, not element 0 of rank 1, as nothing writes it in "
        "the round of allgather/mine",
    ),
    "wrong block": ("allgather", wrong_block, "wrote it last, in round 2 of allgather/mine"),
    "too early": ("allgather", too_early, "wrote it last, in round 4 of allgather/mine"),
    "more is written": (
        "allgather", more_is_written, "sends 3 elements, #4 rank 1: recv from 0 tag 0 -> recv[0:6] "
        "expects 6, in round 1 of allgather/mine",
    ),
    "adds twice": ("allreduce", adding(4), "holds a contribution twice, "),
    "adds too few": ("allreduce", adding(1), ": rank 1 is missing; #"),
    "no message": ("barrier", no_rounds, "no chain of messages of barrier/mine leads to it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUTED)
def test_a_counter_example_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, rounds, expected = REFUTED[name]
    line = refused_line(monkeypatch, kind, rounds)
    assert expected in line
    assert "mine" in line


def refused_line(
    monkeypatch: pytest.MonkeyPatch, kind: str, rounds: Callable[[Group], Rounds]
) -> str:
    """Return the line with which the compiler refuses a wrong algorithm."""
    monkeypatch.setitem(registry._algorithms, kind, {**registry._algorithms[kind]})
    register(kind, "mine")(rounds)
    fields = {"kind": kind} | ({} if kind == "barrier" else {"count": 3})
    machine = {"ranks_per_node": 4}
    spec = parse_spec({"machine": machine, "collective": fields, "algorithms": "mine"})
    with pytest.raises(PlanError) as refuted:
        compile_plan(spec)
    line = str(refuted.value)
    assert "\n" not in line
    return line


def test_too_few_bytes_are_an_error_where_nothing_is_proved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passes_registry, "VERIFY_LIMIT", 3)
    monkeypatch.setitem(registry._algorithms, "allgather", {**registry._algorithms["allgather"]})
    register("allgather", "mine")(only_itself)
    fields = {"machine": {"ranks_per_node": 4}, "collective": {"kind": "allgather", "count": 3}}
    assert compile_plan(parse_spec(fields | {"algorithms": "ring"})).n_tasks > 3
    with pytest.raises(AlgorithmError) as refused:
        compile_plan(parse_spec(fields | {"algorithms": "mine"}))
    assert str(refused.value).startswith(
        "allgather/mine: the busiest rank sends 0 bytes, any right plan at least 72 ("
    )


def test_twenty_wrong_algorithms_are_tried() -> None:
    assert len(WRONG) + len(REFUTED) >= 20


@pytest.mark.parametrize("name", ["two\nlines", "", "a b", "x" * 100, 5])
def test_a_name_is_one_word(name: Any) -> None:
    with pytest.raises(AlgorithmError, match="is no name of an algorithm; use letters"):
        register("allgather", name)(raising)
