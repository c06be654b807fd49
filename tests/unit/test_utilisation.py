"""Tokens, operations and MFU of training steps, from the name of a GPU in a launch file to the tables of a report."""

import pandas as pd
import pytest
from campaign_files import message, small
from synthetic import make_campaign, report_data, train_cell
from typed import cell_row, header, peaks_text, step_cells

from regatta.store.csv_files import MEASUREMENTS, make_table
from regatta.store.records import device_of
from regatta.topics.scaling.scaling_section import section

GPU = "NVIDIA GH200 120GB"
SOURCE = "https://example.org/sheet.pdf"
PEAKS = [
    {"device": GPU, "dtype": dtype, "tflop_per_s": value, "source": SOURCE}
    for dtype, value in (("fp32", 67), ("tf32", 494), ("bf16", 990))
]
ON_GPU = {"gpu": GPU, "allow_tf32_matmul": False, "allow_tf32_cudnn": True}


def lm_cell(nodes=1, gpus=4, dtype="bf16", batch=4, context=128):
    cell = train_cell("lm_small", nodes, gpus, "ddp", batch_size=batch, device="cuda")
    cell["spec"]["parameters"] |= {"context_length": context, "image_size": None, "dtype": dtype}
    return cell


def row_of(cell, peaks=PEAKS, launches=1, **columns):
    """Return the row of scaling.csv of a cell whose step takes 0.1 s. columns: of measurements.csv."""
    row = cell_row(cell) | {"status": "ok", "window_step_s": 0.1} | columns
    rows = [row | {"repeat": repeat} for repeat in range(launches)]
    campaign = make_campaign([cell], repeats=launches, cluster={"name": "c", "peaks": peaks})
    return step_cells(campaign, make_table(rows, MEASUREMENTS)).astype(object).iloc[0]


def test_tokens_are_samples_times_their_length():
    row = row_of(lm_cell(2, 4))
    assert row["throughput_samples_per_s"] == pytest.approx(8 * 4 / 0.1)
    assert row["throughput_tokens_per_s"] == pytest.approx(8 * 4 * 128 / 0.1)


def test_images_have_no_tokens():
    assert pd.isna(row_of(train_cell("resnet50", 1, 4))["throughput_tokens_per_s"])


def test_mfu_by_hand():
    # 4 samples of 9.9e11 operations in 0.1 s: 39.6 TFLOP/s on each GPU, however many there are.
    row = row_of(lm_cell(2, 4), flops_per_sample=990 * 10**9, **ON_GPU)
    assert row["compute_per_gpu_tflop_per_s"] == pytest.approx(39.6)
    assert (row["peak_dtype"], row["peak_tflop_per_s"]) == ("bf16", 990)
    assert row["mfu_ratio"] == pytest.approx(0.04)


@pytest.mark.parametrize(
    ("cell", "settings", "peak"),
    [
        (train_cell("resnet50", 1, 4), {}, "tf32"),  # its convolutions are, by default
        (train_cell("resnet50", 1, 4), {"allow_tf32_cudnn": False}, "fp32"),
        (lm_cell(dtype="fp32"), {}, "fp32"),  # matrix products alone
        (lm_cell(dtype="fp32"), {"allow_tf32_matmul": True}, "tf32"),
        (lm_cell(dtype="bf16"), {"allow_tf32_matmul": True}, "bf16"),
        (lm_cell(dtype="fp32"), {"allow_tf32_matmul": None}, None),
    ],
)
def test_fp32_is_held_against_tf32_where_torch_may_use_it(cell, settings, peak):
    row = row_of(cell, flops_per_sample=10**9, **(ON_GPU | settings))
    assert (None if pd.isna(row["peak_dtype"]) else row["peak_dtype"]) == peak
    assert pd.isna(row["mfu_ratio"]) == (peak is None)


def test_a_gpu_without_tf32_is_held_against_fp32_regardless_of_the_settings():
    v100 = [{"device": "Tesla V100-SXM2-16GB", "dtype": "fp32", "tflop_per_s": 15.7, "source": SOURCE}]
    settings = ON_GPU | {"gpu": "Tesla V100-SXM2-16GB", "allow_tf32_matmul": None}
    row = row_of(train_cell("resnet50", 1, 4), v100, flops_per_sample=10**9, **settings)
    assert row["peak_dtype"] == "fp32"
    assert row["mfu_ratio"] == pytest.approx(8 * 1e9 / 0.1 / 15.7e12)


@pytest.mark.parametrize(
    ("peaks", "columns"),
    [
        ([], ON_GPU),
        (PEAKS, {"gpu": None}),
        (PEAKS, {"gpu": "NVIDIA H100 80GB HBM3"}),
        (PEAKS[:2], ON_GPU),  # none for bf16
    ],
)
def test_without_a_peak_for_device_and_dtype_there_is_no_mfu(peaks, columns):
    row = row_of(lm_cell(), peaks, flops_per_sample=10**9, **columns)
    assert row["compute_per_gpu_tflop_per_s"] > 0
    assert row[["peak_dtype", "peak_tflop_per_s", "mfu_ratio"]].isna().all()


def test_a_record_without_operations_and_a_frozen_campaign_without_peaks_give_none():
    assert pd.isna(row_of(lm_cell(), **ON_GPU)["compute_per_gpu_tflop_per_s"])
    cell = lm_cell()
    row = cell_row(cell) | {"status": "ok", "window_step_s": 0.1, "repeat": 0, "flops_per_sample": 10**9} | ON_GPU
    table = step_cells(make_campaign([cell]), make_table([row], MEASUREMENTS))
    assert table["mfu_ratio"].isna().all()


def test_launches_on_different_gpus_have_no_mfu():
    cell = lm_cell()
    row = cell_row(cell) | {"status": "ok", "window_step_s": 0.1, "flops_per_sample": 10**9} | ON_GPU
    rows = [row | {"repeat": 0}, row | {"repeat": 1, "gpu": "another"}]
    campaign = make_campaign([cell], cluster={"name": "c", "peaks": PEAKS})
    assert step_cells(campaign, make_table(rows, MEASUREMENTS))["mfu_ratio"].isna().all()


def test_the_name_of_all_gpus_of_a_launch_and_torchs_settings_are_taken_from_its_first_line():
    gpus = [{"rank": rank, "host": "n1", "name": GPU} for rank in range(4)]
    settings = {"allow_tf32_matmul": False, "allow_tf32_cudnn": True, "cudnn_benchmark": False}
    assert device_of(header({"gpus": gpus, "settings": settings})) == ON_GPU


@pytest.mark.parametrize(
    "environment",
    [
        None,
        {},
        {"gpus": [], "settings": {}},
        {"gpus": [{"name": GPU}, {"name": "another"}], "settings": {"allow_tf32_matmul": "yes"}},
        {"gpus": [{"name": GPU}, {}], "settings": {"allow_tf32_cudnn": 1}},
        {"gpus": ["GH200", 7], "settings": {}},
    ],
)
def test_what_a_first_line_does_not_say_is_unknown(environment):
    assert device_of(header(environment)) == dict.fromkeys(ON_GPU)


WRONG = [{"dtype": "fp16"}, {"tflop_per_s": 0}, {"source": "data sheet"}, {"tflops": 990}]
WRONG_PEAKS = [[PEAKS[2] | wrong] for wrong in WRONG] + [[*PEAKS, PEAKS[0] | {"tflop_per_s": 134}]]
WRONG_PEAKS += [[{name: value for name, value in PEAKS[0].items() if name != "source"}]]


@pytest.mark.parametrize("peaks", WRONG_PEAKS)
def test_an_error_in_a_peak_is_reported(tmp_path, peaks, wording):
    wording(message(tmp_path, small(), {"peaks": peaks}))


def measured(cell, **columns):
    return cell_row(cell) | {"repeat": 0, "status": "ok", "window_step_s": 0.1, "p50_s": 0.1} | columns


LM_SMALL = {
    "num_parameters": 128_567_040, "num_layers": 12, "d_model": 768, "num_heads": 12, "d_ff": 3072, "vocab_size": 10_000,
    "flops_per_sample": 96_049_000_000,
}  # fmt: skip


def test_tokens_and_mfu_stand_in_the_throughput_table_and_the_peak_with_its_source():
    cell = lm_cell()
    campaign = make_campaign([cell], device="cuda", cluster={"name": "c", "peaks": PEAKS})
    rows = make_table([measured(cell, **LM_SMALL, **ON_GPU)], MEASUREMENTS)
    scaling = step_cells(campaign, rows)
    (figure,) = section(report_data(campaign, rows)).figures
    numbers = dict(zip(figure.table.columns, figure.table.rows[0], strict=True))
    # 4 GPUs x 4 sequences x 128 tokens / 0.1 s; 4 x 96.049e9 / 0.1 s = 3.84 TFLOP/s of 990.
    assert numbers["Throughput (tokens/s)"] == "20,500"
    assert (numbers["Compute rate per GPU (TFLOP/s)"], numbers["MFU (%)"]) == ("3.84", "0.388")
    assert f"990 TFLOP/s (bf16) of {GPU}, by {SOURCE}." in peaks_text(campaign, scaling, {GPU})
    assert peaks_text(campaign, scaling, {"another GPU"}) == ""


def test_without_mfu_nothing_is_said_of_peaks():
    cell = train_cell("resnet18", 1, 1)
    campaign = make_campaign([cell], cluster={"name": "c", "peaks": PEAKS})
    rows = make_table([measured(cell)], MEASUREMENTS)
    assert peaks_text(campaign, step_cells(campaign, rows), {GPU}) == ""
    (figure,) = section(report_data(campaign, rows)).figures
    assert "MFU (%)" not in figure.table.columns


GIB = 2**30


def memory_of(*cells_and_saved):
    cells = [cell for cell, _ in cells_and_saved]
    fixed = {"parameter_bytes": GIB, "gradient_bytes": GIB, "optimizer_bytes": GIB}
    rows = [measured(cell, saved_bytes=saved, **fixed) for cell, saved in cells_and_saved]
    return step_cells(make_campaign(cells), make_table(rows, MEASUREMENTS))


def test_all_parts_are_the_sum_of_those_that_are_known():
    memory = memory_of((lm_cell(batch=2), 2 * GIB), (lm_cell(batch=8), None))
    assert sorted(memory["part_bytes"].fillna(0)) == [0, 5 * GIB]
