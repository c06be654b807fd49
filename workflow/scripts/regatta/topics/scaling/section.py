"""The topic of scaling: throughput and efficiency of training steps, and where the loss goes. docs/metrics.md."""

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import value_text as axis_value_text
from regatta.core.text import (
    UNKNOWN,
    is_unknown,
    plural,
    rank_word,
    ranks_word,
)
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.report.page import threads_by_shape
from regatta.report.panels import Section, Table, common_words, divided, how_to_read, name_rows
from regatta.report.rows import table_rows
from regatta.store.csv_files import result_column
from regatta.topics.base import ReportData, TableSpec, Topic, steps_by_cell
from regatta.topics.scaling.figures import (
    cost_figures,
    scaling_figures,
    threads_text,
)
from regatta.topics.scaling.findings import KINDS, efficiency_findings, findings, loss_rows
from regatta.topics.scaling.tables import (
    EFFICIENCIES,
    PARTS,
    SCALING,
    efficiencies_table,
    scaling_table,
)

MOST_ROWS = 40  # rows shown in the table of baselines; the CSV has all
MODEL = ["model", "image_size", "context_length"]
DIMENSIONS = ("num_layers", "d_model", "num_heads", "d_ff", "vocab_size")


def section(data: ReportData) -> Section | None:
    scaling, threads = data.tables["scaling"], threads_by_shape(data.campaign, data.headers)
    steps, placed = steps_by_cell(data.measurements), name_rows(data.with_stack_places(scaling), "train_step")
    figures = scaling_figures(placed, steps, data.device, threads)
    common = common_words(scaling) if len(scaling) else ""
    lead = f"All workloads: {common}. Batch size is per {rank_word(data.device)}." if common else ""
    lead = " ".join(filter(None, (reference_text(data), lead)))
    drawn = how_to_read(scaling, "step_s") if figures else ""
    text = " ".join(filter(None, (lead, drawn, peaks_text(data.campaign, scaling))))
    tables = (*baseline_tables(data.tables["efficiencies"], placed, data.device), *model_tables(data.ok, data.device))
    if not figures and not tables:
        return None
    efficiency, throughput = divided(figures, "efficiency")
    cost = tuple(cost_figures(placed, steps, data.device))
    return Section(
        "scaling",
        "Scaling",
        lead=text,
        figures=efficiency or throughput,
        tables=tables,
        beside="losses.html.j2",
        content={"losses": loss_rows(data), "parts": {part.name: part.label for part in PARTS}},
        folded=("Throughput and cost", (*throughput, *cost)) if efficiency else ("Cost", cost),
    )


def reference_text(data: ReportData) -> str:
    """Return what the efficiencies and losses of the findings are relative to; empty without any."""
    found = efficiency_findings(data)
    if not found:
        return ""
    names = [data.cell_names[finding.cells[1]] for finding in found]
    bases = [f"{name.parts['shape']} {name.ranks} \N{MIDDLE DOT} {name.say(*name.series)}" for name in names]
    texts = [f"Baseline: {' or '.join(dict.fromkeys(bases))}, same workload and stack."]
    texts += ["Losses are percentage points of ideal throughput."] if loss_rows(data) else []
    threads = (threads_text(finding.values["threads"], ranks_word(data.device)) for finding in found)
    return " ".join([*texts, *dict.fromkeys(filter(None, threads))])


def baseline_tables(efficiencies: pd.DataFrame, scaling: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table of weak and one of strong scaling, each only if a cell has two baselines or a strong one."""
    names = {row.cell: row.cell_name.full for row in table_rows(name_rows(scaling, "train_step"))}
    world_sizes = scaling.set_index("cell")["world_size"]
    columns = (
        Column("cell", "cell", TEXT, text=lambda row: names[row.cell]),
        Column("against", "baseline", TEXT, text=lambda row: _baseline_text(row.against)),
        Column("num_launches", "n", WHOLE, text=lambda row: f"{row.num_launches} vs. {row.num_baseline_launches}"),
        next(column for column in EFFICIENCIES.declared if column.name == "efficiency_ratio"),
    )
    found = []
    for kind in ("weak", "strong"):
        rows = efficiencies[(efficiencies["scaling"] == kind) & efficiencies["efficiency_ratio"].notna()]
        if kind == "weak":
            rows = rows[rows.groupby("cell")["against"].transform("nunique") > 1]
        if rows.empty:
            continue
        rows = rows.assign(world_size=rows["cell"].map(world_sizes))
        rows = rows.sort_values("world_size", ascending=False, kind="stable")
        shown = rows.head(MOST_ROWS)
        title = f"Efficiency by baseline, {kind} scaling; largest shapes first"
        title += f"; {len(shown)} of {len(rows)} rows" if len(shown) < len(rows) else ""
        found.append(Table.of_columns(title, columns, shown, device, sources=("efficiencies",)))
    return tuple(found)


def _baseline_text(against: str) -> str:
    """Return a baseline in words: `no DDP, 1 rank` for `none, 1 rank`."""
    strategy, _, place = against.partition(", ")
    return f"{axis_value_text(axes_of('train_step')['strategy'], strategy)}, {place}"


def model_tables(measurements: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return one table with a row for each model and input size, none if no record has the number of parameters."""
    rows = measurements[measurements["benchmark"] == "train_step"].dropna(subset="num_parameters")
    if rows.empty:
        return ()
    models = rows.groupby(MODEL, dropna=False, sort=True).first().reset_index()
    columns = (
        Column("model", "model", TEXT),
        Column("sample", "sample", TEXT, text=_sample_text),
        result_column("num_parameters", shown_as="millions"),
        *map(result_column, DIMENSIONS),
        result_column("flops_per_sample", shown_as="GFLOP"),
    )
    return (Table.of_columns("Models", columns, models, device, sources=("measurements",)),)


def _sample_text(row) -> str:
    if not is_unknown(row.context_length):
        return plural(row.context_length, "token")
    return UNKNOWN if is_unknown(row.image_size) else f"{row.image_size} px"


def peaks_text(campaign: dict, scaling: pd.DataFrame) -> str:
    """Return the peaks that MFU is relative to, with their sources; empty if there is no MFU."""
    used = {(row.peak_dtype, row.peak_tflop_per_s) for row in scaling[scaling["mfu_ratio"].notna()].itertuples()}
    by_source: dict[tuple[str, str], list[str]] = {}
    for peak in campaign["cluster"].get("peaks") or []:
        if (peak["dtype"], float(peak["tflop_per_s"])) in used:
            rates = by_source.setdefault((peak["device"], peak["source"]), [])
            rates.append(f"{peak['tflop_per_s']:g} TFLOP/s ({peak['dtype']})")
    texts = [f"{' or '.join(rates)} of {device}, by {source}" for (device, source), rates in by_source.items()]
    return f"MFU is relative to {'; '.join(texts)}." if texts else ""


TABLES = {
    "scaling": TableSpec.of(SCALING, scaling_table, "campaign", "measurements"),
    "efficiencies": TableSpec.of(EFFICIENCIES, efficiencies_table, "campaign", "measurements"),
}
TOPIC = Topic("scaling", "Scaling", TABLES, section, findings, kinds=KINDS)
