"""Plans of programs: the plans of their steps, put together into one task graph."""

from collplan.planner.programs.compile import compile_program as compile_program
from collplan.planner.programs.proof import prove_program as prove_program
