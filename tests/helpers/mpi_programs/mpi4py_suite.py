"""Run mpi4py's own tests on the world, or on a drop-in in its place; print what became of them.

usage: mpi4py_suite.py FOLDER native|drop-in [MODULE...]
"""

import json
import sys
import unittest

from mpi4py import MPI

MODULES = (
    *("test_cco_buf", "test_cco_nb_buf", "test_cco_pr_buf", "test_cco_buf_inter"),
    *("test_cco_ngh_buf", "test_cco_ngh_obj", "test_cco_pr_ngh_buf", "test_cco_obj"),
    *("test_cco_obj_inter", "test_cco_vec", "test_cco_vec_inter", "test_cco_nb_vec"),
    *("test_cco_pr_vec", "test_attributes"),
    *("test_util_dtlib", "test_util_pkl5", "test_util_sync"),
)
VECTORS = "gatherv", "scatterv", "allgatherv", "reduce_scatter", "alltoallv"


class Outcomes(unittest.TestResult):
    """Tests that failed and tests that were skipped."""

    def outcomes(self) -> dict[str, list[str]]:
        bad = [str(test) for test, _ in [*self.failures, *self.errors]]
        return {"bad": sorted(bad), "skipped": sorted(str(test) for test, _ in self.skipped)}


def main() -> None:
    folder, mode, *modules = sys.argv[1:]
    native, drop_in = MPI.COMM_WORLD, None
    if mode == "drop-in":
        from collplan.dropin.communicators import Comm
        from tables_everywhere import planning_table

        MPI.COMM_WORLD = drop_in = Comm(
            native,
            table=planning_table(native.size),
            force=True,
            max_plans=400,
            native_calls=0,
            nonblocking_from=0,
        )
    sys.path.insert(0, folder)
    sys.modules["numba.cuda"] = None  # type: ignore[assignment]  # its arrays need a device
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromName(name) for name in modules or MODULES
    )
    result = Outcomes()
    suite.run(result)
    for test, text in [*result.failures, *result.errors]:
        sys.stderr.write(f"rank {native.rank}: {test}\n{text}\n")
    bad = sorted({name for names in native.allgather(result.outcomes()["bad"]) for name in names})
    if native.rank == 0:
        counts = {} if drop_in is None else drop_in.stats().as_dict()
        found = {
            "run": result.testsRun,
            "bad": bad,
            "skipped": len(result.skipped),
            "planned_calls": counts.get("planned_calls", 0),
            "native_calls": counts.get("native_calls", 0),
            "planned_vector_calls": sum(
                row["calls"]
                for row in counts.get("rows", ())
                if row["planned"] and row["collective"].removeprefix("I") in VECTORS
            ),
        }
        print(json.dumps(found), flush=True)


main()
