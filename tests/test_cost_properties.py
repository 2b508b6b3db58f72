"""What holds for every schedule on every machine."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_schedules import PARAMETERS, network, on_machine, random_schedule
from executors.cost import Timeline, simulate
from planner.errors import DeadlockError
from planner.formats.goal import parse_goal
from planner.plan import ON_START, Op, Plan
from specs import Network


@st.composite
def simulated(draw: st.DrawFn) -> tuple[Plan, Network, Timeline]:
    n_ranks = draw(st.integers(1, 8))
    text = random_schedule(draw(st.integers(0, 10**6)), n_ranks, draw(st.integers(0, 120)))
    n_nodes = draw(st.integers(1, n_ranks))
    nodes = [rank % n_nodes for rank in range(n_ranks)]
    n_cores = draw(st.integers(1, 4))
    cores = [rank // n_nodes % n_cores for rank in range(n_ranks)]
    plan = on_machine(text, nodes, cores, draw(st.integers(1, 3)))
    parameters = network(draw(st.sampled_from(PARAMETERS)))
    try:
        return plan, parameters, simulate(plan, parameters)
    except DeadlockError:
        parameters = parameters.replace(eager_limit_bytes=10**9)
        return plan, parameters, simulate(plan, parameters)


@settings(max_examples=60, deadline=None)
@given(simulated())
def test_dependencies_are_kept(case: tuple[Plan, Network, Timeline]) -> None:
    plan, _, timeline = case
    after = np.repeat(np.arange(plan.n_tasks), np.diff(plan.deps.indptr))
    before, kind = plan.deps.task, plan.deps.kind
    earliest = np.where(kind & ON_START, timeline.start_ns[before], timeline.end_ns[before])
    assert (timeline.start_ns[after] >= earliest).all()
    assert (timeline.end_ns >= timeline.start_ns).all()


@settings(max_examples=60, deadline=None)
@given(simulated())
def test_messages_take_their_time(case: tuple[Plan, Network, Timeline]) -> None:
    plan, parameters, timeline = case
    sends = np.flatnonzero(plan.op == Op.SEND)
    recvs = timeline.partner[sends]
    link = parameters.network
    flight = link.L_ns + 2 * link.o_ns
    assert (timeline.end_ns[recvs] >= timeline.start_ns[sends] + flight).all()
    rendezvous = sends[plan.elements[sends] > parameters.eager_limit_bytes]
    assert np.array_equal(np.flatnonzero(timeline.is_rendezvous), rendezvous)
    assert (timeline.end_ns[rendezvous] >= timeline.start_ns[timeline.partner[rendezvous]]).all()


@settings(max_examples=60, deadline=None)
@given(simulated())
def test_makespan_covers_every_resource(case: tuple[Plan, Network, Timeline]) -> None:
    plan, parameters, timeline = case
    assert timeline.makespan_ns >= timeline.core_busy_ns.max(initial=0)
    # A lane's last gap may reach beyond the last task: nobody waits for it.
    longest = plan.elements[plan.op <= Op.RECV].max(initial=1)
    link = parameters.network
    slack = link.g_ns + longest * link.G_ns_per_byte
    assert timeline.makespan_ns + slack >= timeline.lane_busy_ns.max(initial=0)
    work = plan.duration_ns.sum()
    holds = 2 * (plan.op == Op.SEND).sum() * link.o_ns
    assert timeline.core_busy_ns.sum() >= work + holds


@settings(max_examples=60, deadline=None)
@given(simulated())
def test_critical_path_reaches_from_start_to_end(case: tuple[Plan, Network, Timeline]) -> None:
    plan, _, timeline = case
    path = timeline.critical_path
    assert bool(path) == bool(plan.n_tasks)
    if path:
        assert timeline.start_ns[path[0]] == 0
        assert timeline.cause[path[0]] == -1
        assert timeline.end_ns[path[-1]] == timeline.makespan_ns
        assert all(a != b for a, b in pairwise(path))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60))
def test_a_chain_takes_the_sum_of_its_parts(seed: int, n: int) -> None:
    durations = np.random.default_rng(seed).integers(0, 1000, n)
    lines = [f"l{i}: calc {ns}" for i, ns in enumerate(durations)]
    lines += [f"l{i} requires l{i - 1}" for i in range(1, n)]
    plan = parse_goal("num_ranks 1\nrank 0 {\n" + "\n".join(lines) + "\n}")
    timeline = simulate(plan)
    assert timeline.makespan_ns == durations.sum()


@settings(max_examples=20, deadline=None)
@given(simulated())
def test_same_plan_same_times(case: tuple[Plan, Network, Timeline]) -> None:
    plan, parameters, timeline = case
    again = simulate(plan, parameters)
    assert np.array_equal(timeline.start_ns, again.start_ns)
    assert np.array_equal(timeline.end_ns, again.end_ns)
    assert not again.start_ns.flags.writeable
