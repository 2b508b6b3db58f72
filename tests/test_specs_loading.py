"""Spec files: every mistake is one line that names the field and the way out."""

import json
from pathlib import Path
from typing import Any

import pytest

from specs import PlanSpec, SpecError, json_schema, load_spec, parse_spec, preset_names

BARRIER = {"kind": "barrier"}


def refuse(document: Any) -> str:
    with pytest.raises(SpecError) as caught:
        parse_spec(document, source="spec.yaml")
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("spec.yaml: ")
    return line.removeprefix("spec.yaml: ")


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            {"collective": {"kind": "allreduce", "count": -3}},
            "collective.count: -3 is negative; give 0 or more",
        ),
        (
            {"machine": {"nodes": 0}, "collective": BARRIER},
            "machine.nodes: 0 is too small; give 1 or more",
        ),
        (
            {"collective": {"kind": "bcast", "cuont": 3}},
            "collective.cuont: unknown key; did you mean 'count'? (and 1 more)",
        ),
        (
            {"collective": {"kind": "barrier", "xyz": 3}},
            "collective.xyz: unknown key; valid: kind",
        ),
        (
            {"collective": BARRIER, "machine": {"preste": "hydra"}},
            "machine.preste: unknown key; did you mean 'preset'?",
        ),
        (
            {"collective": BARRIER, "machine": {"preset": "hydra", "network": {"numa": {"L": 1}}}},
            "machine.network.numa.L: unknown key; "
            "valid: L_ns, o_ns, g_ns, G_ns_per_byte, O_ns_per_byte, offload",
        ),
        ({"collectiv": BARRIER}, "collectiv: unknown key; did you mean 'collective'? (and 1 more)"),
        ({}, "collective: is missing; give it a value"),
        (
            {"collective": {"kind": "bcast"}},
            "collective.count: is missing; give it a value",
        ),
        (
            {"collective": {"kind": "bcast", "count": "many"}},
            "collective.count: 'many' is not a whole number; give one",
        ),
        (
            {"collective": {"kind": "bcast", "count": 2**41}},
            "collective.count: 2199023255552 is too large; give 1099511627776 or less",
        ),
        (
            {"collective": BARRIER, "passes": "segment"},
            "passes: 'segment' is not a list; give one, as in ['segment']",
        ),
        (
            {"collective": BARRIER, "machine": 3},
            "machine: 3 is not a mapping; give its fields as 'key: value'",
        ),
        (
            {"collective": BARRIER, "machine": {"ranks_per_node": 4, "cores": 2}},
            "machine: more ranks than cores: ranks_per_node is 4, cores is 2; "
            "raise cores or lower ranks_per_node",
        ),
        (
            {"collective": {"kind": "gather", "count": 1, "root": 5}},
            "collective.root: 5 is not a rank of this machine; its 1 ranks are 0 to 0",
        ),
        (
            {"collective": BARRIER, "algorithms": {"Node": "ring"}},
            "algorithms: 'Node' is no role; use node, lane, or as node/allgather",
        ),
        (
            {"collective": BARRIER, "algorithms": {"node": 3}},
            "algorithms.node: 3 is not a mapping; give its fields as 'key: value'",
        ),
        (
            {"collective": BARRIER, "decomposition": {"name": "mesh", "shape": [3, 2]}},
            "decomposition.shape: 3 x 2 is 6 ranks, the machine has 1; "
            "use extents whose product is 1",
        ),
        (
            {"collective": BARRIER, "decomposition": {"name": "multi_leader", "leaders": 2}},
            "decomposition.leaders: 2 leaders, no node has more than 1 ranks; use 1 to 1",
        ),
        (
            {"collective": BARRIER, "decomposition": {"name": "full_lane", "leaders": 2}},
            "decomposition: full_lane has no leaders; it takes by, node, lane, form",
        ),
        (
            {"collective": BARRIER, "machine": {"network": {"eager_limit_bytes": "lots"}}},
            "machine.network.eager_limit_bytes: 'lots' is not a size; "
            "give bytes or a number with a unit of B, KB, MB, GB, TB, KiB, MiB, GiB, TiB",
        ),
    ],
)
def test_line_names_the_field_and_the_way_out(document: Any, line: str) -> None:
    assert refuse(document) == line


def test_kinds_are_listed_where_the_kind_is_wrong_or_missing() -> None:
    wrong, missing = refuse({"collective": {"kind": "alreduce"}}), refuse({"collective": {}})
    assert wrong.startswith(
        "collective.kind: 'alreduce' is no collective; did you mean 'allreduce'"
    )
    assert missing.startswith("collective.kind: is missing; valid: bcast, gather, scatter")


@pytest.mark.parametrize("document", [None, [], "collective", 3])
def test_documents_must_be_mappings(document: Any) -> None:
    assert "not a mapping; begin with 'collective:'" in refuse(document)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "collective: [", "line 1: "),
        ("a.yaml", "a: b: c", "line 1: mapping values are not allowed here; mend the YAML"),
        ("a.yaml", "a: \x00", "mend the YAML"),
        ("a.yaml", "a: 1\nb: {c: 1,\n c: 2}\n", "line 3: c is there twice; keep one"),
        ("a.yaml", "a: &x [*x]", "a: unknown key"),
        ("a.json", '{"a": \n', "line 2: Expecting value; mend the JSON"),
        ("a.json", "[" * 100_000, "nested too deeply"),
        ("a.yaml", "", "the document is empty"),
    ],
)
def test_broken_files_are_one_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(tmp_path / name)
    assert words in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xfd")
    for name, words in (
        ("none.yaml", "no such file"),
        ("bytes.yaml", "is not text"),
        (".", "read"),
    ):
        with pytest.raises(SpecError, match=words):
            load_spec(tmp_path / name)


def test_json_and_yaml_files_say_the_same(tmp_path: Path) -> None:
    yaml_text = (
        "machine: {preset: hydra, nodes: 4}\n"
        "collective: {kind: allreduce, count: 115200, datatype: int32, op: sum}\n"
        "algorithms: ring\n"
        "passes:\n  - {name: segment, max_bytes: 64KiB}\n"
    )
    (tmp_path / "spec.yaml").write_text(yaml_text)
    spec = load_spec(tmp_path / "spec.yaml")
    assert spec.machine.n_ranks == 128
    assert spec.passes[0].options == {"max_bytes": "64KiB"}
    (tmp_path / "spec.json").write_text(spec.to_json())
    assert load_spec(tmp_path / "spec.json") == spec


def test_schema_offers_what_the_models_accept() -> None:
    schema = json_schema()
    assert json.loads(json.dumps(schema)) == schema
    assert set(schema["properties"]) == set(PlanSpec.model_fields)
    assert schema["additionalProperties"] is False
    assert list(preset_names()) in [
        entry.get("enum") for entry in schema["$defs"]["Machine"]["anyOf"]
    ]
    assert {"integer", "string"} == {
        entry["type"]
        for entry in schema["$defs"]["Network"]["properties"]["eager_limit_bytes"]["anyOf"]
    }


def test_a_machine_may_stand_in_a_file_of_its_own(tmp_path):
    (tmp_path / "cluster.yaml").write_text("{nodes: 3, ranks_per_node: 2, lanes: 2}")
    spec = tmp_path / "spec.yaml"
    spec.write_text("machine: cluster.yaml\ncollective: {kind: barrier}")
    assert load_spec(spec).machine.n_ranks == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cluster.yaml: no such file; give the path of a machine"),
        ("- 1", "cluster.yaml: is not a mapping; give a machine's fields"),
        ("nodes: 0", "spec.yaml: machine.nodes: "),
    ],
)
def test_a_bad_machine_file_is_one_line(tmp_path, text, message):
    if text is not None:
        (tmp_path / "cluster.yaml").write_text(text)
    spec = tmp_path / "spec.yaml"
    spec.write_text("machine: cluster.yaml\ncollective: {kind: barrier}")
    with pytest.raises(SpecError) as raised:
        load_spec(spec)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
