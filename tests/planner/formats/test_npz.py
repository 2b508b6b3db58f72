import copy
import io
import json
import pickle
import random
import zipfile
from dataclasses import fields

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.errors import PlanFileError, PlanFormatError
from collplan.planner.formats.npz import load, save
from collplan.planner.plan.format_check import check_format
from collplan.planner.plan.plan import COLUMNS, Buffer, Op
from collplan.planner.plan.ragged import Dependencies, Extents
from collplan.planner.rewrite.rank_program import restrict
from collplan.planner.verify import verify
from collplan.specs import parse_spec
from collplan.specs.errors import CollplanError
from handmade import PlanBook, binomial_bcast, ring_allreduce
from looping import looped
from tiers import examples


def columns(plan):
    """Every array of a plan by name."""
    arrays = {name: getattr(plan, name) for name in COLUMNS}
    for name in ("patterns", "buffer_sizes", "shared_sizes", "rank_node", "rank_lane", "rank_core"):
        arrays[name] = getattr(plan, name)
    for part in ("reads", "writes", "deps"):
        csr = getattr(plan, part)
        arrays |= {f"{part}.{field.name}": getattr(csr, field.name) for field in fields(csr)}
    return arrays


def assert_equal_plans(actual, expected):
    for name, array in columns(expected).items():
        other = columns(actual)[name]
        np.testing.assert_array_equal(other, array, err_msg=name)
        assert other.dtype == array.dtype, name
    for name in ("itemsize", "only_rank", "phases", "spec"):
        assert getattr(actual, name) == getattr(expected, name)


def compiled(**extra):
    spec = {
        "machine": {"nodes": 2, "ranks_per_node": 2, "lanes": 2},
        "collective": {"kind": "allreduce", "count": 9, "datatype": "int32"},
        "algorithms": "ring",
    }
    return compile_plan(parse_spec(spec), **extra)


@pytest.fixture
def plan():
    return ring_allreduce([0, 0, 1, 1], n_lanes=2)


@pytest.fixture
def members(plan, tmp_path):
    """The members of a good file, by name: to be changed and sealed again."""
    save(plan, tmp_path / "good.plan")
    with zipfile.ZipFile(tmp_path / "good.plan") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def seal(path, members, compression=zipfile.ZIP_STORED):
    """Write a zip whose checksums are right, whatever its members hold."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def load_all(path):
    """Load a plan, and check its spec, too."""
    plan = load(path)
    _ = plan.spec
    return plan


def change_meta(members, **changes):
    meta = json.loads(members["plan.json"]) | changes
    return members | {"plan.json": json.dumps(meta).encode()}


@pytest.mark.quick
@pytest.mark.parametrize(
    "original",
    [
        ring_allreduce([0, 1, 0, 1]),
        binomial_bcast([0] * 5),
        PlanBook([0, 1]).plan(),
        compiled(),
        compiled(rank=2),
    ],
    ids=["ring", "bcast", "empty", "compiled", "one rank"],
)
def test_round_trip_keeps_everything(original, tmp_path):
    save(original, tmp_path / "x.plan")
    again = load(tmp_path / "x.plan")
    assert_equal_plans(again, original)
    save(again, tmp_path / "y.plan")
    assert (tmp_path / "x.plan").read_bytes() == (tmp_path / "y.plan").read_bytes()


def test_bytes_do_not_depend_on_how_columns_lie_in_memory(plan, tmp_path):
    save(plan, tmp_path / "x.plan")
    kinds = np.broadcast_to(plan.deps.kind[:1], len(plan.deps))
    assert kinds.strides == (0,)
    deps = Dependencies(plan.deps.indptr, plan.deps.task, kinds)
    dense = plan.replace(lane=np.array(plan.lane), phase=np.zeros(plan.n_tasks, int), deps=deps)
    save(dense, tmp_path / "y.plan")
    assert (tmp_path / "x.plan").read_bytes() == (tmp_path / "y.plan").read_bytes()


def test_numpy_opens_the_file(plan, tmp_path):
    save(plan, tmp_path / "x.plan")
    with np.load(tmp_path / "x.plan", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["op"], plan.op)
        np.testing.assert_array_equal(archive["reads.offset"], plan.reads.offset)


def test_constant_columns_take_one_element_in_the_file_and_in_memory(plan, members, tmp_path):
    assert members["stream.npy"] == members["stream.npy"][:128] + b"\xff"
    again = load(seal(tmp_path / "x.plan", members))
    assert again.stream.strides == (0,)
    assert again.nbytes == plan.nbytes


def test_failure_keeps_the_old_file(plan, tmp_path, monkeypatch):
    path = tmp_path / "x.plan"
    save(plan, path)
    before = path.read_bytes()

    def full_disk(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full_disk)
    with pytest.raises(PlanFileError, match=r"x\.plan: cannot be written: No space left"):
        save(plan, path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.plan"]


def test_files_of_version_3_have_a_column_more(plan, members, tmp_path):
    """The node of each task, which is that of its rank."""
    former = change_meta(members | {"node.npy": members["rank.npy"]}, version=3)
    assert_equal_plans(load(seal(tmp_path / "x.plan", former)), plan)


@pytest.mark.parametrize("place", ["missing/x.plan", "."])
def test_saving_nowhere_is_refused(plan, place, tmp_path):
    with pytest.raises(PlanFileError, match="cannot be written"):
        save(plan, tmp_path / place)


def test_missing_file(tmp_path):
    with pytest.raises(PlanFileError, match=r"x\.plan: no such file; give the path of a plan file"):
        load(tmp_path / "x.plan")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(PlanFileError, match="cannot be read"):
        load(tmp_path)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not a plan file: it is empty"),
        (b"kind: bcast\n", r"not a plan file: it begins with b'ki'"),
        (b"PK\x03\x04 and then nothing", "is no plan file that can be read"),
    ],
)
def test_what_is_no_zip(content, problem, tmp_path):
    path = tmp_path / "x.plan"
    path.write_bytes(content)
    with pytest.raises(PlanFileError, match=problem):
        load(path)


REFUSED = {
    "no metadata": (lambda m: {"op.npy": m["op.npy"]}, "has no member plan.json"),
    "other format": (lambda m: change_meta(m, format="npz"), "does not say format 'collplan'"),
    "not an object": (lambda m: m | {"plan.json": b"[1]"}, "does not say format"),
    "not JSON": (lambda m: m | {"plan.json": b"{"}, "is no plan file that can be read"),
    "deep JSON": (lambda m: m | {"plan.json": b"[" * 100_000}, "is no plan file that can be read"),
    "other version": (lambda m: change_meta(m, version=1), "version 1, this collplan reads 3"),
    "former column": (
        lambda m: m | {"node.npy": m["rank.npy"]},
        r"member 'node\.npy' is not known",
    ),
    "missing column": (
        lambda m: {name: content for name, content in m.items() if name != "tag.npy"},
        r"member 'tag\.npy' is missing",
    ),
    "extra column": (lambda m: m | {"x.npy": m["op.npy"]}, r"member 'x\.npy' is not known"),
    "no rows": (lambda m: change_meta(m, rows={}), "rows must name tasks"),
    "negative rows": (
        lambda m: change_meta(m, rows=json.loads(m["plan.json"])["rows"] | {"tasks": -1}),
        "tasks is -1, must be a number from 0",
    ),
    "absurd rows": (
        lambda m: change_meta(m, rows=json.loads(m["plan.json"])["rows"] | {"tasks": 2**40}),
        "tasks is 1099511627776",
    ),
    "rows that are not there": (
        lambda m: change_meta(m, rows=json.loads(m["plan.json"])["rows"] | {"tasks": 2**31 - 1}),
        "column op must hold integers",
    ),
    "boolean": (lambda m: change_meta(m, itemsize=True), "itemsize is True"),
    "foreign rank": (lambda m: change_meta(m, only_rank=4), "only_rank is 4"),
    "phases": (lambda m: change_meta(m, phases="ab"), "phases must be a list of names"),
    "components that are none": (
        lambda m: change_meta(m, components=[{"kind": 1}]),
        r"components\.0\.kind: Input should be a valid string",
    ),
    "components that are no list": (
        lambda m: change_meta(m, components={}),
        r"components: Input should be a valid list",
    ),
    "component that is no mapping": (
        lambda m: change_meta(m, components=[3]),
        r"components\.0: Input should be a valid mapping",
    ),
    "trees without groups": (
        lambda m: change_meta(m, components=[{"trees": [{"up": [], "down": []}]}]),
        r"components\.0\.trees\.0\.groups: Input should be a valid list",
    ),
    "rounds that are no numbers": (
        lambda m: change_meta(m, components=[{"trees": [{"groups": [], "up": [True]}]}]),
        r"components\.0\.trees\.0\.up\.0: Input should be a valid integer",
    ),
    "rounds below zero": (
        lambda m: change_meta(m, components=[{"trees": [{"groups": [], "up": [], "down": [-1]}]}]),
        r"components\.0\.trees\.0\.down\.0: Input should be a valid integer",
    ),
    "other components": (
        lambda m: change_meta(m, components=[{"kind": "bcast"}]),
        "components must be those that phases names",
    ),
    "a radix of no tree": (
        lambda m: change_meta(m, components=[{"kind": "bcast", "radix": 1}]),
        r"components\.0\.radix: Input should be 0, or a valid integer from 2 on",
    ),
    "components of foreign ranks": (
        lambda m: change_meta(
            m,
            phases=["bcast"],
            components=[{"kind": "bcast", "trees": [{"groups": [[4]], "up": [], "down": [0]}]}],
        ),
        "components must be of ranks 0 to 3",
    ),
    "constant indptr": (
        lambda m: change_meta(
            m, constant=[*json.loads(m["plan.json"])["constant"], "reads.indptr"]
        ),
        "reads.indptr is marked constant",
    ),
    "spec": (
        lambda m: change_meta(m, spec={"collective": {"kind": "x", "datatype": "int32"}}),
        "spec: collective",
    ),
    "spec that is a list": (
        lambda m: change_meta(m, spec=[1]),
        "spec: Input should be a valid mapping",
    ),
    "spec without a collective": (
        lambda m: change_meta(m, spec={"machine": {}}),
        r"spec\.collective: Input should be a valid mapping",
    ),
    "datatype that is a list": (
        lambda m: change_meta(m, spec={"collective": {"kind": "bcast", "datatype": [1]}}),
        r"spec\.collective: \[1\] is not a datatype",
    ),
    "operation that is a text": (
        lambda m: change_meta(m, spec={"collective": {"kind": "bcast", "op": "sum"}}),
        r"spec\.collective\.op: Input should be a valid mapping",
    ),
    "operation on another datatype": (
        lambda m: change_meta(
            m,
            spec={"collective": {"kind": "bcast", "datatype": "int32", "op": {"name": "maxloc"}}},
        ),
        "spec.collective: op maxloc needs a pair datatype, not int32",
    ),
    "operation without a name": (
        lambda m: change_meta(m, spec={"collective": {"kind": "bcast", "op": {"name": 3}}}),
        r"spec\.collective\.op\.name: Input should be a valid string",
    ),
    "operation left out": (
        lambda m: change_meta(
            m, spec={"collective": {"kind": "allreduce", "count": 16, "datatype": "int32"}}
        ),
        "spec: the collective lacks its datatype or operation",
    ),
    "float column": (lambda m: m | {"op.npy": npy(np.zeros(60))}, "column op must hold integers"),
    "wide column": (
        lambda m: m | {"op.npy": npy(np.zeros(60, dtype=np.int16))},
        "op must hold integers of at most 1 bytes",
    ),
    "short column": (
        lambda m: m | {"op.npy": npy(np.zeros(59, dtype=np.int8))},
        r"shape \(60,\), its header says .*59",
    ),
    "objects": (
        lambda m: m | {"op.npy": npy(np.zeros(60, dtype=np.int8)).replace(b"|i1", b"|O8")},
        "op must hold integers",
    ),
    "cut column": (lambda m: m | {"op.npy": m["op.npy"][:-1]}, "column op has 59 bytes"),
}


@looped("case", REFUSED)
def test_refused_with_the_reason(case, members, tmp_path):
    change, problem = REFUSED[case]
    path = seal(tmp_path / "x.plan", change(members))
    with pytest.raises(PlanFileError, match=problem) as caught:
        load_all(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


def test_the_radix_of_trees_is_stored(tmp_path):
    for algorithm, tree, radix in (("binomial", "binomial", 2), ("chain", "any", 0),
                                   ({"name": "knomial", "radix": 3}, "knomial", 3)):  # fmt: skip
        collective = {"kind": "bcast", "count": 8}
        machine = {"ranks_per_node": 5}
        plan = compile_plan(
            parse_spec({"machine": machine, "collective": collective, "algorithms": algorithm})
        )
        save(plan, tmp_path / "one.plan")
        (phase,) = load(tmp_path / "one.plan").phases
        assert (phase.tree, phase.radix) == (tree, radix)
        assert phase == plan.phases[0]


def test_files_without_components_have_names_of_phases_only(tmp_path):
    spec = {
        "machine": {"nodes": 2, "ranks_per_node": 3},
        "collective": {"kind": "bcast", "count": 8},
        "decomposition": "hierarchical",
        "algorithms": {"node": "binomial", "lane": "linear"},
    }
    plan = compile_plan(parse_spec(spec))
    save(plan, tmp_path / "new.plan")
    assert load(tmp_path / "new.plan").phases == plan.phases
    assert any(phase.trees for phase in plan.phases)
    with zipfile.ZipFile(tmp_path / "new.plan") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    meta = json.loads(members["plan.json"])
    del meta["components"]
    old = load(seal(tmp_path / "old.plan", members | {"plan.json": json.dumps(meta).encode()}))
    named = [(phase.name, phase.role, phase.kind, phase.algorithm) for phase in plan.phases]
    assert [(one.name, one.role, one.kind, one.algorithm) for one in old.phases] == named
    assert not any(phase.trees for phase in old.phases)


def test_bombs_are_refused_before_they_are_unpacked(members, tmp_path):
    bomb = members | {"op.npy": bytes(10_000_000)}
    path = seal(tmp_path / "x.plan", bomb, zipfile.ZIP_DEFLATED)
    with pytest.raises(PlanFileError, match="is compressed, must be stored"):
        load(path)


def test_columns_are_checked_entry_by_entry(members, tmp_path):
    outside = npy(np.full(48, 15, dtype=np.int8))
    path = seal(tmp_path / "x.plan", members | {"reads.offset.npy": _own_header(outside)})
    with pytest.raises(PlanFormatError, match=rf"{path.name}: task #0 reads recv\[15:19\]"):
        load(path)


def _own_header(content):
    """Give numpy's header our padding: they differ by blanks."""
    header, _, body = content[10:].partition(b"\n")
    text = header.rstrip()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return content[:8] + len(text).to_bytes(2, "little") + text + body


@pytest.mark.quick
@pytest.mark.parametrize(
    ("offset", "count"), [(2**62, 2**62), (2**63 - 1, 1), (0, 2**63 - 1)], ids=str
)
def test_sums_that_wrap_do_not_reach_outside(offset, count, tmp_path):
    book = PlanBook([0])
    book.add(Op.COMPUTE, 0, [(Buffer.RECV, 0, 1)], [])
    plan = book.plan()
    reads = Extents(
        plan.reads.indptr,
        plan.reads.buffer,
        offset=np.array([offset]),
        count=np.array([count]),
        pattern=plan.reads.pattern,
    )
    save(plan.replace(reads=reads), tmp_path / "x.plan")
    with pytest.raises(PlanFormatError, match=r"must be 0 to"):
        load(tmp_path / "x.plan")


def test_strides_that_wrap_do_not_reach_outside(plan, tmp_path):
    patterns = np.array([[0, 1, 0, 1], [2**33, 2**31, 0, 1]])
    save(plan.replace(patterns=patterns), tmp_path / "x.plan")
    with pytest.raises(PlanFormatError, match=r"patterns\[1\] reaches 1\.84e\+19 elements"):
        load(tmp_path / "x.plan")


def damage(good, rng):
    """Cut a file short, or change a few of its bytes, at its end more often."""
    kind = rng.randrange(3)
    if kind == 0:
        return good[: rng.randrange(len(good))]
    changed = bytearray(good)
    start = 0 if kind == 1 else len(good) - 3000
    for _ in range(rng.randint(1, 3)):
        changed[rng.randrange(start, len(good))] = rng.randrange(256)
    return bytes(changed)


def load_or_refusal(path):
    """Return the plan, or the one line that refuses it; anything else is a crash."""
    try:
        return load_all(path), None
    except CollplanError as error:
        return None, str(error)


def test_damaged_files_are_refused_or_harmless(plan, tmp_path):
    save(plan, tmp_path / "good.plan")
    good = (tmp_path / "good.plan").read_bytes()
    path = tmp_path / "x.plan"
    rng = random.Random(0)
    refusals = []
    for _ in range(300):
        path.write_bytes(damage(good, rng))
        survivor, refusal = load_or_refusal(path)
        if refusal is None:
            assert_equal_plans(survivor, plan)
        else:
            refusals.append(refusal)
    assert len(refusals) > 200
    assert all(line.startswith(str(path)) and "\n" not in line for line in refusals)


def test_forged_files_are_refused_or_valid(members, tmp_path):
    """Damage under the checksums, as a stranger could write it."""
    rng, number = random.Random(1), examples(300)
    refusals = []
    for _ in range(number):
        name = rng.choice(list(members))
        content = bytearray(members[name])
        low = 0 if name == "plan.json" or rng.random() < 0.3 else min(128, len(content) - 1)
        content[rng.randrange(low, len(content))] = rng.choice([0, 1, 57, 127, 128, 255])
        path = seal(tmp_path / "x.plan", members | {name: bytes(content)})
        survivor, refusal = load_or_refusal(path)
        if refusal is None:
            check_format(survivor)
        else:
            refusals.append(refusal)
    assert len(refusals) > number // 2
    assert all(line.startswith(str(path)) and "\n" not in line for line in refusals)


@pytest.fixture
def compiled_members(tmp_path):
    """The members of a file of a compiled ring allreduce of 16 elements on 4 ranks."""
    spec = {
        "machine": {"ranks_per_node": 4},
        "collective": {"kind": "allreduce", "count": 16, "datatype": "int32"},
        "algorithms": "ring",
    }
    save(compile_plan(parse_spec(spec)), tmp_path / "good.plan")
    with zipfile.ZipFile(tmp_path / "good.plan") as archive:
        return {name: archive.read(name) for name in archive.namelist()}


CONTRADICTIONS = {
    "count": ("collective", {"count": 17}, "size of the send buffer of rank 0 is 16, but 17"),
    "in place": ("collective", {"in_place": True}, "size of the send buffer of rank 0 is 16"),
    "datatype": ("collective", {"datatype": "float64"}, "itemsize is 4, but 8"),
    "ranks": ("machine", {"ranks_per_node": 5, "cores": 5}, "number of ranks is 4, but 5"),
    "nodes": ("machine", {"nodes": 2, "ranks_per_node": 2}, "number of nodes is 1, but 2"),
    "lanes": ("machine", {"lanes": 2}, "rank_lane of rank 1 is 0, but 1 by machine.lanes"),
}


@pytest.mark.quick
@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_spec_that_contradicts_its_columns_is_refused(case, compiled_members, tmp_path):
    part, fields_, problem = CONTRADICTIONS[case]
    spec = json.loads(compiled_members["plan.json"])["spec"]
    spec[part] |= fields_
    path = seal(tmp_path / "x.plan", change_meta(compiled_members, spec=spec))
    with pytest.raises(PlanFormatError, match=f"{problem}.* of the spec stored with the plan"):
        load_all(path)


def is_spec_read(plan):
    return "spec" in vars(plan) or "_spec" in vars(plan.origin)


def test_the_spec_is_read_when_it_is_first_asked_for(tmp_path):
    original = compiled()
    save(original, tmp_path / "x.plan")
    plan = load(tmp_path / "x.plan")
    changed = [
        plan.replace(priority=np.zeros(plan.n_tasks, dtype=np.int32)),
        restrict(plan, 1),
        copy.copy(plan),
        copy.deepcopy(plan),
        pickle.loads(pickle.dumps(plan)),
    ]
    save(plan, tmp_path / "y.plan")
    assert (tmp_path / "x.plan").read_bytes() == (tmp_path / "y.plan").read_bytes()
    assert not any(map(is_spec_read, [plan, *changed]))
    for one in (plan, *changed):
        assert one.spec == original.spec
        assert is_spec_read(one)
    assert changed[0].spec is plan.spec, "a file's spec is read once"
    assert plan.replace(spec=None).spec is None
    other = original.spec.with_count(7)
    assert plan.replace(spec=other).spec is other


def test_executing_takes_the_same_from_a_file_as_from_a_spec(tmp_path):
    for collective in (
        {"kind": "barrier"},
        {"kind": "bcast", "count": 3},
        {"kind": "allreduce", "count": 3, "datatype": "float_int", "op": "minloc"},
        {"kind": "scan", "count": 3, "op": {"name": "mine", "commutative": False}},
    ):
        spec = parse_spec({"machine": {"ranks_per_node": 2}, "collective": collective})
        known = compile_plan(spec)
        save(known, tmp_path / "x.plan")
        stored = load(tmp_path / "x.plan")
        op = spec.collective.op
        expected = spec.collective.datatype, None if op is None else op.name, spec.to_json()
        for origin in (known.origin, stored.origin):
            assert (origin.datatype, origin.operation, origin.to_json()) == expected
        assert not is_spec_read(stored)


def test_a_wrong_spec_is_refused_as_often_as_it_is_asked_for(compiled_members, tmp_path):
    spec = json.loads(compiled_members["plan.json"])["spec"] | {"decomposition": "x"}
    plan = load(seal(tmp_path / "x.plan", change_meta(compiled_members, spec=spec)))
    for _ in range(2):
        with pytest.raises(PlanFileError, match=r"x\.plan: plan\.json: spec: decomposition"):
            _ = plan.spec
    with pytest.raises(PlanFileError):
        verify(plan)


def test_an_itemsize_that_contradicts_the_spec_is_refused(compiled_members, tmp_path):
    path = seal(tmp_path / "x.plan", change_meta(compiled_members, itemsize=2))
    with pytest.raises(PlanFormatError, match=r"itemsize is 2, but 4 by collective\.datatype"):
        load(path)
    seal(path, compiled_members)
    with pytest.raises(PlanFormatError, match="itemsize is 8, but 4"):
        verify(load(path).replace(itemsize=8))
