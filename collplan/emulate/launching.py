"""Launch commands for ranks on the nodes of a cluster, for MPICH and Open MPI."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from collplan.emulate.cluster import EmulationError
from collplan.emulate.nodes import ENTER, SCRIPTS, lane_name, node_name
from collplan.executors.mpi.launch.launcher import Launcher, short_version
from collplan.specs.machines.machine import Machine

FAMILIES: Final = ("mpich", "openmpi")
"""MPI libraries whose launchers are supported."""
INTERFACE_CHOICES: Final = (
    "UCX_NET_DEVICES",
    "FI_TCP_IFACE",
    "OMPI_MCA_btl_tcp_if_include",
    "OMPI_MCA_btl_tcp_if_exclude",
)
"""Environment variables that name interfaces; nodes do not have the interfaces of this machine."""
NODE: Final = "COLLPLAN_NODE"
"""Environment variable with the number of the rank's node."""
LANE: Final = "COLLPLAN_LANE"
"""Environment variable with the lane on which the rank receives; not set if lanes are striped."""

_NUMBER: Final = re.compile(r"MPICH (\d+)\.(\d+)\.(\d+)")
_FIRST_WITH_RANKMAP: Final = (5, 0, 2)
"""First MPICH whose mpiexec honors -rankmap; 4.2.3, 4.3.2, 5.0.0 and 5.0.1 ignore it."""

_RANK: Final = """\
#!/bin/sh
# Run a rank's program, told on which node and lane the rank is.
rank=${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}
case $rank in
{cases}
esac
read -r here < /proc/sys/kernel/hostname
if [ "$here" != "node$node" ]; then
  echo "collplan emulate: the launcher started rank $rank on $here instead of node$node" >&2
  exit 1
fi
export {node}=$node
{pin}exec "$@"
"""
# One lane per rank, for UCX, for libfabric's tcp provider and for Open MPI's btl/tcp.
_PIN: Final = """\
export {lane}=$lane
export UCX_NET_DEVICES={name} FI_TCP_IFACE={name} OMPI_MCA_btl_tcp_if_include={name}
"""


def prepare_launch(
    launcher: Launcher, machine: Machine, program: Sequence[str], *, striped: bool
) -> tuple[list[str], dict[str, str], dict[str, str]]:
    """Return command, environment and files to run `program` on every rank of `machine`.

    Parameters
    ----------
    launcher : Launcher
        Launcher (mpiexec) of MPICH or Open MPI.
    machine : Machine
        Machine with the node and lane of every rank.
    program : sequence of str
        Program and arguments of a rank.
    striped : bool
        Whether the MPI library chooses lanes.

    Returns
    -------
    list of str
        Launcher and its arguments, to run on the first node.
    dict of str to str
        Environment variables that the MPI library needs.
    dict of str to str
        Texts by name of the files that every node must have in `SCRIPTS`.
    """
    wrapped = [f"{SCRIPTS}/rank", *program]
    files = {"rank": _rank_script(machine, striped)}
    environment: dict[str, str] = {}
    if launcher.library.family == "openmpi":
        local = "vader" if _is_openmpi_4(launcher) else "sm"
        files["ranks"] = "".join(f"{node_name(node)}\n" for node in machine.rank_to_node)
        environment = {
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": f"self,{local},tcp",
            # The other component asks the kernel for routes, and finds none between some lanes.
            "OMPI_MCA_reachable": "weighted",
        }
        options = _openmpi_options(launcher)
    else:
        if striped:
            # By default MPICH uses UCX, which uses at most two interfaces per message.
            environment = {"UCX_MAX_RNDV_RAILS": str(machine.n_lanes)}
        else:
            environment = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
        options = _mpich_options(launcher, machine)
    command = [str(launcher.mpiexec), *options, "-n", str(machine.n_ranks), *wrapped]
    return command, environment, files


def _mpich_options(launcher: Launcher, machine: Machine) -> list[str]:
    # Hydra needs hosts in the order of their first occurrence in the map of the ranks.
    nodes = list(dict.fromkeys(machine.rank_to_node))
    hosts = ",".join(f"{node_name(node)}:{machine.node_to_n_ranks[node]}" for node in nodes)
    options = ["-launcher", "ssh", "-launcher-exec", ENTER, "-hosts", hosts]
    place = {node: i for i, node in enumerate(nodes)}
    ranks = [place[node] for node in machine.rank_to_node]
    if ranks == sorted(ranks):
        return options
    version = short_version(launcher.library.version)
    number = _NUMBER.match(version)
    if number is not None and tuple(map(int, number.groups())) < _FIRST_WITH_RANKMAP:
        raise EmulationError(
            f"order: the mpiexec of {version} fills one node after the other; say --order block, "
            "or use the mpich of pip install mpich"
        )
    return [*options, "-rankmap", ",".join(map(str, ranks))]


def _openmpi_options(launcher: Launcher) -> list[str]:
    options = ["--hostfile", f"{SCRIPTS}/ranks", "--bind-to", "none"]
    # Open MPI names its folders by process ids, which are the same in every sandbox.
    if _is_openmpi_4(launcher):
        options += ["--map-by", "seq", "--oversubscribe"]
        own = ("plm_rsh_agent", "oob_tcp_if_include", "orte_tmpdir_base")
        given = "--mca"
    else:
        options += ["--map-by", "seq:OVERSUBSCRIBE"]
        own = ("plm_ssh_agent", "prte_if_include", "prte_tmpdir_base")
        given = "--prtemca"
    for name, value in zip(own, (ENTER, lane_name(0), SCRIPTS), strict=True):
        options += [given, name, value]
    return options


def _is_openmpi_4(launcher: Launcher) -> bool:
    return short_version(launcher.library.version).startswith("Open MPI v4")


def _rank_script(machine: Machine, striped: bool) -> str:
    cases = [
        f"{rank}) node={node} lane={lane} ;;"
        for rank, (node, lane) in enumerate(
            zip(machine.rank_to_node, machine.rank_to_lane, strict=True)
        )
    ]
    pin = "" if striped else _PIN.format(lane=LANE, name="lane$lane")
    return _RANK.format(cases="\n".join(cases), node=NODE, pin=pin)
