"""Exports: the meaning of each key, all digits, and notes or errors for what a format cannot represent."""

import json

import pytest
from formats_files import (
    FORMAT,
    analysed,
    collected,
    read,
    read_text,
    run_import,
    run_script,
    text_of,
    write_analysed,
    written,
)
from synthetic import LAPTOP, Machine, collective_cell, make_campaign, train_cell, write_results
from synthetic_sweep import sweep_campaign, write_sweep

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.results_folder import export_notes, read_results_folder
from regatta.store.collect import DIGITS
from regatta.store.csv_files import MEASUREMENTS, read_csv, to_csv

NONE, ONE, TWO = train_cell("resnet18", 1, 1, "none"), train_cell("resnet18", 1, 1), train_cell("resnet18", 1, 2)
REDUCE = collective_cell(2**20, 1, 2)


def results(folder, cells, faults=None, machine: Machine = LAPTOP, **fields):
    write_results(folder, make_campaign(cells, **fields), machine, faults)
    return write_analysed(folder)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return results(tmp_path_factory.mktemp("results") / "before", [NONE, ONE, TWO, REDUCE])


def columns_of(folder, **fields):
    """Return the measured columns of the rows that have these values of fields, in the order of their repeats."""
    rows = collected(folder)[1]["measurements"]
    for name, value in fields.items():
        rows = rows[rows[name] == value]
    return rows.sort_values("repeat")


def test_a_comparison_shows_the_notes_of_an_imported_file(measured, tmp_path, wording):
    exported = written(tmp_path, FORMAT["csv"].write(read_results_folder(measured, {})), "all.csv")
    done = run_script("compare.py", measured, exported, cwd=tmp_path)
    wording.lines(done.stdout, "Note: only times")


# --- benchmark.py: device, shape, parameters and launches


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("cuda", "gloo"), ("cuda", "nccl")])
def test_a_report_keeps_device_backend_shape_and_parameters(tmp_path, device, backend):
    more = {"device": device, "backend": backend, "image_size": 64}
    cells = [train_cell("resnet18", 2, 1, "ddp", 25, **more), train_cell("resnet18", 1, 1, "none", **more)]
    folder = results(tmp_path / "before", cells, device=device)
    outcome = run_import(
        tmp_path / "back", written(tmp_path, FORMAT["pytorch-json"].write(read_results_folder(folder, {})))
    )
    assert outcome.notes == []
    specs = {cell["id"][: cell["id"].rindex("-")]: cell["spec"] for cell in collected(tmp_path / "back")[0]["cells"]}
    for cell in cells:
        spec = specs[cell["id"][: cell["id"].rindex("-")]]
        names = ("device", "backend", "nodes", "gpus_per_node", "parameters", "version")
        assert {name: spec[name] for name in names} == {name: cell["spec"][name] for name in names}
        assert spec["stack"]["name"] == "host"


def test_a_report_without_a_device_is_one_of_gpus_and_a_note_says_so(wording):
    source = read("ddp-2x4.json")
    assert source.device == "cuda"
    wording.lines(source.notes, "device and image")


def test_a_report_has_its_launches_and_their_pipelined_time(measured, tmp_path):
    run_import(tmp_path / "back", written(tmp_path, FORMAT["pytorch-json"].write(read_results_folder(measured, {}))))
    names = ["p50_s", "min_s", "max_s", "mean_s", "window_step_s", "num_iterations"]
    before = columns_of(measured, benchmark="train_step", world_size=2)[names].to_numpy(float)
    after = columns_of(tmp_path / "back", benchmark="train_step", world_size=2)[names].to_numpy(float)
    assert len(before) == 3
    assert after == pytest.approx(before, rel=1e-11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda report: report.update(device="gpu"), "device = 'gpu' is unknown.* Choose from: cpu, cuda"),
        (lambda report: result_of(report)["launches"].pop(), r"result\[2\].launches has \d+ iterations; expected \d+ iterations in total"),
        (lambda report: result_of(report).update(launches=[]), r"launches has 0 iterations; expected \d+ iterations in total"),
        (lambda report: result_of(report).update(nodes=3), r"nodes = 3; expected nodes x gpus_per_node = 2 ranks"),
        (lambda report: result_of(report)["launches"][0].update(window_step_s=0), "window_step_s = 0 is out of range: it must be more than 0"),
        (lambda report: result_of(report)["launches"][0].update(num_iterations=0), "num_iterations = 0 is out of range: it must be at least 1"),
        (lambda report: result_of(report).update(stack="a-b"), "stack = 'a-b' is invalid \\(at most 64 letters, digits and underscores"),
    ],
)  # fmt: skip
def test_a_report_whose_launches_do_not_fit_is_refused(measured, tmp_path, change, message):
    report = FORMAT["pytorch-json"].write(read_results_folder(measured, {}))
    change(report)
    with pytest.raises(UserError, match=message):
        run_import(tmp_path / "back", written(tmp_path, report))
    assert not (tmp_path / "back").exists()


def result_of(report):
    return report["benchmark_results"][0]["result"][2]


def test_a_report_of_steps_without_ddp_alone_is_read(tmp_path):
    folder = results(tmp_path / "before", [NONE])
    run_import(tmp_path / "back", written(tmp_path, FORMAT["pytorch-json"].write(read_results_folder(folder, {}))))
    assert len(columns_of(tmp_path / "back", strategy="none")) == 3


# --- CSV: every digit, and every launch


def test_numbers_of_the_csv_have_all_their_digits(tmp_path):
    folder = results(tmp_path / "before", [TWO])
    path = folder / "measurements.csv"
    table = read_csv(path, MEASUREMENTS)
    bytes_of_repeat = [2**63 - 1, 2**53 + 1, 610_000_001_234]
    table["peak_rss_bytes"] = bytes_of_repeat
    path.write_text(to_csv(table, DIGITS["measurements"]), encoding="utf-8")
    assert read_csv(path, MEASUREMENTS)["peak_rss_bytes"].tolist() == bytes_of_repeat
    rows = [line.split(",") for line in FORMAT["csv"].write(read_results_folder(folder, {})).splitlines()]
    own = [row[-1] for row in rows if row[0] == "measurements" and row[-2] == "peak_rss_bytes"]
    assert own == [str(value) for value in bytes_of_repeat]
    times = [row[-1] for row in rows if row[0] == "measurements" and row[-2] == "window_step_s"]
    assert [float(time) for time in times] == table["window_step_s"].tolist()
    assert "25.0" not in {row[-1] for row in rows}


def test_times_of_measurements_have_their_nanoseconds(tmp_path):
    folder = results(
        tmp_path / "before", [TWO], machine=Machine({"resnet18": 12.3}, {"resnet18": 46.8e6}, 0.6, 6e-5, 2e9)
    )
    record = json.loads(next((folder / "launches").glob("*l000*")).read_text().split("\n")[2])
    slowest = sorted(max(step) for step in zip(*record["samples_ns"], strict=True))
    median_ns = (slowest[len(slowest) // 2] + slowest[(len(slowest) - 1) // 2]) / 2
    written = read_csv(folder / "measurements.csv", MEASUREMENTS)["p50_s"][0]
    assert round(written * 1e10) == round(median_ns * 10)


def test_the_csv_gives_back_every_launch_of_every_stack_and_backend(tmp_path, wording):
    cells = [
        collective_cell(2**20, 1, 2, stack=stack, device="cuda", backend=backend)
        for stack in ("host", "bound")
        for backend in ("gloo", "nccl")
    ]
    bad = {(cells[0]["id"], 1): ("timeout", "measure", "no record after 60 s")}
    folder = results(tmp_path / "before", [*cells, collective_cell(64, 2, 2, device="cuda")], bad, device="cuda")
    outcome = run_import(tmp_path / "back", written(tmp_path, FORMAT["csv"].write(read_results_folder(folder, {}))))
    wording.lines(outcome.notes, "1 launch with")
    for cell in cells:
        spec = cell["spec"]
        fields = {"stack": spec["stack"]["name"], "backend": spec["backend"], "message_bytes": 2**20}
        before, after = (columns_of(path, status="ok", **fields)["p50_s"] for path in (folder, tmp_path / "back"))
        assert len(before) == (2 if cell is cells[0] else 3)
        assert after.tolist() == pytest.approx(before.tolist(), rel=1e-11)
    campaign, tables, _ = analysed(tmp_path / "back")
    assert campaign["device"] == "cuda"
    assert len(tables["comparisons"]) == 2  # bound against host, of each backend
    assert not tables["comparisons"]["is_paired"].any()  # the file does not say which launches shared an allocation


def test_one_name_for_two_stacks_of_a_file_is_refused(tmp_path, wording):
    cells = [collective_cell(64, 1, 2, stack=stack) for stack in ("host", "bound")]
    folder = results(tmp_path / "before", cells)
    path = written(tmp_path, FORMAT["csv"].write(read_results_folder(folder, {})))
    with wording.raises(UserError):
        run_import(tmp_path / "back", path, stack="x")
    one = written(tmp_path, FORMAT["csv"].write(read_results_folder(folder, {"stack": "host"})), "one")
    run_import(tmp_path / "back", one, stack="x")
    assert {cell["spec"]["stack"]["name"] for cell in collected(tmp_path / "back")[0]["cells"]} == {"x"}


def lines_of_csv(keep=lambda row: True):
    head, *rows = text_of("exported.csv").splitlines()
    return "\n".join([head, *(row for row in rows if keep(row))]) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines_of_csv(lambda row: row.startswith("measurements")), "the file ends; expected rows of further tables"),
        (lines_of_csv(lambda row: not row.startswith("measurements")), "the file ends; expected rows of the table measurements"),
        (text_of("exported.csv") + text_of("exported.csv"), "of a launch; expected each number once"),
        (text_of("exported.csv").replace(",gloo,cpu,", ",gloo,tpu,"), "f:1: device 'tpu'; expected cpu or cuda"),
        (text_of("exported.csv").replace(",False,", ",maybe,"), r"f:\d+: gradient_as_bucket_view 'maybe'; expected True or False"),
        (text_of("exported.csv").replace(",p50_s,", ",p50_s,-"), r"f:\d+: p50_s '-0.*'; expected a number above 0"),
        (text_of("exported.csv").replace("collective,", "collectiv,"), r"f:\d+: benchmark 'collectiv'; expected one of"),
        (text_of("exported.csv").replace(",repeat,", ",again,", 1), "f:1: no column repeat"),
        (text_of("exported.csv").rstrip("\n"), "no newline at the end"),
    ],
)  # fmt: skip
def test_an_exported_csv_that_is_cut_or_changed_is_refused(text, message):
    with pytest.raises(UserError, match=message):
        read_text(text, "f", Options())


# --- What is not written


@pytest.fixture(scope="module")
def partly_failed(tmp_path_factory):
    failed = {(TWO["id"], repeat): ("timeout", "measure", "no record after 60 s") for repeat in range(3)}
    return results(tmp_path_factory.mktemp("results") / "before", [ONE, TWO, REDUCE], failed)


@pytest.mark.parametrize(
    "where",
    [
        {"world_size": "2", "model": "resnet18"},  # failed in every launch
        {"model": "resnet50"},
        {"bucket_cap_mb": "7"},  # which collectives do not have
        {"stack": "host", "operation": "barrier"},
    ],
)
def test_a_choice_that_nothing_measured_has_is_refused(partly_failed, where, wording):
    with wording.raises(UserError):
        read_results_folder(partly_failed, where)


def test_an_export_of_nothing_ends_with_one_message_and_no_file(partly_failed, tmp_path):
    arguments = ("--format", "csv", "--out", "out.csv", "--where", "world_size=2", "--where", "model=resnet18")
    done = run_script("export_results.py", partly_failed, *arguments, cwd=tmp_path)
    assert done.returncode != 0
    assert done.stdout == ""
    assert "Nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_campaign_without_a_valid_record_is_not_exported(tmp_path, wording):
    failed = {(TWO["id"], repeat): "not_measured" for repeat in range(3)}
    folder = results(tmp_path / "before", [TWO], failed)
    with wording.raises(UserError):
        read_results_folder(folder, {})


def test_what_a_form_has_no_place_for_is_told_at_the_export(measured, tmp_path, wording):
    done = run_script("export_results.py", measured, "--format", "pytorch-json", "--out", "p.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "p.json\n")
    wording.lines(done.stderr, "note: 1 cell")
    folder = read_results_folder(measured, {})
    assert not any("excluded" in note for note in export_notes(folder, FORMAT["csv"]))


def test_a_mean_that_an_imported_row_holds_as_median_is_told_at_the_export(tmp_path, wording):
    run_import(tmp_path / "c", "nccl-12-columns.txt")
    write_analysed(tmp_path / "c")
    notes = export_notes(read_results_folder(tmp_path / "c", {}), FORMAT["csv"])
    wording.lines(notes, "p50_s of some")


# --- Sweeps: no format has a field for nodes


def test_nodes_of_a_sweep_are_not_pooled(tmp_path):
    names = ["n1", "n2", "n3"]
    folder = write_analysed(write_sweep(tmp_path / "sweep", sweep_campaign(names), {("n2", ""): 1.3}))
    done = run_script("export_results.py", folder, "--format", "pytorch-json", "--out", tmp_path / "all", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "all").exists()) == (2, False)
    assert "--where hosts=n1" in done.stderr
    csv = FORMAT["csv"]
    with pytest.raises(UserError, match="--where hosts=NAME"):
        read_text(csv.write(read_results_folder(folder, {})), "all.csv", Options())
    source = read_text(csv.write(read_results_folder(folder, {"hosts": "n2"})), "n2.csv", Options())
    assert len(source.readings) == 3 * 6
