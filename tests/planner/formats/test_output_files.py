"""Files that commands write: never their own input, through links, into devices, whole."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from collplan.cli.ranks import own_command
from collplan.planner.formats.output_files import replacing
from collplan.reports.plots import Series, plot_times
from collplan.specs.errors import CollplanError
from command_line import CommandLine


@pytest.fixture
def collplan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(tmp_path, capsys)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("x.yaml", ["compile", "FILE", "-o", "FILE"]),
        ("x.yaml", ["export", "FILE", "--to", "goal", "-o", "FILE"]),
        ("x.yaml", ["export", "FILE", "--to", "ompi", "-o", "FILE"]),
        ("x.svg", ["draw", "FILE", "-o", "FILE"]),
        ("x.svg", ["compare", "FILE", "--plot", "FILE"]),
        ("x.svg", ["overlap", "--machine", "FILE", "--plot", "FILE"]),
        ("x.json", ["cost", "FILE", "--trace", "FILE"]),
        ("x.json", ["run", "FILE", "--predict", "--trace", "FILE"]),
        ("x.yaml", ["calibrate", "--fit", "FILE", "-o", "FILE"]),
        ("x.yaml", ["tune", "FILE", "-n", "2", "-o", "FILE"]),
        ("x.svg", ["bench", "guideline", "FILE", "-n", "2", "--plot", "FILE"]),
        ("x.svg", ["bench", "lane-pattern", "--nodes-from", "FILE", "-n", "2", "--plot", "FILE"]),
        ("x.json", ["bench", "overlap", "--machine", "FILE", "--simulate", "--trace", "FILE"]),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_a_command_never_overwrites_its_input(
    collplan: CommandLine, name: str, arguments: list[str]
) -> None:
    path = collplan.write_spec(name)
    before = path.read_bytes()
    link = path.with_name(f"link{path.suffix}")
    link.symlink_to(name)
    for output in (path, link):
        given: list[object] = [path if word == "FILE" else word for word in arguments]
        given[-1] = output
        line = collplan(*given).error()
        assert f"{output} is what " in line
        assert "would be overwritten; give another file" in line
    assert path.read_bytes() == before


def test_two_results_never_go_into_one_file(collplan: CommandLine) -> None:
    path = collplan.folder / "m.yaml"
    line = collplan("calibrate", "-n", "2", "-o", path, "--measurements", path).error()
    assert line == f"--measurements: {path} is written by -o, too; give two different files"


def test_output_through_a_link_replaces_the_file_it_names(collplan: CommandLine) -> None:
    plan = collplan.compile("target.plan")
    before = plan.read_bytes()
    folder = collplan.folder / "other"
    folder.mkdir()
    link = folder / "link.plan"
    link.symlink_to("../target.plan")
    plan.chmod(0o600)
    spec = collplan.write_spec(collective={"kind": "barrier"}, algorithms="auto")
    assert collplan("compile", spec, "-o", link).status == 0
    assert link.is_symlink()
    assert plan.read_bytes() != before
    assert stat.S_IMODE(plan.stat().st_mode) == 0o600
    assert [entry.name for entry in folder.iterdir()] == ["link.plan"]


def test_output_into_a_fifo_or_device_leaves_it_one(collplan: CommandLine) -> None:
    plan = collplan.compile()
    fifo, got = collplan.folder / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()), daemon=True)
    reader.start()
    outcome = collplan("compile", collplan.folder / "spec.yaml", "-o", fifo)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    reader.join(10)
    assert outcome.status == 0
    assert got == [plan.read_bytes()]
    device = collplan.folder / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("this user may not make a device file, which takes root")
    assert collplan("compile", collplan.folder / "spec.yaml", "-o", device).status == 0
    assert stat.S_ISCHR(device.stat().st_mode)


def test_a_table_is_not_written_into_a_fifo(collplan: CommandLine) -> None:
    fifo = collplan.folder / "table"
    os.mkfifo(fifo)
    line = collplan("tune", "-n", "2", "-o", fifo).error()
    assert line.startswith(f"-o: {fifo} is not a regular file, and a table is read again")


def test_nothing_is_written_into_a_device_where_writing_fails(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)

    def fail() -> None:
        with replacing(fifo) as file:
            file.write(b"half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CollplanError, match="No space"):
        fail()
    with pytest.raises(BlockingIOError):
        os.read(keep, 10)
    os.close(keep)


def test_output_to_standard_output_holds_nothing_else(collplan: CommandLine) -> None:
    plan = collplan.compile()
    copy = collplan.folder / "copy.plan"
    with copy.open("wb") as file:
        done = subprocess.run(
            own_command("compile", collplan.folder / "spec.yaml", "-o", "/proc/self/fd/1"),
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0
    assert done.stderr.splitlines()[-1].endswith("wrote /proc/self/fd/1")
    assert copy.read_bytes() == plan.read_bytes()


def test_a_plot_that_cannot_be_finished_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    path = tmp_path / "plot.svg"
    series = [Series("ring", [8, 16], [1e-6, 2e-6])]
    plot_times(path, series, title="t", size_label="bytes")
    before = path.read_bytes()

    def fill_disk(self: Figure, target: Any, **options: Any) -> None:
        file = target.open("wb") if isinstance(target, Path) else target
        file.write(b"<svg")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Figure, "savefig", fill_disk)
    with pytest.raises(CollplanError, match=r"plot\.svg: cannot be written: No space left"):
        plot_times(path, series, title="t", size_label="bytes")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.usefixtures("priced_once")
@pytest.mark.parametrize("command", ["compare SPEC", "overlap --cores 8"])
def test_a_result_is_printed_though_its_plot_cannot_be_written(
    collplan: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    from matplotlib.figure import Figure

    def fill_disk(self: Figure, target: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Figure, "savefig", fill_disk)
    spec, plot = collplan.write_spec(), collplan.folder / "plot.svg"
    words = [str(spec) if word == "SPEC" else word for word in command.split()]
    whole = collplan(*words)
    outcome = collplan(*words, "--plot", plot)
    assert (outcome.status, outcome.out) == (2, whole.out)
    assert outcome.err.count("\n") == 1
    assert f"{plot}: cannot be written: No space left on device" in outcome.err
    assert not plot.exists()
