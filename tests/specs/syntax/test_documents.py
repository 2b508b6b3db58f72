"""Readers of YAML and JSON: bounded documents, nothing guessed, every refusal one line."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from collplan.specs import SpecError, load_spec
from collplan.specs.syntax.documents import (
    MAX_BYTES,
    MAX_DEPTH,
    parse_json,
    parse_yaml,
    read_document,
    write_yaml,
)

NINES = "9" * 5000


def refuse_yaml(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_yaml(text, "f.yaml")
    line = str(caught.value)
    assert "\n" not in line
    return line.removeprefix("f.yaml: ")


def refuse_json(text: str) -> str:
    with pytest.raises(SpecError) as caught:
        parse_json(text, "f.json")
    return str(caught.value).removeprefix("f.json: ")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[010x, 0x1F, 0o17, -3, +4, 0]", ["010x", 31, 15, -3, 4, 0]),
        ("[1e3, .5, -1.5e-3]", [1e3, 0.5, -1.5e-3]),
        ("[yes, No, on, OFF, y]", ["yes", "No", "on", "OFF", "y"]),
        ("[true, False, null, ~, ]", [True, False, None, None]),
        ("[1:30, 1_000, 2001-13-01, 1.2.3]", ["1:30", "1_000", "2001-13-01", "1.2.3"]),
        ("['010', \"1\", !!str 5, ! 5]", ["010", "1", "5", "5"]),
        ("[!!int 5, !!float 5, !!bool true, !!null null]", [5, 5.0, True, None]),
        ("[!!seq [], !!map {}]", [[], {}]),
        ("{1: a, true: b, ~: c}", {"1": "a", "true": "b", "~": "c"}),
        ("[&x {b: 1, c: 2}, *x, {<<: *x, c: 3}]", [{"b": 1, "c": 2}] * 2 + [{"b": 1, "c": 3}]),
        ("{<<: [{a: 1, b: 1}, {b: 2, c: 2}], c: 3}", {"b": 1, "c": 3, "a": 1}),
        ("# nothing\n", None),
        ("---\na: 1\n...\n", {"a": 1}),
    ],
)
def test_scalars_are_those_of_the_core_schema(text: str, value: Any) -> None:
    found = parse_yaml(text, "f.yaml")
    assert found == value
    assert repr(found) == repr(value)  # 1 is neither True nor 1.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 010", "line 1: 010 has a leading zero"),
        ("a: 1\nb: -007", "line 2: -007 has a leading zero"),
        ("a: !!int zz", "line 1: 'zz' is not a whole number, as its tag says; remove the tag"),
        ("a: !!int 5.5", "'5.5' is not a whole number"),
        ("a: !!float zz", "'zz' is not a number"),
        ("a: !!bool zz", "'zz' is not true or false"),
        ("a: !!bool 'yes'", "'yes' is not true or false"),
        ("a: !!null 0", "'0' is not null"),
        ("a: !!timestamp x", "the tag !!timestamp has no meaning here; remove it"),
        ("a: !!python/object/apply:os.getcwd []", "the tag !!python/object/apply:os.getcwd has no"),
        ("a: !!set {b}", "the tag !!set has no meaning"),
        ("a: !own 3", "the tag !own has no meaning"),
        (f"a: {NINES}", "line 1: a number of 5000 digits; no field takes more than 19"),
        (f"a: 0x{NINES}", "a number of 5002 digits"),
        ("a: 1\nb: {c: 1,\n c: 2}", "line 3: c is there twice; keep one"),
        ("a: 1\n'a': 2", "line 2: a is there twice"),
        ("{1: a, '1': b}", "1 is there twice"),
        ("? [a]\n: 1", "a key is a list or a mapping; keys are words"),
        ("a: *b", "*b stands for nothing; mark a value before it: &b"),
        ("a: &x {b: [*x]}", "line 1: *x is inside the value it stands for; write it out"),
        ("{<<: 3}", "<< merges mappings"),
        ("a: 1\n---\nb: 1", "line 2: a second document begins; keep one"),
        ("a: [1", "line 1: "),
        ("a: b: c", "line 1: mapping values are not allowed here; mend the YAML"),
        ("\ta: 1", "line 1: "),
    ],
)
def test_what_is_ambiguous_or_wrong_is_named_with_its_line(text: str, words: str) -> None:
    assert words in refuse_yaml(text)


def test_aliases_that_multiply_are_refused_before_they_are_written_out() -> None:
    lines = ["a0: &a0 [" + ",".join("x" * 10) + "]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert refuse_yaml("\n".join(lines)).startswith("line 6: more than 1,000,000 values")
    merges = "a: &a {" + ", ".join(f"k{i}: 1" for i in range(1000)) + "}\n"
    merges += "b: {<<: [" + ",".join(["*a"] * 1000) + "]}"
    assert "more than 1,000,000 values" in refuse_yaml(merges)


@pytest.mark.parametrize("refuse", [refuse_yaml, refuse_json])
def test_depth_is_bounded(refuse: Any) -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    parse_yaml(deep, "f.yaml")
    parse_json(deep, "f.json")
    for depth in (MAX_DEPTH + 1, 200, 100_000):
        assert "nested too deeply; use at most 32 levels" in refuse("[" * depth + "]" * depth)
        assert "nested too deeply" in refuse('{"a":' * depth + "1" + "}" * depth)


def test_json_has_no_doubled_keys_endless_numbers_or_constants() -> None:
    assert refuse_json('{"a": {"count": 1, "count": 2}}') == (
        "count is there twice in a mapping; keep one"
    )
    assert "a number of 5000 digits" in refuse_json(f'{{"a": {NINES}}}')
    assert "NaN is not JSON; give a finite number" in refuse_json('{"a": NaN}')
    assert "line 2: Expecting value; mend the JSON" in refuse_json('{"a": \n')
    assert "more than 1,000,000 values" in refuse_json("[" + "1," * 1_000_001 + "1]")


def test_documents_of_many_megabytes_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(SpecError, match="is larger than 32 MiB; a spec is much smaller"):
        read_document(path, "spec")


def test_a_machine_in_a_fifo_or_device_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "null.yaml").symlink_to(os.devnull)
    (tmp_path / "folder.yaml").mkdir()
    spec = tmp_path / "spec.yaml"
    for name, kind in (("pipe", "a FIFO"), ("null", "a device"), ("folder", "a directory")):
        spec.write_text(f"machine: {name}.yaml\ncollective: {{kind: barrier}}")
        with pytest.raises(SpecError, match=rf"{name}\.yaml: is {kind}.*; give a .*file"):
            load_spec(spec)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.from_regex(
    r"[-+]?[0-9.:_eox~<]{1,6}", fullmatch=True
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_what_we_write_is_read_as_it_was_by_us_and_others(document: Any) -> None:
    text = write_yaml(document)
    assert parse_yaml(text, "f.yaml") == document
    assert yaml.safe_load(text) == document
