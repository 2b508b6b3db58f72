"""Calls with wrong arguments: one line that names the argument, and what to give."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collplan
from collplan.specs.syntax.calling import ArgumentError, explains_calls, require_comm


@explains_calls("add")
def add(one: Any, other: int | None = 0) -> Any:
    return one + other


def test_errors_inside_a_function_stay() -> None:
    assert add(1, 2) == 3
    with pytest.raises(TypeError, match="can only concatenate") as caught:
        add("2", 1)
    assert not isinstance(caught.value, ArgumentError)


@explains_calls("many")
def many(
    path: str | Path,
    *,
    flag: bool = False,
    time: float | None = None,
    names: str | Sequence[str] = (),
) -> tuple[Any, ...]:
    return path, flag, time, names


@explains_calls("one", options={"limit": int})
def one(**options: Any) -> dict[str, Any]:
    return options


NAMES: Any = {"add": add, "many": many, "one": one, "require_comm": require_comm, "np": np}
WRONG = {
    "add(1, 2, 3)": "add: 3 arguments without names, it takes 2; leave out the others",
    "add(1, one=2)": "add: an argument is given twice; give each argument once",
    "add(1, '2')": "other: '2' is of type str; give a whole number",
    "add(1, 2.0)": "other: 2.0 is of type float; give a whole number",
    "add(1, True)": "other: True is of type bool; give a whole number",
    "add(1, np.ones(1, int))": "other: array([1]) is of type ndarray; give a whole number",
    "many()": "many: path is missing; call many(path)",
    "many(5)": "path: 5 is of type int; give the path of a file",
    "many(None)": "path: None is of type NoneType; give the path of a file",
    "many('x', flag=1)": "flag: 1 is of type int; give True or False",
    "many('x', time='3')": "time: '3' is of type str; give a number",
    "many('x', time=float('nan'))": "time: nan is of type float; give a number",
    "many('x', names=5)": "names: 5 is of type int; give a text or a list of texts",
    "many('x', names=['y', 5])": "names: ['y', 5] is of type list; give a text or a list of texts",
    "many('x', True)": "many: 2 arguments without names, it takes 1; "
    "give the others by name: flag, time, names",
    "one(limits=3)": "one: 'limits' is not an argument; did you mean 'limit'?",
    "one(3)": "one: takes arguments by name; give NAME=VALUE",
    "require_comm(None)": "comm: None is no communicator; give MPI.COMM_WORLD",
}


@pytest.mark.parametrize("call", WRONG)
def test_a_wrong_argument_is_one_line(call: str) -> None:
    with pytest.raises(ArgumentError) as refused:
        eval(call, NAMES)
    assert str(refused.value) == WRONG[call]


def test_numbers_of_numpy_are_converted() -> None:
    assert type(add(1, np.int32(2))) is int
    assert many(Path("x"), flag=np.bool_(True), time=np.float32(2), names={"a": 1}.keys()) == (
        Path("x"),
        True,
        2,
        {"a": 1}.keys(),
    )
    assert one(limit=3) == {"limit": 3}


def test_every_public_function_explains_wrong_calls() -> None:
    functions = {name: getattr(collplan, name) for name in collplan.__all__}
    found = [name for name, one in functions.items() if inspect.isfunction(one)]
    assert len(found) > 15
    for name in found:
        with pytest.raises(ArgumentError, match=f"^{name}: 'nothing' is not an argument; "):
            functions[name](nothing=1)
