"""Percentiles of single training steps and the rate of one GPU at each: tables/percentiles.csv.

Bucket sizes are compared as PyTorch's DDP benchmark prints them. Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import CONFIDENCE, PERCENTILES, min_samples, over_launches
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    four,
    is_unknown,
    percent,
    rank_word,
    times,
)
from regatta.report.panels import Section, Table, launches, name_rows
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, SHAPE_COLUMNS, STEP_COLUMNS, TEXT, WHOLE, make_table
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of

TIMES = ("p50_s", *PERCENTILES)  # columns of measurements.csv
USUAL_MIB = 25  # the default of DistributedDataParallel
COMPARED = ("p75_s", "p95_s")  # what the published comparison of bucket sizes shows


def rate_column(time: str) -> str:
    """Return the name of the rate that belongs to a time: p95_s -> p95_per_gpu_samples_per_s."""
    return f"{time.removesuffix('_s')}_per_gpu_samples_per_s"


WORKLOAD_AND_SHAPE = (*STEP_COLUMNS, *SHAPE_COLUMNS)
PERCENTILE_COLUMNS = {
    "cell": TEXT,
    **{name: CELL[name] for name in WORKLOAD_AND_SHAPE},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "num_samples": WHOLE,
    **{name: REAL for time in TIMES for name in (time, rate_column(time))},
}


def percentiles_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    launches = LaunchValues(measurements[measurements["p50_s"].notna()], ("num_iterations", *TIMES))
    planned = {"num_planned": campaign["repeats"]}
    cells = cells_of(campaign, "train_step")
    return make_table([cell_row(cell) | planned | _percentiles(cell, launches) for cell in cells], PERCENTILE_COLUMNS)


def _percentiles(cell: dict, launches: LaunchValues) -> dict:
    """Return medians over launches of each launch's percentile, and rates of these medians.

    A percentile that one launch lacks is unknown: launches with enough samples for it were faster.
    """
    num, samples = launches.num_launches(cell["id"]), launches.of(cell["id"], "num_iterations")
    row = {"num_launches": num, "num_samples": int(min(samples)) if samples else None}
    for time in TIMES:
        values = launches.of(cell["id"], time)
        median = over_launches(values).median if len(values) == num else None
        batch = cell["spec"]["parameters"]["batch_size"]
        row |= {time: median, rate_column(time): None if median is None else batch / median}
    return row


def percentile_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each measured workload: a row for each cell, a time and a rate for each percentile."""
    rows = name_rows(percentiles, "train_step")
    found = []
    for workload, own in rows.groupby("workload", sort=True):
        if own["p50_s"].isna().all():
            continue
        known = [time for time in TIMES if own[time].notna().any()]
        heads = (text for time in known for text in (f"{time.removesuffix('_s')} (ms)", "samples/s"))
        body = tuple(
            (
                row.name,
                launches(row),
                NOT_PLANNED if is_unknown(row.num_samples) else str(row.num_samples),
                *(text for time in known for text in (_ms(getattr(row, time)), four(getattr(row, rate_column(time))))),
            )
            for row in _from_one_rank_up(own).itertuples()
        )
        caption = f"Step-time percentiles of {workload} (samples/s per {rank_word(device)})"
        found.append(Table(caption, ("cell", "n", "steps", *heads), body, sources=("percentiles",)))
    return tuple(found)


def bucket_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each workload and bucket size against the default: the times of both, and their difference."""
    rows = name_rows(percentiles, "train_step", without=("bucket_cap_mb",))
    rows = rows[rows["bucket_cap_mb"].notna()]
    base = _base(rows)
    bases = {_key(row): row for row in rows[rows["bucket_cap_mb"] == base].itertuples()}
    found = []
    for size in sorted(set(rows["bucket_cap_mb"]) - {base}):
        others = rows[rows["bucket_cap_mb"] == size]
        for workload, own in others.groupby("workload", sort=True):
            pairs = [(bases.get(_key(row)), row) for row in _from_one_rank_up(own).itertuples()]
            pairs = [(base, row) for base, row in pairs if base is not None]
            if any(not is_unknown(base.p50_s) and not is_unknown(row.p50_s) for base, row in pairs):
                found.append(_comparison(workload, pairs, device))
    return tuple(found)


def _comparison(workload: str, pairs: list[tuple], device: str) -> Table:
    base_mib, mib = (f"{row.bucket_cap_mb:g} MiB" for row in pairs[0])
    heads = ["cell", "n"]
    known = [time for time in COMPARED if any(not is_unknown(getattr(row, time)) for pair in pairs for row in pair)]
    for time in known:
        name = time.removesuffix("_s")
        heads += [f"{name}, {base_mib} (ms)", f"{name}, {mib} (ms)", "samples/s", f"Δ {name} (%)"]
    body = tuple(
        (
            row.name,
            f"{base.num_launches} vs. {row.num_launches}",
            *(text for time in known for text in _difference(base, row, time)),
        )
        for base, row in pairs
    )
    caption = f"Bucket size {mib} vs. {base_mib}: {workload} (samples/s per {rank_word(device)} at {mib})"
    return Table(caption, tuple(heads), body, sources=("percentiles",))


def _difference(base, row, time: str) -> tuple[str, str, str, str]:
    before, after = getattr(base, time), getattr(row, time)
    slower = UNKNOWN if is_unknown(before) or is_unknown(after) else percent(after / before - 1)
    return _ms(before), _ms(after), four(getattr(row, rate_column(time))), slower


def _base(rows: pd.DataFrame) -> float | None:
    """Return the bucket size that the others are compared with: DDP's default if it was measured, else the largest."""
    sizes = set(rows["bucket_cap_mb"])
    return USUAL_MIB if USUAL_MIB in sizes else max(sizes, default=None)


def _key(row) -> tuple:
    """Return what identifies a cell, without its bucket size. Unknown is a word here, since pd.NA equals nothing."""
    values = (getattr(row, name) for name in WORKLOAD_AND_SHAPE if name != "bucket_cap_mb")
    return tuple("unknown" if is_unknown(value) else value for value in values)


def _from_one_rank_up(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of the published table: by number of ranks, those without a wrapper first."""
    rows = rows.assign(is_wrapped=rows["strategy"] != "none")
    order = ["world_size", "nodes", "is_wrapped", "strategy", "bucket_cap_mb", "gradient_as_bucket_view"]
    return rows.sort_values([*order, "stack", "backend"], kind="stable", na_position="first")


def _ms(seconds: float | None) -> str:
    """Return milliseconds with four figures: with three, a difference of one percent could not be recomputed."""
    return four(times(seconds, 1e3))


def _least_samples() -> str:
    return ", ".join(f"{name.removesuffix('_s')} {min_samples(p)}" for name, p in PERCENTILES.items())


def section(data: ReportData) -> Section:
    lead = (
        "Percentiles as printed in the imported files."
        if data.campaign.get("imported")
        else "Single steps, device synchronized before and after, slowest rank. Times: median over launches of each"
        " launch's percentile. Rates: batch size per rank / time."
    )
    tables = percentile_tables(data.tables["percentiles"], data.device)
    return Section("percentiles", "Step-time percentiles", "No training step was measured.", lead, tables=tables)


def methods(campaign: dict) -> list[tuple[str, str]]:
    text = (
        f"Linear interpolation. Shown only if at least one sample lies beyond the percentile at {100 * CONFIDENCE:g} %"
        f" confidence ({_least_samples()} samples)."
    )
    return [("Percentiles", text)]


TABLES = {
    "percentiles": TableSpec(
        PERCENTILE_COLUMNS, lambda campaign, tables: percentiles_table(campaign, tables["measurements"])
    )
}
TOPIC = Topic("percentiles", "Step-time percentiles", TABLES, section, methods=methods)
