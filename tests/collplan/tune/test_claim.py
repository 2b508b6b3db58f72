"""The lock of a table: only one run holds it, also after another has removed its file."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from collplan.specs.errors import CollplanError
from collplan.tune import claim
from collplan.tune.claim import claimed


def test_those_who_waited_for_a_removed_lock_hold_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "_LOCK_POLL_S", 0.001)
    table, holders, most = tmp_path / "t.yaml", [0], [0]

    def tune() -> None:
        for _ in range(20):
            with claimed(table, patience_s=60):
                holders[0] += 1
                most[0] = max(most[0], holders[0])
                # Others wait for this file, which is removed at the end.
                time.sleep(0)
                holders[0] -= 1

    threads = [threading.Thread(target=tune) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_lock_that_is_held_is_said(tmp_path: Path) -> None:
    with (
        claimed(tmp_path / "t.yaml"),
        pytest.raises(CollplanError, match="another run is tuning it"),
        claimed(tmp_path / "t.yaml", patience_s=0),
    ):
        pass
    with pytest.raises(CollplanError, match="cannot be written"), claimed(tmp_path / "no" / "t"):
        pass
