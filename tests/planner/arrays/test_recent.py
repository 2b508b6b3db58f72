"""Results that are kept for a while: which are forgotten, and when."""

from __future__ import annotations

from collplan.planner.arrays.recent import Recent


class Maker:
    """A function that returns a result and counts its calls."""

    def __init__(self, value: str | None) -> None:
        self.value, self.n_calls = value, 0

    def __call__(self) -> str | None:
        self.n_calls += 1
        return self.value


def test_a_result_is_computed_once() -> None:
    recent, make = Recent[int, str | None](2), Maker("a")
    assert [recent.find(1, make) for _ in range(3)] == ["a"] * 3
    assert (make.n_calls, recent.get(1)) == (1, "a")


def test_none_is_a_result() -> None:
    recent, make = Recent[int, str | None](2), Maker(None)
    assert [recent.find(1, make) for _ in range(2)] == [None, None]
    assert make.n_calls == 1


def test_the_least_recently_used_result_is_forgotten() -> None:
    recent = Recent[int, str](3)
    for key, value in enumerate("abc"):
        recent.keep(key, value)
    recent.get(0)
    recent.find(2, lambda: "")
    recent.keep(3, "d")
    assert [recent.get(key) for key in range(4)] == ["a", None, "c", "d"]


def test_results_have_sizes() -> None:
    recent = Recent[int, str](5, len)
    recent.keep(0, "aa")
    recent.keep(1, "bbb")
    recent.keep(0, "a")  # replaced: there is room for one letter
    recent.keep(2, "c")
    assert [recent.get(key) for key in range(3)] == ["a", "bbb", "c"]
    recent.keep(3, "dd")
    assert [recent.get(key) for key in range(4)] == [None, None, "c", "dd"]


def test_a_result_that_is_too_large_displaces_no_other() -> None:
    recent = Recent[int, str](3, len)
    recent.keep(0, "aa")
    assert recent.find(1, lambda: "bbbb") == "bbbb"
    assert (recent.get(0), recent.get(1)) == ("aa", None)


def test_cleared_results_are_forgotten_and_leave_room() -> None:
    recent = Recent[int, str](2, len)
    recent.keep(0, "aa")
    recent.clear()
    recent.keep(1, "bb")
    assert (recent.get(0), recent.get(1)) == (None, "bb")
