"""Training runs in the report: which of them share a panel, sentences and tables."""

from synthetic import make_report
from synthetic_training import run_cell, run_record
from test_training_runs import ALONE, DDP, OWN, T, tables_of, write_store

from regatta.report.panels import name_rows, panels
from regatta.topics.training_runs import common_of_runs, training_run_figures, training_tables


def figures_of(folder, cells, repeats=2, **values):
    records = [run_record(cell, repeat, T, **values) for cell in cells for repeat in range(repeats)]
    tables, collected, _ = tables_of(folder, cells, records, repeats)
    return training_run_figures(tables, collected["epochs"]), tables


def test_figures_say_where_trainings_ended(tmp_path):
    figures, tables = figures_of(tmp_path, [OWN, ALONE])
    accuracy, loss, time = figures
    assert 'aria-label="Accuracy: CIFAR CNN on synthetic images: Accuracy (%) by epoch"' in accuracy.svg
    lead = common_of_runs(tables["training_runs"])
    assert "More ranks take fewer, larger steps per epoch." in lead
    assert "does not transfer to CIFAR-100" in lead
    assert accuracy.table.columns == ("Run", "n", "Epoch 1", "Epoch 2")
    assert accuracy.table.rows == (
        ("1×1 · no DDP", "2/2", "5.00", "10.0"),
        ("1×2 · custom all-reduce", "2/2", "5.00", "10.0"),
    )
    assert loss.table.rows[0] == ("1×1 · no DDP", "2/2", "4.600", "4.200")
    assert [row[:4] for row in time.table.rows] == [
        ("1×1 · no DDP", "0", "2/2", "3.00"),
        ("1×2 · custom all-reduce", "slowest", "2/2", "3.02"),
        ("1×2 · custom all-reduce", "0", "2/2", "3.00"),
        ("1×2 · custom all-reduce", "1", "2/2", "3.02"),
    ]
    row = dict(zip(time.table.columns, time.table.rows[3], strict=True))
    assert (row["Train time per epoch (s)"], row["Rank accuracy (%)"]) == ("–", "11.0")
    assert (row["Peak allocated (MiB)"], row["Peak resident memory (MiB)"]) == ("162", "763")
    outcome, memory = training_tables(tables["training_runs"])
    row = dict(zip(outcome.columns, outcome.rows[1], strict=True))
    assert row["Cell"] == "CIFAR CNN on synthetic images · 1×2 processes · custom all-reduce"
    assert (row["n"], row["Total time (s)"], row["Throughput (samples/s)"]) == ("2/2", "3.02", "1,600")
    assert (row["Train loss"], row["Test loss"], row["range of test loss"]) == ("4.000", "4.200", "(4.200 to 4.200)")
    assert (row["Accuracy (%)"], row["range of accuracy"]) == ("10.0", "(10.0 to 10.0)")
    assert len(memory.columns) == 6


def test_real_images_are_called_by_their_name_and_have_no_reservation(tmp_path):
    [figure, *_], tables = figures_of(tmp_path, [run_cell("own", data="cifar100", data_folder="/data")])
    assert figure.title == "Accuracy: CIFAR CNN on CIFAR-100 · 1×2"
    assert common_of_runs(tables["training_runs"]) == (
        "All runs: CIFAR CNN on CIFAR-100, 2 epochs, batch 32, 2 accumulation steps, seed 1, batch norm. Batch size:"
        " images per rank per backward pass."
    )


def test_many_trainings_are_divided_by_shape(tmp_path):
    shapes = [("none", 1), *((strategy, gpus) for gpus in (1, 2, 4) for strategy in ("ddp", "own"))]
    cells = [run_cell(s, gpus=g, norm=norm) for s, g in shapes for norm in ("own_sync", "torch_sync")]
    figures, _ = figures_of(tmp_path, cells)
    assert [figure.title for figure in figures[::3]] == [
        "Accuracy: CIFAR CNN on synthetic images · 1×1",
        "Accuracy: CIFAR CNN on synthetic images · 1×2",
        "Accuracy: CIFAR CNN on synthetic images · 1×4",
    ]


def test_lines_of_a_panel_are_called_by_what_differs_in_it(tmp_path):
    cells = [run_cell(s, gpus=g, norm=n) for s in ("ddp", "own") for g in (1, 2) for n in ("batch", "own_sync")]
    _, tables = figures_of(tmp_path, cells)
    rows = name_rows(tables["training_runs"], "train_run")
    found = list(panels(rows, lambda name: (*name.series, "shape"), splits=("shape",), most=6))
    words = sorted(f"{s} {n}" for s in ("ddp", "custom all-reduce") for n in ("batch norm", "custom sync batch norm"))
    title = "CIFAR CNN on synthetic images"
    assert [(text, sorted(part["label"])) for text, part in found] == [
        (f"{title} · {shape}", words) for shape in ("1×1", "1×2")
    ]
    few = name_rows(tables["training_runs"][rows["norm"] == "batch"], "train_run")
    [(text, part)] = panels(few, lambda name: (*name.series, "shape"), splits=("shape",))
    assert (text, sorted(part["label"])) == (
        title,
        ["custom all-reduce\n1×1", "custom all-reduce\n1×2", "ddp\n1×1", "ddp\n1×2"],
    )
    many = list(panels(rows, lambda name: (*name.series, "shape"), splits=(), most=6))
    assert [(text, len(part)) for text, part in many] == [(f"{title} (1 of 2)", 6), (f"{title} (2 of 2)", 2)]


def test_the_report_has_the_section_and_its_files(tmp_path):
    write_store(tmp_path, [OWN, DDP], [run_record(c, r, T) for c in (OWN, DDP) for r in range(3)])
    page = make_report(tmp_path).read_text(encoding="utf-8")
    assert '<section id="training-runs"' in page
    for name in ("epochs.csv", "ranks.csv", "training_runs.csv", "training_ranks.csv"):
        assert f'download="{name}"' in page
    assert "different losses" not in page
