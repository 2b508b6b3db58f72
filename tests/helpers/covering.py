"""Covering arrays: few cases in which every pair of values of two dimensions occurs.

The packages that make them do not fit: allpairspy 2.5 drops pairs without a word where some
combinations are impossible, and covertable 3.2 takes no Python function that says which are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any

Case = dict[str, Any]
_Choice = tuple[int, int]
"""A dimension and one of its values, both by their number."""


def pairs(
    dimensions: Mapping[str, Sequence[Any]],
    is_possible: Callable[[Case], bool] = lambda case: True,
) -> list[Case]:
    """Return cases that have every possible pair of values of any two dimensions.

    Parameters
    ----------
    dimensions : mapping of str to sequence
        Values of each dimension. Dimensions without values are left out.
    is_possible : callable, optional
        Whether there is such a case. It is also asked about cases in which dimensions are missing,
        and says no only if no value of them makes the case possible.

    Returns
    -------
    list of dict
        The cases, each with a value per dimension. The same arguments give the same cases.
    """
    rng = random.Random(0)
    given = {name: list(values) for name, values in dimensions.items() if len(values)}
    names, sizes = list(given), [len(values) for values in given.values()]
    choices = [[(i, a) for a in range(n)] for i, n in enumerate(sizes)]
    together = [product(*two) for two in combinations(choices, 2)] or [product(*choices[:1])]
    # Dictionaries keep their order, which sets do not.
    missing = dict.fromkeys(pair for some in together for pair in some if pair)

    def named(chosen: Iterable[_Choice]) -> Case:
        return {names[i]: given[names[i]][a] for i, a in sorted(chosen)}

    def completed(chosen: list[_Choice], left: list[int]) -> list[_Choice] | None:
        """Return a whole case, with the values that have most missing pairs where they can be."""
        if not is_possible(named(chosen)):
            return None
        if not left:
            return chosen
        i, *others = left
        gains = [
            sum(tuple(sorted(((i, a), other))) in missing for other in chosen)
            for a in range(sizes[i])
        ]
        # Of equal gains chance decides: values that took turns would make dimensions go in step.
        for a in sorted(rng.sample(range(sizes[i]), sizes[i]), key=lambda a: -gains[a]):
            whole = completed([*chosen, (i, a)], others)
            if whole is not None:
                return whole
        return None

    cases: list[Case] = []
    while missing:
        seed = next(iter(missing))
        whole = completed(list(seed), [i for i in range(len(names)) if i not in dict(seed)])
        if whole is None:
            missing.pop(seed)
            continue
        cases.append(named(whole))
        for pair in combinations(sorted(whole), len(seed)):
            missing.pop(pair, None)
    return cases


def values(cases: Iterable[Case], beside: str, taken: Iterable[Case] = ()) -> list[Case]:
    """Return some of the cases: each value occurs beside a value of one dimension as before.

    Values that do so in cases that are taken anyway need not. Where several serve as well, the
    first does.
    """
    left = list(cases)

    def pairs_of(case: Case) -> set[tuple[str, str, str]]:
        return {
            (str(case[beside]), name, str(value)) for name, value in case.items() if name != "seed"
        }

    missing = set().union(*map(pairs_of, left)).difference(*map(pairs_of, taken))
    chosen: list[Case] = []
    while missing:
        best = max(left, key=lambda case: len(pairs_of(case) & missing))
        missing -= pairs_of(best)
        left.remove(best)
        chosen.append(best)
    return chosen
