"""Percentiles of single training steps and the rate of one GPU at each: tables/percentiles.csv.

Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import CONFIDENCE, PERCENTILES, fast_median, min_samples
from regatta.core.text import NOT_PLANNED, UNKNOWN, four, is_unknown, percent, rank_word, times
from regatta.kit.columns import CELL_ID, SYNCHRONIZED, Column, Columns
from regatta.report.panels import Section, Table, launches, name_rows, text_of
from regatta.report.rows import table_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, STEP_COLUMNS, WHOLE, make_table
from regatta.topics.base import LaunchValues, ReportData, TableSpec, Topic, cells_of

TIMES = ("p50_s", *PERCENTILES)  # columns of measurements.csv
USUAL_MIB = 25  # the default of DistributedDataParallel
COMPARED = ("p75_s", "p95_s")  # percentiles of the published comparison


def rate_column(time: str) -> str:
    """Return the name of the rate that belongs to a time: p95_s -> p95_per_gpu_samples_per_s."""
    return f"{time.removesuffix('_s')}_per_gpu_samples_per_s"


WORKLOAD_AND_SHAPE = (*STEP_COLUMNS, *SHAPE_COLUMNS)
P50 = Column(
    *("p50_s", "step time p50"),
    shown_as="ms",
    better="smaller",
    note=SYNCHRONIZED,
    help="median of single, synchronized steps; includes the synchronization that pipelining avoids",
    key="step_p50_ms",
)
PERCENTILE_COLUMNS = Columns(
    CELL_ID,
    *(Column(name, type=CELL[name]) for name in WORKLOAD_AND_SHAPE),
    *(Column(name, type=WHOLE) for name in ("num_planned", "num_launches", "num_samples")),
    *(column for time in TIMES for column in (P50 if time == "p50_s" else Column(time), Column(rate_column(time)))),
)


def percentiles_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of the campaign, measured or not."""
    launches = LaunchValues(measurements[measurements["p50_s"].notna()], ("num_iterations", *TIMES))
    planned, cells = {"num_planned": campaign["repeats"]}, cells_of(campaign, "train_step")
    return make_table([cell_row(cell) | planned | _percentiles(cell, launches) for cell in cells], PERCENTILE_COLUMNS)


def _percentiles(cell: dict, launches: LaunchValues) -> dict:
    """Return medians over launches of each launch's percentile, and rates of these medians.

    A percentile that one launch lacks is unknown: launches with enough samples for it were faster.
    """
    num, samples = launches.num_launches(cell["id"]), launches.of(cell["id"], "num_iterations")
    row = {"num_launches": num, "num_samples": int(min(samples)) if samples else None}
    for time in TIMES:
        values = launches.of(cell["id"], time)
        if values and len(values) == num:
            median = fast_median(values)
            row |= {time: median, rate_column(time): cell["spec"]["parameters"]["batch_size"] / median}
    return row


def percentile_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each measured workload: a row for each cell, a time and a rate for each percentile."""
    rows = name_rows(percentiles, "train_step")
    found = []
    for workload, group in rows.groupby("workload", sort=True):
        if group["p50_s"].isna().all():
            continue
        columns = [("cell", lambda row: row.name), ("n", launches), ("steps", text_of("num_samples", _integer_text))]
        for time in (time for time in TIMES if group[time].notna().any()):
            columns.append((f"{time.removesuffix('_s')} (ms)", text_of(time, exact_ms)))
            columns.append(("samples/s", text_of(rate_column(time), four)))
        heads, shows = zip(*columns, strict=True)
        body = tuple(tuple(show(row) for show in shows) for row in table_rows(from_one_rank_up(group)))
        caption = f"Step-time percentiles of {workload} (samples/s per {rank_word(device)})"
        found.append(Table(caption, heads, body, sources=("percentiles",)))
    return tuple(found)


def _integer_text(num: int | None) -> str:
    return NOT_PLANNED if is_unknown(num) else str(num)


def from_one_rank_up(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows in the order of the published table: by number of ranks, those without DDP first."""
    rows = rows.assign(is_wrapped=rows["strategy"] != "none")
    order = ["world_size", "nodes", "is_wrapped", "strategy", "bucket_cap_mb", "gradient_as_bucket_view"]
    return rows.sort_values([*order, "stack", "backend"], kind="stable", na_position="first")


def exact_ms(seconds: float | None) -> str:
    """Return milliseconds with four digits: three are too few to recompute a difference of one percent."""
    return four(times(seconds, 1e3))


# The published comparison: PyTorch's DDP benchmark prints percentiles of each bucket size against the default's.


def bucket_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each workload and bucket size against the default: the times of both, and their difference.

    Without the default, the sizes are compared with the largest.
    """
    rows = name_rows(percentiles, "train_step", without=("bucket_cap_mb",))
    rows = rows[rows["bucket_cap_mb"].notna()]
    sizes = set(rows["bucket_cap_mb"])
    base = USUAL_MIB if USUAL_MIB in sizes else max(sizes, default=None)
    bases = {_key(row): row for row in table_rows(rows[rows["bucket_cap_mb"] == base])}
    found = []
    for (_, workload), group in rows[rows["bucket_cap_mb"] != base].groupby(["bucket_cap_mb", "workload"], sort=True):
        pairs = [(bases[_key(row)], row) for row in table_rows(from_one_rank_up(group)) if _key(row) in bases]
        if any(not is_unknown(base.p50_s) and not is_unknown(row.p50_s) for base, row in pairs):
            found.append(_comparison(workload, pairs, device))
    return tuple(found)


def _comparison(workload: str, pairs: list[tuple], device: str) -> Table:
    base_mib, mib = (f"{row.bucket_cap_mb:g} MiB" for row in pairs[0])
    known = [time for time in COMPARED if any(not is_unknown(getattr(row, time)) for pair in pairs for row in pair)]
    known = known or ["p50_s"]  # too few samples for a higher percentile
    heads = ["cell", "n"]
    for name in (time.removesuffix("_s") for time in known):
        heads += [f"{name}, {base_mib} (ms)", f"{name}, {mib} (ms)", "samples/s", f"Δ {name} (%)"]
    body = []
    for base, row in pairs:
        texts = [row.name, f"{row.num_launches} vs. {base.num_launches}"]
        for time in known:
            before, after = getattr(base, time), getattr(row, time)
            texts += [exact_ms(before), exact_ms(after), four(getattr(row, rate_column(time)))]
            texts.append(UNKNOWN if is_unknown(before) or is_unknown(after) else percent(after / before - 1))
        body.append(tuple(texts))
    caption = f"Bucket size {mib} vs. {base_mib}: {workload} (single steps; samples/s per {rank_word(device)} at {mib})"
    return Table(caption, tuple(heads), tuple(body), sources=("percentiles",))


def _key(row) -> tuple:
    """Return what identifies a cell, without its bucket size. Unknown is a word here, since pd.NA equals nothing."""
    values = (getattr(row, name) for name in WORKLOAD_AND_SHAPE if name != "bucket_cap_mb")
    return tuple("unknown" if is_unknown(value) else value for value in values)


def section(data: ReportData) -> Section:
    lead = (
        "Percentiles as printed in the imported files."
        if data.campaign.get("imported")
        else "Single steps, device synchronized before and after, slowest rank. Times: median over launches of each"
        " launch's percentile. Rates: batch size per rank / time. Scaling and bucket sizes use pipelined steps instead."
    )
    tables, title = percentile_tables(data.tables["percentiles"], data.device), "Step-time percentiles"
    return Section("percentiles", title, lead=lead, tables=tables, summary=title if tables else "")


def methods(campaign: dict) -> list[tuple[str, str]]:
    needed = ", ".join(f"{name.removesuffix('_s')} {min_samples(p)}" for name, p in PERCENTILES.items())
    text = (
        "Linear interpolation. Shown only if the sample contains a value beyond the percentile with"
        f" {100 * CONFIDENCE:g} % confidence ({needed} samples)."
    )
    return [("Percentiles", text)]


TABLES = {
    "percentiles": TableSpec(
        PERCENTILE_COLUMNS, lambda campaign, tables: percentiles_table(campaign, tables["measurements"])
    )
}
TOPIC = Topic("percentiles", "Step-time percentiles", TABLES, section, methods=methods, part_of="stability")
