"""Hostile files: each is refused by one line and exit status 2, and takes less than 1 GiB."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from functools import cache

import pytest

from attacking import Attack, Target
from folders import ROOT

GIBIBYTE = 1 << 30
ARCHIVE = ROOT / "tests/planner/formats/msccl/examples.tar.xz"
ALGO = '<algo name="x" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="0">'
GPU = '<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">'
LAUGHS = '<!ENTITY l0 "lol">' + "".join(
    f"<!ENTITY l{i} '" + f"&l{i - 1};" * 10 + "'>" for i in range(1, 12)
)
TB = '<tb id="0" send="1" recv="-1" chan="0">'
STEP = '<step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1"/>'
Content = str | bytes | Callable[[], str | bytes]
"""Contents of a file, or a function that makes them where that takes long."""
Read = tuple[str, Content, list[str]]
"""The name and the contents of a file, and the command that reads it."""
BCAST = "machine: {ranks_per_node: 4}\ncollective: {kind: bcast, count: 4}\n"
RUN = {
    "ranks": 4, "bytes": 16, "library": "x", "median_s": 1.0, "native_median_s": 1.0,
    "predicted_s": 1.0, "measured_s": 1.0, "prediction_error": 0.0, "phases": [],
}  # fmt: skip


def example() -> str:
    with tarfile.open(ARCHIVE) as archive:
        file = archive.extractfile("ndv4_r48ll.xml")
        assert file is not None
        return file.read().decode()


@cache
def zip_bomb() -> bytes:
    """Return an archive whose member unpacks to 4 GiB."""
    packed, n = io.BytesIO(), 1 << 22
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("plan.json", "w", force_zip64=True) as member:
            for _ in range(64):
                member.write(b" " * n)
        archive.writestr("op.npy", b"\x93NUMPY")
    return packed.getvalue()


def npy_of_a_huge_shape() -> bytes:
    """Return an archive whose column says that it has 2**60 rows."""
    header = b"{'descr': '|i1', 'fortran_order': False, 'shape': (1152921504606846976,), }"
    header += b" " * (117 - len(header)) + b"\n"
    column = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("plan.json", "{}")
        archive.writestr("op.npy", column)
    return packed.getvalue()


def aliases() -> str:
    """Return YAML in which each line holds the line before it ten times."""
    lines = ["a0: &a0 [x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join(lines)


def convert(text: Content) -> Read:
    return "x.xml", text, ["convert", "x.xml", "-o", "out.plan"]


def compile_(text: Content, name: str = "x.yaml") -> Read:
    return name, text, ["compile", name, "-o", "out.plan"]


def verify(content: Content) -> Read:
    return "x.plan", content, ["verify", "x.plan"]


def measured(text: Content) -> Read:
    arguments = ["report", "good.yaml", "-o", "out.html", "--seconds", "0", "--measured", "x.json"]
    return "x.json", text, arguments


def table(text: Content, name: str = "x.yaml") -> Read:
    return name, text, ["export", name, "--to", "ompi", "-o", "out.rules"]


HOSTILE = {
    "entities that expand": convert(f"<!DOCTYPE algo [{LAUGHS}]>{ALGO}&l11;</algo>"),
    "entities in attributes": convert(f'<!DOCTYPE a [{LAUGHS}]><algo name="&l11;"/>'),
    "an external entity": convert(
        '<!DOCTYPE algo [<!ENTITY x SYSTEM "file:///etc/passwd">]><algo name="&x;"/>'
    ),
    "an external document type": convert('<!DOCTYPE algo SYSTEM "http://192.0.2.1/x"><algo/>'),
    "an undeclared entity": convert(ALGO + "&x;</algo>"),
    "a huge attribute": convert(lambda: f'<algo coll="{"x" * (60 << 20)}"/>'),
    "a huge attribute of a step": convert(
        lambda: ALGO + GPU + f'{TB}<step type="{"x" * (50 << 20)}"/>'
    ),
    "a huge file": convert(lambda: b" " * ((1 << 26) + 1)),
    "deep elements": convert(lambda: "<algo>" * 1_000_000),
    "many attributes": convert(
        lambda: "<algo " + " ".join(f"a{i}='1'" for i in range(400_000)) + "/>"
    ),
    "many steps": convert(
        lambda: (
            (ALGO + GPU + TB)
            + "".join(STEP.replace('s="0"', f's="{i}"', 1) for i in range(270_000))
        )
    ),
    "many GPUs": convert(ALGO.replace('ngpus="2"', 'ngpus="99999999"') + "</algo>"),
    "digits": convert(lambda: ALGO.replace('ngpus="2"', f'ngpus="{"9" * 5_000_000}"') + "</algo>"),
    "chunks without end": convert(
        ALGO + GPU.replace('s_chunks="0"', 's_chunks="999999999999"') + "</gpu></algo>"
    ),
    "a cut schedule": convert(lambda: example()[:100_000]),
    "a schedule of another encoding": convert('<?xml version="1.0" encoding="EBCDIC"?><algo/>'),
    "control characters": convert(ALGO.replace("allreduce", "all\x1b[31mreduce")),
    "bytes that are no text": convert(b"<algo \xff\xfe\x00/>"),
    "nothing": convert(""),
    "a plan for a schedule": convert(zip_bomb),
    "aliases of aliases": compile_(aliases()),
    "deep YAML": compile_("[" * 200_000),
    "deep mappings": compile_("{a: " * 100_000),
    "a huge scalar": compile_(lambda: "machine: " + "9" * (40 << 20)),
    "a tag of Python": compile_("machine: !!python/object/apply:os.system ['true']"),
    "deep JSON": compile_("[" * 200_000, "x.json"),
    "a zip bomb": verify(zip_bomb),
    "a column of a huge shape": verify(npy_of_a_huge_shape()),
    "a cut plan": verify(lambda: zip_bomb()[:200]),
    "deep JSON as recording": measured(lambda: "[" * 1_000_000),
    "a huge recording": measured(lambda: b" " * ((1 << 25) + 1)),
    "a cut recording": measured(json.dumps(RUN)[:-30]),
    "a recording of numbers beyond numbers": measured(json.dumps(RUN).replace("1.0", "1e999")),
    "a recording of digits": measured(json.dumps(RUN).replace("16", "9" * 10_000)),
    "a recording of other ranks": measured(json.dumps(RUN | {"ranks": 1 << 60})),
    "a deep table": table("[" * 200_000),
    "a table of aliases": table(aliases()),
    "a table that is a bomb": table(zlib.compress(b"x" * 1000), "x.json"),
}
"""Files by what is hostile in them: a name, contents, and the command that reads them."""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")
@pytest.mark.parametrize("name", HOSTILE)
def test_one_line_and_no_memory(name: str, target: Target) -> None:
    file, content, arguments = HOSTILE[name]
    made = content if isinstance(content, str | bytes) else content()
    data = made.encode() if isinstance(made, str) else made
    files = {file: data, "good.yaml": BCAST.encode()}
    done = target.run(Attack(files, arguments, n_bytes=GIBIBYTE))
    assert done.status == 2, done.err[-2000:]
    assert done.out == ""
    assert done.err.startswith("collplan: error: ")
    assert done.err.count("\n") == 1
    assert len(done.err) < 2000
    assert done.err[:-1].isprintable()
    assert done.files == ()


def test_there_are_enough_of_them() -> None:
    assert len(HOSTILE) >= 30
