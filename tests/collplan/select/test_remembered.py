"""Choices of earlier searches: kept, found again, and never trusted when damaged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collplan.select import remembered, search
from collplan.select.auto import Resolved, choose
from collplan.select.candidates import Form
from collplan.select.entries import Entry
from collplan.select.estimate import Estimate
from collplan.select.search import Ranked
from collplan.specs import PlanSpec
from comparing import MACHINES, spec_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder for choices."""
    monkeypatch.setattr(remembered, "cache_folder", lambda *_: tmp_path / "numba")
    choose.cache_clear()
    yield tmp_path / "choices"
    choose.cache_clear()


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[PlanSpec]:
    """Return the list of the specs that are searched, for which the ring is found."""
    specs: list[PlanSpec] = []

    def found(spec: PlanSpec) -> tuple[Ranked, ...]:
        specs.append(spec)
        ring = spec.replace(decomposition="flat", algorithms="ring")
        entry = Entry(Form("ring", ring.method), None, ring, Estimate(None, 0.0, 0.0, 0, 0, ""))
        return Ranked(entry, 1e-6, True), Ranked(entry, 2e-6, False)

    monkeypatch.setattr(search, "search", found)
    return specs


def wanted(count: int = 1000, **fields: Any) -> PlanSpec:
    return spec_of("allreduce", MACHINES["lanes"], count).replace(decomposition="auto", **fields)


def chosen_anew(spec: PlanSpec) -> Resolved:
    """Return the choice as another process makes it."""
    choose.cache_clear()
    return choose(spec)


def test_a_choice_is_searched_once(folder: Path, searched: list[PlanSpec]) -> None:
    first, second = chosen_anew(wanted()), chosen_anew(wanted())
    assert searched == [wanted()]
    assert (first.is_remembered, second.is_remembered) == (False, True)
    assert first.spec == second.spec
    assert (second.time_s, second.n_simulated, second.n_left) == (1e-6, 1, 1)
    assert first.search_s == second.search_s
    assert "an earlier search" in second.words
    other = chosen_anew(wanted(1001))
    assert not other.is_remembered
    assert len(list(folder.iterdir())) == 2


@pytest.mark.quick
@pytest.mark.parametrize("damage", ["empty", "half", "other", "wrong", "folder"])
def test_a_damaged_choice_is_searched_again(
    folder: Path, searched: list[PlanSpec], damage: str
) -> None:
    chosen_anew(wanted())
    (path,) = folder.iterdir()
    content = path.read_bytes()
    if damage == "folder":
        path.unlink()
        path.mkdir()
    elif damage == "wrong":
        remembered.write_kept(path, b'{"method": {"decomposition": {"name": "nowhere"}}}')
    else:
        path.write_bytes({"empty": b"", "half": content[:20], "other": b"x" + content[1:]}[damage])
    assert not chosen_anew(wanted()).is_remembered
    assert chosen_anew(wanted()).is_remembered
    assert len(searched) == 2


def test_choices_are_bounded(
    folder: Path, searched: list[PlanSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembered, "MOST", 3)
    for count in range(1, 7):
        chosen_anew(wanted(count))
    assert len(list(folder.iterdir())) == 3


def test_nothing_is_kept_without_a_folder_or_with_algorithms_of_the_users_own(
    folder: Path, searched: list[PlanSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(remembered, "cache_folder", lambda *_: None)
        assert not chosen_anew(wanted()).is_remembered
        assert not chosen_anew(wanted()).is_remembered
    with monkeypatch.context() as patched:
        patched.setattr(remembered, "_has_own", lambda _: True)
        assert not chosen_anew(wanted()).is_remembered
    assert not folder.exists()


def test_other_sources_have_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source that is added, or that has another size or another time, changes all names."""
    monkeypatch.setattr(remembered, "_PACKAGE", tmp_path)
    module = tmp_path / "inner" / "module.py"
    module.parent.mkdir()
    versions = []
    for text, time_s in (("", 1000), ("a = 1", 1000), ("a = 1", 2000)):
        module.write_text(text)
        os.utime(module, (time_s, time_s))
        versions += [remembered._version.__wrapped__() for _ in range(2)]
        os.utime(module.parent, (5000, 5000))
    assert versions[::2] == versions[1::2]
    assert len(set(versions)) == 3
    (tmp_path / "data.yaml").write_text("a: 1")
    assert remembered._version.__wrapped__() == versions[-1]
    (tmp_path / "second.py").touch()
    assert remembered._version.__wrapped__() != versions[-1]
