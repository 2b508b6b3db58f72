"""Compiler of specs into plans of all ranks, of one rank or of one node, and proofs of plans."""

from collplan.planner.compiler.compile import compile_plan
from collplan.planner.compiler.folded import compile_folded, unfold
from collplan.planner.compiler.proof import verify_plan
from collplan.planner.compiler.ranks import compile_node, compile_ranks, without_native

__all__ = [
    "compile_folded",
    "compile_node",
    "compile_plan",
    "compile_ranks",
    "unfold",
    "verify_plan",
    "without_native",
]
