"""Algorithms of one's own that are wrong: one line with algorithm, round, step and limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import collplan
from collplan.planner import compile_plan
from collplan.planner.algorithms import checking
from collplan.planner.algorithms.registry import algorithm as register
from collplan.planner.algorithms.registry import registry
from collplan.planner.algorithms.rounds import Call, Copy, Group, Message, Reduce, Round, Rounds, at
from collplan.planner.errors import AlgorithmError, PlanError
from collplan.planner.passes import registry as passes_registry
from collplan.planner.verify import verify
from collplan.specs import CollplanError, parse_spec


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


def one_step(make: Callable[[Group], Any]) -> Callable[[Group], Rounds]:
    def rounds(group: Group) -> Rounds:
        yield Round(make(group))

    return rounds


def in_numpy(_group: Group) -> Rounds:
    yield Round(Copy(np.concatenate(5), (), ()))  # type: ignore[call-overload]


def failing_at_once(group: Group) -> Any:
    return group.nothing  # type: ignore[attr-defined]


def silently_asserting(_group: Group) -> Rounds:
    yield Round()
    raise AssertionError


def refusing(_group: Group) -> Rounds:
    yield Round()
    raise AlgorithmError("needs an odd number of ranks; use 3")


def endless(_group: Group) -> Rounds:
    while True:
        yield Round()


def unfinished(group: Group) -> Any:
    return Round(Message(0, 1, at(group.input, 0), at(group.output, 0)))


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
    "one round": (unfinished, "returns Round(steps=(Message(source=0,"),
    "a list": (lambda _: [1], "round 1: 1 is not a Round; yield Round(Message(...), ...)"),
    "a text": (lambda _: "ring", "round 1: 'r' is not a Round; yield Round(Message(...), ...)"),
    "no group": (lambda: None, "allgather/mine: TypeError: <lambda>() takes 0 positional arg"),
    "at once": (failing_at_once, "has no attribute 'nothing' (test_checking.py:"),
    "in numpy": (in_numpy, "round 1: TypeError: "),
    "no text": (silently_asserting, "round 2: AssertionError (test_checking.py:"),
    "refusing": (refusing, "allgather/mine: round 2: needs an odd number of ranks; use 3"),
    "counts": (lambda group: group.counts, "allgather/mine: algorithms: group.counts is read by"),
    "endless": (endless, "allgather/mine: yields more than 100 rounds; let the generator end"),
    "a call": (
        one_step(lambda group: Call(0, at(group.input, 0), at(group.output, 0))),
        "round 1: step 1 is a Call, which only algorithms called native make; use Message",
    ),
    "no position": (one_step(lambda _: Message(None, 1)), "source is None; give a whole number"),
    "copy": (
        one_step(lambda group: Copy(9, at(group.input, 0), at(group.output, 0))),
        "round 1: step 1, a Copy: at 9: rank is 9; positions are 0 to 3",
    ),
    "stride": (
        one_step(lambda group: Message(0, 1, at(group.input, 0, stride=0.5))),
        "read: stride is 0.5; give a whole number",
    ),
    "repeat": (
        one_step(lambda group: Message(0, 1, at(group.input, 0, repeat=-1))),
        "from 0 to 1: read: repeat is -1; numbers of runs are 0 to",
    ),
    "queue": (one_step(lambda _: Message(0, 1, queue="a")), "queue is 'a'; give a whole number"),
    "slots": (
        one_step(lambda group: Copy(0, (), at(group.scratch_slots(-2), 0))),
        "allgather/mine: round 1: n_slots is -2; give a whole number of at least 0",
    ),
    "times": (
        one_step(lambda group: Copy(0, (), at(group.repeated_scratch("2"), 0))),
        "allgather/mine: round 1: times is '2'; give a whole number of at least 0",
    ),
    "scratch": (
        one_step(lambda group: Copy(0, (), at(group.scratch_slots(2), 0, 9))),
        "a Copy: at 0: write: n is 9, the space has 8 chunks; give 0 to 8",
    ),
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


@pytest.mark.quick
@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_one_line(
    name: str, own: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "MOST_ROUNDS", 100)
    rounds, expected = WRONG[name]
    with pytest.raises(AlgorithmError) as refused:
        own(rounds)
    line = str(refused.value)
    assert line.startswith("allgather/mine: ")
    assert expected in line
    assert "\n" not in line
    assert "numpy" not in line


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


def backwards(group: Group) -> Rounds:
    """Combine the operands of all ranks in the opposite order, at rank 0."""
    result = group.whole(group.output)
    yield Round(Copy(group.positions, group.whole(group.input), result))
    for position in range(1, group.size):
        yield Round(Message(position, 0, result, result, result, incoming_left=True))
    yield Round(Message(0, np.arange(1, group.size), result, result))


def only_rank_0(group: Group) -> Rounds:
    result = group.whole(group.output)
    yield Round(Copy(group.positions, group.whole(group.input), result))
    yield Round(Message(np.arange(1, group.size), 0, result, result, result))


def before_it_is_there(group: Group) -> Rounds:
    vector = group.whole(group.output)
    yield Round(Message(1, 2, vector, vector))
    yield Round(Message(0, np.array([1, 3]), vector, vector))


def to_itself(group: Group) -> Rounds:
    yield from ring()(group)
    yield Round(Message(0, 0, at(group.output, 0), at(group.output, 1)))


def reducing(group: Group) -> Rounds:
    result = at(group.output, 0)
    yield Round(Reduce(0, result, result, result))


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
    "a rank is left out": (
        "bcast", lambda group: iter([Round(group.down(np.zeros(2, int), np.array([1, 2])))]),
        "rank 3 recv[0] holds undefined memory, not element 0 of rank 0, as nothing writes it",
    ),
    "read too early": (
        "bcast", before_it_is_there, "#1 rank 2: recv from 1 tag 0 -> recv[0:3] wrote it last, in "
        "round 1 of bcast/mine",
    ),
    "nothing is read": (
        "bcast", one_step(lambda group: Message(0, 1, (), group.whole(group.output))),
        "sends 0 elements, #1 rank 1: recv from 0 tag 0 -> recv[0:3] expects 3, in round 1 of",
    ),
    "nothing at all": ("bcast", no_rounds, "not element 0 of rank 0, as bcast/mine does nothing"),
    "overwritten": ("allgather", to_itself, "wrote it last, in round 5 of allgather/mine"),
    "reduces": (
        "allgather", reducing,
        "reduces, but allgather has no operation; use a copy, in round 1 of allgather/mine",
    ),
    "only one rank": ("allreduce", only_rank_0, "wrote it last, in round 1 of allreduce/mine"),
    "backwards": (
        "scan", backwards, "recv[0:3] after #11 #9 wrote it last, in round 4 of scan/mine",
    ),
    "no message": ("barrier", no_rounds, "no chain of messages of barrier/mine leads to it"),
}  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("name", REFUTED)
def test_a_counter_example_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, rounds, expected = REFUTED[name]
    line = refused_line(monkeypatch, kind, rounds)
    assert expected in line
    assert "mine" in line


def refused_line(
    monkeypatch: pytest.MonkeyPatch, kind: str, rounds: Callable[[Group], Rounds], **more: Any
) -> str:
    """Return the line with which the compiler refuses a wrong algorithm."""
    monkeypatch.setitem(registry._algorithms, kind, {**registry._algorithms[kind]})
    register(kind, "mine")(rounds)
    fields = {"kind": kind} | ({} if kind == "barrier" else {"count": 3}) | more
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


def test_many_wrong_algorithms_are_tried() -> None:
    assert len(WRONG) + len(REFUTED) >= 45


def test_the_order_of_operands_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    op = {"name": "mine", "commutative": False}
    line = refused_line(monkeypatch, "allreduce", backwards, op=op)
    assert line.startswith("rank 0 recv[0] holds operands out of rank order, ")
    assert line.endswith("in round 2 of allreduce/mine")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (only_itself, "mine: rank 0 recv[31] holds undefined memory, "),
        (ring(dest=lambda me: me + 1), "mine: allgather/mine: round 2: step 1, a Message: from 3"),
        (lambda _: None, "mine: allgather/mine: returns None; let it yield rounds"),
    ],
)
def test_a_comparison_refuses_a_wrong_one_that_the_spec_names(
    rounds: Callable[[Group], Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._algorithms, "allgather", {**registry._algorithms["allgather"]})
    register("allgather", "mine")(rounds)
    machine, kind = {"ranks_per_node": 4}, {"kind": "allgather", "count": 31}
    fields = {"machine": machine, "collective": kind, "algorithms": "mine"}
    with pytest.raises(CollplanError) as refused:
        collplan.compare(fields, candidates="mine")
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


REGISTERED: dict[str, tuple[Callable[[], Any], str]] = {
    "twice": (
        lambda: register("allgather", "ring")(ring()),
        "algorithms: allgather has a 'ring' already; give yours another name",
    ),
    "a synonym": (
        lambda: register("allgather", "mine", optoins={}),
        "algorithm: 'optoins' is not an argument; did you mean 'options'?",
    ),
    "parts": (
        lambda: register("allgather", "mine", parts="half"),
        "algorithms: allgather/mine: parts has 'half'; did you mean 'halves'? use whole, halves, ",
    ),
    "a use": (
        lambda: register("allgather", "mine", best_for=("fast",)),
        "algorithms: allgather/mine: best_for has 'fast'; use short, long, shared, uneven",
    ),
    "a tree": (
        lambda: register("bcast", "mine", tree="binary"),
        "algorithms: bcast/mine: tree has 'binary'; use binomial, knomial, any, None",
    ),
    "options": (
        lambda: register("bcast", "mine", options=5),
        "algorithms: bcast/mine: options is 5; give a mapping of names to default values",
    ),
    "a flag": (
        lambda: register("bcast", "mine", even_only="yes"),
        "even_only: 'yes' is of type str; give True or False",
    ),
    "a name": (lambda: register("bcast", 5), "name: 5 is of type int; give a text"),  # type: ignore[arg-type]
    "no function": (
        lambda: register("bcast", "mine")(5),  # type: ignore[arg-type]
        "algorithms: bcast/mine: 5 is no function; decorate one that yields rounds",
    ),
    "no arguments": (
        lambda: register(ring()),  # type: ignore[call-arg, arg-type]
        "algorithm: name is missing; call algorithm(kind, name)",
    ),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", REGISTERED)
def test_a_wrong_registration_is_one_line(name: str) -> None:
    act, expected = REGISTERED[name]
    with pytest.raises(CollplanError) as refused:
        act()
    assert str(refused.value).startswith(expected)
    assert "\n" not in str(refused.value)


@pytest.mark.quick
@pytest.mark.parametrize("name", ["two\nlines", "", "a b", "x" * 100])
def test_a_name_is_one_word(name: Any) -> None:
    with pytest.raises(AlgorithmError, match="is no name of an algorithm; use letters"):
        register("allgather", name)(raising)
