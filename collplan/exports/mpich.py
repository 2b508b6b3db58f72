"""MPICH's selection of collectives, as the JSON of ``MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE``.

The selection is a tree. Each key is a condition, sibling conditions are tried in order, and a leaf
names the algorithm. A file replaces MPICH's complete built-in selection. Cases that a table does
not cover are therefore copied from the built-in selection.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final, TypeGuard

from collplan.exports.selection import (
    Export,
    LibraryRules,
    Selection,
    SizeInterval,
    Target,
    select,
    total_bytes,
)
from collplan.libraries.counterparts import algorithms_of
from collplan.specs.errors import CollplanError
from collplan.specs.methods.named_option import AlgorithmChoice
from collplan.specs.syntax.documents import foreign_reader
from collplan.tables.sweep import Sweep
from collplan.tables.table import TuningTable

_LATER: Final = "-intra"
"""End of the names of collectives in selections of MPICH later than 5.0."""
Tree = dict[str, Any]

_INT_MAX: Final = 2**31 - 1
"""Largest size in a condition, because MPICH reads sizes as C's int."""
_SIZE_KEYS: Final = {
    **dict.fromkeys(("allgather", "reduce_scatter_block"), "total_msg_size"),
    **dict.fromkeys(("alltoall", "allreduce", "bcast", "reduce"), "avg_msg_size"),
}
"""Key of the condition on message size by kind.

For other kinds, MPICH has no such condition, or only some of the ranks know the size.
"""
_BUILTIN: Final = {"reduce_scatter_allgather", "reduce_scatter_gather"}
"""Algorithms that require a predefined operation and at least 2^⌊log₂ p⌋ elements on p ranks."""

_COMM_SIZE: Final = re.compile(r"comm_size(<=|<|=)(\d{1,10}|any|pow2|node_comm_size)")
"""Condition on the number of ranks."""
_MAX_DEPTH: Final = 100


def write_mpich(table: TuningTable, defaults: Tree) -> Export:
    """Write a table as a selection of MPICH.

    The entries of `defaults` remain for non-blocking collectives, and for collectives and
    numbers of ranks that the table does not contain.

    Parameters
    ----------
    table : TuningTable
    defaults : dict
        Built-in selection of MPICH, see `built_in_selection`.
    """
    blind = {sweep.collective for sweep in table.sweeps} - set(_SIZE_KEYS)
    library = LibraryRules(
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
    """Return MPICH's built-in selection.

    Parameters
    ----------
    library : Path
        Shared library of MPICH, such as ``libmpi.so.12``, or the file
        ``src/mpi/coll/coll_selection.json`` of MPICH's sources.

    Raises
    ------
    CollplanError
        If the file cannot be read or contains no selection.
    """
    with foreign_reader(library, "library or selection of MPICH", "check --defaults"):
        content = library.read_bytes()
    texts = [content] if library.suffix == ".json" else re.findall(rb"\{\"coll[ -~]+\}", content)
    for text in texts:
        try:
            tree = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if b"algorithm=MPIR_Bcast" not in text or not _is_tree(tree):
            continue
        if "collective=scan" in tree:
            return tree
        if any(key.endswith(_LATER) for key in tree):
            raise CollplanError(
                f"{library}: holds a selection of an MPICH later than 5.0, with collectives such "
                f"as 'bcast{_LATER}', which cannot be written; export for MPICH 4 or 5.0 with the "
                f"coll_selection.json of its sources"
            )
    raise CollplanError(
        f"{library}: holds no selection of collectives, such as MPICH 4 and later have; "
        f"give --defaults the file src/mpi/coll/coll_selection.json of MPICH's sources"
    )


def _is_tree(node: object, depth: int = 0) -> TypeGuard[Tree]:
    """Return whether a document consists of nested mappings with valid conditions on ranks."""
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
    """Return the branch of the tree for one number of ranks."""
    if kind == "alltoall":  # MPICH needs its own algorithm for alltoall in place
        sizes = _by_size(kind, found[0], intra)
        return {"is_sendbuf_inplace=yes": intra, "is_sendbuf_inplace=no": sizes}
    by_commuting = {selection.sweep.op_commutes: selection for selection in found}
    # MPICH has no condition on commutativity for scans. Its algorithms of scans keep the order of
    # operands.
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


def _leaf(kind: str, interval: SizeInterval, intra: Tree) -> Tree:
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
    """Return a tree for a number of ranks, without its conditions on the number of ranks.

    The conditions are resolved because MPICH would match ``comm_size<8`` for 8 ranks, too, if
    it stood below another condition.
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
    """Return MPICH's counterpart of a collplan algorithm, or the reason why there is none."""
    kind, ranks = sweep.collective, sweep.ranks
    found = algorithms_of("mpich").find(kind, algorithm, ranks, is_cut=segment_bytes > 0)
    if isinstance(found, str):
        return found
    if found.commutes and not sweep.op_commutes:
        return "MPICH has it for operations that commute"
    options, _ = found.told(algorithm, ranks, segment_bytes)
    return Target(found.name, segment_bytes, options=tuple(options.split()))
