"""Random numbers and columns for arrays in CSR."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

numbers = st.lists(st.integers(0, 6), max_size=12)


def ints(values):
    return np.array(values, dtype=np.int64)


def columns(rows, n=2):
    return [ints([row[i] for row in rows]) for i in range(n)]
