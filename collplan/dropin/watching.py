"""Watched drop-ins: their methods note what they do for the reports of ranks that hang."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from mpi4py import MPI

import collplan.watch
from collplan.dropin.arguments import KINDS
from collplan.dropin.communicators import Planned, Topological
from collplan.dropin.methods import COUNTED_ON_TOPOLOGIES
from collplan.specs.errors import CollplanError
from collplan.watch.area import UNKNOWN, WORLD, new_memory, open_area
from collplan.watch.options import WatchOptions
from collplan.watch.recorder import STATES, CallRecorder
from collplan.watch.sentences import OBJECTS
from collplan.watch.trace import TRACE

SCRIPT: Final = Path(collplan.watch.__file__).with_name("__main__.py")
"""Script of the process that watches the ranks of a node."""
MAKING: Final[Mapping[str, str]] = {
    "Dup": "comm_dup",
    "Clone": "comm_dup",
    "Dup_with_info": "comm_dup_with_info",
    "Idup": "comm_idup",
    "Idup_with_info": "comm_idup_with_info",
    "Create": "comm_create",
    "Create_group": "comm_create_group",
    "Split": "comm_split",
    "Split_type": "comm_split_type",
    "Create_cart": "cart_create",
    "Sub": "cart_sub",
    "Create_graph": "graph_create",
    "Create_dist_graph": "dist_graph_create",
    "Create_dist_graph_adjacent": "dist_graph_create_adj",
}
"""MPI's names of the methods that make communicators."""
_GROUP_ONLY: Final = "Create_group"
_KEY_BITS: Final = (1 << 61) - 1
_ARRAY: Final = np.ndarray
_OPS: Final = {
    id(getattr(MPI, name)): name.lower().encode()
    for name in ("MAX", "MIN", "SUM", "PROD", "LAND", "BAND", "LOR", "BOR", "LXOR", "BXOR")
}
"""Names of predefined operations by the identity of mpi4py's objects."""


class CommonArguments(NamedTuple):
    """Places of the arguments that all ranks must have in common; None if there is none.

    Parameters
    ----------
    buffer : int or None
        Place of a buffer that has the same size on all ranks.
    root, op : int or None
        Places of the root and of the operation.
    """

    buffer: int | None = None
    root: int | None = None
    op: int | None = None


_SIGNATURES: Final[Mapping[str, CommonArguments]] = {
    "barrier": CommonArguments(),
    "bcast": CommonArguments(0, 1),
    "gather": CommonArguments(0, 2),
    "scatter": CommonArguments(1, 2),
    "allgather": CommonArguments(0),
    "alltoall": CommonArguments(0),
    "reduce": CommonArguments(0, 3, 2),
    "allreduce": CommonArguments(0, None, 2),
    "reduce_scatter_block": CommonArguments(0, None, 2),
    "scan": CommonArguments(0, None, 2),
    "exscan": CommonArguments(0, None, 2),
    "gatherv": CommonArguments(None, 2),
    "scatterv": CommonArguments(None, 2),
    "reduce_scatter": CommonArguments(None, None, 3),
}
_OBJECT_ROOTS: Final = {"bcast": 1, "gather": 1, "scatter": 1, "reduce": 2}
"""Places of the roots in methods for Python objects."""
_names: dict[Any, bytes] = {}
"""Names of datatypes, as finding one takes longer than a call."""


def start_watching(native: MPI.Intracomm, world: Any, options: WatchOptions) -> None:
    """Watch all calls of a drop-in and of communicators made from it; collective.

    If that is not possible, rank 0 says so in one line.

    Parameters
    ----------
    native : MPI.Intracomm
        Native ``MPI_COMM_WORLD``.
    world : Comm
        Drop-in of all ranks.
    options : WatchOptions
        Choice of what is reported.
    """
    recorder, why = _share(native, options)
    failed = native.allgather(why)
    if any(failed) or recorder is None:
        if native.rank == 0:
            reason = next((one for one in failed if one), "there is no memory")
            sys.stderr.write(f"collplan: ranks that hang are not reported: {reason}\n")
        return
    world._watched_at = recorder.add_comm(WORLD, native.size, native.rank, "")
    world._n_made = 0
    _watch_methods(recorder)
    atexit.register(recorder.end)


def _share(native: MPI.Intracomm, options: WatchOptions) -> tuple[CallRecorder | None, str]:
    """Return the recorder of this rank, whose node shares memory, and the reason if it fails."""
    node = native.Split_type(MPI.COMM_TYPE_SHARED)
    place, why = (0, 0, 0, 0), ""
    if node.rank == 0:
        try:
            nonce = int.from_bytes(os.urandom(7), "little")
            place = os.getpid(), new_memory(node.size, nonce), nonce, node.size
            if options.is_on:
                _start_process(place, options)
        except (OSError, subprocess.SubprocessError) as error:
            why = str(error)
    place, why = node.bcast((place, why))
    recorder = None
    if not why:
        try:
            area = open_area(*place)
            recorder = CallRecorder(
                area,
                node.rank,
                native.rank,
                is_checking=options.is_checking,
                trace_folder=os.environ.get(TRACE),
            )
        except Exception as error:
            why = str(error)
    node.Barrier()
    node.Free()
    return recorder, why


def _start_process(place: tuple[int, ...], options: WatchOptions) -> None:
    """Start the process that watches this node; it is no child of the program.

    Raises
    ------
    OSError
        If there is no shell.
    """
    words = [sys.executable, "-P", str(SCRIPT), *map(str, place), *options.words()]
    subprocess.run(
        ["/bin/sh", "-c", '"$@" </dev/null >/dev/null 2>&1 &', "sh", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def _watch_methods(recorder: CallRecorder) -> None:
    """Replace the methods of drop-ins by methods that note the call."""
    for name in KINDS:
        signature = _SIGNATURES.get(name, CommonArguments())
        _replace(Planned, name.capitalize(), name, signature, recorder)
        _replace(Planned, f"I{name}", f"I{name}", signature, recorder, is_started=True)
        if name not in ("barrier", "reduce_scatter_block"):
            rooted = CommonArguments(None, _OBJECT_ROOTS.get(name))
            _replace(Planned, name, f"{OBJECTS}{name}", rooted, recorder)
    for methods in COUNTED_ON_TOPOLOGIES.values():
        for name in methods:
            if not name.endswith("_init"):
                is_started = name.startswith("I")
                shown = name if is_started else name.lower()
                shown = shown if is_started or name != shown else f"{OBJECTS}{name}"
                _replace(
                    Topological, name, shown, CommonArguments(), recorder, is_started=is_started
                )
    for one in (Planned, *Topological.__subclasses__()):
        for name, shown in MAKING.items():
            if name in vars(one):
                setattr(one, name, _making(vars(one)[name], name, shown, recorder))
        for name in ("Free", "Disconnect"):
            if name in vars(one):
                setattr(one, name, _freeing(vars(one)[name], recorder))


def _replace(
    owner: type,
    name: str,
    shown: str,
    signature: CommonArguments,
    recorder: CallRecorder,
    *,
    is_started: bool = False,
) -> None:
    method = vars(owner).get(name) or getattr(owner, name, None)
    if method is not None:
        setattr(owner, name, _noting(method, shown, signature, recorder, is_started=is_started))


def _noting(
    method: Callable[..., Any],
    shown: str,
    signature: CommonArguments,
    recorder: CallRecorder,
    *,
    is_started: bool,
) -> Callable[..., Any]:
    """Return a method that notes the call of another one."""
    name, state = shown.encode()[:23], STATES[is_started]
    buffer_at, root_at, op_at = signature
    default_root = UNKNOWN if root_at is None else 0

    @wraps(method)
    def noted(self: Any, *given: Any, **options: Any) -> Any:
        place = self._watched_at
        if place is None:
            return method(self, *given, **options)
        n_bytes, element, op, root = UNKNOWN, b"", b"", default_root
        if buffer_at is not None and len(given) > buffer_at and type(given[buffer_at]) is _ARRAY:
            array = given[buffer_at]
            n_bytes = array.nbytes
            element = _names.get(array.dtype) or _name_of(array.dtype)
        if root_at is not None:
            root = given[root_at] if len(given) > root_at else options.get("root", 0)
        if op_at is not None:
            one = given[op_at] if len(given) > op_at else options.get("op", MPI.SUM)
            op = _OPS.get(id(one), b"")
        at = recorder.enter(place, name, root, n_bytes, element, op, state)
        if is_started:
            return method(self, *given, **options)
        try:
            return method(self, *given, **options)
        except Exception as error:
            if _is_rejected(error):
                recorder.take_back(place)
            raise
        finally:
            recorder.leave(at)

    return noted


def _is_rejected(error: Exception) -> bool:
    """Return whether an error is about the arguments of this rank alone."""
    if isinstance(error, MPI.Exception):
        return error.Get_error_class() < MPI.ERR_TRUNCATE
    return not isinstance(error, CollplanError)


def _name_of(dtype: Any) -> bytes:
    name = _names[dtype] = str(dtype.name).encode()[:15]
    return name


def _making(
    method: Callable[..., Any], name: str, shown: str, recorder: CallRecorder
) -> Callable[..., Any]:
    """Return a method that notes the communicator that another method makes."""
    is_blocking = not name.startswith("I")

    @wraps(method)
    def noted(self: Any, *given: Any, **options: Any) -> Any:
        place = self._watched_at
        if place is None:
            return method(self, *given, **options)
        at = None
        if name != _GROUP_ONLY:
            state = STATES[not is_blocking]
            at = recorder.enter(place, shown.encode(), UNKNOWN, UNKNOWN, b"", b"", state)
            self._n_made += 1
        try:
            found = method(self, *given, **options)
        finally:
            if at is not None and is_blocking:
                recorder.leave(at)
        made = found[0] if isinstance(found, tuple) else found
        if isinstance(made, Planned) and made != MPI.COMM_NULL:
            number = 0 if name == _GROUP_ONLY else self._n_made
            _add(recorder, self, made, number, shown, is_blocking=is_blocking)
        return found

    return noted


def _add(
    recorder: CallRecorder, parent: Any, made: Any, number: int, shown: str, *, is_blocking: bool
) -> None:
    """Give a new communicator a place under a key that its ranks find alike."""
    like = made if is_blocking else parent  # a non-blocking call makes a copy, perhaps later
    key = hash((recorder.key_of(parent._watched_at), number, _leader(like), like.Get_size()))
    made._n_made = 0
    made._watched_at = recorder.add_comm(
        (key & _KEY_BITS) + WORLD + 1, like.Get_size(), like.Get_rank(), shown
    )


def _leader(comm: Any) -> int:
    """Return the rank in ``MPI_COMM_WORLD`` of the first rank of a communicator."""
    group, world = comm.Get_group(), MPI.COMM_WORLD.Get_group()
    found = int(group.Translate_ranks([0], world)[0])
    group.Free()
    world.Free()
    return found


def _freeing(method: Callable[..., Any], recorder: CallRecorder) -> Callable[..., Any]:
    """Return a method that frees the place of its communicator, too."""

    @wraps(method)
    def noted(self: Any) -> Any:
        if self._watched_at is not None:
            recorder.free_comm(self._watched_at)
            self._watched_at = None
        return method(self)

    return noted
