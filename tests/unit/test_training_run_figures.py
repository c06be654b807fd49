"""Training runs in the report: which of them share a panel, and tables."""

from operator import attrgetter

from synthetic import analyse
from synthetic_training import run_cell, run_record
from test_training_runs import ALONE, OWN, T, tables_of

from regatta.report.panels import name_rows, panels
from regatta.tables.cells import rows_of
from regatta.topics.training_runs import section

SUBJECT = "CIFAR CNN on synthetic images"
CUSTOM = "custom all-reduce"


def section_of(folder, cells, repeats=2, pace=1.0, **values):
    """Return the section on training runs. pace: factor of the times of epochs."""
    tables_of(
        folder, cells, [run_record(cell, repeat, T, **values) for cell in cells for repeat in range(repeats)], repeats
    )
    data = analyse(folder)
    data.tables["epochs"]["epoch_s"] *= pace
    return section(data)


def named_runs(folder, cells):
    tables, *_ = tables_of(folder, cells, [run_record(cell, 0, T) for cell in cells], 1)
    return rows_of(tables["cells"], "train_run")


def lines_of(table):
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_figures_and_tables_have_where_trainings_ended(tmp_path):
    found = section_of(tmp_path, [OWN, ALONE])
    figures = found.figures
    assert [figure.title for figure in figures] == [
        f"{what}: {SUBJECT}" for what in ("Accuracy", "Test loss", "Epoch time")
    ]
    runs = ("1×1 · no DDP", "1×2 · custom all-reduce")
    assert [[row[:4] for row in figure.table.rows] for figure in figures] == [
        [(run, "2", "2/2", end) for run, end in zip(runs, ends, strict=True)]
        for ends in (("10.0", "10.0"), ("4.200", "4.200"), ("2.00", "2.01"))
    ]
    outcome, memory = found.tables
    row = lines_of(outcome)[1]
    assert row["Cell"].startswith(SUBJECT)
    assert (row["n"], row["Total time (s)"], row["Throughput (samples/s)"]) == ("2/2", "3.02", "1,600")
    assert (row["Train loss"], row["Test loss"], row["range of test loss"]) == ("4.000", "4.200", "(4.200 to 4.200)")
    assert (row["Accuracy (%)"], row["range of accuracy"]) == ("10.0", "(10.0 to 10.0)")
    assert len(memory.columns) == 6


def test_the_settings_of_all_runs_are_in_the_lead(tmp_path):
    found = section_of(tmp_path, [run_cell("own", data="cifar100", data_folder="/data")])
    figure = found.figures[0]
    assert figure.title == SUBJECT.join(("Accuracy: ", " · 1×2")).replace("synthetic images", "CIFAR-100")
    words = {"2 epochs", "batch 32", "2 accumulation steps", "seed 1", "batch norm"}
    assert all(word in found.lead for word in words)


def test_many_trainings_are_divided_by_shape(tmp_path):
    shapes = [("none", 1), *((strategy, gpus) for gpus in (1, 2, 4) for strategy in ("ddp", "own"))]
    cells = [run_cell(s, gpus=g, norm=norm) for s, g in shapes for norm in ("own_sync", "torch_sync")]
    figures = section_of(tmp_path, cells).figures
    assert [figure.title.split(" · ")[1:] for figure in figures[::3]] == [["1×1"], ["1×2"], ["1×4"]]


def test_lines_of_a_panel_are_called_by_what_differs_in_it(tmp_path):
    cells = [run_cell(s, gpus=g, norm=n) for s in ("ddp", "own") for g in (1, 2) for n in ("batch", "own_sync")]
    runs = named_runs(tmp_path, cells)
    rows, workload = name_rows(runs, "train_run"), attrgetter("workload")
    found = list(panels(rows, lambda name: (*name.series, "shape"), workload, most=6))
    words = sorted(f"{s} {n}" for s in ("ddp", "custom all-reduce") for n in ("batch norm", "custom sync batch norm"))
    assert [(text, sorted(part["label"])) for text, part in found] == [
        (f"{SUBJECT} · {shape}", words) for shape in ("1×1", "1×2")
    ]
    few = name_rows(runs.query("norm == 'batch'"), "train_run")
    [(text, part)] = panels(few, lambda name: (*name.series, "shape"), workload)
    assert (text, sorted(part["label"])) == (SUBJECT, [f"{CUSTOM}\n1×1", f"{CUSTOM}\n1×2", "ddp\n1×1", "ddp\n1×2"])
    many = list(panels(rows.query("world_size == 1"), lambda name: (*name.series, "shape"), workload, most=3))
    assert [(text, len(part)) for text, part in many] == [(f"{SUBJECT} (1 of 2)", 3), (f"{SUBJECT} (2 of 2)", 1)]


def test_times_of_short_epochs_are_in_milliseconds(tmp_path):
    assert section_of(tmp_path / "long", [OWN, ALONE], 1).figures[2].chart.y.label == "Epoch time (s)"
    chart = section_of(tmp_path / "short", [OWN, ALONE], 1, pace=0.01).figures[2].chart
    assert chart.y.label == "Epoch time (ms)"
    assert {*chart.frame["y"].round(1)} == {10.0, 10.1, 20.0, 20.1}
