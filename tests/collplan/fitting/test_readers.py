"""Readers of measurements: what they accept, correct, leave out, and refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collplan.fitting.points import LATENCY, MeasurementError, read_rows
from collplan.fitting.readers.orfeo import mapped_layout, read_latencies, read_orfeo
from collplan.fitting.readers.pico import read_hosts, read_pico
from collplan.fitting.readers.printed import Surroundings, read_printed
from collplan.fitting.reading import layout_of
from collplan.specs import Machine

FILE = Path("times.csv")
PICO = (
    "system,job,collective,library,nodes,ranks_per_node,elements,algorithm,median_us,notes\n"
    "leonardo,a,allreduce,ompi,4,1,1024,ring_ompi,20.5,null\n"
    "leonardo,a,allgather,ompi,4,1,2,ring_ompi,10,null\n"
    "leonardo,b,allreduce,ompi,2,1,1024,ring_ompi,30,4 tasks per node\n"
)
ORFEO = "machine,collective,algorithm,map,ranks,bytes,avg_us\nthin,bcast,6,socket,6,1024,2.5\n"
THIN = Machine.model_validate("orfeo-thin")
TWO_BY_TWO = Machine.model_validate({"nodes": 2, "ranks_per_node": 2})
AROUND = Surroundings("here", "mpich", layout_of(TWO_BY_TWO), "network")


def one_lane(name: str) -> int:
    return 1


def test_sizes_times_and_places_are_read() -> None:
    found = read_pico(PICO, FILE, {}, one_lane)
    first = found.points[0]
    assert (first.n_bytes, first.seconds, first.layout.n_ranks) == (4096, 20.5e-6, 4)
    assert first.layout.per_node == 1


def test_blocks_of_no_element_are_left_out_with_a_note() -> None:
    found = read_pico(PICO, FILE, {}, one_lane)
    assert [point.collective for point in found.points] == ["allreduce", "allreduce"]
    assert any("left out 1 points" in note for note in found.notes)


def test_notes_say_how_many_ranks_a_node_had() -> None:
    found = read_pico(PICO, FILE, {}, one_lane)
    assert found.points[1].layout.node.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert any("8 ranks" in note for note in found.notes)


def test_hosts_decide_how_many_ranks_there_were_and_in_which_group() -> None:
    names = ["lrdn0001", "lrdn0200", "lrdn0001", "lrdn0200"] * 2
    text = PICO.replace("4 tasks per node", "null")
    found = read_pico(text, FILE, {"leonardo/b": names}, one_lane)
    layout = found.points[1].layout
    assert layout.node.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
    assert len(np.unique(layout.group)) == 2  # a cell has 180 nodes


def test_hosts_of_the_largest_shape_do_not_change_smaller_ones() -> None:
    text = PICO + "leonardo,c,allreduce,ompi,2,1,64,ring_ompi,5,null\n"
    text += "leonardo,c,allreduce,ompi,2,2,64,ring_ompi,6,null\n"
    found = read_pico(text, FILE, {"leonardo/c": ["lrdn1", "lrdn1", "lrdn2", "lrdn2"]}, one_lane)
    assert [point.layout.n_ranks for point in found.points[2:]] == [2, 4]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("median_us", "median_ms", "has no column 'median_us'"),
        (",20.5,", ",fast,", "median_us is 'fast'; give a time above 0"),
        (",20.5,", ",0.0000205,", "check the unit of the column"),
        (",20.5,", ",-3,", "give a time above 0"),
        (",1024,ring_ompi,20.5", ",many,ring_ompi,20.5", "elements is 'many'"),
        ("ompi,4,1,1024", "ompi,0,1,1024", "nodes is '0'; give an integer of at least 1"),
    ],
)
def test_bad_rows_are_one_line(old: str, new: str, message: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        read_pico(PICO.replace(old, new), FILE, {}, one_lane)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_short_rows_name_their_line() -> None:
    with pytest.raises(MeasurementError, match="line 3: has fewer fields"):
        list(read_rows("a,b\n1,2\n1\n", FILE, ("a", "b")))


def test_hosts_must_be_lists_of_names() -> None:
    assert read_hosts('{"leonardo/a": ["lrdn1"]}', FILE) == {"leonardo/a": ["lrdn1"]}
    with pytest.raises(MeasurementError, match="is no table of hosts"):
        read_hosts('{"leonardo/a": 3}', FILE)


def test_maps_place_ranks_on_nodes_and_sockets() -> None:
    domains = {
        name: mapped_layout(THIN, name, 4, "line 1").domain.tolist()
        for name in ("core", "socket", "node")
    }
    assert domains == {"core": [0, 0, 0, 0], "socket": [0, 1, 0, 1], "node": [0, 2, 0, 2]}
    assert mapped_layout(THIN, "core", 48, "line 1").n_nodes == 2
    with pytest.raises(MeasurementError, match="ranks is 49, and the machine has 2 nodes of 24"):
        mapped_layout(THIN, "core", 49, "line 1")


def test_columns_of_orfeo_are_read() -> None:
    (point,) = read_orfeo(ORFEO, FILE, lambda name: THIN).points
    assert (point.job, point.n_bytes) == ("socket 6", 1024)
    assert point.seconds == pytest.approx(2.5e-6)
    with pytest.raises(MeasurementError, match="map is 'slot'; valid: core, socket, node"):
        read_orfeo(ORFEO.replace("socket", "slot"), FILE, lambda name: THIN)


def test_latencies_have_the_link_of_their_place() -> None:
    text = "machine,place,bytes,latency_us,pairs\n"
    text += "thin,same socket,8,0.2,1\nthin,other socket,8,0.4,1\nthin,other node,8,1.4,1\n"
    text += "epyc,core 0 to core 4,8,0.3,1\nepyc,core 0 to core 64,8,0.7,1\n"
    links = [point.mapping for point in read_latencies(text, FILE).points]
    assert links == ["numa", "node", "network", "numa", "node"]


OSU = """
# OSU MPI Allgather Latency Test v7.3
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)
1                       1.51              1.40              1.62
2                       1.60              1.40              1.70
"""
OSU_LATENCY = "# OSU MPI Latency Test v7.3\n# Size  Latency (us)\n0  0.95\n8  1.05\n"
IMB = """
# Benchmarking Allreduce
# #processes = 2
# ( 2 additional processes waiting in MPI_Barrier)
       #bytes #repetitions  t_min[usec]  t_max[usec]  t_avg[usec]
            4         1000         1.10         1.30         1.20
"""
REPROMPI = """#@nprocs=4
#@datatype_extent_bytes=4
                 test  nrep  count  runtime_sec
            MPI_Bcast     0     10  0.0000020
            MPI_Bcast     1     10  0.0000030
            MPI_Bcast     2     10  0.0000090
"""


def test_osu_sizes_of_blocks_are_multiplied_by_ranks() -> None:
    found = read_printed(OSU, FILE, AROUND).points
    assert [(point.n_bytes, point.seconds) for point in found] == [(4, 1.51e-6), (8, 1.6e-6)]
    assert found[0].collective == "allgather"


def test_osu_latency_is_a_round_trip() -> None:
    found = read_printed(OSU_LATENCY, FILE, AROUND).points
    assert [(point.collective, point.mapping) for point in found] == [(LATENCY, "network")] * 2


def test_imb_takes_the_slowest_rank_and_the_ranks_of_its_title() -> None:
    (point,) = read_printed(IMB, FILE, AROUND).points
    assert (point.seconds, point.layout.n_ranks) == (1.3e-6, 2)


def test_reprompi_takes_the_median_of_repetitions() -> None:
    (point,) = read_printed(REPROMPI, FILE, AROUND).points
    assert (point.collective, point.n_bytes, point.seconds) == ("bcast", 40, 3e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello\n", "is no output of"),
        (IMB.replace("= 2", "= 64"), "was measured on 64 ranks, and the machine has 4"),
        ("#@nprocs=4\n MPI_Bcast 0 10 0.1\n", "has no header with test, count and runtime_sec"),
        ("# OSU MPI Bcast Latency Test\n8\n", "has no time after '8'"),
    ],
)
def test_other_text_is_refused(text: str, message: str) -> None:
    with pytest.raises(MeasurementError) as caught:
        read_printed(text, FILE, AROUND)
    assert message in str(caught.value)
