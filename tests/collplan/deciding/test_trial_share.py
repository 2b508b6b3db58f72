"""Share of time for trials: what is no share names where it is given."""

from __future__ import annotations

import pytest

from collplan.deciding.trial_share import parse_share
from collplan.specs import CollplanError


@pytest.mark.parametrize("text", ["abc", "-1", "inf", "nan", "", None])
def test_a_share_that_is_none_names_where_it_is_given(text: str | None) -> None:
    with pytest.raises(CollplanError, match=r"^COLLPLAN_TRIALS is .*; give the share of time"):
        parse_share(text, "COLLPLAN_TRIALS")
