import json
import os
import stat
import subprocess
import sys
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import numpy as np
import pytest

from collplan.planner import compile_plan
from collplan.planner.draw import DrawError, draw, picture, rendering
from collplan.planner.draw.picture import MAX_READABLE_TASKS
from collplan.planner.draw.place_views import _arc
from collplan.planner.draw.sheet import Box
from collplan.planner.passes import run_passes
from collplan.planner.plan.plan import Buffer, Op, Stage
from collplan.planner.programs import compile_program
from collplan.specs import PassChoice, ProgramSpec, parse_spec
from folders import HELPERS
from handmade import PlanBook, binomial_bcast, ring_allreduce

SVG = "{http://www.w3.org/2000/svg}"


def compiled(kind, algorithm, machine, **collective):
    collective = {"kind": kind, "count": 16, "datatype": "int32"} | collective
    document = {"machine": machine, "collective": collective, "algorithms": algorithm}
    return compile_plan(parse_spec(document))


class Graph:
    """Dot source, as graphviz reads it: clusters and nodes by name, and edges by their ends."""

    def __init__(self, source):
        command = [rendering.find_renderer(), "-Tdot_json"]
        done = subprocess.run(command, input=source.encode(), capture_output=True, check=True)
        document = json.loads(done.stdout)
        objects = {one["_gvid"]: one for one in document["objects"]}
        self.clusters = {one["name"]: one for one in objects.values() if "bb" in one}
        self.nodes = {one["name"]: one for one in objects.values() if "bb" not in one}
        self.members = {
            name: {objects[number]["name"] for number in one.get("nodes", ())}
            for name, one in self.clusters.items()
        }
        self.edges = [
            (objects[edge["tail"]]["name"], objects[edge["head"]]["name"], edge)
            for edge in document.get("edges", ())
        ]

    def edge(self, tail, head):
        (found,) = (edge for one, other, edge in self.edges if (one, other) == (tail, head))
        return found


def graph_of(plan, by="auto", **options):
    return Graph(picture(plan, by, **options))


def clusters(graph, prefix):
    return sorted(name for name in graph.clusters if name.startswith(f"cluster_{prefix}"))


def boxes(graph, prefix):
    return [name for name in graph.nodes if name.startswith(prefix)]


def arrows(graph, prefix):
    return [edge for edge in graph.edges if edge[0].startswith(prefix)]


def title(graph):
    return " ".join(graph.nodes[name]["label"] for name in ("title", "subtitle"))


def legend(graph):
    return [graph.nodes[name]["label"] for name in boxes(graph, "legend_")]


def position(node):
    return tuple(map(float, node["pos"].split(",")))


def extent(node):
    """Return the left, lower, right and upper edge of a box in points, upwards."""
    x, y = position(node)
    width, height = 36 * float(node["width"]), 36 * float(node["height"])
    return x - width, y - height, x + width, y + height


@pytest.mark.quick
@pytest.mark.parametrize("by", ["auto", "task", "phase", "rank", "node"])
def test_a_plan_in_which_nothing_moves_is_drawn(by):
    graph = graph_of(compiled("allgather", "auto", {"ranks_per_node": 4}, count=0), by)
    assert title(graph).startswith("allgather of 0 int32, 4 ranks")


def test_task_view_has_a_box_a_task_and_an_arrow_a_message_and_dependency():
    plan = ring_allreduce([0, 0, 1, 1], n_lanes=2)
    graph = graph_of(plan)
    tasks = [node for node in boxes(graph, "t") if node[1:].isdigit()]
    assert len(tasks) == plan.n_tasks == 60
    assert len(arrows(graph, "t")) == 24 + len(plan.deps)
    assert clusters(graph, "node_") == ["cluster_node_0", "cluster_node_1"]
    assert clusters(graph, "rank_") == [f"cluster_rank_{rank}" for rank in range(4)]
    assert len(clusters(graph, "round_")) == 6


def test_tasks_lie_in_the_frame_of_their_rank():
    plan = ring_allreduce([0, 1, 0, 1])
    graph = graph_of(plan)
    for rank in range(4):
        members = {f"t{row}" for row in np.flatnonzero(plan.rank == rank)}
        assert graph.members[f"cluster_rank_{rank}"] == members
    # Cyclic placement, too: a node's ranks stand together in one frame.
    assert len(clusters(graph, "node_")) == 2
    columns = [position(graph.nodes[f"t{np.argmax(plan.rank == r)}"])[0] for r in (0, 2, 1, 3)]
    assert columns == sorted(columns)


def test_ranks_are_columns_and_rounds_follow_each_other_downwards():
    plan = ring_allreduce([0, 0, 1, 1])
    graph = graph_of(plan)
    at = [position(graph.nodes[f"t{row}"]) for row in range(plan.n_tasks)]
    columns = [{at[row][0] for row in np.flatnonzero(plan.rank == rank)} for rank in range(4)]
    assert [len(column) for column in columns] == [1, 1, 1, 1]
    assert columns == sorted(columns, key=min)
    for rnd in range(5):
        lowest = min(at[row][1] for row in np.flatnonzero(plan.round == rnd))
        assert lowest > max(at[row][1] for row in np.flatnonzero(plan.round == rnd + 1))
    assert len(set(at)) == plan.n_tasks


def test_messages_between_nodes_have_their_lane_s_colour_and_wider_means_more():
    book = PlanBook([0, 0, 1, 1], n_lanes=2, elements=2000)
    for dest, count in ((1, 1), (2, 1), (3, 2000)):
        piece = [(Buffer.RECV, 0, count)]
        book.add(Op.SEND, 0, piece, [], peer=dest)
        book.add(Op.RECV, dest, [], piece, peer=0)
    graph = graph_of(book.plan())
    near, far, wide = (graph.edge(f"t{i}", f"t{i + 1}") for i in (0, 2, 4))
    assert len({near["color"], far["color"], wide["color"]}) == 3
    assert near["penwidth"] == far["penwidth"]
    assert float(wide["penwidth"]) > float(far["penwidth"])


def test_intent_is_dashed():
    graph = graph_of(binomial_bcast([0] * 4))
    assert graph.edge("t0", "t2")["style"] == "dashed"
    assert graph.edge("t1", "t4")["style"] == "solid"


def test_title_says_what_is_computed():
    plan = compiled("allreduce", "ring", {"ranks_per_node": 4})
    assert "ring allreduce of 16 int32, sum, 4 ranks" in title(graph_of(plan))
    assert "collapsed" not in title(graph_of(plan))


def test_legend_names_what_occurs_and_nothing_else():
    graph = graph_of(binomial_bcast([0, 0, 1, 1]))
    texts = legend(graph)
    for text in ("send", "recv", "message in a node", "on lane 0", "dependency", "intent"):
        assert f"{text}\\l" in texts
    assert "reduce\\l" not in texts


def test_legend_names_the_rates_of_lanes_where_they_differ():
    plan = compiled(
        "bcast", "linear", {"nodes": 2, "ranks_per_node": 2, "lanes": ["40Gbit", "10Gbit"]}
    )
    graph = graph_of(plan)
    texts = legend(graph)
    assert "on lane 0 (100% of the fastest)\\l" in texts
    assert "on lane 1 (25% of the fastest)\\l" in texts


def split_allreduce(n_ranks):
    machine = {"ranks_per_node": n_ranks, "cores": n_ranks + 2}
    plan = compiled("allreduce", "reduce_bcast", machine)
    return run_passes(plan, [PassChoice(name="split_tree", options={"levels": 1})])


def test_boxes_show_stages_and_communication_cores():
    plan = split_allreduce(8)
    graph = graph_of(plan)
    texts = [text.removesuffix("\\l") for text in legend(graph)]
    for text in ("inside start", "inside wait", "on communication core 4"):
        assert text in texts
    border_of = {}
    for task in plan.tasks():
        node = graph.nodes[f"t{task.row}"]
        label, style = node["label"], node["style"]
        assert ("inside start" in label) == (task.stage == Stage.START)
        assert ("inside wait" in label) == ("dashed" in style) == (task.stage == Stage.WAIT)
        is_away = task.stage == Stage.BACKGROUND
        assert (f"on core {task.core}" in label) == is_away
        if is_away:
            border_of.setdefault(task.core, set()).add(node["color"])
    # A colour a core.
    assert [len(colors) for colors in border_of.values()] == [1, 1]
    assert len(set.union(*border_of.values())) == 2
    assert "rank 4, core 5" in picture(plan)


def test_many_ranks_say_stages_and_cores_in_tooltips_only():
    plan = split_allreduce(17)
    graph = graph_of(plan)
    for task in plan.tasks():
        node = graph.nodes[f"t{task.row}"]
        assert "inside" not in node["label"]
        where = {Stage.START: "inside start", Stage.WAIT: "inside wait"}.get(
            task.stage, f"on core {task.core}"
        )
        assert node["tooltip"] == f"{task}, {where}"


def test_plans_without_stages_or_communication_cores_have_no_marks_of_them():
    source = picture(compiled("allreduce", "reduce_bcast", {"ranks_per_node": 6}))
    assert "inside" not in source
    assert "core" not in source


def test_many_tasks_collapse_by_rank():
    plan = compiled("allreduce", "ring", {"nodes": 2, "ranks_per_node": 8, "lanes": 2})
    assert plan.n_tasks > MAX_READABLE_TASKS
    graph = graph_of(plan)
    assert "collapsed by rank" in title(graph)
    assert len(boxes(graph, "rank_")) == 16
    assert len(arrows(graph, "rank_")) == 16
    assert clusters(graph, "node_") == ["cluster_node_0", "cluster_node_1"]
    assert "30 messages" in graph.edge("rank_7", "rank_8")["tooltip"]


def test_dense_traffic_collapses_by_node_with_an_arrow_a_lane():
    plan = compiled("alltoall", "pairwise", {"nodes": 4, "ranks_per_node": 8, "lanes": 2})
    graph = graph_of(plan)
    assert "collapsed by node" in title(graph)
    assert len(boxes(graph, "node_")) == 4
    assert len(arrows(graph, "node_")) == 4 * 3 * 2
    assert {edge["tooltip"][-6:] for _, _, edge in arrows(graph, "node_")} == {"lane 0", "lane 1"}


def test_dense_traffic_of_one_node_collapses_by_phase():
    plan = compiled("alltoall", "pairwise", {"ranks_per_node": 32})
    graph = graph_of(plan)
    assert "collapsed by phase" in title(graph)
    assert clusters(graph, "phase_") == ["cluster_phase_0"]
    # The copy to itself, then 31 rounds of the same work in one box.
    assert len(boxes(graph, "phase_")) == 2
    assert "992 messages, 62 KiB" in graph.nodes["phase_0_1"]["label"]


def test_rounds_of_the_phase_view_add_up():
    plan = compiled("allreduce", "rabenseifner", {"ranks_per_node": 16})
    graph = graph_of(plan, "phase")
    counts = [
        int(graph.nodes[box]["label"].split("POINT-SIZE")[1].split(">")[1].split()[0])
        for box in boxes(graph, "phase_")
    ]
    assert sum(counts) == int((plan.op == Op.SEND).sum())
    arrows_down = [(f"phase_0_{i}", f"phase_0_{i + 1}") for i in range(len(counts) - 1)]
    assert [(tail, head) for tail, head, _ in graph.edges] == arrows_down
    heights = [position(graph.nodes[f"phase_0_{i}"])[1] for i in range(len(counts))]
    assert heights == sorted(heights, reverse=True)


def test_phases_stand_side_by_side():
    book = PlanBook([0, 0])
    piece = [(Buffer.RECV, 0, 4)]
    send = book.add(Op.SEND, 0, piece, [], peer=1)
    recv = book.add(Op.RECV, 1, [], piece, peer=0)
    book.add(Op.SEND, 1, piece, [], [recv], peer=0, phase=1, tag=1)
    book.add(Op.RECV, 0, [], piece, [send], peer=1, phase=1, tag=1)
    graph = graph_of(book.plan(phases=("out", "back")), "phase")
    assert clusters(graph, "phase_") == ["cluster_phase_0", "cluster_phase_1"]
    assert graph.edge("phase_0_0", "phase_1_0")["label"] == "2 deps"
    first, second = (position(graph.nodes[f"phase_{phase}_0"]) for phase in (0, 1))
    assert first[0] < second[0]
    assert first[1] == second[1]


@pytest.mark.parametrize("n_phases", [2, 3, 4])
def test_arrows_pass_above_the_phases_between_and_below_the_title(n_phases):
    book = PlanBook([0, 0])
    piece, after = [(Buffer.RECV, 0, 4)], []
    for phase in range(n_phases):
        last = phase == n_phases - 1
        send = book.add(
            Op.SEND, 0, piece, [], after if last else [], peer=1, phase=phase, tag=phase
        )
        book.add(Op.RECV, 1, [], piece, peer=0, phase=phase, tag=phase)
        after = after or [send]
    graph = graph_of(book.plan(phases=tuple("abcd"[:n_phases])), "phase")
    edge = graph.edge("phase_0_0", f"phase_{n_phases - 1}_0")
    label_y = float(edge["lp"].split(",")[1])
    points = np.array([one.split(",")[-2:] for one in edge["pos"].split()], dtype=float)
    start, end = points[np.lexsort(points.T[::-1])[[0, -1]]]
    first, last = (extent(graph.nodes[f"phase_{phase}_0"]) for phase in (0, n_phases - 1))
    assert first[2] - 1 <= start[0] < float(edge["lp"].split(",")[0]) < end[0] <= last[0] + 1
    frames = [float(graph.clusters[name]["bb"].split(",")[3]) for name in clusters(graph, "phase_")]
    top = extent(graph.nodes["subtitle"])[1]
    if n_phases == 2:
        assert np.ptp(points[:, 1]) < 1
    else:
        assert max(frames) < label_y < top


def test_boxes_lie_in_their_frames_and_below_the_title():
    plan = compiled("allreduce", "rabenseifner", {"nodes": 3, "ranks_per_node": 3})
    for by, n_frames in (("task", 3 + 9), ("rank", 3), ("node", 0), ("phase", 1)):
        graph = graph_of(plan, by)
        frames = [*clusters(graph, "node_"), *clusters(graph, "rank_"), *clusters(graph, "phase_")]
        assert len(frames) == n_frames
        title_bottom = extent(graph.nodes["subtitle"])[1]
        shapes = [name for name in graph.nodes if name[-1].isdigit()]
        assert len(shapes) > 2
        assert all(extent(graph.nodes[name])[3] < title_bottom for name in shapes)
        for frame in frames:
            left, low, right, high = map(float, graph.clusters[frame]["bb"].split(","))
            assert high < title_bottom
            for member in graph.members[frame]:
                inner = extent(graph.nodes[member])
                assert left < inner[0] < inner[2] < right
                assert low < inner[1] < inner[3] < high


@pytest.mark.parametrize("by", ["task", "rank", "node", "phase"])
def test_a_view_can_be_asked_for(by):
    plan = ring_allreduce([0, 0, 1, 1])
    prefix = {"task": "t5"}.get(by, f"{by}_0")
    assert boxes(graph_of(plan, by), prefix)
    assert "collapsed" not in title(graph_of(plan, by))


def test_what_cannot_be_drawn_by_task_is_collapsed_all_the_same():
    plan = compiled("allreduce", "ring", {"nodes": 8, "ranks_per_node": 8})
    assert "too many to draw by task, collapsed by node" in title(graph_of(plan, "task"))


def test_very_many_ranks_still_come_out(tmp_path):
    plan = compiled("bcast", "binomial", {"ranks_per_node": 1100})
    path = draw(plan, tmp_path / "x.svg", by="task")
    texts = [text.text for text in ET.parse(path).iter(f"{SVG}text")]
    assert any("too many to draw by task, collapsed by phase" in text for text in texts)


def test_a_plan_without_tasks():
    graph = graph_of(PlanBook([0, 1]).plan())
    assert clusters(graph, "rank_") == ["cluster_rank_0", "cluster_rank_1"]
    for by in ("rank", "node", "phase"):
        assert "0 tasks" in title(graph_of(PlanBook([0, 1]).plan(), by))


def test_one_rank_s_program_is_one_column():
    spec = compiled("allreduce", "ring", {"ranks_per_node": 8}).spec
    graph = graph_of(compile_plan(spec, rank=3))
    assert clusters(graph, "rank_") == ["cluster_rank_3"]
    assert "rank 3 only" in title(graph)


def test_plans_that_are_wrong_are_drawn_too():
    book = PlanBook([0, 0])
    piece = [(Buffer.RECV, 0, 4)]
    book.add(Op.RECV, 0, [], piece, [1], peer=1)
    book.add(Op.COPY, 0, piece, piece, [0])
    graph = graph_of(book.plan())
    assert len(arrows(graph, "t")) == 2
    assert len({position(graph.nodes[name]) for name in ("t0", "t1")}) == 2


def test_a_timeline_is_written_into_the_boxes():
    plan = binomial_bcast([0] * 4)
    times = np.arange(6) * 1000.0
    timeline = SimpleNamespace(start_ns=times, end_ns=times + 500)
    graph = graph_of(plan, timeline=timeline)
    assert "3 µs – 3.5 µs" in graph.nodes["t3"]["label"]
    assert "5.5 µs" in title(graph)
    with pytest.raises(DrawError, match="timeline of 6 tasks, the plan has 60"):
        picture(ring_allreduce([0] * 4), timeline=timeline)


def test_boxes_of_computations_say_how_long_they_take():
    machine = {"ranks_per_node": 2}
    steps = [{"name": "work", "compute": {"seconds": 1.5e-6}}]
    program = ProgramSpec.model_validate({"machine": machine, "buffers": {}, "steps": steps})
    graph = graph_of(compile_program(program), "task")
    assert all("1.5 µs" in graph.nodes[f"t{row}"]["label"] for row in (0, 1))


def test_svg_has_every_box_and_tooltips(tmp_path):
    plan = ring_allreduce([0, 0, 1, 1])
    path = draw(plan, tmp_path / "x.svg")
    assert path == tmp_path / "x.svg"
    tree = ET.parse(path)
    groups = [group.get("class") for group in tree.iter(f"{SVG}g")]
    graph = graph_of(plan)
    assert groups.count("node") == len(graph.nodes)
    assert groups.count("edge") == len(graph.edges)
    assert groups.count("cluster") == 2 + 4 + 6
    (first,) = (group for group in tree.iter(f"{SVG}g") if group.get("id") == "node1")
    assert {text.get("text-anchor") for text in first.iter(f"{SVG}text")} == {"middle"}
    assert len({text.get("x") for text in first.iter(f"{SVG}text")}) == 1
    tooltips = {link.get("{http://www.w3.org/1999/xlink}title") for link in tree.iter(f"{SVG}a")}
    assert {str(task) for task in plan.tasks()} <= tooltips


@pytest.mark.parametrize(
    ("suffix", "begins"), [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".SVG", b"<?xml")]
)
def test_pictures_have_the_same_bytes_every_time(suffix, begins, tmp_path):
    first = draw(binomial_bcast([0] * 4), tmp_path / f"a{suffix}").read_bytes()
    second = draw(binomial_bcast([0] * 4), tmp_path / f"b{suffix}").read_bytes()
    assert first.startswith(begins)
    assert first == second


def test_a_pdf_does_not_say_when_it_was_made(tmp_path):
    content = draw(binomial_bcast([0] * 4), tmp_path / "a.pdf").read_bytes()
    assert b"/CreationDate (D:2000010100" in content


def test_no_order_of_sets_reaches_files(tmp_path):
    program = (
        "import collplan, sys; from handmade import ring_allreduce;"
        "plan = ring_allreduce([0, 1, 0, 1]);"
        "collplan.save_plan(plan, sys.argv[1] + '.plan');"
        "collplan.draw(plan, sys.argv[1] + '.dot')"
    )
    for seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": str(HELPERS),
        }
        command = [sys.executable, "-c", program, str(tmp_path / seed)]
        subprocess.run(command, env=environment, check=True)
    for suffix in (".plan", ".dot"):
        first, second = (tmp_path / f"{seed}{suffix}" for seed in "12")
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("suffix", [".dot", ".gv"])
def test_dot_source_needs_no_renderer(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(rendering, "render", None)
    plan = binomial_bcast([0] * 4)
    path = draw(plan, tmp_path / f"x{suffix}")
    assert path.read_text(encoding="utf-8") == picture(plan)
    assert "layout=nop2" in picture(plan)


@pytest.fixture
def dot(tmp_path, monkeypatch):
    """Return a function that writes the system's dot, whose program begins with its imports."""

    def write(program):
        path = tmp_path / "bin" / "dot"
        path.parent.mkdir()
        path.write_text(f"#!{sys.executable}\nimport sys\n{program}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(path.parent))

    return write


def test_dot_is_preferred_where_it_is_installed(dot, tmp_path):
    dot(
        "source = sys.stdin.buffer.read().decode()\n"
        "assert 'layout=nop2' in source\n"
        "print('<svg/>', *sys.argv[1:], end='')\n"
    )
    path = draw(binomial_bcast([0] * 4), tmp_path / "x.svg")
    assert path.read_text() == "<svg/> -Tsvg"


@pytest.mark.quick
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_a_dot_that_fails_is_an_error(suffix, dot, tmp_path):
    dot("sys.exit('no fonts today')\n")
    made = "svg" if suffix == "pdf" else suffix
    with pytest.raises(
        DrawError, match=rf"{made}: dot failed \(no fonts today\); draw into a .dot"
    ):
        draw(binomial_bcast([0] * 4), tmp_path / f"x.{suffix}")
    assert not (tmp_path / f"x.{suffix}").exists()


def test_a_dot_that_writes_nothing_to_print_is_an_error(dot, tmp_path):
    dot("print('<svg')\n")
    with pytest.raises(DrawError, match=r"pdf: svglib failed \(the SVG .* cannot be read\)"):
        draw(binomial_bcast([0] * 4), tmp_path / "x.pdf")


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_without_dot_the_program_of_a_wheel_draws(suffix, tmp_path, monkeypatch):
    """Its path comes from the package, as programs of an environment need not be on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert rendering.find_renderer().name == rendering.WHEEL
    assert draw(ring_allreduce([0, 0, 1, 1]), tmp_path / f"x.{suffix}").stat().st_size > 1000
    with pytest.raises(DrawError, match=r"svg: graphviz-pure failed \(.*syntax error"):
        rendering.render("digraph {", "svg")


def test_neither_renderer(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(rendering, "WHEEL", "no-such-package")
    words = (
        r"neither graphviz's dot nor no-such-package is here; install one \('apt install graphviz"
    )
    with pytest.raises(DrawError, match=words):
        draw(binomial_bcast([0] * 4), tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["x.jpeg", "x"])
def test_unknown_suffix(name, tmp_path):
    with pytest.raises(DrawError, match=r"is not a picture; end it in \.svg, \.png"):
        draw(binomial_bcast([0] * 4), tmp_path / name)


def test_unknown_view(tmp_path):
    with pytest.raises(DrawError, match="by='lane' is not a view; use one of auto, task"):
        draw(binomial_bcast([0] * 4), tmp_path / "x.svg", by="lane")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DrawError, match="cannot be written"):
        draw(binomial_bcast([0] * 4), tmp_path / "missing" / "x.svg")


@pytest.mark.quick
@pytest.mark.parametrize(
    ("towards", "border"),
    [
        ((13, 1), (5, 1)),
        ((3, -9), (3, 0)),
        ((13, 6), (5, 2)),
        ((-7, 2), (1, 1.2)),
        ((3, 1), (3, 2)),
    ],
)
def test_lines_leave_a_box_at_its_border(
    towards: tuple[float, float], border: tuple[float, float]
) -> None:
    assert Box(3, 1, 4, 2).border_towards(towards) == pytest.approx(border)


@pytest.mark.quick
@pytest.mark.parametrize("other", [Box(90, -40, 6, 4), Box(-70, 120, 6, 4), Box(5, 300, 6, 4)])
def test_arrows_are_parabolas_that_bend_to_the_right(other: Box) -> None:
    """A cubic curve is a parabola if both inner points lead to one control point."""
    one = Box(10, 20, 6, 4)
    for tail, head in ((one, other), (other, one)):
        start, first, second, end = map(np.array, _arc(tail, head, 1))
        control = (3 * first - start) / 2
        assert control == pytest.approx((3 * second - end) / 2)
        along, aside = np.subtract((head.x, head.y), (tail.x, tail.y)), control - (tail.x, tail.y)
        assert along @ aside == pytest.approx(along @ along / 2)
        assert along[0] * aside[1] > along[1] * aside[0]


@pytest.mark.parametrize(
    ("nodes", "view"), [(2, "one box per task"), (12, "collapsed by node"), (40, "by phase")]
)
def test_auto_takes_a_view_that_can_be_read(nodes: int, view: str) -> None:
    machine = {"nodes": nodes, "ranks_per_node": 4}
    collective = {"kind": "allreduce", "count": 64}
    spec = parse_spec({"machine": machine, "collective": collective, "algorithms": "ring"})
    source = picture(compile_plan(spec))
    if nodes == 2:
        assert "collapsed" not in source
    assert view in source


def test_what_is_too_wide_or_high_is_collapsed(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = parse_spec(
        {
            "machine": {"nodes": 2, "ranks_per_node": 4},
            "collective": {"kind": "allreduce", "count": 64},
            "algorithms": "recursive_doubling",
        }
    )
    plan = compile_plan(spec)
    assert "collapsed" not in picture(plan)
    module = sys.modules[picture.__module__]
    monkeypatch.setattr(module, "MAX_READABLE_POINTS", 600.0)
    assert "collapsed by" in picture(plan)
    assert "collapsed" not in picture(plan, by="task")
