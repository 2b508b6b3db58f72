"""Lists of hosts in Slurm's short form."""

from __future__ import annotations

import pytest

from collplan.specs.syntax.host_list import expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("n1", ("n1",)),
        ("n[9-11]", ("n9", "n10", "n11")),
        ("n[099-101],x", ("n099", "n100", "n101", "x")),
        ("a[1,3]-ib,b", ("a1-ib", "a3-ib", "b")),
        ("r[0-1]n[1-2]", ("r0n1", "r0n2", "r1n1", "r1n2")),
    ],
)
def test_lists_of_hosts(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(text) == hosts


@pytest.mark.parametrize(
    "text",
    [
        "n[1", "n]1", "n[3-1]", "n1,,n2", "", ",", "n[]", "n[1-2,]", "n[-1]", "n[[1]]",
        "n[0-9999999]", "n[0-99999]m[0-99999]", f"n[{'9' * 5000}]", "n" * 300,
    ],
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|more than|longer than") as refused:
        expand_hosts(text)
    assert len(str(refused.value)) < 120


@pytest.mark.long
def test_long_lists_are_read_once_and_counted_before_they_are_expanded() -> None:
    names = tuple(f"n{i}" for i in range(200_000))
    assert expand_hosts(",".join(names)) == names
    with pytest.raises(ValueError, match="more than 1048576 hosts"):
        expand_hosts("n[" + ",".join(["0-1000000"] * 1000) + "]")
