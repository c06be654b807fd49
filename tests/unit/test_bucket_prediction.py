"""Best buckets, measured and predicted: sqrt(s w o) computed by hand, and the reason if there is no prediction."""

import pytest
from synthetic import collective_cell, make_campaign, train_cell
from typed import cell_row, collectives_table, scaling_table, strategies_table

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.topics.buckets import BUCKETS, MIB, best_bucket_bytes, buckets_table
from regatta.topics.fits.collectives import communication_models_table
from regatta.topics.settings import settings_table

GRADIENTS = 10**8  # 100 MB
CALL_S, BYTES_PER_S = 1e-4, 1e10  # so the best bucket is sqrt(1e8 x 1e10 x 1e-4) = 1e7 B
BEST_MIB = 10**7 / 2**20  # 9.54


def reduces(call_s=CALL_S, bytes_per_s=BYTES_PER_S, **more):
    """Return (cell, columns of its launches) of all-reduces from 64 B to 1 GiB."""
    sizes = [64 * 16**i for i in range(7)]
    return [(collective_cell(s, 1, 4, **more), [{"p50_s": call_s + s / bytes_per_s}]) for s in sizes]


def buckets(steps, strategy="ddp", num_bytes=GRADIENTS, calls=None, communication_s=None, **more):
    """Return (cell, columns) of a step for each bucket size. steps: MiB -> seconds of its launches."""
    found = []
    for bucket, launches in steps.items():
        columns = {"gradient_bytes": num_bytes}
        if calls:
            columns |= {"num_calls": calls[bucket], "communication_s": communication_s(calls[bucket])}
        cell = train_cell("resnet50", 1, 4, strategy, bucket, **more)
        found.append((cell, [columns | {"window_step_s": step} for step in launches]))
    return found


def rows_of(*cells_and_launches):
    rows = [
        cell_row(cell) | {"repeat": repeat, "status": "ok"} | columns
        for cell, launches in cells_and_launches
        for repeat, columns in enumerate(launches)
    ]
    campaign = make_campaign([cell for cell, _ in cells_and_launches])
    measurements = make_table(rows, MEASUREMENTS)
    collectives, scaling = collectives_table(campaign, measurements), scaling_table(campaign, measurements)
    models, settings = (
        communication_models_table(collectives, measurements),
        settings_table(scaling, collectives, measurements),
    )
    table = buckets_table(scaling, strategies_table(campaign, measurements), models, settings)
    table = table.astype(object)
    return table.where(table.notna(), None).to_dict("records")


THREE = {1: [0.150, 0.152], 10: [0.100, 0.102], 25: [0.101, 0.104]}


def test_the_best_bucket_costs_as_much_in_calls_as_in_its_last_one():
    best = best_bucket_bytes(GRADIENTS, BYTES_PER_S, CALL_S)
    assert best == pytest.approx(10**7)

    def overhead(bucket):
        return GRADIENTS / bucket * CALL_S + bucket / BYTES_PER_S

    assert overhead(best) == pytest.approx(0.002)  # 10 calls of 0.1 ms, and 1 ms for the last bucket
    assert overhead(best) < min(overhead(0.99 * best), overhead(1.01 * best))


def test_a_bucket_is_never_larger_than_all_gradients():
    assert best_bucket_bytes(10**4, BYTES_PER_S, CALL_S) == 10**4  # and not 1e5


def test_the_prediction_comes_from_the_all_reduces_of_the_same_place():
    [row] = rows_of(*buckets(THREE), *reduces())
    assert row["source"] == "all_reduce"
    assert (row["bandwidth_w_gb_per_s"], row["call_o_s"]) == pytest.approx((10, CALL_S))
    assert row["predicted_bucket_mib"] == pytest.approx(BEST_MIB) == pytest.approx(9.5367, abs=1e-4)
    assert row["predicted_low_mib"] == pytest.approx(BEST_MIB, rel=1e-3)
    assert row["gradient_bytes"] == GRADIENTS
    assert row["reason"] is None
    assert (row["model"], row["strategy"], row["world_size"], row["stack"]) == ("resnet50", "ddp", 4, "host")


def test_bucket_cap_mb_is_in_mib():
    assert MIB == 1_048_576  # torch/nn/parallel/distributed.py: bucket_cap_mb * 1024 * 1024
    # 1024 x 0.1 MiB of gradients at a MiB/s and 10 MiB-seconds a call: sqrt(102.4 x 1 x 0.976) MiB = 10 MiB.
    assert best_bucket_bytes(100 * MIB, MIB, 1.0) == 10 * MIB
    [row] = rows_of(*buckets({1: [0.2, 0.21], 10: [0.1, 0.11]}, num_bytes=100 * MIB), *reduces(1e-3, 1000 * MIB))
    assert row["predicted_bucket_mib"] == pytest.approx(10)
    assert row["predicted_to_best_ratio"] == pytest.approx(1)


def test_the_best_is_the_fastest_and_those_that_may_be_the_best_too_are_named():
    [row] = rows_of(*buckets(THREE), *reduces())
    assert (row["num_buckets"], row["best_bucket_cap_mb"], row["best_step_s"]) == (
        3,
        10,
        pytest.approx(0.1 * 1.02**0.5),
    )
    assert row["indistinguishable_mb"] == "25"  # 2 % slower; 1 MiB is 50 % slower
    assert row["predicted_to_best_ratio"] == pytest.approx(BEST_MIB / 10)


def test_where_no_other_may_be_the_best_that_is_said_and_one_launch_cannot_tell():
    [row] = rows_of(*buckets({1: [0.2, 0.21], 10: [0.1, 0.11]}))
    assert row["indistinguishable_mb"] == "none"
    [row] = rows_of(*buckets({1: [0.2], 10: [0.1]}))
    assert (row["best_bucket_cap_mb"], row["indistinguishable_mb"]) == (10, None)


def test_one_bucket_size_is_the_best_of_nothing():
    [row] = rows_of(*buckets({25: [0.1, 0.11]}), *reduces())
    assert (row["num_buckets"], row["best_bucket_cap_mb"], row["predicted_to_best_ratio"]) == (1, None, None)
    assert row["predicted_bucket_mib"] == pytest.approx(BEST_MIB)


def test_without_all_reduces_strategy_bucketed_gives_the_cost():
    # communication_s = 0.1 ms x calls + 10 ms: o = 0.1 ms, w = 100 MB / 10 ms = 10 GB/s.
    calls = {1: 96, 10: 10, 25: 4}
    own = buckets(THREE, "bucketed", calls=calls, communication_s=lambda num: 1e-4 * num + 0.01)
    ddp = buckets(THREE, gradient_as_bucket_view=True)
    for row in rows_of(*own, *ddp):
        assert row["source"] == "bucketed"
        assert (row["bandwidth_w_gb_per_s"], row["call_o_s"]) == pytest.approx((10, CALL_S))
        assert row["predicted_bucket_mib"] == pytest.approx(BEST_MIB)
        assert row["predicted_low_mib"] is row["predicted_high_mib"] is None
    assert {row["strategy"] for row in rows_of(*own, *ddp)} == {"bucketed", "ddp"}


def reason(*cells):
    [row] = rows_of(*cells)
    assert row["predicted_bucket_mib"] is row["source"] is row["call_o_s"] is row["predicted_to_best_ratio"] is None
    return row["reason"]


NO_LINE = "strategy bucketed was measured with 0 bucket sizes; a fit needs 3"


def test_without_either_there_is_a_reason():
    none = reason(*buckets(THREE))
    assert none.startswith("no fp32 all_reduce")
    assert none.endswith(f"; {NO_LINE}")
    for elsewhere in ({"stack": "other"}, {"dtype": "bf16"}, {"algorithm": "ring"}):
        assert reason(*buckets(THREE), *reduces(**elsewhere)) == none
    refused = "no all_reduce model (3 sizes measured; a fit needs 5); "
    assert reason(*buckets(THREE), *reduces()[:3]) == refused + NO_LINE
    half = reason(*buckets(THREE), *reduces(bytes_per_s=1e14))  # 10.7 of 110.7 us at 1 GiB
    assert "bandwidth: not identifiable" in half


@pytest.mark.parametrize(
    ("communication_s", "words"),
    [
        (lambda num: 0.02 - 1e-4 * num, "0 or less"),
        (lambda num: 1e-4 * num - 2e-4, "0 or less"),
        (lambda num: {96: 0.02, 10: 0.01, 4: 0.03}[num], "0 or less"),
        (lambda num: {96: 0.03, 10: 0.01, 4: 0.02}[num], "is off by"),
    ],
)
def test_a_cost_that_is_no_rising_line_gives_no_prediction(communication_s, words):
    own = buckets(THREE, "bucketed", calls={1: 96, 10: 10, 25: 4}, communication_s=communication_s)
    assert words in reason(*own)


def test_two_own_bucket_sizes_are_too_few_for_a_line():
    steps, calls = {1: [0.1], 10: [0.1]}, {1: 96, 10: 10}
    own = buckets(steps, "bucketed", calls=calls, communication_s=lambda num: 1e-4 * num + 0.01)
    assert "2 bucket sizes" in reason(*own)


def test_unknown_gradients_and_compressed_ones_give_no_prediction():
    assert reason(*buckets(THREE, num_bytes=None), *reduces()) == "gradient size unknown"
    cells = buckets(THREE)
    for cell, _ in cells:
        cell["spec"]["parameters"]["compression"] = "bf16"
    assert reason(*cells, *reduces()).startswith("gradients are compressed")


def test_one_rank_and_strategies_without_buckets_have_no_row():
    cells = [train_cell("resnet50", 1, 1, "ddp"), train_cell("resnet50", 1, 4, "flat", None)]
    assert rows_of(*((cell, [{"window_step_s": 0.1}]) for cell in cells)) == []


def test_buckets_that_were_never_measured_have_a_row_of_unknowns():
    [row] = rows_of(*buckets({1: [], 25: []}))
    assert (row["num_buckets"], row["best_bucket_cap_mb"]) == (0, None)
    assert row["reason"] == "gradient size unknown"
    assert list(row) == list(BUCKETS)
