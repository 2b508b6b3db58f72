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
    "beyond": (ring(dest=lambda me: me + 1), "round 2: step 1, a Message: dest is 4; positions"),
    "below": (ring(source=lambda me: me - 1), "a Message: source is -1; positions are 0 to 3"),
    "space": (ring(space=2), "round 2: step 1, a Message: read: space is 2; spaces are 0 to 1"),
    "chunks": (ring(n=9), "round 2: step 1, a Message: read: n is 9, the space has 4 chunks; give"),
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


@pytest.mark.parametrize("name", ["two\nlines", "", "a b", "x" * 100, 5])
def test_a_name_is_one_word(name: Any) -> None:
    with pytest.raises(AlgorithmError, match="is no name of an algorithm; use letters"):
        register("allgather", name)(raising)
