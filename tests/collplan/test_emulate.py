"""Emulated clusters: what ranks see, on which lanes bytes travel, what comes back."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from collplan.emulate.cluster import Cluster
from collplan.emulate.machine import emulated_machine
from collplan.emulate.running import run_emulated
from collplan.specs import Machine
from collplan.specs.topology import FatTree
from emulating import emulate, look, need_emulation
from mpi_launching import MPIS, run

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("emulation")]
N_BYTES = 1 << 20


@pytest.fixture(scope="module")
def emulation() -> None:
    need_emulation()


def assert_ranks_see(document: dict[str, Any], cluster: Cluster) -> None:
    """Every rank is where the machine says, in a node that looks like a host of its own."""
    machine = emulated_machine(cluster)
    ranks = document["ranks"]
    assert len(ranks) == machine.n_ranks
    by_node: dict[int, list[int]] = {}
    for rank, node in enumerate(machine.rank_to_node):
        by_node.setdefault(node, []).append(rank)
    for rank, seen in enumerate(ranks):
        node = machine.rank_to_node[rank]
        assert seen["host"] == f"node{node}"
        assert seen["address"] == f"10.0.0.{node + 1}"
        assert seen["neighbors"] == by_node[node]
        assert seen["interfaces"] == sorted(["lo", *(f"lane{j}" for j in range(cluster.lanes))])
        assert seen["rp_filter"] == "0"
        assert seen["directory"] == os.getcwd()
        told = seen["collplan"]
        assert Machine.model_validate_json(told["COLLPLAN_MACHINE"]) == machine
        assert told["COLLPLAN_NODE"] == str(node)
        lane = None if cluster.striped else str(machine.rank_to_lane[rank])
        assert told.get("COLLPLAN_LANE") == lane
        assert told["COLLPLAN_EXPECTED_RANKS"] == str(machine.n_ranks)
    for name in ("net", "uts", "ipc", "mnt"):
        of_ranks = [seen["namespaces"][name] for seen in ranks]
        assert len(set(of_ranks)) == machine.nodes
        assert os.readlink(f"/proc/self/ns/{name}") not in of_ranks


@pytest.mark.parametrize("mpi", MPIS)
def test_messages_travel_on_the_lane_of_their_destination(mpi: str) -> None:
    """Ranks 0 1 2 on node 0 and 3 4 5 on node 1, on lanes 0 1 0: both ways, and inside a node."""
    pairs = [(0, 4), (4, 0), (1, 5), (0, 1)]
    messages = tuple(f"{source}>{dest}" for source, dest in pairs)
    options = ("--nodes", "2", "--per-node", "3", "--lanes", "2", "--rate", "200Mbit")
    document = look(mpi, *options, n_bytes=N_BYTES, messages=messages)
    cluster = Cluster(nodes=2, ranks_per_node=3, lanes=2, rate_bits_per_s=2 * 10**8)
    assert_ranks_see(document, cluster)
    ports = [f"p{node}l{lane}" for node in range(2) for lane in range(2)]
    assert document["shaped"] == dict.fromkeys(["lane0", "lane1", *ports], "200Mbit")
    machine = emulated_machine(cluster)
    for (source, dest), grown in zip(pairs, document["counts"], strict=True):
        for rank, lanes in enumerate(grown):
            node = machine.rank_to_node[rank]
            crosses = machine.rank_to_node[source] != machine.rank_to_node[dest]
            for lane, (received, sent) in enumerate(lanes):
                used = crosses and lane == machine.rank_to_lane[dest]
                assert_counted(received, used and node == machine.rank_to_node[dest])
                assert_counted(sent, used and node == machine.rank_to_node[source])


def test_leaf_switches_have_links_of_their_own_rate() -> None:
    """Nodes 0 and 1 on one leaf, 2 and 3 on another: messages inside a leaf and between them."""
    tree = {"kind": "fat_tree", "down": [2, 2], "up": [1, 1], "oversubscription": 4}
    options = ("--nodes", "4", "--per-node", "1", "--lanes", "2", "--rate", "200Mbit,100Mbit")
    messages = ("0>1", "0>3", "3>0")
    document = look(
        "openmpi", *options, "--topology", json.dumps(tree), n_bytes=N_BYTES, messages=messages
    )
    cluster = Cluster(
        nodes=4,
        ranks_per_node=1,
        lanes=2,
        rate_bits_per_s=(2 * 10**8, 10**8),
        topology=FatTree.model_validate(tree),
    )
    assert_ranks_see(document, cluster)
    rates = {
        f"{name}{number}l{lane}": ("100Mbit" if lane == 0 else "50Mbit")
        for name, number, lane in product(("up", "down"), range(2), range(2))
    }
    assert {name: document["shaped"].get(name) for name in rates} == rates
    for message, grown in zip(messages, document["counts"], strict=True):
        source, dest = int(message[0]), int(message[2])
        for rank, lanes in enumerate(grown):
            assert_counted(lanes[0][0], rank == dest)
            assert_counted(lanes[0][1], rank == source)


def assert_counted(n_bytes: int, used: bool) -> None:
    """Headers take at most 66 bytes of 1514; what acknowledges each packet is 66 bytes, too."""
    if used:
        assert N_BYTES <= n_bytes < 1.06 * N_BYTES
    else:
        assert n_bytes < 0.06 * N_BYTES


@pytest.mark.parametrize(
    ("mpi", "order"),
    [
        ("mpich", "2,1,0,1,0,0"),
        ("openmpi", "cyclic"),
        ("debian-openmpi", "2,1,0,1,0,0"),
    ],
)
def test_uneven_nodes_in_any_order(mpi: str, order: str) -> None:
    options = ("--nodes", "3", "--per-node", "3,2,1", "--lanes", "2", "--order", order)
    cluster = Cluster(
        nodes=3,
        ranks_per_node=(3, 2, 1),
        lanes=2,
        rate_bits_per_s=10**8,
        rank_order=tuple(map(int, order.split(","))) if "," in order else order,
    )
    assert_ranks_see(look(mpi, *options), cluster)


def test_an_mpich_orders_ranks_or_says_that_it_cannot() -> None:
    """The mpiexec of an old MPICH fills one node after the other."""
    options = ("--nodes", "2", "--per-node", "2,1")
    cluster = Cluster(nodes=2, ranks_per_node=(2, 1), lanes=1, rate_bits_per_s=10**8)
    assert_ranks_see(look("debian-mpich", *options), cluster)
    options = (*options, "--order", "cyclic")
    done = run([*emulate("debian-mpich"), *options, "--", "true"])
    if done.returncode == 0:
        assert_ranks_see(look("debian-mpich", *options), replace(cluster, rank_order="cyclic"))
    else:
        assert done.returncode == 2
        assert re.fullmatch(
            r"collplan: error: order: the mpiexec of MPICH [\d.]+ fills one node after the other; "
            r"say --order block, or use the mpich of pip install mpich\n",
            done.stderr,
        )


def test_striped_messages_use_all_lanes() -> None:
    options = ("--nodes", "2", "--per-node", "1", "--lanes", "3", "--stripe")
    document = look("mpich", *options, n_bytes=3 * N_BYTES, messages=("0>1",))
    (grown,) = document["counts"]
    sent = [lane[1] for lane in grown[0]]
    assert min(sent) > 0.25 * 3 * N_BYTES
    assert 3 * N_BYTES <= sum(sent) < 1.06 * 3 * N_BYTES
    cluster = Cluster(nodes=2, ranks_per_node=1, lanes=3, rate_bits_per_s=10**8, striped=True)
    assert_ranks_see(document, cluster)


def test_without_root() -> None:
    """A user without any right: here a namespace in which root is user 1000."""
    prefix = []
    if os.geteuid() == 0:
        prefix = ["unshare", "--user", "--map-user=1000", "--map-group=1000", "--"]
        if run([*prefix, "true"]).returncode != 0:
            pytest.skip("unshare cannot map a user here")
    document = look("mpich", "--nodes", "2", "--per-node", "1", prefix=prefix)
    cluster = Cluster(nodes=2, ranks_per_node=1, lanes=1, rate_bits_per_s=10**8)
    assert_ranks_see(document, cluster)


@pytest.mark.parametrize("mpi", MPIS)
def test_output_and_exit_status_are_the_commands(mpi: str) -> None:
    command = [*emulate(mpi), "--nodes", "2", "--per-node", "1", "--"]
    done = run([*command, "sh", "-c", 'echo "to $0"; exit 7', "standard output"])
    assert done.returncode == 7
    assert set(done.stdout.splitlines()) == {"to standard output"}


def test_plans_run_on_emulated_nodes(tmp_path: Path) -> None:
    spec = tmp_path / "spec.yaml"
    machine = {"nodes": 2, "ranks_per_node": 2, "lanes": 2}
    collective = {"kind": "allreduce", "count": 64, "datatype": "int32"}
    spec.write_text(
        json.dumps({"machine": machine, "collective": collective, "algorithms": "ring"})
    )
    command = [*emulate("mpich"), "--nodes", "2", "--per-node", "2", "--lanes", "2", "--"]
    done = run([*command, "collplan", "run", str(spec), "--repetitions", "2", "--json"])
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["correct"] is True
    assert document["ranks"] == 4


def test_two_clusters_at_once(tmp_path: Path) -> None:
    """Each waits for the other to be there, at the same addresses and process ids."""
    wait = 'touch "$0/$1"; until [ -e "$0/$2" ]; do sleep 0.05; done; echo $1; exit 0'
    options = [*emulate("mpich"), "--nodes", "2", "--per-node", "1", "--timeout", "200", "--"]
    jobs = [
        subprocess.Popen(
            [*options, "sh", "-c", wait, str(tmp_path), mine, other],
            stdout=subprocess.PIPE,
            text=True,
        )
        for mine, other in (("one", "two"), ("two", "one"))
    ]
    for job, name in zip(jobs, ("one", "two"), strict=True):
        out, _ = job.communicate(timeout=250)
        assert (job.returncode, out.split()) == (0, [name, name])


def test_in_a_program() -> None:
    cluster = Cluster(nodes=2, ranks_per_node=1, lanes=1, rate_bits_per_s=10**8)
    show = 'echo "$WORD from $(uname -n)"'
    done = run_emulated(cluster, ["sh", "-c", show], environment={"WORD": "hello"}, timeout_s=200)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["hello from node0", "hello from node1"]
