"""Percentiles of single training steps and the rate of one GPU at each. Definitions: docs/metrics.md."""

from regatta.core.statistics import CONFIDENCE, PERCENTILES, min_samples
from regatta.report.panels import Section, workload
from regatta.report.plots import named, tables_of
from regatta.tables.metrics import CALL_P50, CALL_TIMES, NAMES, NUM_SAMPLES, RATES
from regatta.topics.base import ReportData, Topic

# In the order of the published table: by number of ranks, those without DDP first.
ORDER = (
    "world_size",
    "nodes",
    "is_wrapped",
    "strategy",
    "bucket_cap_mb",
    "gradient_as_bucket_view",
    "stack",
    "backend",
)


def section(data: ReportData) -> Section | None:
    needed = ", ".join(f"{NAMES[time]} {min_samples(p)}" for time, p in PERCENTILES.items())
    lead = (
        "Percentiles as printed in the imported files."
        if data.campaign.imported
        else "Single steps, device synchronized before and after, slowest rank. Times: median over launches of each"
        " launch's percentile (linear interpolation), if each launch has enough steps that, with"
        f" {100 * CONFIDENCE:g} % confidence, one is longer than the percentile (at least {needed}). Rates: batch size"
        " per rank / time. Scaling and bucket sizes use pipelined steps instead."
    )
    rows, title = named(data, data.cells_of("train_step")), "Step-time percentiles"
    rows = rows.assign(is_wrapped=rows["strategy"] != "none").sort_values([*ORDER], kind="stable", na_position="first")
    measured = rows.groupby("workload")[CALL_P50.name].transform("count") > 0
    columns = (NUM_SAMPLES, *CALL_TIMES, *RATES)
    tables = tables_of(data, rows[measured], columns, f"{title} of {{}}", workload)
    return Section(lead, tables=tables, is_folded=True) if tables else None


TOPIC = Topic("percentiles", "Step-time percentiles", section=section, part_of="stability", benchmarks=("train_step",))
