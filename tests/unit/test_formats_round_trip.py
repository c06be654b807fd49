"""Results that are exported and imported again have a ratio of 1 to the original, in every format and benchmark."""

import json
import random
import tempfile
from pathlib import Path

import pytest
from formats_files import FORMAT, TIME, analysed, write_analysed
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from synthetic import collective_cell, make_campaign, make_failure, make_header, make_record, train_cell, write_lines
from synthetic_training import norm_cell, norm_record, run_cell, run_record

from regatta.compare.campaigns import compare_campaigns, read_campaign, read_imported
from regatta.formats.base import Options
from regatta.formats.importer import import_files
from regatta.formats.results_folder import read_results_folder
from regatta.tables.cells import rows_of

SHAPES = [(1, 1), (1, 2), (1, 3), (2, 2), (2, 4)]
WRITERS = {
    "pytorch-json": lambda folder: json.dumps(FORMAT["pytorch-json"].write(folder)),
    "csv": FORMAT["csv"].write,
}
HELD = {
    "pytorch-json": ("train_step",),
    "csv": ("train_step", "collective", "train_run", "sync_batchnorm"),
}


def cells_of(shape, stack, buckets, more):
    """Return cells of every benchmark on one shape. more: device and backend."""
    more, num_ranks = more | {"stack": stack}, shape[0] * shape[1]
    trained = {"batch_size": 16, "image_size": 96} | more
    cells = [train_cell("resnet18", *shape, "ddp", bucket, **trained) for bucket in buckets]
    cells += [run_cell("own", *shape, epochs=3, **more), norm_cell("own", 32, 2**20, *shape, **more)]
    language = train_cell("lm_tiny", *shape, "ddp", buckets[0], **trained)
    language["spec"]["parameters"] |= {"image_size": None, "context_length": 256, "dtype": "bf16", "compile": True}
    cells.append(language)
    if num_ranks == 1:
        return [*cells, train_cell("resnet18", 1, 1, "none", **trained)]
    cells += [collective_cell(2**k, *shape, **more) for k in (2, 20, 33)]
    cells += [collective_cell(2**20, *shape, "all_reduce", algorithm="ring", dtype="bf16", **more)]
    return [
        *cells,
        collective_cell(2**12, *shape, "all_gather", **more),
        collective_cell(None, *shape, "barrier", **more),
    ]


def record_of(cell, repeat, rng, seconds):
    name = cell["spec"]["benchmark"]
    if name == "train_run":
        record = run_record(cell, repeat, TIME)
        record["samples_ns"] = [[round(seconds * 1e9 * rng.uniform(1, 2)) for _ in row] for row in record["samples_ns"]]
        return record
    if name == "sync_batchnorm":
        return norm_record(cell, repeat, TIME, max(1, round(seconds * 1e6)))
    return make_record(cell, repeat, seconds, 0.02, rng, TIME)


def write_campaign(folder, cells, device, repeats, failed, seed):
    """Write a results folder with its tables. failed: indices of (cell, repeat) without a valid record."""
    rng, slots = random.Random(seed), [(cell["id"], repeat) for cell in cells for repeat in range(repeats)]
    bad = {slots[index % len(slots)] for index in failed}
    groups = {}
    for cell in cells:
        spec = cell["spec"]
        groups.setdefault((spec["nodes"], spec["gpus_per_node"], spec["stack"]["name"]), []).append(cell)
    scale = {json.dumps(cell["spec"]["parameters"]): 10 ** rng.uniform(-5, 1) for cell in cells}
    (folder / "launches").mkdir(parents=True)
    campaign = make_campaign(cells, name=folder.name, device=device, repeats=repeats)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    for (nodes, gpus, stack), own in groups.items():
        for repeat in range(repeats):
            launch = f"n{nodes:02d}g{gpus:02d}-{stack}-l{repeat:03d}-a00"
            gpu = [{"name": "NVIDIA H100"}]  # which a machine may have, independent of what the campaign measures
            lines = [make_header(campaign, launch, repeat, own, TIME, gpus=gpu)]
            for cell in own:
                seconds = scale[json.dumps(cell["spec"]["parameters"])] * rng.uniform(1, 1.5)
                is_bad = (cell["id"], repeat) in bad
                lines.append({"kind": "start", "cell": cell["id"], "time_utc": TIME})
                lines.append(
                    make_failure(cell, repeat, "timeout", "measure", "no record after 60 s", TIME)
                    if is_bad
                    else record_of(cell, repeat, rng, seconds)
                )
            lines.append({"kind": "complete", "time_utc": TIME, "elapsed_ns": 1})
            path = folder / "launches" / f"{launch}.jsonl"
            write_lines(path, lines)
    return write_analysed(folder)


@st.composite
def campaigns(draw):
    """Draw what a campaign is made of, as arguments of `write_drawn`."""
    return {
        "device": draw(st.sampled_from(["cpu gloo", "cuda nccl", "cuda gloo"])),
        "shapes": draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=2, unique_by=lambda s: s[0] * s[1])),
        "stacks": draw(st.lists(st.sampled_from(["host", "bound"]), min_size=1, max_size=2, unique=True)),
        "buckets": draw(st.sampled_from([(25,), (25, 0.5), (25, 1)])),
        "repeats": draw(st.integers(1, 3)),
        "failed": draw(st.lists(st.integers(0, 1000), max_size=3)),
        "seed": draw(st.integers(0, 1000)),
    }


def write_drawn(folder, device, shapes, stacks, buckets, **more):
    device, backend = device.split()
    place = {"device": device, "backend": backend}
    cells = [cell for shape in shapes for stack in stacks for cell in cells_of(shape, stack, buckets, place)]
    return write_campaign(folder, cells, device, **more)


def measured_ids(folder, kind):
    rows = folder.rows
    return set(rows.loc[rows["benchmark"].isin(HELD[kind]) & (rows["status"] == "ok"), "cell"])


@pytest.mark.system
@settings(max_examples=3, phases=[Phase.explicit, Phase.generate])  # to shrink a campaign takes minutes
@given(made=campaigns())
def test_an_export_that_is_imported_compares_as_one_in_every_cell(made):
    with tempfile.TemporaryDirectory() as scratch:
        path = write_drawn(Path(scratch) / "before", **made)
        base, tables = read_campaign(path), analysed(path)[1]
        for kind in WRITERS:
            one = {"bucket_cap_mb": "25", "stack": made["stacks"][0], "model": "resnet18"}
            folder = read_results_folder(path, one if kind == "pytorch-json" else {})
            if ids := measured_ids(folder, kind):
                check_round_trip(Path(scratch) / kind, kind, folder, ids, base, tables)


def check_round_trip(scratch, kind, folder, ids, base, tables):
    scratch.mkdir()
    exported, imported = scratch / "exported", scratch / "imported"
    exported.write_text(WRITERS[kind](folder), encoding="utf-8")
    imported.mkdir()
    found = compare_campaigns(base, read_imported(exported, None, Options(), imported), 0.05)
    rows = found.comparisons
    assert set(rows["reference"]) == ids
    assert all(reason.endswith("in base") for reason in found.unmatched)
    assert rows["time_ratio"].to_numpy(float) == pytest.approx(1, rel=1e-9)
    assert (rows["time_ratio"] == 1).all()
    assert (rows["num_launches"] == rows["num_reference_launches"]).all()
    import_files([exported], scratch / "back", None, Options(), now=lambda: TIME)
    check_tables(tables, analysed(scratch / "back")[1], ids)


def check_tables(before, after, ids):
    """Throughput, efficiency, blocking and pipelined times of collectives are what they were."""
    key = ["benchmark", "model", "bucket_cap_mb", "strategy", "operation", "algorithm", "message_bytes", "dtype",
           "nodes", "gpus_per_node", "stack", "backend", "device"]  # fmt: skip
    for name, columns in {
        "train_step": ("step_s", "throughput_samples_per_s"),
        "collective": ("latency_s", "pipelined_s", "busbw_gb_per_s", "pipelined_busbw_gb_per_s"),
        "sync_batchnorm": ("time_s",),
    }.items():
        old, new = (rows_of(tables["cells"], name) for tables in (before, after))
        old = old[old["cell"].isin(ids)]
        own = [column for column in key if column in old and column in new]
        tables = [table.set_index(own).sort_index()[list(columns)] for table in (old, new)]
        assert tables[0].index.equals(tables[1].index), name
        assert tables[1].to_numpy(float) == pytest.approx(tables[0].to_numpy(float), rel=1e-9, nan_ok=True), name
