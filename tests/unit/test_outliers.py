"""Outliers: iterations beyond the outer fence of their record, their number and cost."""

import numpy as np
import pytest
from synthetic import analyse, edit_launches, make_campaign, report_data
from synthetic_waits import write_waits
from typed import collect

from regatta.core.statistics import outer_fences
from regatta.store.csv_files import MEASUREMENTS, OUTLIERS, WAITS, make_table, read_csv, write_csv
from regatta.store.frozen_files import read_frozen
from regatta.topics.stragglers.straggler_section import findings, straggler_hosts_table, stragglers_table
from regatta.topics.stragglers.waits import (
    COMPUTE,
    HOST_WAIT,
    IN_COLLECTIVE,
    OF_LAUNCH,
    Waits,
    outliers_of,
    rows_of_json,
)


def times_of(num_ranks, column, num=20, at=7, usual=100):
    """Return times (ranks, iterations), from two below `usual` to two above it, but `column` in iteration `at`."""
    times = np.tile(np.array([-2, -1, 0, 1, 2]) + usual, (num_ranks, num // 5 + 1))[:, :num]
    times[:, at] = column
    return times


def test_an_outlier_lies_beyond_the_upper_outer_fence_of_its_record():
    # The quartiles are 100 and 104, so the upper fence is 104 + 3 x 4 = 116, and the median 104.
    times = np.array([[100, 104] * 10 + [116, 117]])
    assert outer_fences(times[0]) == (88, 116)
    assert outliers_of(COMPUTE, np.tile(times, (2, 1)), None) == [pytest.approx((117 - 104) / 104)]


def test_fences_are_numpys_quartiles_and_need_eleven_samples():
    rng = np.random.default_rng(3)
    for num in (11, 12, 13, 14, 60):
        samples = rng.lognormal(size=num)
        low, high = np.quantile(samples, [0.25, 0.75])
        assert outer_fences(samples) == pytest.approx((low - 3 * (high - low), high + 3 * (high - low)))
    assert outer_fences(np.ones(10)) is None
    assert outliers_of(IN_COLLECTIVE, np.full((2, 10), 100), None) is None
    assert outliers_of(IN_COLLECTIVE, np.full((2, 11), 100), None) == []


def test_the_slowest_rank_of_the_iteration_counts():
    assert outliers_of(IN_COLLECTIVE, times_of(2, (700, 100)), None) == [pytest.approx(6)]


def test_with_waits_the_whole_steps_count_of_which_they_are_the_last():
    steps, waits = times_of(2, [1300, 1300], num=30, at=17, usual=1000), times_of(2, [100, 100])
    assert outliers_of(HOST_WAIT, waits, steps.tolist()) == [pytest.approx(0.3)]
    assert outliers_of(HOST_WAIT, waits, None) is None
    assert outliers_of(HOST_WAIT, waits, steps[:, :12].tolist()) is None
    with pytest.raises(ValueError, match="samples_ns"):
        outliers_of(HOST_WAIT, waits, [[1.5] * 20] * 2)


def launch_of(outliers, num_iterations=100):
    """Return one record of a launch as `rows_of_json` takes it."""
    row = dict.fromkeys(OF_LAUNCH) | {"launch": "l0", "repeat": 0, "stack": "host", "device": "cpu"}
    row |= {"nodes": 2, "gpus_per_node": 2, "world_size": 4, "cell": "c", "line": 2}
    waits = Waits(IN_COLLECTIVE, num_iterations, (0,) * 4, tuple("aabb"), (0.0,) * 4, (0.0,) * 4, 1.0)
    return row, vars(waits) | {"outliers": outliers}


def tables_of(*records):
    waits = make_table(rows_of_json(list(records)), WAITS)
    return waits, stragglers_table(waits), straggler_hosts_table(waits)


def finding_of(*launches):
    _, stragglers, hosts = tables_of(*launches)
    data = report_data(make_campaign([]), make_table([], MEASUREMENTS), stragglers=stragglers, straggler_hosts=hosts)
    return next((finding for finding in findings(data) if finding.kind == "outliers"), None)


def test_numbers_and_costs_are_summed_over_records_that_are_long_enough():
    """The record of 9 iterations has no fence."""
    records = [launch_of([0.5] * 11), launch_of([]), launch_of(None, num_iterations=9)]
    for table in tables_of(*records)[:2]:
        assert table["num_records"].tolist() == [3] * 4
        assert table["num_iterations"].tolist() == [209] * 4
        assert table[[column.name for column in OUTLIERS]].to_numpy().tolist() == [[200, 11, 5.5]] * 4
    found = finding_of(*records)
    assert (found.values["num"], found.values["num_iterations"]) == (11, 200)
    assert found.values["cost_ratio"].estimate == pytest.approx(5.5 / 200)


def test_where_no_record_is_long_enough_the_numbers_are_unknown():
    for table in tables_of(launch_of(None))[:2]:
        assert table[[column.name for column in OUTLIERS]].isna().all(axis=None)
    assert finding_of(launch_of(None)) is None


def test_the_costliest_place_is_named_only_where_outliers_are_many_and_cost_time():
    def costs(num, excess):
        return finding_of(launch_of([excess] * num)).values.get("largest_ratio")

    assert costs(2, 1.5).estimate == pytest.approx(0.03)
    assert costs(2, 0.4) is None  # 0.8 % of the time
    assert costs(1, 9.0) is None  # 1 % of iterations, which may be chance
    assert costs(0, 0) is None


def test_a_table_that_attributed_outliers_to_ranks_is_read_without_these_columns(tmp_path):
    waits, *_ = tables_of(launch_of([0.5] * 3))
    old = waits.rename(columns={"num_outliers": "num_spikes", "outlier_cost_iterations": "spike_cost_iterations"})
    gone = ("all_ranks", "one_host", "one_rank", "of_rank", "of_host")
    write_csv(old.assign(**{f"num_spikes_{name}": 1 for name in gone}), tmp_path / "waits.csv")
    assert read_csv(tmp_path / "waits.csv", WAITS).equals(waits)


def test_planted_outliers_go_from_the_store_to_the_report(tmp_path):
    """In each of 6 launches of 2 x 4: in the first collective, 2 outliers of all ranks, and 1 of all ranks but one."""
    folder = write_waits(tmp_path / "r", (2, 4), {3: 0.06})
    for lines in edit_launches(folder):
        times = np.array(lines[1]["samples_ns"])
        times[:, [10, 30]] += 400_000
        times[np.arange(8) != 5, 50] += 400_000
        lines[1]["samples_ns"] = times.tolist()
    collected, _ = collect(read_frozen(folder / "campaign.0123456789ab.json"), folder / "launches")
    stragglers = stragglers_table(collected["waits"])
    calls = stragglers[(stragglers["quantity"] == IN_COLLECTIVE) & (stragglers["rank"] == 5)].iloc[0]
    assert calls["num_iterations_checked"] == 6 * 2 * 60
    assert calls["num_outliers"] >= 18
    assert calls["outlier_cost_iterations"] == pytest.approx(6 * 3 * 2, rel=0.2)  # 400 us each, of 200 us
    [found] = (finding for finding in findings(analyse(folder)) if finding.kind == "outliers")
    assert found.words["place"] == "2\N{MULTIPLICATION SIGN}4, contained"
