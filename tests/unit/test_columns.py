"""A column declares what files, tables and axes say of a number; digits follow its interval."""

from types import SimpleNamespace

import pandas as pd
import pytest

from regatta.kit.columns import EACH, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.kinds import Value
from regatta.report.panels import Table

STEP = Column("step_s", "step time", shown_as="ms", better="smaller", interval="interval", is_shown=True)
RATE = Column("throughput_samples_per_s", "throughput per {rank}", better="larger")


def row(**values):
    return SimpleNamespace(**{"step_low_s": None, "step_high_s": None, "interval": "none"} | values)


def number_text(value, low=None, high=None, kind="interval", figures=3):
    ends = {"number_low": low, "number_high": high, "interval": kind}
    return Column("number", interval="interval", figures=figures).cell(SimpleNamespace(number=value, **ends))


def test_names_types_and_keys_derive_from_the_name_and_its_unit():
    assert STEP.names == ("step_s", "step_low_s", "step_high_s")
    assert (STEP.unit, STEP.stem, STEP.factor, STEP.block_key) == ("s", "step", 1e3, "step_ms")
    assert (RATE.unit, RATE.stem, RATE.factor) == ("samples_per_s", "throughput", 1)
    assert Column("efficiency_ratio", shown_as="%").block_key == "efficiency_percent"
    assert Column("peak_rss_bytes", type=WHOLE, shown_as="MiB").block_key == "peak_rss_mib"
    assert Column("num_launches", type=WHOLE).unit == ""
    columns = Columns(Column("cell", type=TEXT), STEP, RATE)
    assert columns == {
        "cell": TEXT,
        "step_s": REAL,
        "step_low_s": REAL,
        "step_high_s": REAL,
        "throughput_samples_per_s": REAL,
    }
    assert columns.declared[1] is STEP
    assert Columns(*in_file(WHOLE, "those of it", "line", "rank")) == {"line": WHOLE, "rank": WHOLE}


@pytest.mark.parametrize(
    ("column", "device", "heading"),
    [
        (STEP, "cpu", "Step time (ms)"),
        (RATE, "cuda", "Throughput per GPU (samples/s)"),
        (RATE, "cpu", "Throughput per process (samples/s)"),
        (Column("cost_hours_per_million_tokens", "Cost"), "cuda", "Cost (GPU hours per million tokens)"),
        (Column("ddp_ratio", "DDP"), "cpu", "DDP"),
        (Column("bucket_cap_mb", "Bucket"), "cpu", "Bucket (MiB)"),
        (Column("duration_s", "duration", text=lambda row: "2 min"), "cpu", "Duration"),
        (Column("idle_gpu_hours", "idle"), "cpu", "Idle (process hours)"),
    ],
)
def test_headings_have_the_unit_and_the_words_of_the_device(column, device, heading):
    assert column.heading(device) == heading


@pytest.mark.parametrize(
    ("name", "largest", "unit"),
    [
        ("saved_bytes", 512, "B"),
        ("saved_bytes", 1023, "B"),
        ("saved_bytes", 1024, "KiB"),
        ("saved_bytes", 48.5 * 2**10, "KiB"),
        ("saved_bytes", 1.5 * 2**20, "MiB"),
        ("saved_bytes", 60 * 2**30, "GiB"),
        ("saved_bytes", 0, "B"),
        ("lag_s", 2e-9, "\N{MICRO SIGN}s"),
        ("lag_s", 2e-3, "ms"),
        ("lag_s", 90, "s"),
    ],
)
def test_a_fitted_column_has_the_largest_unit_that_its_largest_value_reaches(name, largest, unit):
    assert Column(name, "size", shown_as="MiB").fitted(largest).unit_text == unit


def test_a_table_shows_bytes_in_one_unit_for_each_column():
    saved, peak = (Column(f"{name}_bytes", name, WHOLE, shown_as="MiB") for name in ("saved", "peak"))
    rows = pd.DataFrame({"saved_bytes": [512, 1000], "peak_bytes": [2**20, 2**29]})
    table = Table.of_columns("memory", (saved, peak), rows, "cpu")
    assert table.columns == ("Saved (B)", "Peak (MiB)")
    assert table.rows == (("512", "1.00"), ("1,000", "512"))


# Half of an interval's width is rounded to two digits if it begins with 1, else to one.
@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (0.790, None, None, "0.790"),  # three digits without an interval
        (0.790, 0.75, 0.83, "0.79"),  # half 0.04
        (0.790, 0.775, 0.805, "0.790"),  # half 0.015: two digits
        (53.212, 53.062, 53.362, "53.21"),  # 0.15
        (53.212, 52.8, 53.6, "53.2"),  # 0.4: one digit
        (75.34, 65.3, 85.3, "75"),  # 10: two digits, none behind the point
        (12345, 12165, 12525, "12,340"),  # 180: two digits
        (12345, 12000, 12700, "12,300"),  # 350: one digit
        (75.3, 30, 120, "80"),  # two digits at least, of the largest
        (99.96, 99.9, 100.02, "100.0"),  # value and ends have the same decimals, and at most four digits
        (12345.67, 12345.6, 12345.8, "12,350"),  # four digits at most
        (-0.001, -3, 3, "0.0"),
        (818.0, 6.59, 101494.6, "800"),  # never rounded to 0 if the interval is above 0
        (0, None, None, "0"),
        (None, 1, 2, "n/a"),
        (5.0, 5.0, 5.0, "5.00"),
        (1.234e-5, None, None, "0.0000123"),
        (1.234e-7, None, None, "1.2e-07"),
    ],
)
def test_digits_follow_the_interval(value, low, high, text):
    assert number_text(value, low, high) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(104.04, "104.0"), (97.0, "97.00"), (0.999949, "1.000"), (9999.6, "10,000"), (12345.0, "12,340"), (None, "n/a"), (0, "0")],
)  # fmt: skip
def test_four_significant_figures(value, text):
    assert number_text(value, figures=4) == text


def test_a_range_of_two_launches_supports_no_more_than_three_digits():
    assert number_text(94.380, 94.365, 94.395, "range") == "94.4"
    assert number_text(94.380, 94.365, 94.395, "interval") == "94.38"
    assert number_text(94.380, 84, 104, "range") == "94"


@pytest.mark.parametrize(
    ("ms", "half", "texts"),
    [
        ((22.42, 43.9, 63.63), (0.08, 0.4, 0.3), ["22.4 [22.3, 22.5]", "43.9 [43.5, 44.3]", "63.6 [63.3, 63.9]"]),
        ((22.42, 43.91, 120.04), (0.07, 0.05, 1.3), ["22.42 [22.35, 22.49]", "43.91 [43.86, 43.96]", "120.04 [118.74, 121.34]"]),
        ((0.04, 1.2, 22.42), (0.001, 0.07, 0.3), ["0.0400 [0.0390, 0.0410]", "1.20 [1.13, 1.27]", "22.4 [22.1, 22.7]"]),
    ],
)  # fmt: skip
def test_a_column_has_the_decimals_of_its_median_row_unless_values_span_decades(ms, half, texts):
    ends = [
        {"step_s": t / 1e3, "step_low_s": (t - h) / 1e3, "step_high_s": (t + h) / 1e3}
        for t, h in zip(ms, half, strict=True)
    ]
    rows = [row(**of, interval="interval") for of in ends]
    column = STEP.aligned([*rows, row(step_s=None)])
    assert [f"{column.cell(of)} {column.ends(of)}" for of in rows] == texts


def test_a_cell_has_the_text_of_its_value_and_of_its_interval():
    known = row(step_s=0.11972, step_low_s=0.11, step_high_s=0.13, interval="interval")
    assert (STEP.cell(known), STEP.ends(known)) == ("120", "[110, 130]")
    known.interval = "range"
    assert STEP.ends(known) == "(110 to 130)"
    single = row(step_s=0.2)
    assert (STEP.cell(single), STEP.ends(single)) == ("200", "n/a")
    assert (STEP.cell(row(step_s=None)), STEP.ends(row(step_s=None))) == ("n/a", "n/a")


def test_no_end_of_a_wide_interval_above_0_is_rounded_to_0():
    wide = row(step_s=0.818, step_low_s=0.00659, step_high_s=101.4946, interval="interval", num_launches=3)
    assert (STEP.cell(wide), STEP.ends(wide)) == ("800", "[7, 100,000]")
    assert f"{Value.of(wide, STEP):ends}" == "95 % CI 7\N{EN DASH}100,000 ms"


def test_a_column_may_have_more_figures_without_an_interval():
    assert Column("test_loss", "test loss", figures=4).cell(row(test_loss=4.20513)) == "4.205"


def test_a_row_that_cannot_have_a_value_shows_a_dash():
    inter_node = Column("inter_node_ratio", "Inter-node", applies=lambda row: row.nodes > 1)
    assert inter_node.cell(row(nodes=1, inter_node_ratio=None)) == "n/a"
    assert inter_node.cell(row(nodes=2, inter_node_ratio=None)) == "n/a"
    assert inter_node.cell(row(nodes=2, inter_node_ratio=0.982)) == "0.982"


def test_times_that_differ_much_have_the_unit_that_suits_each():
    time = Column("time_s", "time, {other}", shown_as=EACH, interval="interval")
    times = {"time_s": 1.32, "time_low_s": 1.1, "time_high_s": 1.57, "interval": "interval"}
    assert (time.cell(row(**times)), time.ends(row(**times))) == ("1.3 s", "[1.1, 1.6] s")
    single = row(time_s=0.0000373, time_low_s=None, time_high_s=None)
    assert (time.cell(single), time.ends(single)) == ("37.3 µs", "n/a")
    assert time.heading("cpu", other="bound {1}") == "Time, bound {1}"


def test_ratios_have_three_decimals_and_differences_the_digits_of_their_interval():
    ratio = Column("time_ratio", "ratio", interval="interval")
    known = row(time_ratio=1.0374, time_low_ratio=1.0281, time_high_ratio=1.0468, interval="range")
    assert (ratio.cell(known), ratio.ends(known)) == ("1.037", "(1.028 to 1.047)")
    difference = Column("time_ratio", "difference", shown_as="%", minus=1, interval="interval")
    assert (difference.cell(known), difference.ends(known)) == ("3.7", "(2.8 to 4.7)")
