"""Numbers of tables: files of them, places of blocks, and totals that are apportioned."""

from __future__ import annotations

import os

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from collplan.specs import SpecError, Table, load_spec
from collplan.specs.syntax.tables import apportion, ends_of, first_overlap, places_of


@given(st.integers(0, 2**56), st.lists(st.integers(0, 2**58), min_size=1, max_size=9))
def test_a_total_is_apportioned_to_its_last_element(total, weights):
    shares = apportion(total, np.array(weights))
    exact = [total * weight for weight in (weights if any(weights) else [1] * len(weights))]
    whole = sum(weights) or len(weights)
    expected = [one // whole for one in exact]
    order = sorted(range(len(exact)), key=lambda i: -float(exact[i] % whole))
    for i in order[: total - sum(expected)]:
        expected[i] += 1
    assert shares.tolist() == expected


def test_blocks_lie_one_after_another_unless_they_are_placed():
    counts = np.array([2, 0, 3])
    assert places_of(counts).tolist() == [0, 2, 2]
    places = places_of(counts, np.array([9, 100, 0]))
    assert places.tolist() == [9, 2, 0], "an empty block is in nobody's way"
    assert ends_of(places, counts) == 11
    assert ends_of(np.zeros(2, int), np.zeros(2, int)) == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=6))
def test_overlaps_are_found(blocks):
    displs, counts = (np.array(column) for column in zip(*blocks, strict=True))
    held = [set(range(at, at + n)) for at, n in blocks]
    overlap = {(i, j) for j in range(len(held)) for i in range(j) if held[i] & held[j]}
    found = first_overlap(displs, counts)
    assert (found in overlap) if overlap else found is None


def write(folder, **fields):
    path = folder / "spec.yaml"
    path.write_text(
        yaml.safe_dump(
            {"machine": {"ranks_per_node": 3}, "collective": {"kind": "gatherv", **fields}}
        )
    )
    return path


def test_counts_are_read_from_files_beside_the_spec(tmp_path):
    np.save(tmp_path / "counts.npy", np.array([4, 0, 2], np.int32))
    np.save(tmp_path / "places.npy", np.array([2, 0, 0]))
    spec = load_spec(write(tmp_path, counts="counts.npy", displs="places.npy"))
    assert spec.collective.counts == Table([4, 0, 2])
    assert spec.collective.displs == Table([2, 0, 0])


def test_bad_files_are_refused_in_a_line(tmp_path):
    file = tmp_path / "counts.npy"
    spec = write(tmp_path, counts="counts.npy")

    def refusal():
        with pytest.raises(SpecError) as raised:
            load_spec(spec)
        text = str(raised.value)
        assert "\n" not in text
        assert text.startswith(f"{spec}: collective.counts: ")
        return text

    assert "no such file" in refusal()
    np.save(file, np.arange(300))
    whole = file.read_bytes()
    for end in (0, 5, 20, len(whole) - 9):
        file.write_bytes(whole[:end])
        assert "is no table of counts that can be read" in refusal(), end
    for array, words in (
        (np.array([1, "a", None], object), "Object arrays|object"),
        (np.array([1.5, 2, 3]), "float64, not whole numbers"),
        (np.array([1, 2, -1]), "negative"),
        (np.zeros((2, 2, 2), int), "shape"),
        (np.array(["a", "b"]), "not whole numbers"),
        (np.array(3), "shape"),
    ):
        np.save(file, array, allow_pickle=True)
        assert any(word in refusal() for word in words.split("|")), words
    for shape in (b"(3e9,)", b"(True,)", b"(99999999999999999999999,)", b"(300,"):
        file.write_bytes(whole.replace(b"(300,)", shape))
        assert "is no table of counts that can be read" in refusal(), shape
    file.unlink()
    os.mkfifo(file)
    assert "is a FIFO, which is not read" in refusal()


def test_numpy_warns_nobody(tmp_path, recwarn):
    for kind in (np.float16, np.longdouble):
        np.save(tmp_path / "counts.npy", np.array([4, 0, 2], kind))
        assert load_spec(write(tmp_path, counts="counts.npy")).collective.counts == Table([4, 0, 2])
    assert not recwarn.list
