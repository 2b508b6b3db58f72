"""Placement of ranks and their communication progress, against examples worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from collplan.planner.errors import AlgorithmError
from collplan.planner.passes.progress.cores import (
    POLICIES,
    CorePlacement,
    application_cores,
    free_cores,
)
from collplan.specs import Machine


def place(**machine) -> CorePlacement:
    return CorePlacement.of(Machine.model_validate(machine))


def test_six_ranks_on_eight_cores_as_in_the_papers_figures_2_and_3():
    placement = place(ranks_per_node=6, cores=8, numa_domains=2)
    assert placement.progress("bind").tolist() == [0, 1, 2, 4, 5, 6]
    assert placement.progress("numa").tolist() == [3, 3, 3, 7, 7, 7]
    assert placement.progress("odd_even").tolist() == [3, 7, 3, 7, 3, 7]


def test_four_ranks_on_eight_cores_have_a_free_core_each_as_in_figure_1():
    placement = place(ranks_per_node=4, cores=8, numa_domains=2)
    assert placement.application.tolist() == [0, 2, 4, 6]
    assert placement.progress("numa").tolist() == [1, 3, 5, 7]
    assert placement.progress("odd_even").tolist() == [1, 3, 5, 7]


def test_62_ranks_on_64_cores_as_in_section_5():
    placement = place(ranks_per_node=62, cores=64)
    assert placement.free[0].tolist() == [31, 63]
    assert placement.progress("numa").tolist() == [31] * 31 + [63] * 31
    assert placement.progress("odd_even").tolist() == [31, 63] * 31


def test_equation_1_is_what_numa_gives_within_a_domain():
    for n_cores in range(1, 20):
        for n_ranks in range(1, n_cores):
            placement = place(ranks_per_node=n_ranks, cores=n_cores)
            n_free = n_cores - n_ranks
            for core, chosen in zip(placement.application, placement.progress("numa"), strict=True):
                # ceil((floor(M / delta) + 1) * delta) - 1 in whole numbers.
                j = int(core) * n_free // n_cores
                assert chosen == -(-(j + 1) * n_cores // n_free) - 1
                assert chosen > core


def test_cores_are_free_or_hold_a_rank():
    for n_cores in range(1, 30):
        for n_ranks in range(n_cores + 1):
            free, held = free_cores(n_cores, n_ranks), application_cores(n_cores, n_ranks)
            assert len(held) == n_ranks
            assert sorted([*free, *held]) == list(range(n_cores))
            # Evenly spread: stretches between free cores differ by one core at most.
            assert np.ptp(np.diff(free, prepend=-1)) <= 1 if len(free) else True


def test_a_domain_without_free_cores_binds_under_numa_and_shares_under_odd_even():
    placement = place(ranks_per_node=7, cores=8, numa_domains=2)
    assert placement.application.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert placement.free[0].tolist() == [7]
    assert placement.progress("numa").tolist() == [0, 1, 2, 3, 7, 7, 7]
    assert placement.progress("odd_even").tolist() == [7] * 7


def test_without_free_cores_everything_is_bound():
    placement = place(nodes=2, ranks_per_node=4)
    assert [len(free) for free in placement.free] == [0, 0]
    for policy in POLICIES:
        assert placement.progress(policy).tolist() == [0, 1, 2, 3] * 2


def test_nodes_with_different_numbers_of_ranks_are_placed_one_by_one():
    placement = place(nodes=3, ranks_per_node=[4, 1, 3], cores=4, rank_order="cyclic")
    # Nodes of ranks 0 to 7: 0 1 2 0 2 0 2 0.
    assert placement.application.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert [free.tolist() for free in placement.free] == [[], [1, 2, 3], [3]]
    assert placement.progress("numa").tolist() == [0, 1, 3, 1, 3, 2, 3, 3]
    assert placement.progress("odd_even").tolist() == [0, 1, 3, 1, 3, 2, 3, 3]


def test_neighbors_on_a_node_differ_under_odd_even_however_ranks_are_dealt_to_nodes():
    for order in ("block", "cyclic"):
        placement = place(nodes=2, ranks_per_node=6, cores=8, rank_order=order)
        chosen = placement.progress("odd_even")
        for node in range(2):
            mine = chosen[placement.node == node]
            assert (mine[1:] != mine[:-1]).all()


@pytest.mark.parametrize("n_domains", [1, 2, 3, 4, 5])
def test_domains_get_their_share_of_ranks_and_never_more_than_their_cores(n_domains):
    for n_cores in range(n_domains, 25):
        domain = np.arange(n_cores) * n_domains // n_cores
        for n_ranks in range(1, n_cores + 1):
            placement = place(ranks_per_node=n_ranks, cores=n_cores, numa_domains=n_domains)
            assert (np.diff(placement.application) > 0).all()
            assert sorted([*placement.application, *placement.free[0]]) == list(range(n_cores))
            room = np.bincount(domain)
            held = np.bincount(domain[placement.application], minlength=n_domains)
            is_full = held == room
            assert np.ptp(held[~is_full]) <= 1 if (~is_full).any() else True
            near = placement.progress("numa")
            assert (domain[near] == domain[placement.application]).all()
            assert ((near == placement.application) == is_full[domain[near]]).all()


def test_more_ranks_than_cores_and_unknown_policies_are_refused():
    for function in (free_cores, application_cores):
        with pytest.raises(AlgorithmError, match="5 ranks on 4 cores; use 0 to 4"):
            function(4, 5)
    with pytest.raises(AlgorithmError, match="no 'scatter'; use one of bind, numa, odd_even"):
        place(ranks_per_node=2).progress("scatter")
