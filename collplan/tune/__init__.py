"""Tuning: measure candidates on the current machine, and write a table of the fastest.

`candidates` lists the variants whose predicted time is near the best, `trial` measures
them, `beside` lets them run beside a computation, `racing` decides when their medians are
known well enough, `journal` records finished points so that an interrupted run can continue,
and `tuner` runs through all collectives, numbers of ranks and message sizes. The table is in
`collplan.tables`.

References
----------
Hartmann, Kühnemann, Rauber, Rünger, "A decomposition approach for optimizing
the performance of MPI libraries", 2006; this package is its configuration phase.
"""

from __future__ import annotations

import sys
from inspect import Signature, signature
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """The package `collplan.tune`, which is also the function of this name.

    Python makes every imported package an attribute of its parent. A function `collplan.tune`
    would no longer be there as soon as a module of the package is imported.
    """

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Call `collplan.tune.one_collective.tune`."""
        from collplan.tune.one_collective import tune

        return tune(*arguments, **options)

    @property
    def __signature__(self) -> Signature:
        """Return the signature of the function."""
        from collplan.tune.one_collective import tune

        return signature(tune)


sys.modules[__name__].__class__ = CallablePackage
