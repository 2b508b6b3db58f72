"""Export of a plan as a networkx graph, for exploration and for algorithms on small graphs."""

from __future__ import annotations

import networkx as nx

from collplan.planner.plan.matching import match_messages
from collplan.planner.plan.plan import Plan
from collplan.planner.plan.ragged import INTENT, ON_START
from collplan.specs.syntax.calling import explains_calls

_ATTRIBUTES = ("rank", "peer", "tag", "phase", "round", "node", "lane", "core")


@explains_calls("to_networkx")
def to_networkx(plan: Plan) -> nx.DiGraph:
    """Return the task graph.

    Parameters
    ----------
    plan : Plan
        A plan of all ranks, or of one rank. Only in the first case, messages are edges.

    Returns
    -------
    networkx.DiGraph
        Graph with a node per task, whose attributes are ``op`` (the name of `Op` in
        lower case), ``rank``, ``peer``, ``tag``, ``phase``, ``round``, ``node``,
        ``lane``, ``core``, ``bytes`` and ``label`` (the task as text). An edge leads from
        a task to a task that waits for it. Its ``kind`` is "hazard" or "intent" for
        dependencies, which also have ``on_start``, and "message" from a send to its
        receive, with ``bytes``.

    Raises
    ------
    MatchError
        If sends and receives of a plan of all ranks do not match.
    """
    graph = nx.DiGraph(n_ranks=plan.n_ranks, n_nodes=plan.n_nodes)
    bytes_ = (plan.elements * plan.itemsize).tolist()
    columns = {name: getattr(plan, name).tolist() for name in _ATTRIBUTES}
    for task in plan.tasks():
        row = task.row
        graph.add_node(
            row,
            op=task.op.name.lower(),
            bytes=bytes_[row],
            label=str(task),
            **{name: column[row] for name, column in columns.items()},
        )
    after = plan.deps.owner().tolist()
    for before, row, kind in zip(
        plan.deps.task.tolist(), after, plan.deps.kind.tolist(), strict=True
    ):
        graph.add_edge(
            before,
            row,
            kind="intent" if kind & INTENT else "hazard",
            on_start=bool(kind & ON_START),
        )
    if plan.only_rank is None:
        for send, recv in zip(*(ends.tolist() for ends in match_messages(plan)), strict=True):
            graph.add_edge(send, recv, kind="message", bytes=bytes_[send])
    return graph
