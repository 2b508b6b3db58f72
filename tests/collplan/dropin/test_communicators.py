"""Environment variables of the drop-in: a wrong value is refused by the name of the variable."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install '.[mpich]'")

from collplan.deciding.trial_share import TRIALS
from collplan.dropin import communicators
from collplan.specs.errors import CollplanError


class OneRank:
    """A communicator of one rank, without MPI."""

    def Get_rank(self) -> int:
        return 0

    def allreduce(self, value: Any, op: object) -> Any:
        return value

    def bcast(self, value: Any) -> Any:
        return value


def test_wrong_values_are_refused_by_the_names_of_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone: Any = OneRank()
    monkeypatch.setenv(TRIALS, "many")
    with pytest.raises(CollplanError, match=r"^COLLPLAN_TRIALS is 'many'; give the share"):
        communicators.read_share(alone, None)
    with pytest.raises(CollplanError, match=r"^trials is -1\.0; give the share"):
        communicators.read_share(alone, -1.0)
    with pytest.raises(CollplanError, match=r"^COLLPLAN_TABLE: /none\.yaml: no such file"):
        communicators.read_table(alone, "/none.yaml", force=True, named="COLLPLAN_TABLE")
    with pytest.raises(CollplanError, match=r"^/none\.yaml: no such file"):
        communicators.read_table(alone, "/none.yaml", force=True)
