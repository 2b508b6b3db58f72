"""Reports as HTML: what is in the file, and what a browser makes of it."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collplan
from browser import SCREENSHOTS, new_page
from collplan.executors.cost.traces.layers import simulated_layer, tracks_of
from collplan.planner.compiler.compile import compile_plan
from collplan.reports.html.machine_picture import describe, picture_of
from collplan.reports.html.page import answer, write_report
from collplan.reports.html.run_page import write_run
from collplan.reports.html.tune_page import write_tuned
from collplan.reports.html.views import MOST_SLICES, timeline_of, view_of
from collplan.reports.recording import Recording
from collplan.reports.timelines import mark_critical
from collplan.reports.words import explain
from collplan.select.auto import resolve
from collplan.select.compared import Pruned
from collplan.select.comparison import compare
from collplan.specs import Machine, PlanSpec
from collplan.tables.sweep import NATIVE, Choice, NodePlacement, Point, Sweep, Time
from collplan.tables.table import TuningTable
from collplan.tune.tuner import Tuned
from oracle import make_spec
from tuned import FINGERPRINT

SPEC = {
    "machine": {"nodes": 2, "ranks_per_node": 4, "lanes": 2, "numa_domains": 2},
    "collective": {"kind": "allreduce", "count": 65536, "datatype": "int32"},
    "algorithms": "ring",
}
LOOKS = ((1400, "light"), (1400, "dark"), (400, "light"), (400, "dark"))
RUN = {
    "ranks": 8, "bytes": 262144, "library": "MPICH <4>", "median_s": 1e-3, "native_median_s": 2e-3,
    "predicted_s": 1e-3, "measured_s": 2e-3, "prediction_error": -0.5,
    "phases": [{"name": "ring", "measured_s": 2e-3, "simulated_s": 1e-3, "error": -0.5}],
}  # fmt: skip


@pytest.fixture(scope="module")
def recording() -> Recording:
    """A run whose tasks take twice as long as simulated, and rank 3's five times."""
    plan = collplan.compile(PlanSpec.model_validate(SPEC))
    timeline = collplan.simulate(plan)
    factor = np.where(plan.rank == 3, 5.0, 2.0)
    return Recording(RUN, timeline, timeline.start_ns * factor, timeline.end_ns * factor)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def report(folder: Path, recording: Recording) -> Path:
    spec = PlanSpec.model_validate(SPEC)
    specs = [spec.with_count(count) for count in (1024, 65536)]
    patterns = ["ring", "full_lane", "recursive_doubling", "MPI_Iallreduce"]
    path = folder / "report.html"
    write_report(path, spec, compare(specs, patterns=patterns), ["a b.yaml"], recording)
    return path


@pytest.fixture(scope="module")
def run_page(folder: Path, recording: Recording) -> Path:
    path = folder / "run.html"
    write_run(path, recording, "a b.yaml", "some <processor>")
    return path


@pytest.fixture(scope="module")
def tune_page(folder: Path) -> Path:
    choices = {
        one.label: one for one in (NATIVE, Choice(algorithms="ring"), Choice(algorithms="binomial"))
    }
    native, ring, tree = choices

    def point(size: int, **times: float) -> Point:
        known = {
            name: Time(median_s=s, low_s=0.9 * s, high_s=1.2 * s, n=9) for name, s in times.items()
        }
        return Point(bytes=size, times=known, winner=min(times, key=lambda name: times[name]))

    sweeps = [
        Sweep(
            collective=kind, ranks=4, placement=NodePlacement(ranks_per_node=(4,)),
            datatype="float64",
            choices=choices, ranks_per_core=2.0, complete=True, **more,
            points=(point(64, **{native: 1e-5, ring: 2e-5}),
                    point(65536, **{native: 4e-4, ring: 1e-4, tree: 3e-4})),
        )
        for kind, more in (("bcast", {}), ("allreduce", {"op": "sum", "op_commutes": True}))
    ]  # fmt: skip
    table = TuningTable(fingerprint=FINGERPRINT, sweeps=tuple(sweeps))
    tuned = Tuned(table, (), ("bcast: <mesh> crashed",), 4, 0)
    path = folder / "tune.html"
    write_tuned(path, tuned, ["collplan tune -o 't <1>.yaml'"])
    return path


def data_of(path: Path) -> dict[str, Any]:
    found = re.search(r'id="data">([^<]*)<', path.read_text())
    assert found is not None
    return dict(json.loads(gzip.decompress(base64.b64decode(found[1]))))


@pytest.mark.long
def test_the_file_has_all_and_loads_nothing(report: Path) -> None:
    text = report.read_text()
    assert report.stat().st_size < 5_000_000
    assert not re.search(r"<(script|img|iframe|link)[^>]*\b(src|href)=", text)
    assert not re.search(r"@import|url\(\s*['\"]?https?:", text[: text.index("<script>")])
    assert "default-src 'none'" in text
    assert "collplan report 'a b.yaml' --sizes 4096,262144" in unescape(text)
    assert "MPICH &lt;4&gt;" in text
    assert "-50.0%" in text


@pytest.mark.long
def test_the_answer_agrees_with_the_comparison(report: Path) -> None:
    data = data_of(report)
    assert data["sizes"] == [4096, 262144]
    times = {(r["candidate"], r["bytes"]): r["makespan_s"] for r in data["comparison"]["rows"]}
    for size in data["sizes"]:
        best, lines = data["leading"][str(size)], data["answers"][str(size)]
        assert times[best, size] == min(time for (_, at), time in times.items() if at == size)
        assert lines[0].startswith(f"{best} wins at ")
        native = times["MPI_Iallreduce", size] / times[best, size]
        assert any(
            f"{native:.2f} times as fast as MPI's own non-blocking" in line for line in lines
        )
        bound = data["comparison"]["bounds"][str(size)]["time_s"]
        assert any(f"{times[best, size] / bound:.3g} times the lower bound" in x for x in lines)
    for library in data["comparison"]["libraries"]:
        assert f'<th scope="row">{library}</th>' in report.read_text()
    shown = {(view["name"], view["size"]) for view in data["views"]}
    assert {("ring", 4096), ("MPI_Iallreduce", 262144)} < shown
    for view in data["views"]:
        if (view["name"], view["size"]) not in times:
            continue
        assert view["makespan_s"] == pytest.approx(times[view["name"], view["size"]])
        assert sum(view["breakdown"].values()) == pytest.approx(view["makespan_s"])


def test_tasks_say_what_they_wait_for() -> None:
    spec = PlanSpec.model_validate(SPEC)
    plan, view = collplan.compile(spec), view_of("ring", spec).document
    assert len(view["tasks"]) == plan.n_tasks
    timeline = collplan.simulate(plan)
    for row, task in enumerate(view["tasks"]):
        known = plan.deps.task[plan.deps.indptr[row] : plan.deps.indptr[row + 1]].tolist()
        is_recv = task["op"] == "recv"
        assert task["waits"] == [*known, *[timeline.partner[row]] * is_recv]
        assert task["end_ns"] == timeline.end_ns[row]
    assert 'class="node"' in view["svg"]
    assert " id=" not in view["svg"]


def test_many_bars_are_put_together() -> None:
    machine = {"nodes": 2, "ranks_per_node": 48, "lanes": 2}
    plan = compile_plan(make_spec("allreduce", "ring", 0, machine, count=96_000))
    timeline = collplan.simulate(plan)
    assert plan.spec is not None
    tracks = tracks_of(simulated_layer(timeline, plan.spec.machine.network))
    found = timeline_of(plan, tracks, mark_critical(timeline))
    assert 0 < len(found["row"]) <= MOST_SLICES
    assert {"lane", "several kinds"} <= set(found["kind"])
    assert max(found["n"]) > 1
    assert sum(found["n"]) <= len(tracks.row)
    rows, begins, ends = found["path"]
    assert 0 < len(rows) == len(begins) == len(ends) <= 601
    assert begins == sorted(begins)
    until = np.array(found["begin"]) + np.array(found["length"])
    assert until.max() <= tracks.end.max()
    assert found["n_nodes"] < found["of_nodes"] == 2
    assert len(tracks.row) > MOST_SLICES


@pytest.mark.parametrize(
    "machine",
    [
        {},
        {"ranks_per_node": [3, 1], "nodes": 2},
        {"nodes": 64, "ranks_per_node": 48, "lanes": 2},
        {"nodes": 2, "ranks_per_node": 5, "cores": 7, "numa_domains": 3},
    ],
)
def test_machines_are_drawn(machine: dict[str, Any]) -> None:
    drawn = Machine.model_validate(machine)
    source = picture_of(drawn)
    shown = [r for r, node in enumerate(drawn.rank_to_node) if node < 3]
    assert all(f": rank {rank}" in source for rank in shown)
    assert (f"and {drawn.nodes - 3} more nodes" in source) == (drawn.nodes > 3)
    assert f"{drawn.nodes} node" in describe(drawn)


def test_titles_of_domains_fit_into_them() -> None:
    source = picture_of(
        Machine.model_validate({"ranks_per_node": 4, "cores": 8, "numa_domains": 2})
    )
    assert "NUMA 1" in source
    assert "NUMA domain" not in source


def test_a_reference_that_was_not_simulated_is_named() -> None:
    spec = PlanSpec.model_validate(SPEC)
    found = compare([spec], patterns=["ring", "MPI_Iallreduce"])
    size = found.sizes[0]
    found.leading[size] = "ring"
    del found.makespans["MPI_Iallreduce", size]
    text = "Not simulated at this size: MPI's own non-blocking call (MPI_Iallreduce)."
    assert text in answer(found, size, {})
    found.pruned.append(Pruned("MPI_Iallreduce", size, "time", 0.25, 0.0, 1234))
    assert any("about 250 ms by its closed form" in line for line in answer(found, size, {}))


@pytest.mark.long
def test_what_auto_chooses_is_shown_at_every_size(tmp_path: Path) -> None:
    spec = PlanSpec.model_validate({**SPEC, "algorithms": "auto", "decomposition": "auto"})
    specs = [spec.with_count(count) for count in (16, 65536)]
    path = tmp_path / "report.html"
    write_report(path, spec, compare(specs, patterns=["ring", "linear"]), ["a.yaml"])
    data = data_of(path)
    for size, own in zip(data["sizes"], specs, strict=True):
        label = resolve(own).method.label
        (view,) = (one for one in data["views"] if one["name"] == f"auto: {label}"
                   and one["size"] == size)  # fmt: skip
        assert view["makespan_s"] == pytest.approx(collplan.simulate(
            collplan.compile(own)).makespan_s, rel=0.01)  # fmt: skip
        said = f"The spec says auto, which chooses {label} here"
        assert any(line.startswith(said) for line in data["answers"][str(size)])


def test_losers_are_named_with_what_limits_them(report: Path) -> None:
    data = data_of(report)
    lines = data["answers"]["262144"]
    said = [line for line in lines if " times as long: " in line]
    assert said
    leading = data["leading"]["262144"]
    for line in said:
        assert not line.startswith(f"{leading} takes")
        assert re.search(r"limited by .*, \d+% busy|of its critical path is", line)


def test_links_of_a_topology_are_listed_with_their_bytes() -> None:
    network = {"topology": {"kind": "fat_tree", "down": [2, 2], "oversubscription": 2}}
    machine = {"nodes": 4, "ranks_per_node": 2, "network": network}
    view = view_of("ring", PlanSpec.model_validate(SPEC | {"machine": machine}))
    lanes, busiest = view.document["lanes"], view.cost["links"]["busiest"]
    assert f"busiest link: {busiest['link']}" in unescape(lanes)
    assert f"<td>{busiest['utilisation']:.0%}</td>" in lanes
    assert lanes.count("<tr>") > 8


def test_names_are_explained() -> None:
    spec = PlanSpec.model_validate(SPEC | {"decomposition": "full_lane", "transport": "shared"})
    assert "all lanes work" in explain("full_lane", spec)
    assert "shared memory" in explain("full_lane", spec)
    assert "MPICH" in explain("MPI_Iallreduce", spec)


@contextmanager
def opened(browser: Any, path: Path) -> Iterator[Any]:
    """Open a page; fail where it says anything on the console, or asks for anything."""
    page = new_page(browser, viewport={"width": 1400, "height": 900}, color_scheme="light")
    problems: list[str] = []
    page.on("console", lambda said: problems.append(said.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    yield page
    assert problems == [path.as_uri()], "messages on the console, or requests"
    page.close()


@pytest.fixture
def tab(browser: Any, report: Path) -> Iterator[Any]:
    with opened(browser, report) as page:
        yield page


def shown(tab: Any, name: str) -> str:
    return str(tab.eval_on_selector(name, "e => e.selectedOptions[0].textContent"))


def test_sizes_and_plans_are_switched(tab: Any) -> None:
    answer = tab.inner_text("#answer")
    tab.select_option("#size", label="4 KiB")
    assert "at 4 KiB" in tab.inner_text("#answer") != answer
    tab.select_option("#plan", label="ring")
    assert "ring" in tab.inner_text("#lanes")
    assert "<b>ring</b>" in tab.evaluate(
        "document.getElementById('timeline').layout.annotations[0].text"
    )
    tab.evaluate(
        "document.getElementById('sizes').emit('plotly_click',"
        " {points: [{x: 262144, data: {name: 'MPI_Iallreduce'}}]})"
    )
    assert shown(tab, "#size") == "256 KiB"
    assert shown(tab, "#plan").startswith("MPI_Iallreduce")


def test_timelines_have_one_legend_and_round_ticks(tab: Any) -> None:
    tab.select_option("#plan", label="MPI_Iallreduce")
    tab.select_option("#beside", index=0)
    shown = "document.getElementById('timeline')"
    names = tab.evaluate(
        f"{shown}.data.filter(one => one.showlegend !== false).map(one => one.name)"
    )
    bars = tab.evaluate(
        f"{shown}.data.filter(one => one.showlegend === false).map(one => one.name)"
    )
    assert len(set(names)) == len(names)
    assert {*filter(None, bars), "critical path"} == set(names)
    ticks = tab.evaluate(f"{shown}.layout.xaxis.tickvals")
    assert len(ticks) > 2
    step = f"{ticks[1] - ticks[0]:.6e}"
    assert step[0] in "125"
    assert float(step.split("e")[0]) == int(step[0])


def test_graphs_can_be_read_when_a_page_opens(tab: Any) -> None:
    tab.select_option("#plan", label="ring")
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    heights = (
        "[...document.querySelectorAll('#graph text')].map(e => e.getBoundingClientRect().height)"
    )
    assert min(tab.evaluate(heights)) > 8
    tab.click("#graph-all")
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    inside = """(() => {
        const graph = document.getElementById('graph'), frame = graph.getBoundingClientRect();
        const drawn = graph.querySelector('.svg-pan-zoom_viewport').getBoundingClientRect();
        return drawn.top >= frame.top - 2 && drawn.bottom <= frame.bottom + 2;
    })()"""
    assert tab.evaluate(inside)


def test_the_timeline_zooms(tab: Any) -> None:
    ends = "document.getElementById('timeline').layout.xaxis.range"
    low, high = tab.evaluate(ends)
    tab.click("#time-in")
    inner = tab.evaluate(ends)
    assert inner[1] - inner[0] == pytest.approx((high - low) / 2)
    tab.click("#time-later")
    assert tab.evaluate(ends)[0] > inner[0]
    tab.click("#time-all")
    assert tab.evaluate(ends) == [low, high]


def test_ranks_and_tasks_are_found(tab: Any) -> None:
    tab.select_option("#plan", label="ring")
    transform = "document.querySelector('#graph .svg-pan-zoom_viewport').getAttribute('style')"
    before = tab.evaluate(transform)
    tab.click("#graph-in")
    tab.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert tab.evaluate(transform) != before
    tab.fill("#search", "rank 3")
    tab.press("#search", "Enter")
    assert tab.inner_text("#task") == "rank 3"
    assert tab.locator("#graph .found").count() == 1
    tab.fill("#search", "99")
    tab.press("#search", "Enter")
    assert "not in this picture" in tab.inner_text("#task")
    tab.fill("#search", "#16")
    tab.press("#search", "Enter")
    assert tab.inner_text("#task").startswith("#16 rank ")
    waited = tab.inner_text("#task button >> nth=0")
    tab.click("#task button >> nth=0")
    assert tab.inner_text("#task").startswith(waited.split()[0])
    tab.click("#graph-all")
    box = tab.locator("#graph g.node", has=tab.locator("title", has_text=re.compile("^t5$")))
    box.dispatch_event("click")
    assert tab.inner_text("#task").startswith("#5 rank ")


def test_colors_follow_the_switch(tab: Any) -> None:
    color = "getComputedStyle(document.body).backgroundColor"
    light = tab.evaluate(color)
    tab.click("#theme")
    assert tab.evaluate(color) != light
    assert "light" in tab.inner_text("#theme")


def test_a_run_is_shown_beside_its_prediction(
    browser: Any, run_page: Path, recording: Recording
) -> None:
    timeline = recording.timeline
    assert timeline is not None
    with opened(browser, run_page) as tab:
        assert shown(tab, "#plan") == "measured run"
        assert shown(tab, "#beside") == "its prediction"
        layout = tab.evaluate("document.getElementById('timeline').layout.annotations")
        assert [one["text"].partition(":")[0] for one in layout] == [
            "<b>measured run</b>",
            "<b>its prediction</b>",
        ]
        end = tab.evaluate("document.getElementById('timeline').layout.xaxis.range")[1]
        assert end == pytest.approx(1.01 * recording.end_ns.max())
        tab.click("#time-in")
        tab.fill("#search", "#16")
        tab.press("#search", "Enter")
        row = timeline.end_ns[16] * (5 if timeline.plan.rank[16] == 3 else 2)
        assert f"to {row / 1e3:.4g} µs" in tab.inner_text("#task")
        tab.select_option("#plan", label="its prediction")
        assert "rank" in tab.inner_text("#task, #path >> nth=0") or tab.inner_text("#lanes")
        tab.click("summary:has-text('When each rank ends')")
        assert tab.locator("[aria-label='Ends of ranks'] tbody tr").count() == 8
        assert "-80.0%" in tab.inner_text("[aria-label='Ends of ranks'] tr:has-text('rank 3')")
        assert "-50.0%" in tab.inner_text("[aria-label='Ends of ranks'] tr:has-text('rank 2')")
        assert "50% shorter" in tab.inner_text("#answer")
        assert "collplan run 'a b.yaml' -n 8 --predict --html" in tab.inner_text("pre >> nth=0")
        assert "some <processor>" in tab.inner_text("header")


def test_a_tuned_table_says_where_it_was_measured(tune_page: Path) -> None:
    assert FINGERPRINT.nodes == 1
    where = f"Measured on 1 node of {FINGERPRINT.cores_per_node} cores, {FINGERPRINT.cpu}."
    assert where in tune_page.read_text()


def test_a_tuned_table_shows_winners_and_times(browser: Any, tune_page: Path) -> None:
    with opened(browser, tune_page) as tab:
        answer = tab.inner_text("#answer")
        assert "faster than the MPI library's own collective at 2 of 4 points" in answer
        assert "at most 4.00 times as fast" in answer
        assert "Caution: up to 2 ranks shared a core" in answer
        assert "<mesh> crashed" in answer
        winners = tab.inner_text("[aria-label='Winners on 1 node of 4 ranks']")
        assert "400 µs (360 µs to 480 µs)" in winners
        assert "3.00 to 5.33" in winners
        assert "'t <1>.yaml'" in tab.inner_text("pre >> nth=0")
        traces = "document.getElementById('tuned').data.map(one => [one.name, one.y.length])"
        lengths = dict(tab.evaluate(traces))
        assert sorted(lengths.values()) == [1, 2, 2]
        tab.evaluate("document.body.dataset.before = document.getElementById('times').innerText")
        tab.select_option("#sweep", label="allreduce on 1 node of 4 ranks")
        assert "(chosen)" in tab.inner_text("#times")
        tab.click("#theme")
        assert "light" in tab.inner_text("#theme")


@pytest.mark.parametrize("name", ["report", "run_page", "tune_page"])
def test_pages_are_printed_whole(browser: Any, name: str, request: pytest.FixtureRequest) -> None:
    """Controls are hidden, charts are there, details are open, and nothing is cut off."""
    page = new_page(browser, viewport={"width": 1400, "height": 900}, color_scheme="light")
    path: Path = request.getfixturevalue(name)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    # A4 paper without its margins, in pixels of CSS.
    page.set_viewport_size({"width": 718, "height": 1046})
    page.emulate_media(media="print")
    page.wait_for_function(
        "[...document.querySelectorAll('.chart')]"
        ".every(one => one.querySelector('.main-svg').clientWidth <= innerWidth)"
    )
    for control in ("#choice", "#theme", ".tools >> nth=0"):
        if page.locator(control).count():
            assert not page.is_visible(control)
    assert (
        page.locator(".chart .main-svg >> visible=true").count() >= page.locator(".chart").count()
    )
    hidden = (
        "[...document.querySelectorAll('details > *')].filter(e => !e.checkVisibility()).length"
    )
    assert page.evaluate(hidden) == 0
    cut = """[...document.querySelectorAll('main *')].filter(e =>
        e.getBoundingClientRect().right > innerWidth + 1 && e.checkVisibility()
        && !e.closest('svg')).map(e => e.outerHTML.slice(0, 99))"""
    assert page.evaluate(cut) == []
    if page.locator("#graph").count():
        inside = """(() => {
            const graph = document.getElementById('graph'), frame = graph.getBoundingClientRect();
            const drawn = graph.querySelector('.svg-pan-zoom_viewport').getBoundingClientRect();
            return drawn.left >= frame.left - 2 && drawn.right <= frame.right + 2
                && drawn.top >= frame.top - 2 && drawn.bottom <= frame.bottom + 2;
        })()"""
        page.wait_for_function(inside)
    page.screenshot(path=SCREENSHOTS / f"{name}-print.png", full_page=True)
    printed = page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    page.close()


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        *(("report", width, scheme) for width, scheme in LOOKS),
        *(("run_page", width, scheme) for width, scheme in LOOKS[1:]),
        ("tune_page", 400, "light"),
        ("tune_page", 400, "dark"),
    ],
)
def test_pages_are_accessible(
    browser: Any, name: str, width: int, scheme: str, request: pytest.FixtureRequest
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = new_page(browser, viewport={"width": width, "height": 900}, color_scheme=scheme)
    path: Path = request.getfixturevalue(name)
    page.goto(path.as_uri())
    page.wait_for_selector("body[data-ready]")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}-{width}-{scheme}.png", full_page=True)
    overflow = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    found = axe.run(page).response["violations"]
    page.close()
    assert overflow <= 0
    serious = [(one["id"], one["nodes"][0]["html"][:200]) for one in found
               if one["impact"] in ("serious", "critical")]  # fmt: skip
    assert serious == []
