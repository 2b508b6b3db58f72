"""Readers of what is exported, as the libraries' own sources read it: those not at hand.

Open MPI: docs/tuning-apps/tuned_dynamic_file_schema.json, and the reader of coll/tuned,
coll_tuned_dynamic_file.c, with the names of coll_base_util.c, which the schema writes otherwise
(``reducescatterblock``): the reader refuses a whole file for a name it does not know.
UCC: the score strings of its user guide, and src/coll_score/ucc_coll_score.c.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, Final

OMPI_KINDS: Final = {
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "alltoallw", "barrier",
    "bcast", "exscan", "gather", "gatherv", "reduce", "reduce_scatter", "reduce_scatter_block",
    "scan", "scatter", "scatterv",
}  # fmt: skip
UCC_KINDS: Final = {
    "allgather", "allgatherv", "allreduce", "alltoall", "alltoallv", "barrier", "bcast", "fanin",
    "fanout", "gather", "gatherv", "reduce", "reduce_scatter", "reduce_scatterv", "scatter",
    "scatterv",
}  # fmt: skip
UCC_MEMORIES: Final = {"host", "cuda", "cuda_managed", "rocm", "rocm_managed"}


@dataclass(frozen=True)
class Rule:
    """An algorithm for a range of ranks and bytes; both ends of ranks are in, `end` is not."""

    kind: str
    ranks: tuple[float, float]
    begin: float
    end: float
    algorithm: str
    segment_bytes: int = 0


def chosen(rules: list[Rule], kind: str, ranks: int, n_bytes: int) -> Rule | None:
    """Return the first rule that fits, as both libraries do where rules do not overlap."""
    fitting = [
        rule
        for rule in rules
        if rule.kind == kind
        and rule.ranks[0] <= ranks <= rule.ranks[1]
        and rule.begin <= n_bytes < rule.end
    ]
    assert len(fitting) <= 1, "rules overlap"
    return fitting[0] if fitting else None


def read_ompi_json(text: str) -> list[Rule]:
    """Read rules of version 3; AssertionError where Open MPI would refuse or ignore something."""
    document = json.loads(text)
    assert set(document) == {"rule_file_version", "module", "collectives"}
    assert (document["rule_file_version"], document["module"]) == (3, "tuned")
    rules = []
    for kind, entries in document["collectives"].items():
        assert kind in OMPI_KINDS
        for entry in entries:
            assert {"rules"} <= set(entry) <= {"rules", "comm_size_min", "comm_size_max"}
            ranks = _number(entry, "comm_size_min", 0), _number(entry, "comm_size_max", inf)
            for one in entry["rules"]:
                sizes = {"msg_size_min", "msg_size_max", "seg_size"}
                assert {"alg"} <= set(one) <= {"alg", "faninout", *sizes}
                assert isinstance(one["alg"], str)
                if (kind, one["alg"]) == ("allgather", "bruck"):
                    # The radix, which multiplies a distance until it exceeds the ranks.
                    assert _number(one, "faninout", 0) >= 2
                begin, last = _number(one, "msg_size_min", 0), _number(one, "msg_size_max", inf)
                segment = int(_number(one, "seg_size", 0))
                rules.append(Rule(kind, ranks, begin, last + 1, one["alg"], segment))
    return rules


def _number(entry: dict[str, Any], name: str, default: float) -> float:
    value = entry.get(name, default)
    if value == "inf":
        return inf
    assert value == default or (type(value) is int and 0 <= value < 2**63)
    return float(value)


def read_ucc_tune(text: str) -> list[Rule]:
    """Read a tune string; AssertionError where UCC would refuse it, and with it all."""
    return [rule for token in text.strip().split("#") for rule in _rules_of(token)]


def _rules_of(token: str) -> Iterator[Rule]:
    fields: dict[str, str] = {}
    for word in token.split(":"):
        name = _field_of(word)
        assert name not in fields, f"{word}: {name} is there twice"
        fields[name] = word
    assert "algorithm" in fields or "score" in fields
    low, _, high = fields.get("ranks", "[0-inf]").strip("[]").partition("-")
    begin, _, end = fields.get("bytes", "0-inf").partition("-")
    yield Rule(
        fields["kind"],
        (float(low), float(high)),
        float(begin),
        float(end),
        fields["algorithm"].removeprefix("@"),
    )


def _field_of(word: str) -> str:
    """Return which field a word is: UCC takes them in any order, by what they look like."""
    if word in UCC_KINDS:
        return "kind"
    if word in UCC_MEMORIES:
        return "memory"
    if word.startswith("@"):
        return "algorithm"
    if word == "inf" or word.isdecimal():
        return "score"
    is_ranks = word.startswith("[") and word.endswith("]")
    ends = word.strip("[]").split("-")
    assert len(ends) == 2, f"{word}: is not a field"
    assert all(end == "inf" or end.isdecimal() for end in ends), f"{word}: is no range"
    return "ranks" if is_ranks else "bytes"
