"""Fits to measurements: terms along paths, least squares, the correction, and validation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collplan.fitting.cluster_model import (
    SPLIT,
    ClusterModel,
    CountedPoints,
    Prediction,
    count_terms,
    fit_costs,
)
from collplan.fitting.correction import EFFECTS, Correction, Features, covariance
from collplan.fitting.names import algorithm_of, names_table, stem_of
from collplan.fitting.paths import PathCounter
from collplan.fitting.points import (
    LATENCY,
    MeasuredPoint,
    MeasurementError,
    RankLayout,
    require_enough,
    require_integer,
    require_seconds,
)
from collplan.fitting.reading import read_points
from collplan.fitting.round_tables import round_table
from collplan.fitting.terms import (
    BYTES,
    COPIES,
    FAR,
    GLOBAL,
    KNOTS,
    LANE,
    LOGS,
    MEMORY,
    MESSAGES,
    N_KNOTS,
    N_TERMS,
    PER_LINK,
    REDUCTIONS,
    level_weights,
    size_weights,
    start_costs,
    times_at,
    waits_of,
)
from collplan.fitting.validation import (
    leave_jobs_out,
    leave_parts_out,
    losses_of,
    predict_splits,
    score,
)
from collplan.planner.algorithms import registry
from collplan.planner.arrays import Floats, Ints
from collplan.specs import Machine, Network

COSTS = start_costs(Network())
NETWORK = 2


def spread(n_ranks: int) -> RankLayout:
    """Return one rank per node."""
    rank = np.arange(n_ranks)
    return RankLayout(rank, rank, rank * 0)


def counts_of(kind: str, name: str, n_ranks: int, n_bytes: float, **more: bool) -> Floats:
    table = round_table(kind, name, (), n_ranks, **more)
    return PathCounter(table, spread(n_ranks), np.array([n_bytes]), COSTS).counts()[0]


def waits(counts: Floats) -> float:
    return float(counts[waits_of(NETWORK)].sum())


def point(
    algorithm: str = "ring_ompi", n_ranks: int = 8, n_bytes: int = 4096, **more: object
) -> MeasuredPoint:
    fields: dict[str, object] = {
        "system": "leonardo",
        "job": "a",
        "collective": "allreduce",
        "algorithm": algorithm,
        "library": "ompi",
        "layout": spread(n_ranks),
        "n_bytes": n_bytes,
        "seconds": 1e-5,
    }
    return MeasuredPoint(**{**fields, **more})  # type: ignore[arg-type]


def test_weights_interpolate_between_knots() -> None:
    sizes = np.array([0.0, 1.0, 8.0, 300.0, 1e6, 1e12])
    weights = size_weights(sizes)
    assert np.allclose(weights.sum(axis=1), 1)
    assert np.allclose(weights @ np.array(KNOTS), np.maximum(sizes, 1))
    assert np.allclose(weights @ COSTS[waits_of(2)], times_at(sizes, COSTS[waits_of(2)]))
    assert np.allclose(level_weights(np.array([8.0, 64.0])).sum(axis=1), 1)


def test_weights_by_logarithms_are_halves_between_knots_and_end_at_the_last() -> None:
    knots, ones = np.array(KNOTS), np.eye(N_KNOTS)
    assert np.allclose(level_weights(knots), ones)
    assert np.allclose(level_weights(np.array([0.0, 1e30])), ones[[0, -1]])
    between = np.sqrt(knots[:-1] * knots[1:])
    assert np.allclose(level_weights(between), (ones[:-1] + ones[1:]) / 2)


def test_costs_start_at_those_of_the_network() -> None:
    link = {"L_ns": 1000, "o_ns": 100, "g_ns": 10, "G_ns_per_byte": 0.5, "O_ns_per_byte": 0.25}
    far = link | {"L_ns": 9000, "g_ns": 300, "O_ns_per_byte": 0.75}
    network = Network.model_validate({"numa": link, "node": link, "network": far})
    network = network.replace(eager_limit_bytes=64, handshake=True)
    costs, knots = start_costs(network), np.array(KNOTS)
    # Up to the eager limit a message is sent at once; a longer one asks first, and is answered.
    for place, latency, per_byte, each in (
        (0, 1000, 0.5, 100),
        (1, 1000, 0.5, 100),
        (2, 9000, 0.75, 300),
    ):
        asking = 2 * (latency + 100) * (knots > 64)
        assert np.allclose(costs[waits_of(place)], latency + 200 + per_byte * knots + asking)
        assert costs[place * PER_LINK + MESSAGES] == each
        assert costs[place * PER_LINK + BYTES] == per_byte
    at_once = start_costs(network.replace(handshake=False))
    assert np.allclose(at_once[waits_of(2)], 9200 + 0.75 * knots)
    assert costs[LANE] == 0.5
    assert (costs[REDUCTIONS] == network.reduce_ns_per_byte).all()
    assert (costs[COPIES] == network.copy_ns_per_byte).all()


def test_rounds_of_known_algorithms_are_counted() -> None:
    assert waits(counts_of("allreduce", "recursive_doubling", 16, 1024)) == 4
    assert waits(counts_of("allgather", "ring", 16, 1024)) == 15
    assert waits(counts_of("bcast", "binomial", 16, 1024)) == 4


class ClockedPaths(PathCounter):
    """Paths that keep the clocks of ranks after the last round."""

    clocks: Floats

    def _follow(self, clock: Floats, events: list[Ints | None]) -> Floats:
        self.clocks = clock.copy()
        return super()._follow(clock, events)


@pytest.mark.parametrize("segment", [np.inf, 1000.0])
@pytest.mark.parametrize("n_ranks", [1, 2, 6, 16])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("allreduce", "ring"),
        ("allreduce", "rabenseifner"),
        ("allgather", "bruck"),
        ("alltoall", "linear"),
        ("gather", "linear"),
        ("scatter", "binomial"),
        ("reduce", "binomial"),
    ],
)
def test_terms_of_a_path_times_their_costs_are_the_time_of_the_last_rank(
    kind: str, name: str, n_ranks: int, segment: float
) -> None:
    """A path has every cost for which its ranks wait, and no other one."""
    rank = np.arange(n_ranks)
    layout = RankLayout(rank // 4, rank // 2, rank // 8, 2)
    costs = COSTS * np.random.default_rng(n_ranks).uniform(0.5, 2.0, N_TERMS)
    costs[LOGS] = 0  # No rank waits for this term, which is an effect of all ranks together.
    paths = ClockedPaths(
        round_table(kind, name, (), n_ranks), layout, np.array([8.0, 8e3, 1e6]), costs, segment
    )
    assert np.allclose(paths.counts() @ costs, paths.clocks.max(axis=1), rtol=1e-9)


def test_messages_have_the_link_between_their_ranks() -> None:
    """Of the rounds of recursive doubling, two stay in a domain, and a third one in a node."""
    rank = np.arange(16)
    layout = RankLayout(rank // 8, rank // 4, rank // 8, 1)
    table = round_table("allreduce", "recursive_doubling", (), 16)
    n_bytes = 1000.0
    (counts,) = PathCounter(table, layout, np.array([n_bytes]), COSTS).counts()
    assert [counts[waits_of(link)].sum() for link in range(3)] == [2, 1, 1]
    assert (counts[FAR], counts[GLOBAL]) == (1, n_bytes)
    assert counts[LOGS] == np.log2(16)
    # The other seven ranks of the node send at the same time.
    assert (counts[LANE], counts[MEMORY]) == pytest.approx((7 * n_bytes, 3 * 7 * n_bytes))


def test_sizes_of_nodes_are_what_sums_cost_by() -> None:
    """Four ranks of a node work on four times the bytes of one rank."""
    table = round_table("allreduce", "recursive_doubling", (), 8)
    rank = np.arange(8)
    for per_node in (1, 2, 8):
        layout = RankLayout(rank // per_node, rank // per_node, rank * 0)
        (counts,) = PathCounter(table, layout, np.array([4096.0]), COSTS).counts()
        weights = level_weights(np.array([4096.0 * per_node]))[0]
        assert np.allclose(counts[REDUCTIONS], 3 * 4096 * weights)


def test_bytes_on_the_path_are_those_of_the_algorithm() -> None:
    counts = counts_of("allreduce", "ring", 16, 2**20)
    assert np.isclose(counts[waits_of(NETWORK)] @ np.array(KNOTS), 2 * 15 / 16 * 2**20)
    assert np.isclose(counts[REDUCTIONS].sum(), 15 / 16 * 2**20)


def test_large_numbers_of_rounds_are_scaled() -> None:
    counts = counts_of("allgather", "ring", 1000, 1e6)
    assert np.isclose(waits(counts), 999)
    assert np.isclose(counts[waits_of(NETWORK)] @ np.array(KNOTS), 999 * 1000)


def test_a_linear_scatter_keeps_its_root_busy() -> None:
    counts = counts_of("scatter", "linear", 32, 32 * 1024)
    base = NETWORK * PER_LINK
    assert waits(counts) == 1
    assert counts[base + MESSAGES] == 30
    assert counts[base + BYTES] == 30 * 1024


def test_messages_at_once_share_the_lane_of_their_sender() -> None:
    """All of 36 = 8 + 7 + ... messages precede the last leaf's, not 8 as one after another."""
    one_by_one = counts_of("bcast", "near_binomial", 256, 2**29)
    at_once = counts_of("bcast", "near_binomial", 256, 2**29, at_once=True)
    base = NETWORK * PER_LINK
    assert round(waits(one_by_one) + one_by_one[base + MESSAGES]) == 8
    assert round(waits(at_once) + at_once[base + MESSAGES]) == 36


def test_ranks_of_a_node_share_its_lanes() -> None:
    rank = np.arange(8)
    layout = RankLayout(rank // 4, rank // 4, rank // 4, 2)
    table = round_table("allreduce", "recursive_doubling", (), 8)
    counts = PathCounter(table, layout, np.array([1000.0]), COSTS).counts()[0]
    assert np.isclose(counts[LANE], 3 * 1000 / 2)
    assert waits(counts) == 1


def test_segments_wait_one_by_one_and_hide_reductions() -> None:
    table = round_table("allreduce", "recursive_doubling", (), 2)
    whole, cut = (
        PathCounter(table, spread(2), np.array([8000.0]), COSTS, segment).counts()[0]
        for segment in (np.inf, 1000.0)
    )
    assert waits(cut) - waits(whole) == 7
    assert cut[REDUCTIONS].sum() < whole[REDUCTIONS].sum()


def test_every_name_leads_to_an_algorithm() -> None:
    table = names_table()
    for collective, rows in table["algorithms"].items():
        for stem in rows:
            for n_ranks in (6, 7, 8, 4096):
                found = algorithm_of(point(stem, n_ranks, collective=collective))
                assert found is not None, (collective, stem, n_ranks)
                assert registry.find(found.kind, found.name).refusal(n_ranks, True) is None


def test_names_are_without_who_runs_them() -> None:
    assert stem_of("recursive_doubling_mpich") == ("recursive_doubling", float("inf"))
    assert algorithm_of(point("made_up_ompi")) is None
    assert algorithm_of(point("6", collective="bcast")).name == "near_binomial"  # type: ignore[union-attr]


@pytest.mark.parametrize("library", ["ompi", "cray_mpich", "unknown"])
def test_defaults_are_what_rules_of_libraries_say(library: str) -> None:
    short, long = (
        algorithm_of(point("default_x", 16, n_bytes, library=library)) for n_bytes in (8, 2**26)
    )
    assert short is not None
    assert long is not None
    assert short.name != long.name


def test_copies_and_split_blocks_are_added() -> None:
    plain, permuted, split = (
        count_terms([point(name, collective="allgather")], {"leonardo": COSTS})[0]
        for name in ("bine_send_remap_over", "bine_permute_remap_over", "bine_block_by_block_over")
    )
    assert permuted[COPIES].sum() - plain[COPIES].sum() == pytest.approx(4096)
    base = NETWORK * PER_LINK
    assert split[base + MESSAGES] == plain[base + MESSAGES] + SPLIT * 7


def synthetic(factor: float, seed: int = 0, noise: float = 0.05) -> CountedPoints:
    """Return points of several jobs whose times have known costs."""
    points = [
        point(name, n_ranks, 8**power, job=f"{n_ranks}")
        for name in ("ring_ompi", "recursive_doubling_ompi", "rabenseifner_ompi", "bine_bdw_over")
        for n_ranks in (4, 8, 16, 32, 64)
        for power in range(3, 9)
        for _ in range(3)
    ]
    counted = CountedPoints.of(points)
    truth = counted.starts.copy()
    truth[:, waits_of(NETWORK)] *= factor
    times = (counted.counts * truth).sum(axis=1) * 1e-9
    times *= np.exp(noise * np.random.default_rng(seed).normal(size=len(times)))
    made = [
        point(one.algorithm, one.layout.n_ranks, one.n_bytes, job=one.job, seconds=float(seconds))
        for one, seconds in zip(counted.points, times, strict=True)
    ]
    return CountedPoints(made, counted.counts, counted.starts, counted.features)


def test_known_costs_are_found_again() -> None:
    counted = synthetic(3.0)
    found = fit_costs(counted.counts, counted.seconds, counted.starts, np.zeros(N_TERMS))
    modeled = (counted.counts * counted.starts * np.exp(found.logs)).sum(axis=1) * 1e-9
    assert np.median(np.abs(modeled / counted.seconds - 1)) < 0.12
    short = waits_of(NETWORK).start + 3
    assert found.is_determined[short]
    assert np.exp(found.logs[short]) == pytest.approx(3.0, rel=0.25)


def test_costs_without_data_keep_their_starts_and_are_marked() -> None:
    counted = synthetic(3.0)
    found = fit_costs(counted.counts, counted.seconds, counted.starts, np.zeros(N_TERMS))
    numa = waits_of(0)
    assert np.allclose(found.logs[numa], 0)
    assert not found.is_determined[numa].any()


def test_outliers_do_not_move_the_fit() -> None:
    counted = synthetic(1.0, noise=0.0)
    seconds = counted.seconds
    seconds[::10] *= 10
    found = fit_costs(counted.counts, seconds, counted.starts, np.zeros(N_TERMS))
    modeled = (counted.counts * counted.starts * np.exp(found.logs)).sum(axis=1) * 1e-9
    assert np.median(np.abs(modeled / counted.seconds - 1)) < 0.1


def test_the_correction_learns_an_algorithm_and_shrinks_to_none() -> None:
    counted = synthetic(1.0)
    is_ring = np.char.startswith(counted.features.names["algorithm"], "ring")
    learned = Correction(counted.features, np.where(is_ring, 0.5, 0.0))
    mean, _ = learned.predict(counted.features)
    assert mean[is_ring].mean() == pytest.approx(0.5, abs=0.1)
    assert abs(mean[~is_ring].mean()) < 0.1
    stranger = Features([point("linear", system="lumi", collective="gather", library="mpich")])
    far, spread_of = learned.predict(stranger)
    assert abs(far[0]) < abs(mean[is_ring]).mean()
    assert spread_of[0] > 0.3


def test_covariances_are_symmetric_and_positive() -> None:
    features = synthetic(1.0).features
    found = covariance(features, features, EFFECTS)
    assert np.allclose(found, found.T)
    assert np.linalg.eigvalsh(found).min() > -1e-9


def test_left_out_jobs_are_predicted_with_honest_intervals() -> None:
    counted = synthetic(3.0, noise=0.1)
    held, predicted = predict_splits(counted, leave_jobs_out(counted))
    found = score(held, predicted)
    assert found.time_error_median < 0.2
    assert found.coverage_90 > 0.85
    assert found.points == len(counted.points)
    assert (predicted.low < predicted.seconds).all()
    assert (predicted.seconds < predicted.high).all()


def test_unknown_systems_are_predicted_with_what_others_taught() -> None:
    model = ClusterModel(synthetic(3.0))
    points = [point(system="marenostrum5", n_ranks=n, seconds=1.0) for n in (4, 16)]
    (before, after) = (
        one.predict(CountedPoints.of(points)).seconds
        for one in (ClusterModel(synthetic(3.0), is_fitted=False, effects=()), model)
    )
    assert (after > 1.5 * before).all()


def test_losses_compare_the_named_algorithms_of_a_case() -> None:
    points = [
        point("ring_ompi", seconds=2.0),
        point("rabenseifner_ompi", seconds=1.0),
        point("default_ompi", seconds=0.5),
    ]
    shared = points[0].layout
    points = [point(one.algorithm, seconds=one.seconds, layout=shared) for one in points]
    counted = CountedPoints.of(points)
    assert losses_of(counted, np.array([1.0, 2.0, 0.1])).tolist() == [2.0]
    assert losses_of(counted, np.array([2.0, 1.0, 9.0])).tolist() == [1.0]


def test_round_trips_count_one_message() -> None:
    one = point("ping-pong", 2, 8, collective=LATENCY, mapping="node")
    (counts,) = count_terms([one], {"leonardo": COSTS})
    assert counts.sum() == counts[waits_of(1)].sum() == 1
    assert counts[waits_of(1)].argmax() == N_KNOTS * 0 + 1


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([point()], "has 1 usable points; a fit needs 8 or more"),
        ([point()] * 9, "all 9 times are 1e-05 s"),
    ],
)
def test_fits_need_points_that_differ(points: list[MeasuredPoint], message: str) -> None:
    with pytest.raises(MeasurementError, match=message):
        require_enough(points, "file")


def test_eight_points_are_enough() -> None:
    points = [point(seconds=1e-5 * (1 + place)) for place in range(8)]
    require_enough(points, "file")
    with pytest.raises(MeasurementError, match="has 7 usable points"):
        require_enough(points[:-1], "file")


@pytest.mark.parametrize(
    ("text", "unit_s", "seconds"),
    [
        ("0.05", 1e-6, 5e-8),
        ("10000", 1.0, 1e4),
        ("0.04", 1e-6, None),
        ("10001", 1.0, None),
        ("0", 1e-6, None),
        ("-1", 1.0, None),
        ("inf", 1.0, None),
        ("nan", 1.0, None),
        ("x", 1.0, None),
    ],
)
def test_times_of_files_are_possible_ones(text: str, unit_s: float, seconds: float | None) -> None:
    if seconds is not None:
        assert require_seconds(text, unit_s, "file:3", "time") == pytest.approx(seconds)
        return
    with pytest.raises(MeasurementError, match=rf"^file:3: time is '{text}'"):
        require_seconds(text, unit_s, "file:3", "time")


def test_numbers_of_files_have_a_least_value() -> None:
    assert require_integer("3", "file:3", "ranks", 3) == 3
    for text in ("2", "3.0", "many"):
        with pytest.raises(
            MeasurementError, match=f"ranks is '{text}'; give an integer of at least 3"
        ):
            require_integer(text, "file:3", "ranks", 3)


def test_points_are_choices_and_cases_by_what_they_name() -> None:
    layout = RankLayout(np.array([0, 0, 0, 2, 2]), *np.zeros((2, 5), dtype=np.int64))
    one = point(layout=layout, mapping="by node")
    assert (layout.n_ranks, layout.per_node, layout.n_nodes) == (5, 3, 2)
    assert one.case == ("leonardo", "a", "by node", "allreduce", 2, 5, 4096)
    assert one.is_choice
    assert not point("default_ompi").is_choice
    assert not point("ping-pong", collective=LATENCY).is_choice


def test_scores_are_shares_of_points_and_of_cases() -> None:
    """Of two cases, one choice is the best and one takes twice the time of the best."""
    layout = spread(8)
    times = {8: (1.0, 2.0), 64: (2.0, 1.0)}
    points = [
        point(name, n_bytes=n_bytes, seconds=seconds, layout=layout)
        for n_bytes, pair in times.items()
        for name, seconds in zip(("ring_ompi", "rabenseifner_ompi"), pair, strict=True)
    ]
    seconds = np.array([1.5, 3.0, 2.0, 3.0])
    found = score(CountedPoints.of(points), Prediction(seconds, seconds - 0.5, seconds + 0.5))
    assert (found.points, found.cases) == (4, 2)
    assert found.time_error_median == pytest.approx(0.5)
    assert found.time_error_p90 == pytest.approx(np.quantile([0.0, 0.5, 0.5, 2.0], 0.9))
    assert found.within_10 == 0.5
    assert found.loss_p90 == pytest.approx(1.9)
    assert found.coverage_90 == 0.5  # The end of an interval is part of it.


def test_parts_hold_each_job_once() -> None:
    counted = synthetic(1.0)
    for n_parts, expected in ((2, 2), (5, 5), (99, 5)):
        splits = leave_parts_out(counted, n_parts)
        assert len(splits) == expected
        held = np.concatenate([rows for _, rows in splits])
        assert sorted(held) == list(range(len(counted.points)))
        for fitted, rows in splits:
            jobs = [{counted.points[row].job for row in some} for some in (fitted, rows)]
            assert not jobs[0] & jobs[1]


def test_formats_are_told_apart(tmp_path: Path) -> None:
    osu = tmp_path / "osu.txt"
    lines = [f"{2**power} {1 + power / 10:.1f}" for power in range(10)]
    osu.write_text("\n".join(["# OSU MPI Bcast Latency Test v7.3", *lines]))
    machine = Machine.model_validate({"nodes": 4})
    found = read_points([osu], machine=machine)
    assert {one.collective for one in found.points} == {"bcast"}
    assert found.points[0].layout.n_ranks == 4
    with pytest.raises(MeasurementError, match="give the machine by --machine"):
        read_points([osu])
    with pytest.raises(MeasurementError, match=r"no\.csv"):
        read_points([tmp_path / "no.csv"])
