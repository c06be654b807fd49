"""T(S) = a + c sqrt(S) + S/B: known parameters are recovered, and unidentifiable ones are rejected with a reason."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import collective_cell, make_campaign
from typed import call_cells, cell_row

from regatta.store.csv_files import MEASUREMENTS, make_table, to_csv
from regatta.tables.latency_model import COMMUNICATION_MODELS, communication_models_table, fit_sum, refit, wider

A, C, B = 20e-6, 2e-8, 10e9  # 20 us, 20 ns per sqrt(byte), 10 GB/s
SIZES = [8 * 8**i for i in range(10)]  # 8 B to 1 GiB


def seconds(num_bytes, a=A, c=C, b=B):
    return a + c * math.sqrt(num_bytes) + num_bytes / b


def models(times, repeats=1, **more):
    """times: bytes -> seconds of its launches, or of all of them."""
    cells, rows = [], []
    for num_bytes, values in times.items():
        cells.append(collective_cell(num_bytes, 1, 4, **more))
        for repeat, value in enumerate(values if isinstance(values, list) else [values] * repeats):
            row = cell_row(cells[-1]) | {"repeat": repeat, "status": "failed" if value is None else "ok"}
            rows.append(row | {"p50_s": value})
    measurements = make_table(rows, MEASUREMENTS)
    return communication_models_table(call_cells(make_campaign(cells), measurements), measurements)


def model(times, repeats=1, **more):
    table = models(times, repeats, **more).astype(object)
    [row] = table.where(table.notna(), None).to_dict("records")
    return row


FITTED = [
    name for name in COMMUNICATION_MODELS if name.startswith(("latency", "sqrt", "bandwidth", "half", "max_r", "rms"))
]


def is_refused(row):
    return row["refusal"] is not None and all(row[name] is None for name in (*FITTED, "interval", "left_out"))


def test_the_parameters_of_exact_times_come_back():
    row = model({size: seconds(size) for size in SIZES})
    assert row["latency_a_s"] == pytest.approx(A, rel=1e-6)
    assert row["sqrt_c_s_per_sqrt_byte"] == pytest.approx(C, rel=1e-6)
    assert row["bandwidth_b_gb_per_s"] == pytest.approx(10, rel=1e-6)
    assert (row["num_sizes"], row["min_bytes"], row["max_bytes"], row["num_launches"]) == (10, 8, 2**30, 1)
    assert (row["operation"], row["algorithm"], row["dtype"], row["world_size"]) == ("all_reduce", "torch", "fp32", 4)
    assert row["max_residual_ratio"] == pytest.approx(0, abs=1e-6)
    assert row["interval"] == "residuals"
    assert row["left_out"] is row["refusal"] is None


def test_a_square_root_that_is_not_needed_is_left_out_and_said():
    row = model({size: seconds(size, c=0) for size in SIZES})
    assert (row["latency_a_s"], row["bandwidth_b_gb_per_s"]) == pytest.approx((A, 10), rel=1e-6)
    assert row["sqrt_c_s_per_sqrt_byte"] is row["sqrt_c_low_s_per_sqrt_byte"] is None
    assert row["left_out"].startswith("c: does not")
    assert row["half_bandwidth_bytes"] == pytest.approx(200_000)  # a B = 20 us x 10 GB/s


def test_half_of_the_bandwidth_is_reached_where_the_other_terms_take_as_long_as_the_last():
    row = model({size: seconds(size, c=1e-7) for size in SIZES})
    half = row["half_bandwidth_bytes"]
    assert half / 10e9 == pytest.approx(20e-6 + 1e-7 * math.sqrt(half))
    # x = sqrt(S): x^2 - 1000 x - 200,000 = 0, so x = 500 + sqrt(450,000) = 1170.8 and S = 1,370,820.
    assert half == pytest.approx(1_370_820, rel=1e-5)


def documented_half_bandwidth(a, c, b):
    """Evaluate the published definition of half_bandwidth_bytes."""
    text = (Path(__file__).resolve().parents[2] / "workflow" / "schemas" / "published" / "columns.csv").read_text(
        encoding="utf-8"
    )
    formula = re.search(r"at which S/T is B/2: (.*?)[;.] ", text)[1].replace("²", "**2").replace("√", "math.sqrt")
    formula = re.sub(r"(?<=\d)(?=[aB])|(?<=[\w)]) (?=[(aBc])", " * ", formula)
    return eval(formula, {"math": math, "a": a, "B": b, "c": c})


@pytest.mark.parametrize("c", [0, 1e-7])
def test_the_documented_formula_of_the_half_bandwidth_size_is_the_one_computed(c):
    row = model({size: seconds(size, c=c) for size in SIZES})
    assert row["half_bandwidth_bytes"] == pytest.approx(documented_half_bandwidth(A, c, B), rel=1e-4)


def test_one_size_in_ten_that_is_far_off_does_not_bend_the_fit():
    times = {size: seconds(size, c=0) for size in SIZES} | {64: 5 * seconds(64)}
    row = model(times)
    assert (row["latency_a_s"], row["bandwidth_b_gb_per_s"]) == pytest.approx((A, 10), rel=0.1)
    assert row["max_residual_ratio"] == pytest.approx(4, rel=0.1)  # and it is reported


def test_two_sizes_in_ten_that_are_far_off_are_too_many():
    times = {size: seconds(size, c=0) for size in SIZES} | {64: 1.6 * seconds(64), 2**24: 0.6 * seconds(2**24, c=0)}
    row = model(times)
    assert is_refused(row)
    assert row["refusal"].startswith("2 of 10")


def test_a_square_root_that_launches_disagree_on_is_left_out():
    row = model({size: [seconds(size, c=3.8e-8), seconds(size, c=2e-9)] for size in SIZES})
    assert row["sqrt_c_s_per_sqrt_byte"] is None
    assert row["left_out"].startswith("c: interval spans")
    assert (row["latency_a_s"], row["bandwidth_b_gb_per_s"]) == pytest.approx((A, 10), rel=0.2)


def test_five_points_are_too_few_for_the_criterion_of_three_terms():
    sizes = np.array(SIZES[::2], dtype=float)
    terms = np.stack([np.ones(5), np.sqrt(sizes), sizes], axis=1)
    values = A + sizes / B
    # N ln(variance) + 2 k + 2 k (k+1) / (N-k-1) with N = 5, k = 2 terms + 1, and a variance of 1e-6 at least.
    assert fit_sum(terms[:, [0, 2]], values).aicc == pytest.approx(5 * math.log(1e-6) + 6 + 24)
    assert fit_sum(terms, values).aicc == math.inf


def test_noisy_launches_give_an_interval_that_holds_the_truth():
    rng = np.random.default_rng(3)
    times = {size: [seconds(size) * rng.lognormal(0, 0.03) for _ in range(6)] for size in SIZES}
    row = model(times)
    assert row["interval"] in ("interval", "residuals")  # the wider
    assert 0.9 * A < row["latency_a_low_s"] < A < row["latency_a_high_s"] < 1.1 * A
    assert 9 < row["bandwidth_b_low_gb_per_s"] < 10 < row["bandwidth_b_high_gb_per_s"] < 11
    assert 0.001 < row["rms_log_residual"] < row["max_residual_ratio"] < 0.1


def test_fewer_than_six_launches_give_the_range_of_their_fits():
    # Three launches, the second 10 % slower and the third 10 % faster at every size: all parameters follow.
    row = model({size: [seconds(size, c=0) * k for k in (1, 1.1, 0.9)] for size in SIZES})
    assert (row["interval"], row["num_launches"]) == ("range", 3)
    assert (row["latency_a_low_s"], row["latency_a_high_s"]) == pytest.approx((0.9 * A, 1.1 * A))
    ends = (row["bandwidth_b_low_gb_per_s"], row["bandwidth_b_high_gb_per_s"])
    assert ends == pytest.approx((10 / 1.1, 10 / 0.9))


def test_a_launch_that_misses_a_size_counts_in_the_medians_only():
    times = {size: [seconds(size, c=0)] * 3 for size in SIZES}
    times[SIZES[4]] = [seconds(SIZES[4], c=0), None, seconds(SIZES[4], c=0)]
    row = model(times)
    assert (row["num_launches"], row["interval"]) == (2, "range")


def test_launches_are_fitted_as_a_fit_of_their_own_would():
    rng = np.random.default_rng(5)
    sizes = np.array(SIZES, dtype=float)
    terms = np.stack([np.ones(10), np.sqrt(sizes), sizes], axis=1)
    values = np.array([seconds(size) for size in SIZES])
    launches = values * rng.lognormal(0, 0.02, (20, 10))
    fast = refit(fit_sum(terms, values), values, launches)
    slow = np.array([fit_sum(terms, launch).parameters for launch in launches])
    spread = slow.std(axis=0)
    assert (abs(fast - slow) < 0.25 * spread).all()
    assert fast.std(axis=0) == pytest.approx(spread, rel=0.1)


def test_values_that_stay_as_they_are_keep_the_parameters_of_the_robust_fit():
    terms = np.stack([np.ones(10), np.array(SIZES, dtype=float)], axis=1)
    values = np.array([seconds(size, c=0) for size in SIZES]) * np.array([1, 1.05, 0.9, 1.1, 1, 2, 0.97, 1, 1.04, 0.95])
    fit = fit_sum(terms, values)
    assert refit(fit, values, values[None])[0] == pytest.approx(fit.parameters, rel=1e-6)


def test_a_term_that_ended_at_zero_stays_there_for_values_that_ask_for_less_than_zero():
    terms, values = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 0.98, 0.96])
    fit = fit_sum(terms, values)
    assert fit.parameters[1] == 0
    others = values * np.array([[1, 1, 1.01], [1, 1, 1.1]])  # falling by 3 % instead of 4 %, and rising by 6 %
    slopes = refit(fit, values, others)[:, 1]
    assert slopes[0] == 0
    assert slopes[1] == pytest.approx(0.03, abs=0.002)


def test_a_term_below_zero_becomes_zero_and_the_others_make_up_for_it():
    terms = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    values = np.array([2.0, 2.0, 2.0])
    # Without the limit the line through 3, 2, 1 falls by 1 a step; the best level is then the mean.
    assert refit(fit_sum(terms, values), values, np.array([[3.0, 2.0, 1.0]]))[0] == pytest.approx([2, 0])


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([1024 * 16**i for i in range(4)], "4 sizes measured; a fit needs 5"),
        ([1024 * 2**i for i in range(7)], "largest / smallest size is 64.0; a fit needs at least 100"),
    ],
)
def test_too_few_or_too_narrow_sizes_are_refused(sizes, words):
    row = model({size: seconds(size) for size in sizes})
    assert is_refused(row)
    assert row["refusal"] == words
    assert row["num_sizes"] == len(sizes)


def test_times_that_follow_another_law_are_refused_with_the_worst_size():
    # A protocol that changes at 32 KiB: 200 us from there on instead of 20 us.
    times = {size: 20e-6 if size < 2**15 else 200e-6 + size / 10e9 for size in SIZES}
    row = model(times)
    assert is_refused(row)
    assert "sizes deviate" in row["refusal"]


def test_a_bandwidth_that_no_message_comes_near_is_left_out():
    row = model({size: seconds(size, a=1e-3, c=0) for size in SIZES[:8]})  # to 16 MiB: 1.68 of 2.68 ms
    assert row["bandwidth_b_gb_per_s"] == pytest.approx(10, rel=1e-5)
    row = model({size: seconds(size, a=1e-2, c=0) for size in SIZES[:8]})  # 1.68 of 11.7 ms
    assert row["bandwidth_b_gb_per_s"] is row["half_bandwidth_bytes"] is None
    assert row["latency_a_s"] == pytest.approx(1e-2)
    assert "bandwidth: not identifiable" in row["left_out"]


def test_a_latency_that_all_messages_hide_is_left_out():
    row = model({size: seconds(size, c=0) for size in SIZES[6:]} | {2**29: seconds(2**29, c=0)})  # from 2 MiB
    assert row["latency_a_s"] is row["latency_a_low_s"] is None
    assert row["bandwidth_b_gb_per_s"] == pytest.approx(10)
    assert "latency: not identifiable" in row["left_out"]


def test_a_parameter_that_launches_disagree_on_is_left_out():
    # Two launches agree on long messages; one takes four times as long for short ones. The fit is of their mean.
    row = model({size: [seconds(size, c=0), seconds(size, a=4 * A, c=0)] for size in SIZES})
    assert row["latency_a_s"] is None
    assert "latency: interval" in row["left_out"]
    assert row["bandwidth_b_gb_per_s"] == pytest.approx(10, rel=0.02)


def test_where_nothing_is_identifiable_the_fit_is_rejected():
    row = model({size: math.sqrt(size) * 1e-6 for size in SIZES})
    assert is_refused(row)
    assert row["refusal"].startswith("latency and bandwidth")


def test_operations_algorithms_and_stacks_have_fits_of_their_own_and_a_barrier_has_none():
    cells = [collective_cell(size, 1, 2, operation) for operation in ("all_reduce", "all_gather") for size in SIZES]
    cells += [collective_cell(None, 1, 2, "barrier"), collective_cell(8, 1, 2, algorithm="ring")]
    rows = [cell_row(cell) | {"repeat": 0, "status": "ok", "p50_s": 1e-5} for cell in cells]
    rows = [row | {"p50_s": seconds(row["message_bytes"] or 8)} for row in rows]
    measurements = make_table(rows, MEASUREMENTS)
    table = communication_models_table(call_cells(make_campaign(cells), measurements), measurements)
    keys = sorted(zip(table["operation"], table["algorithm"].fillna("-"), table["num_sizes"], strict=True))
    assert keys == [("all_gather", "-", 10), ("all_reduce", "ring", 1), ("all_reduce", "torch", 10)]


def test_sizes_that_were_not_measured_and_a_campaign_without_collectives():
    row = model(dict.fromkeys(SIZES))
    assert is_refused(row)
    assert row["num_sizes"] == 0
    assert row["min_bytes"] is None
    empty = communication_models_table(
        call_cells(make_campaign([]), make_table([], MEASUREMENTS)), make_table([], MEASUREMENTS)
    )
    assert empty.empty
    assert list(empty) == list(COMMUNICATION_MODELS)


def test_the_same_launches_give_the_same_bytes():
    rng = np.random.default_rng(7)
    times = {size: [seconds(size) * rng.lognormal(0, 0.03) for _ in range(7)] for size in SIZES}
    assert to_csv(models(times)) == to_csv(models(times))


@settings(max_examples=25)
@given(st.floats(1e-6, 1e-3), st.floats(1e9, 1e12), st.floats(0.01, 100))
def test_a_machine_that_is_slower_by_a_factor_has_parameters_slower_by_it(a, b, factor):
    rng = np.random.default_rng(11)
    noise = rng.lognormal(0, 0.02, len(SIZES))
    sizes = np.array(SIZES, dtype=float)
    terms = np.stack([np.ones(10), sizes], axis=1)
    values = (a + sizes / b) * noise
    fit, slower = fit_sum(terms, values), fit_sum(terms, values * factor)
    assert slower.parameters == pytest.approx(fit.parameters * factor, rel=1e-5)
    assert slower.log_residuals == pytest.approx(fit.log_residuals, abs=1e-6)


def test_the_wider_of_two_spreads_says_which_it_is():
    def interval_of(launches, residuals):
        low, high, is_of_launches = wider(*((np.array(low), np.array(high)) for low, high in (launches, residuals)))
        return low.tolist(), high.tolist(), is_of_launches

    assert interval_of(([8.0], [12.0]), ([9.0], [11.0])) == ([8.0], [12.0], True)
    assert interval_of(([8.0], [12.0]), ([9.0], [13.0])) == ([8.0], [13.0], False)  # one end suffices
    assert interval_of(([0.0], [1.0]), ([-5.0], [1.0])) == ([0.0], [1.0], True)  # below 0 is nothing
