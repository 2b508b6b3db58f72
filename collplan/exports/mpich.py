"""MPICH's selection of collectives, as the JSON of ``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE``.

A tree: every key is a condition, siblings are tried in order, a leaf names the algorithm. A
file replaces all that MPICH knows, so what a table does not say is taken from MPICH's own.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, TypeGuard

from collplan.exports.selection import (
    Export,
    Interval,
    Library,
    Selection,
    Target,
    select,
    total_bytes,
)
from collplan.libraries.counterparts import algorithms_of
from collplan.specs.errors import CollplanError
from collplan.specs.named_option import AlgorithmChoice
from collplan.tune.sweep import Sweep
from collplan.tune.table import TuningTable

Tree = dict[str, Any]

_INT_MAX: Final = 2**31 - 1
"""MPICH reads sizes as C's int."""
_SIZE_KEYS: Final = {
    **dict.fromkeys(("allgather", "reduce_scatter_block"), "total_msg_size"),
    **dict.fromkeys(("alltoall", "allreduce", "bcast", "reduce"), "avg_msg_size"),
}
"""The size MPICH can tell; of other kinds it can't, or only some ranks know it."""
_BUILTIN: Final = {"reduce_scatter_allgather", "reduce_scatter_gather"}
"""They take predefined operations only, and at least as many elements as 2^⌊log₂ p⌋."""

_COMM_SIZE: Final = re.compile(r"comm_size(<=|<|=)(\d{1,10}|any|pow2|node_comm_size)")
"""A condition on the number of ranks."""
_MAX_DEPTH: Final = 100


def write_mpich(table: TuningTable, defaults: Tree) -> Export:
    """Write a table as MPICH's selection.

    Numbers of ranks that the table does not know, non-blocking collectives and all else
    stay as in `defaults`.

    Parameters
    ----------
    table : TuningTable
    defaults : dict
        MPICH's own selection; see `built_in_selection`.
    """
    blind = {sweep.collective for sweep in table.sweeps} - set(_SIZE_KEYS)
    library = Library(
        name="MPICH",
        equivalent=equivalent,
        size_blind=frozenset(blind),
        knows_commuting=True,
        across_nodes="the collectives of its device",
    )
    selections, notes = select(table, library)
    by_kind: dict[str, dict[int, list[Selection]]] = {}
    for selection in selections:
        sweep = selection.sweep
        by_kind.setdefault(sweep.collective, {}).setdefault(sweep.ranks, []).append(selection)
    tree = dict(defaults)
    n_rules = 0
    for kind, by_ranks in by_kind.items():
        own: Tree | None = defaults.get(f"collective={kind}")
        if own is None:
            raise CollplanError(
                f"--defaults: the selection has no rules for collective={kind}; give that of a "
                f"whole MPICH"
            )
        if "comm_type=intra" not in own:
            own = {"comm_type=intra": own, "comm_type=any": own}
        intra = own["comm_type=intra"]
        branches: Tree = {}
        for ranks, found in sorted(by_ranks.items()):
            if f"comm_size<={ranks - 1}" not in branches and ranks > 1:
                branches[f"comm_size<={ranks - 1}"] = intra
            branches[f"comm_size<={ranks}"] = _branch(kind, found, _resolved(intra, ranks))
            n_rules += sum(len(selection.intervals) for selection in found)
        branches["comm_size=any"] = intra
        tree[f"collective={kind}"] = {**own, "comm_type=intra": branches}
    variables = [
        f"MPIR_CVAR_{kind.upper()}_DEVICE_COLLECTIVE=0"
        for kind, by_ranks in by_kind.items()
        if any(selection.spans_nodes for found in by_ranks.values() for selection in found)
    ]
    use = " ".join([*variables, "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE={path} mpiexec"])
    return Export(json.dumps(tree, indent=1) + "\n", use, n_rules, notes)


def built_in_selection(library: Path) -> Tree:
    """Return MPICH's own selection, from the file of the library itself.

    Parameters
    ----------
    library : Path
        As ``libmpi.so.12``; or MPICH's ``src/mpi/coll/coll_selection.json``.

    Raises
    ------
    CollplanError
        If there is none in it.
    """
    try:
        content = library.read_bytes()
    except OSError as error:
        raise CollplanError(f"{library}: cannot be read: {error.strerror}") from None
    texts = [content] if library.suffix == ".json" else re.findall(rb"\{\"coll[ -~]+\}", content)
    for text in texts:
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if b"algorithm=MPIR_Bcast" in text and _is_tree(tree) and "collective=scan" in tree:
            return tree
    raise CollplanError(
        f"{library}: holds no selection of collectives, such as MPICH 4 and later have; "
        f"give --defaults the file src/mpi/coll/coll_selection.json of MPICH's sources"
    )


def _is_tree(node: object, depth: int = 0) -> TypeGuard[Tree]:
    """Return whether all of a document are mappings, with bounds of ranks that make sense."""
    return (
        isinstance(node, dict)
        and depth < _MAX_DEPTH
        and all(
            (not key.startswith("comm_size") or _COMM_SIZE.fullmatch(key) is not None)
            and _is_tree(branch, depth + 1)
            for key, branch in node.items()
        )
    )


def _branch(kind: str, found: list[Selection], intra: Tree) -> Tree:
    """Return the branch for one number of ranks."""
    if kind == "alltoall":  # in place nothing but its own algorithm will do
        sizes = _by_size(kind, found[0], intra)
        return {"is_sendbuf_inplace=yes": intra, "is_sendbuf_inplace=no": sizes}
    by_commuting = {selection.sweep.op_commutes: selection for selection in found}
    # Of scans MPICH does not tell whether the operation commutes; theirs keep the order.
    if None in by_commuting or kind in ("scan", "exscan"):
        return _by_size(kind, found[0], intra)
    return {
        f"is_commutative={'yes' if commutes else 'no'}": (
            _by_size(kind, by_commuting[commutes], intra) if commutes in by_commuting else intra
        )
        for commutes in (True, False)
    }


def _by_size(kind: str, selection: Selection, intra: Tree) -> Tree:
    size_key = _SIZE_KEYS.get(kind)
    *shorter, last = selection.intervals
    if size_key is None or not shorter:
        return _leaf(kind, last, intra)
    branches: Tree = {}
    for interval in shorter:
        end = interval.end or 0
        greatest = end - 1 if size_key == "avg_msg_size" else total_bytes(selection.sweep, end) - 1
        if greatest > _INT_MAX:
            last = interval
            break
        branches[f"{size_key}<={greatest}"] = _leaf(kind, interval, intra)
    branches[f"{size_key}=any"] = _leaf(kind, last, intra)
    return branches


def _leaf(kind: str, interval: Interval, intra: Tree) -> Tree:
    target = interval.target
    if target is None:
        return intra
    name = f"algorithm=MPIR_{kind.capitalize()}_intra_{target.name}"
    leaf: Tree = {name: {option: {} for option in target.options}}
    if target.name not in _BUILTIN:
        return leaf
    enough = {"count<pow2": intra, "count=any": leaf}
    return {"is_op_built_in=yes": enough, "is_op_built_in=no": intra}


def _resolved(tree: Tree, ranks: int) -> Tree:
    """Return a tree without its conditions on the number of ranks.

    Below another condition MPICH would take ``comm_size<8`` for 8 ranks, too.
    """
    for key, branch in tree.items():
        match = _COMM_SIZE.fullmatch(key)
        if match is None or match[2] == "node_comm_size":
            return {key: _resolved(branch, ranks) for key, branch in tree.items()}
        if _holds(match[1], match[2], ranks):
            return _resolved(branch, ranks)
    return tree


def _holds(relation: str, bound: str, ranks: int) -> bool:
    if bound in ("any", "pow2"):
        return bound == "any" or ranks & (ranks - 1) == 0
    if relation == "=":
        return ranks == int(bound)
    return ranks < int(bound) + (relation == "<=")


def equivalent(sweep: Sweep, algorithm: AlgorithmChoice, segment_bytes: int) -> Target | str:
    """Return MPICH's algorithm that does what one of ours does, or why there is none."""
    kind, ranks = sweep.collective, sweep.ranks
    found = algorithms_of("mpich").find(kind, algorithm, ranks, is_cut=segment_bytes > 0)
    if isinstance(found, str):
        return found
    if found.commutes and not sweep.op_commutes:
        return "MPICH has it for operations that commute"
    options, _ = found.told(algorithm, ranks, segment_bytes)
    return Target(found.name, segment_bytes, options=tuple(options.split()))
