"""Random input of all kinds: no reader ends in a traceback, hangs or takes too much memory.

Each format has `EXAMPLES` files, which are always the same. To look for longer, as before a
release, run ``benchmarks/random_files.py``.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

import pytest
from hypothesis import note

from attacking import SECONDS as LIMIT_S
from attacking import Attack, Damage, Target
from folders import BENCHMARKS

sys.path.insert(0, str(BENCHMARKS))

from random_files import FORMATS, attack_often, disorder_of

EXAMPLES: Final = 5
"""Attacks of each format, about five seconds in all."""
SEED: Final = 1

ALLTOALL: Final = b"""
machine: {nodes: 4096, ranks_per_node: 16}
collective: {kind: alltoall, count: 1}
algorithms: linear
"""
ONE_RANK: Final = b"collective: {kind: bcast, count: 5}"
DIGITS: Final = b"9" * 5000
FOUND: Final = {
    "comments without end": Attack(
        {"x.goal": b"num_ranks 1\n" + b"/* " * 20_000}, ["cost", "x.goal"]
    ),
    "digits in GOAL": Attack({"x.goal": b"num_ranks " + DIGITS}, ["show", "x.goal"]),
    "control characters in GOAL": Attack(
        {"x.goal": b"num_ranks 1\n\x1b[31m\x00"}, ["cost", "x.goal"]
    ),
    "digits in YAML": Attack({"x.yaml": b"machine: " + DIGITS}, ["compile", "x.yaml"]),
    "digits in JSON": Attack({"x.json": b'{"machine": ' + DIGITS + b"}"}, ["compile", "x.json"]),
    "control characters in keys": Attack({"x.json": b'{"a\\u0000\\u001b": 1}'}, ["show", "x.json"]),
    "a drawing of one rank": Attack({"x.yaml": ONE_RANK}, ["draw", "x.yaml", "-o", "out.svg"]),
    "one rank as text": Attack({"x.yaml": ONE_RANK}, ["show", "x.yaml"]),
    "messages beyond memory": Attack({"x.yaml": ALLTOALL}, ["compile", "x.yaml"]),
}
"""Inputs that random attacks found, kept as regression tests."""


def require_order(target: Target, attack: Attack) -> None:
    damage = target.run(attack)
    disorder = damage.describe_disorder()
    if disorder is not None:
        note(f"{disorder}\n{attack!r}\nstandard error:\n{damage.err[-3000:]}")
    assert disorder is None, disorder


@pytest.mark.many
@pytest.mark.long
@pytest.mark.parametrize("name", FORMATS)
def test_no_input_does_harm(name: str, target: Target) -> None:
    attack_often(name, EXAMPLES, SEED, lambda attack: require_order(target, attack), shrinks=True)


def test_the_fuzzer_sees_what_is_slow() -> None:
    assert disorder_of(Damage(0, "", "", (), seconds=5.1)) == "took 5.1 s"
    assert disorder_of(Damage(0, "", "", (), seconds=4.9)) is None


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_does_no_harm_any_more(name: str, target: Target) -> None:
    require_order(target, FOUND[name])


def test_harm_is_seen(target: Target) -> None:
    """The harness sees what it looks for: otherwise the properties above say nothing."""
    assert target.run(Attack({}, ["algorithms"])).describe_disorder() is None
    cases = {
        "exit status 3": Damage(3, "", "", ()),
        f"took more than {LIMIT_S} s": Damage(-signal.SIGXCPU, "", "", ()),
        "a traceback": Damage(1, "", "Traceback (most recent call last):\n", ()),
        "prints '\\x1b'": Damage(0, "\x1b[31m", "", ()),
        "refuses without a line that says why": Damage(2, "", "", ()),
        "refuses, but writes out.plan": Damage(2, "", "collplan: error: no\n", ("out.plan",)),
    }
    assert {name: damage.describe_disorder() for name, damage in cases.items()} == {
        name: name for name in cases
    }
