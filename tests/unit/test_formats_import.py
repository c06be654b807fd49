"""Files of other programs through import, collect and analyse: known results, and a store that stays consistent."""

import hashlib
import math
import os
import re

import pandas as pd
import pytest
from formats_files import (
    ALL,
    FILES,
    NEEDS,
    TIME,
    analysed,
    collected,
    content_of,
    read,
    run_import,
    run_script,
    text_of,
)
from synthetic import make_campaign, make_report, report_data

from regatta.core.errors import UserError
from regatta.formats.base import Options
from regatta.formats.importer import import_files
from regatta.store.launch_files import read_store
from regatta.store.records import violation
from regatta.tables.cells import rows_of


def scaling_of(tables, model):
    rows = rows_of(tables["cells"], "train_step")
    own = rows[(rows["model"] == model) & (rows["stack"] == "imported")]
    return {(row.strategy, row.nodes, row.gpus_per_node): row for row in own.itertuples()}


# --- Known answers, from the medians of the published tables


@pytest.mark.parametrize(
    ("model", "none_percent", "wrapped_percent", "parts"),
    [("resnet50", 88.6, 93.3, (0.950, 0.949, 0.982)), ("resnet101", 89.4, 97.1, (0.920, 0.967, 1.005))],
)
def test_two_nodes_of_four_gpus_have_the_known_efficiency(tmp_path, model, none_percent, wrapped_percent, parts):
    run_import(tmp_path / "gh200", "ddp-2x4-gh200.txt")
    _, tables, _ = analysed(tmp_path / "gh200")
    row = scaling_of(tables, model)["ddp", 2, 4]
    assert round(100 * row.efficiency_ratio, 1) == none_percent
    assert round(100 * row.intra_node_ratio * row.inter_node_ratio, 1) == wrapped_percent
    assert (round(row.ddp_ratio, 3), round(row.intra_node_ratio, 3), round(row.inter_node_ratio, 3)) == parts
    assert (row.num_launches, row.interval, row.num_planned) == (1, "single", 1)
    assert row.throughput_samples_per_s == pytest.approx(8 * {"resnet50": 1233.5, "resnet101": 706.5}[model], rel=1e-5)


def test_the_repeated_row_is_an_a_a_pair_that_gives_the_noise(tmp_path):
    """1264/1255 and 710/703 samples/s: 0.7 and 1.0 % apart."""
    run_import(tmp_path / "gh200", "ddp-2x4-gh200.txt")
    _, tables, _ = analysed(tmp_path / "gh200")
    pairs = tables["comparisons"].set_index("model")
    assert set(pairs["value"]) == {"imported_again"}
    assert round(100 * (1 / pairs.loc["resnet50", "time_ratio"] - 1), 1) == 0.7
    assert round(100 * (1 / pairs.loc["resnet101", "time_ratio"] - 1), 1) == 1.0
    assert set(pairs["verdict"]) == {"A/A"}  # which is not judged


def test_percentiles_are_those_that_are_printed_and_nothing_else_is_known(tmp_path):
    run_import(tmp_path / "gh200", "ddp-2x4-gh200.txt")
    _, tables, problems = collected(tmp_path / "gh200")
    rows = tables["measurements"]
    row = rows[(rows["world_size"] == 8) & (rows["model"] == "resnet50")].iloc[0]
    assert [row[f"p{p}_s"] for p in (50, 75, 90, 95)] == pytest.approx(
        [(32 / x + 32 / (x + 1)) / 2 for x in (1233, 1211, 1191, 1183)]
    )
    assert [row["p50_low_s"], row["p50_high_s"]] == pytest.approx([32 / 1234, 32 / 1233])
    assert pd.isna(row["window_step_s"])  # efficiency falls back on the median
    assert row["stop"] == "imported: median"
    unknown = ["p99_s", "min_s", "max_s", "mean_s", "std_s", "num_iterations", "elapsed_s", "command"]
    assert row[unknown].isna().all()
    assert not any(problems[name] for name in ("corrupt", "invalid", "superseded", "beyond_repeats", "not_planned"))


# --- Collectives


def test_a_mean_stands_for_the_median_where_there_is_no_other_and_says_so(tmp_path):
    run_import(tmp_path / "osu", "osu-allreduce.txt", "osu-barrier.txt")
    _, tables, _ = analysed(tmp_path / "osu")
    rows = tables["measurements"]
    assert set(rows["stop"]) == {"imported: mean"}
    assert (rows["p50_s"] == rows["mean_s"]).all()
    assert rows["p75_s"].isna().all()
    collectives = rows_of(tables["cells"], "collective")
    assert collectives[collectives["operation"] == "barrier"]["busbw_gb_per_s"].isna().all()


def test_wrong_results_are_failures_without_a_time(tmp_path):
    path = tmp_path / "wrong.txt"
    path.write_text(text_of("nccl-12-columns.txt").replace(": 0 OK", ": 3 FAILED"), encoding="utf-8")
    run_import(tmp_path / "wrong", path)
    _, tables, _ = collected(tmp_path / "wrong")
    rows = tables["measurements"]
    assert set(rows["status"]) == {"failed"}
    assert set(rows["phase"]) == {"check"}
    assert rows["p50_s"].isna().all()


# --- The store


def as_windows_writes_it(content):
    return b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("name", ALL)
def test_every_format_keeps_the_schema_and_a_copy_with_other_line_ends_changes_nothing(tmp_path, name, wording):
    run_import(tmp_path / "c", name)
    before, source = content_of(tmp_path / "c"), read(name)
    for launch in read_store(tmp_path / "c" / "launches"):
        assert [violation(line) for _, line in launch.lines] == [None] * len(launch.lines)
        assert launch.header.imported["file"] == name
        assert launch.lines_of("complete")
    campaign, tables, problems = collected(tmp_path / "c")
    assert set(tables["measurements"]["status"]) == {"ok"}
    assert len(tables["measurements"]) == len(source.readings)
    assert problems["invalid"] == []
    wording(campaign["description"].partition(" Times:")[0])
    options, content, copies = NEEDS.get(name, Options()), (FILES / name).read_bytes(), [FILES / name]
    others = (content, as_windows_writes_it(content), content.rstrip() + b"\n\n  \n", content + b"\r\n")
    for index, other in enumerate(others):
        copies.append(tmp_path / f"copy-{index}.log")
        copies[-1].write_bytes(other)
        assert read(name, other.decode()) == source
    outcome = import_files(copies, tmp_path / "c", "imported", options, now=lambda: "2027-01-01T00:00:00Z")
    assert (outcome.written, len(outcome.already_there)) == ([], 1)
    assert content_of(tmp_path / "c") == before


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text.replace("\n", "\r\n,,,,,,,,,,\r\n", 1),
        lambda text: text.replace("\n", "  \n"),
        lambda text: text.rstrip("\n") + "\n\n \n",
    ],
)
def test_blank_lines_of_a_csv_make_no_new_launch(tmp_path, change):
    run_import(tmp_path / "c", "times.csv")
    copy = tmp_path / "copy.csv"
    copy.write_text(change(text_of("times.csv")), encoding="utf-8", newline="")
    outcome = run_import(tmp_path / "c", copy)
    assert outcome.already_there == [f"{copy} (stack imported)"]


def test_a_csv_with_a_row_more_or_another_order_of_rows_is_another_file(tmp_path):
    run_import(tmp_path / "c", "times.csv")
    head, *rows = text_of("times.csv").splitlines(keepends=True)
    for number, text in enumerate((head + "".join(reversed(rows)), head + "".join([*rows, rows[-1]]))):
        path = tmp_path / f"{number}.csv"
        path.write_text(text, encoding="utf-8")
        assert len(run_import(tmp_path / "c", path).written) == 1


def test_the_digest_of_a_file_as_its_program_wrote_it_is_that_of_sha256sum(tmp_path):
    run_import(tmp_path / "c", "nccl-12-columns.txt")
    header = read_store(tmp_path / "c" / "launches")[0].header
    assert text_of("nccl-12-columns.txt").endswith("\n")
    assert header.imported["sha256"] == hashlib.sha256((FILES / "nccl-12-columns.txt").read_bytes()).hexdigest()


def test_a_second_run_of_the_same_software_is_a_second_launch(tmp_path):
    second = tmp_path / "second.txt"
    second.write_text(text_of("ddp-2x4-gh200.txt").replace("1233/s", "1229/s"), encoding="utf-8")
    run_import(tmp_path / "c", "ddp-2x4-gh200.txt", second)
    campaign, tables, _ = analysed(tmp_path / "c")
    row = scaling_of(tables, "resnet50")["ddp", 2, 4]
    assert (campaign["repeats"], row.num_launches, row.interval) == (2, 2, "range")
    steps = [(32 / x + 32 / (x + 1)) / 2 for x in (1233, 1229)]
    assert row.step_s == pytest.approx(math.sqrt(steps[0] * steps[1]))
    one_by_one = tmp_path / "one" / "c"
    run_import(one_by_one, "ddp-2x4-gh200.txt")
    run_import(one_by_one, second)
    assert content_of(one_by_one) == content_of(tmp_path / "c")


def test_a_cell_has_as_many_repeats_as_there_are_launches_of_it(tmp_path):
    run_import(tmp_path / "c", "times.csv")
    campaign, tables, _ = analysed(tmp_path / "c")
    assert campaign["repeats"] == 2
    assert sorted(cell.get("repeats", 2) for cell in campaign["cells"]) == [1, 1, 1, 1, 2]
    assert "not_measured" not in set(tables["measurements"]["status"])
    assert (
        rows_of(tables["cells"], "train_step")["num_planned"] == rows_of(tables["cells"], "train_step")["num_launches"]
    ).all()
    assert scaling_of(tables, "resnet50")["ddp", 1, 4].step_low_s == 0.0253


def test_files_of_two_stacks_are_compared_and_are_no_noise(tmp_path):
    second = tmp_path / "bound.txt"
    second.write_text(text_of("ddp-2x8-v100.txt").replace("0.097s     329/s", "0.098s     326/s"), encoding="utf-8")
    run_import(tmp_path / "c", "ddp-2x8-v100.txt", stack="contained")
    run_import(tmp_path / "c", second, stack="bound")
    _, tables, _ = analysed(tmp_path / "c")
    rows = tables["comparisons"]
    assert len(rows) == 24
    assert set(rows["value"]) == {"contained"}
    assert set(rows["reference_value"]) == {"bound"}
    assert set(rows["margin_ratio"]) == {0.05}  # no A/A: nobody says that the two are the same software
    assert not rows["is_paired"].any()


def test_the_same_file_under_another_stack_stays_what_it_was(tmp_path):
    run_import(tmp_path / "c", "times.csv")
    outcome = run_import(tmp_path / "c", "times.csv", stack="other")
    assert outcome.already_there == [f"{FILES / 'times.csv'} (stack imported)"]


# --- Nothing half


def test_one_file_that_is_cut_off_keeps_only_itself_out(tmp_path):
    cut = tmp_path / "cut.txt"
    cut.write_text(text_of("nccl-13-columns.txt")[:-200], encoding="utf-8")
    outcome = run_import(tmp_path / "c", "nccl-12-columns.txt", cut)
    assert ([len(outcome.written), *outcome.refused], len(read_store(tmp_path / "c" / "launches"))) == (
        [1, str(cut)],
        1,
    )
    before = content_of(tmp_path / "c")
    with pytest.raises(UserError):
        run_import(tmp_path / "c", cut)
    assert content_of(tmp_path / "c") == before


def test_a_disk_that_fills_up_leaves_no_launch_file_behind(tmp_path, monkeypatch):
    from regatta.formats import importer as store_import

    tried = []

    def write_text(path, text):
        tried.append(path)  # before anything else: several are written at the same time
        if len(tried) > 3:
            raise OSError(28, "No space left on device", str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    monkeypatch.setattr(store_import, "write_text", write_text)
    with pytest.raises(OSError, match="No space"):
        run_import(tmp_path / "c", "ddp-2x8-v100.txt")
    assert len(tried) > 3
    assert sorted(os.listdir(tmp_path)) == [".c.import.lock"]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("times.csv", "0.0260", "1e-320", "huge:5: times_s.p50_s = 1e-320 is out of range"),
        (
            "times.csv",
            "2,4,nccl,cuda,0.0260",
            "99999999,4,nccl,cuda,0.0260",
            "huge:5: nodes = 99999999 is out of range",
        ),
        ("times.csv", "2,4,nccl,cuda,0.0260", "1" + "0" * 400 + ",4,nccl,cuda,0.0260", "huge:5: nodes '10000"),
        ("times.csv", "2,4,nccl,cuda,0.0260", "1" * 5000 + ",4,nccl,cuda,0.0260", "huge:5: nodes '11111"),
        ("ddp-2x4.json", "[0.0", "[1e300, 0.0", r"measurements\[0\] = '1e\+300'; expected a positive time"),
        ("ddp-2x4.json", '"batch_size": 32', '"batch_size": 1' + "0" * 400, "batch_size = 10000.* is out of range"),
        ("ddp-2x4.json", '"bucket_size": 25', '"bucket_size": 1e999', "bucket_size = 1e999"),
        ("nccl-12-columns.txt", "iters: 20", "iters: " + "9" * 5000, "no line '# nThread"),
        ("ddp-2x4-gh200.txt", "   8 GPUs", "   " + "8" * 5000 + " GPUs", "found '8888"),
    ],
)
def test_a_figure_that_no_machine_has_is_refused(tmp_path, file, old, new, message):
    assert old in text_of(file)
    path = tmp_path / "huge"
    path.write_text(text_of(file).replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        run_import(tmp_path / "c", path, options=Options(gpus_per_node=None if "nccl" in file else 4))
    assert not (tmp_path / "c").exists()


def test_the_same_row_twice_in_a_file_is_refused_where_it_means_nothing(tmp_path, wording):
    text = text_of("nccl-12-columns.txt").split("\n")
    rows = [i for i, line in enumerate(text) if line.startswith(("     1048576", "     2097152"))]
    text[rows[1]] = text[rows[0]]
    path = tmp_path / "twice.txt"
    path.write_text("\n".join(text), encoding="utf-8")
    with wording.raises(UserError):
        run_import(tmp_path / "c", path)
    assert not (tmp_path / "c").exists()


def test_a_campaign_that_was_measured_is_left_alone(tmp_path, wording):
    from synthetic import write_laptop

    folder = write_laptop(tmp_path / "laptop")
    before = content_of(folder)
    with wording.raises(UserError):
        run_import(folder, "times.csv")
    assert content_of(folder) == before


def test_cpus_and_gpus_are_not_mixed_in_one_campaign(tmp_path, wording):
    run_import(tmp_path / "c", "times.csv")
    with wording.raises(UserError):
        run_import(tmp_path / "c", "osu-allreduce.txt")


@pytest.mark.parametrize(("name", "stack"), [("../x", "a"), ("a b", "a"), ("ok", "a-b"), ("ok", "x_again"), ("ok", "")])
def test_names_that_cells_and_folders_cannot_have_are_refused(tmp_path, name, stack, wording):
    with wording.raises(UserError):
        import_files([FILES / "times.csv"], tmp_path / name.replace("/", "%"), stack, Options(), now=lambda: TIME)


# --- As a user does it


@pytest.mark.slow
def test_import_and_report_by_command_line(tmp_path, wording):
    done = run_script("import_results.py", FILES / "ddp-2x4-gh200.txt", "--campaign", "published", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    wording.lines(done.stdout, "ddp-2x4-gh200.txt: pytorch-text, 12")
    wording.lines(done.stdout, "note: label 1M/8G")
    done = run_script("rebuild_report.py", "results/published", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "results" / "published" / "report.html").read_text(encoding="utf-8")
    for key in ("Imported, not measured", "come from the printed", "All 12 planned"):
        wording(re.findall(rf">([^<>]*{key}[^<]*)", page))


def test_a_report_of_means_alone_can_be_built(tmp_path):
    run_import(tmp_path / "c", "osu-allreduce.txt")
    assert "mean over iterations" in make_report(tmp_path / "c").read_text(encoding="utf-8")


def test_an_error_on_the_command_line_is_one_message(tmp_path, wording):
    (tmp_path / "x").write_text("hello\n", encoding="utf-8")
    done = run_script("import_results.py", "x", "--campaign", "c", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    wording.lines(done.stderr, "x:1: unknown format,")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_report_has_no_table_of_memory_that_nobody_knows(tmp_path):
    from regatta.topics.memory import section

    run_import(tmp_path / "c", "ddp-2x4-gh200.txt")
    _, tables, _ = analysed(tmp_path / "c")
    data = report_data(make_campaign([], device="cpu"), tables["measurements"], cells=tables["cells"])
    assert section(data) is None
