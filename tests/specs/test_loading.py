"""Spec files: every mistake is one line that names the field and the way out."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collplan.specs import (
    Network,
    PlanSpec,
    SpecError,
    json_schema,
    load_spec,
    parse_spec,
    preset_names,
)
from collplan.specs.loading import machine_at_hand
from collplan.tables.table import TuningTable

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
            "collective.cuont: unknown key; did you mean 'count'?",
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
            "machine.network.numa.L: unknown key; did you mean 'L_ns'?",
        ),
        (
            {"collective": BARRIER, "machine": {"network": {"L": 1000}}},
            "machine.network.L: unknown key; "
            "did you mean 'machine: {network: {network: {L_ns: ...}}}'?",
        ),
        (
            {"collective": BARRIER, "network": {"G": 0.1}},
            "network.G: unknown key; "
            "did you mean 'machine: {network: {network: {G_ns_per_byte: ...}}}'?",
        ),
        (
            {"collective": BARRIER, "network": {"network": {"L_ns": 1000}}},
            "network: unknown key; did you mean 'machine: {network: ...}'?",
        ),
        (
            {"collective": BARRIER, "machine": {"network": {"numa": {"speed": 1}}}},
            "machine.network.numa.speed: unknown key; "
            "valid: L_ns, o_ns, g_ns, G_ns_per_byte, O_ns_per_byte, offload",
        ),
        (
            {"collective": BARRIER, "machine": {"latency": 1000}},
            "machine.latency: unknown key; "
            "did you mean 'machine: {network: {network: {L_ns: ...}}}'?",
        ),
        (
            {"collective": BARRIER, "ppn": 4},
            "ppn: unknown key; did you mean 'machine: {ranks_per_node: ...}'?",
        ),
        (
            {"collective": BARRIER, "bandwidth": 4},
            "bandwidth: unknown key; "
            "did you mean 'machine: {network: {network: {G_ns_per_byte: ...}}}'?",
        ),
        ({"collectiv": BARRIER}, "collectiv: unknown key; did you mean 'collective'?"),
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
            "machine: 3 is no name and no mapping; give a name, or fields as 'key: value'",
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
            "algorithms: 'Node' is not a role; use node, lane, or as node/allgather",
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
            "decomposition: full_lane has no leaders; it takes by, node, lane, form, shares",
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
        "collective.kind: 'alreduce' is not a collective; did you mean 'allreduce'"
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
        ("a.yaml", "a: &x [*x]", "line 1: *x is inside the value it stands for; write it out"),
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


def test_all_mistakes_are_reported_at_once() -> None:
    document = {
        "machine": {"nodes": 0, "lanes": 40_000, "network": {"handshake": 1}},
        "collective": {"kind": "bcast", "cuont": 3, "datatype": "double", "root": True},
        "passes": "segment",
    }
    with pytest.raises(SpecError) as caught:
        parse_spec(document, source="spec.yaml")
    lines = str(caught.value).splitlines()
    assert [line.split("; ")[0] for line in lines] == [
        "spec.yaml: collective.cuont: unknown key",
        "spec.yaml: machine.nodes: 0 is too small",
        "spec.yaml: machine.lanes: 40000 is too large",
        "spec.yaml: machine.network.handshake: 1 is not true or false",
        "spec.yaml: collective.datatype: 'double' is not a datatype",
        "spec.yaml: collective.root: True is not a whole number",
        "spec.yaml: passes: 'segment' is not a list",
    ]
    assert [line.rpartition(" (")[2] for line in lines] == [f"{i} of 7)" for i in range(1, 8)]


def test_a_models_own_checks_report_all_they_find() -> None:
    machine = {"nodes": 2, "ranks_per_node": 4, "cores": 2, "numa_domains": 3}
    with pytest.raises(SpecError) as caught:
        parse_spec({"machine": machine, "collective": BARRIER})
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == [
        " more ranks than cores",
        " more NUMA domains than cores",
    ]
    mesh = {"name": "mesh", "shape": [3, 2]}
    with pytest.raises(SpecError) as caught:
        parse_spec({"collective": {"kind": "gather", "count": 1, "root": 5}, "decomposition": mesh})
    first, second = str(caught.value).splitlines()
    assert first.startswith("collective.root: 5 is not a rank of this machine")
    assert second.startswith("decomposition.shape: 3 x 2 is 6 ranks, the machine has 1")


def test_thousands_of_mistakes_are_few_lines() -> None:
    for n, n_lines in ((100, 20), (20_000, 1)):
        with pytest.raises(SpecError) as caught:
            parse_spec({"collective": BARRIER, **{f"key{i}": i for i in range(n)}})
        assert len(str(caught.value).splitlines()) == n_lines
    assert str(caught.value) == "20,000 mistakes; begin again from an example"


def test_a_link_stated_in_part_keeps_the_defaults_of_the_rest() -> None:
    network = {"network": {"G_ns_per_byte": 0.04}, "core": {"offload": True}}
    spec = parse_spec({"machine": {"network": network}, "collective": BARRIER})
    default = Network()
    assert spec.machine.network == default.replace(
        network=default.network.replace(G_ns_per_byte=0.04),
        core=default.core.replace(offload=True),
    )
    hydra = {"preset": "hydra", "network": {"network": {"L_ns": 7}}}
    spec = parse_spec({"machine": hydra, "collective": BARRIER})
    assert spec.machine.network.network.o_ns == 500
    assert "required" not in json_schema()["$defs"]["Link"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("double", "float64"),
        ("float", "float32"),
        ("int", "int32"),
        ("MPI_LONG", "int64"),
        ("unsigned char", "uint8"),
        ("f8", "float64"),
        ("uint16_t", "uint16"),
        ("2int", "int_int"),
    ],
)
def test_datatypes_of_c_and_mpi_suggest_ours(name: str, meant: str) -> None:
    line = refuse({"collective": {"kind": "bcast", "count": 1, "datatype": name}})
    assert f"{name!r} is not a datatype; did you mean {meant!r}?" in line


@pytest.mark.parametrize(
    ("machine", "collective", "line"),
    [
        ({}, {"count": True}, "collective.count: True is not a whole number; give one"),
        ({}, {"count": "16"}, "collective.count: '16' is not a whole number; give one"),
        ({}, {"count": 1.5}, "collective.count: 1.5 is not a whole number; give one"),
        (
            {},
            {"count": "4MiB"},
            "collective.count: '4MiB' is a size in bytes, count is a number of elements; "
            "divide by the bytes of an element",
        ),
        ({}, {"in_place": 1}, "collective.in_place: 1 is not true or false; give one of them"),
        ({}, {"in_place": "yes"}, "collective.in_place: 'yes' is not true or false; give one of"),
        ({"nodes": True}, {}, "machine.nodes: True is not a whole number; give one"),
        ({"cores": 10**9}, {}, "machine.cores: 1000000000 is too large; give 65536 or less"),
        ({"numa_domains": 10**9}, {}, "machine.numa_domains: 1000000000 is too large; give 1024"),
        ({"lanes": 32_768}, {}, "machine.lanes: 32768 is too large; give 32767 or less"),
        (
            {"nodes": 65536, "lanes": 32_767},
            {},
            "machine: 65536 nodes of 32767 lanes; all nodes together can have 4194304, lower",
        ),
        ({"ranks_per_node": 10**6}, {}, "machine.ranks_per_node: 1000000 ranks on a node; give 65"),
        (
            {"network": {"processors": 2**31}},
            {},
            "machine.network.processors: 2147483648 is too large; give 2147483647 or less",
        ),
        (
            {"network": {"cache_bytes": 2**63}},
            {},
            "machine.network.cache_bytes: 9223372036854775808 is too large; give at most",
        ),
        (
            {"network": {"cache_bytes": "99999999TiB"}},
            {},
            "machine.network.cache_bytes: '99999999TiB' is too large; give at most 11529215",
        ),
        (
            {"network": {"eager_limit_bytes": "64k"}},
            {},
            "machine.network.eager_limit_bytes: '64k' is not a size; did you mean 64KiB?",
        ),
        (
            {"network": {"nic": {"connections": 2**40, "miss_ns": 1}}},
            {},
            "machine.network.nic.connections: 1099511627776 is too large; give 2147483647 or less",
        ),
        (
            {"network": {"core": {"L_ns": 1e300}}},
            {},
            "machine.network.core.L_ns: 1e+300 is too large; give 1e+12 or less",
        ),
        (
            {"network": {"core": {"L_ns": float("inf")}}},
            {},
            "machine.network.core.L_ns: inf is not finite; give a finite number",
        ),
        (
            {"network": {"core": {"L_ns": True}}},
            {},
            "machine.network.core.L_ns: True is not a number; give one",
        ),
    ],
)
def test_numbers_have_ranges_and_no_other_type_passes_for_one(
    machine: Any, collective: Any, line: str
) -> None:
    whole = {"kind": "gather", "count": 1, **collective}
    assert refuse({"machine": machine, "collective": whole}).startswith(line)


def numbers_in(schema: Any) -> Iterator[dict[str, Any]]:
    """Generate all parts of a JSON schema that are numbers."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number") and "const" not in schema:
            yield schema
        for part in schema.values():
            yield from numbers_in(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from numbers_in(part)


def test_every_number_of_specs_and_tables_has_a_range() -> None:
    for schema in (json_schema(), TuningTable.model_json_schema()):
        numbers = list(numbers_in(schema))
        assert len(numbers) > 30
        open_ended = [
            one
            for one in numbers
            if "maximum" not in one or not {"minimum", "exclusiveMinimum"} & set(one)
        ]
        assert open_ended == []


@pytest.mark.parametrize("value", [1e300, 10**100, -(2**63), float("nan"), float("inf")])
def test_options_have_numbers_that_can_be_computed_with(value: float) -> None:
    passes = [{"name": "segment", "max_bytes": value}]
    line = refuse({"collective": BARRIER, "passes": passes})
    assert line.startswith("passes.0.max_bytes: ")
    assert "is too large for an option; give a number up to 2**62" in line


def test_what_a_terminal_acts_on_is_escaped() -> None:
    line = refuse({"collective": BARRIER, "\x1b[31mred\x07": 1})
    assert line.startswith(r"\x1b[31mred\x07: unknown key")
    line = refuse({"collective": {"kind": "bcast\x1b[2J"}})
    assert line.startswith(r"collective.kind: 'bcast\x1b[2J' is not a collective")
    assert len(refuse({"collective": BARRIER, "passes": "x" * 10**6})) < 400


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"lanes": 0}', "COLLPLAN_MACHINE: is no machine: lanes: 0 is too small; give 1 or more"),
        ('{"lanes": 1, "lanes": 2}', "COLLPLAN_MACHINE: lanes is there twice"),
        ('{"nodes": ' + "9" * 5000 + "}", "COLLPLAN_MACHINE: a number of 5000 digits"),
        ("[" * 100_000, "COLLPLAN_MACHINE: nested too deeply"),
    ],
)
def test_the_machine_at_hand_is_read_as_strictly(
    monkeypatch: pytest.MonkeyPatch, text: str, words: str
) -> None:
    monkeypatch.setenv("COLLPLAN_MACHINE", text)
    with pytest.raises(SpecError, match=re.escape(words)):
        machine_at_hand()
