"""Findings on scaling: the efficiency of each workload and stack at its largest shape, and where the loss goes."""

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE, SEPARATOR, CellName
from regatta.core.text import is_unknown, natural, ranks_word, shape
from regatta.kit.findings import RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, Source, of_cells, percent_number
from regatta.report.page import threads_by_shape
from regatta.topics.base import ReportData, once_per_report
from regatta.topics.comparison.tables import times_by_cell
from regatta.topics.scaling.figures import Threads, best_of_largest, candidates, is_wide
from regatta.topics.scaling.tables import EFFICIENCY, PARTS, THROUGHPUT, is_baseline
from regatta.topics.settings import FASTEST, Setting, compare_settings, fastest_values

WORKLOAD = [name for name, axis in axes_of("train_step").items() if not axis.is_series]
PART_LABELS = {part.name: part.label for part in PARTS}
MOST_EFFICIENCIES, MOST_THROUGHPUTS = 4, 2  # among the findings
ROUNDING = 1e-3  # the product of the factors may differ from the efficiency by the rounding of the tables
SUSPECT_RATIO = 1.1  # an efficiency above says that the baseline was slow
KINDS = (
    Kind(
        *("scaling", SUMMARY),
        lead=(
            "Scaling efficiency on {world_size} {ranks}: {lowest_ratio:number} ({lowest}, {lowest_ratio:ends})"
            " to {highest_ratio:number} ({highest}, {highest_ratio:ends})",
            "Scaling efficiency on {world_size} {ranks}: {lowest_ratio}",
            "Scaling efficiency on {world_size} {ranks}: uncertain",
        ),
        parts=(
            "losses: {losses} points",
            "uncertain, more launches are needed: {uncertain}",
            "baseline suspect, as the efficiency is above 110 %: {suspect}",
            "no result on {missing_size} {ranks}: {missing}",
            "{sharing} share the cores of a host",
        ),
    ),
    Kind(
        *("best_throughput", SUMMARY),
        lead="Throughput: {throughput_samples_per_s}",
        parts=("{name}", "first of {num_workloads} workloads", "no baseline was measured"),
        line="scaling",
    ),
    Kind(
        *("best_throughput_of_baseline", SUMMARY),
        lead="Throughput: {throughput_samples_per_s}",
        parts=("{name}", "first of {num_workloads} workloads", "no result besides baselines"),
        line="scaling",
    ),
    Kind(
        *("efficiency", RESULT),
        lead="{name}: {efficiency:number} scaling efficiency ({efficiency:ends}).",
        parts=(
            "Losses: {losses} points.",
            FASTEST,
        ),
    ),
    Kind(
        *("efficiency_uncertain", RESULT),
        lead="{name}: efficiency uncertain, {efficiency}.",
        parts=("More launches are needed.",),
    ),
    Kind(
        "baseline_suspect",
        RESULT,
        "{name}: efficiency {efficiency}: above 110 %, so the baseline {baseline} is suspect.",
    ),
    Kind("throughput", RESULT, "{name}: {throughput}.", ("No baseline was measured.",)),
    Kind("throughput_of_baseline", RESULT, "{name}: {throughput}.", ("No result besides baselines.",)),
    Kind("lowest", RESULT, "Listed: lowest {num} of {num_groups:efficiency/efficiencies}."),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the summary, and the lowest efficiencies of workloads and stacks; without any, throughputs."""
    found = efficiency_findings(data)
    if not found:
        measured = [best_of_largest(rows) for rows in workloads(data) if rows["step_s"].notna().any()]
        return [*_best_throughput(data), *(_throughput(row, data) for row in measured[:MOST_THROUGHPUTS])]
    # Uncertain ones come after those that say how much is lost.
    found = sorted(found, key=lambda item: (item.kind == "efficiency_uncertain", item.values["efficiency"].estimate))
    shown = found[:MOST_EFFICIENCIES]
    if len(found) > len(shown):
        source = Source("tables/scaling.csv", what="all rows with an efficiency")
        shown.append(Finding("lowest", {"num": len(shown), "num_groups": len(found)}, (source,)))
    return [_summary(data), *shown]


@once_per_report
def workloads(data: ReportData) -> list[pd.DataFrame]:
    """Return the rows of scaling.csv of each workload and stack."""
    groups = data.tables["scaling"].groupby([*WORKLOAD, "stack", "backend"], dropna=False, sort=True)
    return [rows for _, rows in groups]


@once_per_report
def efficiency_findings(data: ReportData) -> list[Finding]:
    """Return the efficiency of the fastest cell at the largest shape of each workload and stack that has one.

    near: the cells that may be faster (`compare_settings`). num_undecided: those with too few launches.
    """
    scaling, threads = data.tables["scaling"], threads_by_shape(data.campaign, data.headers)
    known = [rows[rows["cell"] != rows["baseline"]].dropna(subset="efficiency_ratio") for rows in workloads(data)]
    known = [rows for rows in known if len(rows)]
    cells = [candidates(rows)["cell"].tolist() for rows in known]
    groups = {cell: "train_step" for of_workload in cells for cell in of_workload}
    settings = compare_settings(cells, times_by_cell(data.measurements), groups)
    return [_efficiency(rows, scaling, threads, data, settings) for rows in known]


def _throughput(row, data: ReportData) -> Finding:
    values = {"name": data.names[row.cell], "throughput": Value.of(row, THROUGHPUT)}
    kind = "throughput_of_baseline" if is_baseline(row) else "throughput"
    return Finding(kind, values, (of_cells("scaling", [row.cell]),), (row.cell,))


def _best_throughput(data: ReportData) -> list[Finding]:
    """Return the highest throughput of the first workload at the largest shape. Workloads are not compared."""
    highest = [best_of_largest(rows) for rows in workloads(data) if rows["step_s"].notna().any()]
    if not highest:
        return []
    largest = max(row.world_size for row in highest)
    best, *others = [row for row in highest if row.world_size == largest]
    values = {"world_size": int(best.world_size), "throughput_samples_per_s": Value.of(best, THROUGHPUT)}
    words = {"name": data.names[best.cell], "num_workloads": 1 + len(others) if others else None}
    kind = "best_throughput_of_baseline" if is_baseline(best) else "best_throughput"
    return [Finding(kind, values, (of_cells("scaling", [best.cell]),), (best.cell,), words=words)]


def _efficiency(
    rows: pd.DataFrame, scaling: pd.DataFrame, threads: Threads, data: ReportData, settings: dict[str, Setting]
) -> Finding:
    best, chosen = best_of_largest(rows), candidates(rows)
    base = scaling.iloc[(scaling["cell"] == best.baseline).to_numpy().argmax()]
    places = {(int(row.nodes), int(row.gpus_per_node)) for row in (best, base)}
    own_threads = {place: tuple(sorted(threads[place])) for place in sorted(places) if place in threads}
    name, value = data.cell_names[best.cell], Value.of(best, EFFICIENCY)
    factors = {part.name: float(factor) for part in PARTS if not is_unknown(factor := getattr(best, part.name))}
    values = {
        "name": SEPARATOR.join((_workload(name), f"{name.parts['shape']} {name.ranks}")),
        "efficiency": value,
        "baseline": data.names[best.baseline],
        **factors,
        "losses": {PART_LABELS[part]: percent_number(loss) for part, loss in losses_of(factors) if loss is not None},
        **fastest_values(best.cell, chosen["cell"].tolist(), settings, data.cell_names),
        "threads": own_threads if len(set(own_threads.values())) > 1 else {},
        "ranks": ranks_word(data.device),
        "world_size": int(best.world_size),
    }
    sources = (of_cells("scaling", [best.cell, best.baseline, *chosen["cell"]]),)
    kind = "efficiency_uncertain" if is_wide(best) else "efficiency"
    kind = "baseline_suspect" if value.estimate > SUSPECT_RATIO and kind == "efficiency" else kind
    return Finding(kind, values, sources, (best.cell, best.baseline))


def _workload(name: CellName) -> str:
    """Return the workload and stack of a cell, without fields that are the same everywhere."""
    return name.say("subject", *name.settings, *PLACE, always=("subject",))


def losses_of(factors: dict) -> list[tuple[str, float | None]]:
    """Return (part, share of the ideal that it loses); None where the shape has no such part. factors: by part."""
    left, losses = 1.0, []
    for part in PARTS:
        factor = factors.get(part.name)
        losses.append((part.name, None if factor is None else left * (1 - factor)))
        left *= 1.0 if factor is None else factor
    return losses


@once_per_report
def loss_rows(data: ReportData) -> list[dict]:
    """Return where throughput is lost at the largest measured shape of each workload and stack, the largest first.

    Shares of the ideal throughput.

    With the factors f1 (DDP), f2 (intra-node) and f3 (inter-node): 1 - f1, f1 (1 - f2), f1 f2 (1 - f3). They
    and the efficiency sum to 1, so a row is left out if its baseline is not one rank without DDP, and if the efficiency
    is uncertain. A gain is negative.
    """
    specs, found = {cell["id"]: cell["spec"] for cell in data.campaign["cells"]}, []
    for finding in efficiency_findings(data):
        cell = finding.cells[0]
        place = specs[cell]["nodes"], specs[cell]["gpus_per_node"]
        losses = losses_of(finding.values)
        left = 1 - sum(loss for _, loss in losses if loss is not None)
        is_certain = finding.kind != "efficiency_uncertain"
        if is_certain and abs(left - finding.values["efficiency"].estimate) < ROUNDING:
            row = {"name": data.cell_names[cell].without("shape").full, "cell": cell, "shape": shape(*place)}
            found.append(row | {"kept": left, "losses": losses, "num_ranks": place[0] * place[1]})
    return sorted(found, key=lambda row: (-row["num_ranks"], natural(row["name"])))


def _summary(data: ReportData) -> Finding:
    """Return the ends of the efficiencies at the largest size, and where most is lost.

    An end has an interval or range: one launch cannot say how far it is off. A suspect baseline makes no end.
    """
    found = efficiency_findings(data)
    largest = max(finding.values["world_size"] for finding in found)
    found = sorted(
        (finding for finding in found if finding.values["world_size"] == largest),
        key=lambda finding: finding.values["efficiency"].estimate,
    )
    names = {cell: _workload(name) for cell, name in data.cell_names.items()}
    ends = [f for f in found if f.kind == "efficiency" and f.values["efficiency"].low is not None]
    known = [row for row in loss_rows(data) if row["cell"] in {finding.cells[0] for finding in ends}]
    lost = _largest_losses(known)
    missing = _without_result(data, largest)
    others = [finding for finding in found if finding not in ends and finding.kind != "baseline_suspect"]
    values = {"world_size": largest, "num_workloads": len(found)}
    values["num_uncertain"] = sum(finding.kind == "efficiency_uncertain" for finding in found)
    words = {"ranks": ranks_word(data.device), "losses": _ranges_of_losses(known)}
    if ends:
        values["lowest_ratio"] = ends[0].values["efficiency"]
        values["highest_ratio"] = ends[-1].values["efficiency"]
        several = {"lowest": ends[0], "highest": ends[-1]} if len(ends) > 1 else {}
        words |= {name: names[finding.cells[0]] for name, finding in several.items()}
    values |= {"largest_losses": {cell: part for cell, (part, _) in lost.items()}}
    values |= {"largest_losses_ratio": {cell: loss for cell, (_, loss) in lost.items()}, "without_result": missing}
    words["uncertain"] = [f"{names[f.cells[0]]} {f.values['efficiency']}" for f in others]
    words["suspect"] = [names[finding.cells[0]] for finding in found if finding.kind == "baseline_suspect"]
    words |= {"missing": [names[cell] for cell in missing], "missing_size": max(missing.values(), default=None)}
    words["sharing"] = words["ranks"] if found[0].values["threads"] else ""
    sources = (of_cells("scaling", [finding.cells[0] for finding in found]),)
    return Finding("scaling", values, sources, tuple(finding.cells[0] for finding in found), words=words)


def _without_result(data: ReportData, largest: int) -> dict[str, int]:
    """Return the largest planned size, by one of its cells, of workloads that have no efficiency there.

    Workloads that were planned only on fewer ranks than `largest`, or without a baseline, are left out.
    """
    found = {}
    for rows in workloads(data):
        planned = rows[rows["baseline"].notna() & (rows["cell"] != rows["baseline"])]
        planned = planned[planned["world_size"] == planned["world_size"].max()]
        if len(planned) and planned["world_size"].iloc[0] >= largest and planned["efficiency_ratio"].isna().all():
            found[planned["cell"].iloc[0]] = int(planned["world_size"].iloc[0])
    return found


def _largest_losses(rows: list[dict]) -> dict[str, tuple[str, float]]:
    """Return by cell the part with the largest estimate of a loss, and its share of the ideal. rows: of `loss_rows`."""
    found = {}
    for row in rows:
        losses = {part: loss for part, loss in row["losses"] if loss is not None and loss > 0}
        found |= {row["cell"]: max(losses.items(), key=lambda item: item[1])} if losses else {}
    return found


def _ranges_of_losses(rows: list[dict]) -> dict[str, str]:
    """Return each loss in percentage points, with its range over workloads. rows: of `loss_rows`."""
    found = {}
    for part in PARTS:
        losses = [loss for row in rows for name, loss in row["losses"] if name == part.name and loss is not None]
        if losses:
            low, high = percent_number(min(losses)), percent_number(max(losses))
            found[part.label] = low if low == high else f"{low} to {high}"
    return found
