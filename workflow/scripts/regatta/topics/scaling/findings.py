"""Findings on scaling: the efficiency of each workload and stack at its largest shape, and where the loss goes."""

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.names import PLACE, SEPARATOR, CellName
from regatta.core.text import is_unknown, natural, ranks_word
from regatta.kit.findings import FAIR, RESULT, SUMMARY, Kind, Value
from regatta.report.findings import Finding, Source, of_cells, percent_number
from regatta.report.page import threads_by_shape
from regatta.topics.base import UNRELIABLE, ReportData, headline_rows, once_per_report, unreliable
from regatta.topics.comparison.tables import times_by_cell
from regatta.topics.scaling.figures import Threads, best_of_largest, candidates, is_wide
from regatta.topics.scaling.tables import EFFICIENCY, EXCELLENT, GOOD, PARTS, THROUGHPUT, WIDE_RATIO, is_baseline
from regatta.topics.settings import FASTEST, Setting, compare_settings, fastest_values

WORKLOAD = [name for name, axis in axes_of("train_step").items() if not axis.is_series]
MOST_EFFICIENCIES, MOST_THROUGHPUTS = 4, 3  # among the findings
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
            UNRELIABLE,
        ),
    ),
    Kind(
        *("best_throughput", SUMMARY),
        lead="Throughput: {throughput_samples_per_s}",
        parts=("{name}", "first of {num_workloads} workloads", "no {missing}"),
        line="scaling",
    ),
    Kind(
        *("efficiency", RESULT),
        lead="{name}: {efficiency:number} scaling efficiency ({efficiency:ends}).",
        parts=("Losses: {losses} points.", *FASTEST),
        term="Efficiency",
        help="Throughput per rank relative to that of the baseline cell. It is the product of DDP, X(1) / X_none(1),"
        " intra-node, X(g) / (g X(1)), and inter-node, X(kg) / (k X(g)), for throughput X on k nodes of g ranks. Above"
        f" {EXCELLENT:.1f} excellent, above {GOOD:.1f} good, else poor. If the range spans a limit, all grades in it"
        f" are shown; if it is wider than {100 * WIDE_RATIO:g} % of the efficiency, uncertain. No grade with one"
        " launch, or if the number of threads per rank differs from the baseline's. Points in figures: one launch /"
        " median of the baseline. Within noise: multiple comparisons with the best do not exclude it (95 %).",
    ),
    Kind(
        *("efficiency_uncertain", RESULT),
        lead="{name}: efficiency uncertain, {efficiency}.",
        parts=("More launches are needed.",),
    ),
    Kind(
        *("baseline_suspect", FAIR),
        lead="Baseline suspect: {name} has an efficiency of {efficiency}, above 110 %, relative to {baseline}.",
        advice="Check the baseline's launches for other load, too few cores or memory. Measure it again.",
        next_step="check the baselines, then raise `repeats`",
    ),
    Kind("throughput", RESULT, "{name}: {throughput_samples_per_s}.", ("No {missing}.",)),
    Kind("lowest", RESULT, "Listed: lowest {num} of {num_groups:efficiency/efficiencies}."),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the summary, and the lowest efficiencies of workloads and stacks; without any, throughputs."""
    found = efficiency_findings(data)
    if not found:
        return _throughputs(data)
    # Uncertain ones come after those that say how much is lost.
    found = sorted(found, key=lambda item: (item.kind == "efficiency_uncertain", item.values["efficiency"].estimate))
    results = [finding for finding in found if finding.kind != "baseline_suspect"]
    shown = results[:MOST_EFFICIENCIES]
    if len(results) > len(shown):
        source = Source("tables/scaling.csv", what="all rows with an efficiency")
        shown.append(Finding("lowest", {"num": len(shown), "num_groups": len(results)}, (source,)))
    return [_summary(data), *shown, *(finding for finding in found if finding.kind == "baseline_suspect")]


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


def _throughputs(data: ReportData) -> list[Finding]:
    """Return the highest throughput of workloads, for the summary of the first one at the largest shape.

    Workloads are not compared.
    """
    highest = [best_of_largest(rows) for rows in workloads(data) if rows["step_s"].notna().any()]
    most = max((row.world_size for row in highest), default=0)
    largest = [row for row in highest if row.world_size == most]
    found = []
    for row in sorted(highest, key=lambda row: row not in largest)[:MOST_THROUGHPUTS]:
        values = {"world_size": int(row.world_size), THROUGHPUT.name: Value.of(row, THROUGHPUT)}
        words = {"missing": "result besides baselines" if is_baseline(row) else "baseline was measured"}
        words |= {"name": data.names[row.cell], "num_workloads": len(largest) if len(largest) > 1 else None}
        kind = "throughput" if found else "best_throughput"
        found.append(Finding(kind, values, (of_cells("scaling", [row.cell]),), (row.cell,), words=words))
    return found


def _efficiency(
    rows: pd.DataFrame, scaling: pd.DataFrame, threads: Threads, data: ReportData, settings: dict[str, Setting]
) -> Finding:
    best, chosen = best_of_largest(rows), candidates(rows)
    base = scaling.iloc[(scaling["cell"] == best.baseline).to_numpy().argmax()]
    places = {(int(row.nodes), int(row.gpus_per_node)) for row in (best, base)}
    own_threads = {place: tuple(sorted(threads[place])) for place in sorted(places) if place in threads}
    name, value, losses = data.cell_names[best.cell], Value.of(best, EFFICIENCY), losses_of(best)
    values = {
        "name": SEPARATOR.join((_workload(name), f"{name.parts['shape']} {name.ranks}")),
        "efficiency": value,
        "baseline": data.names[best.baseline],
        "losses_ratio": losses,
        **fastest_values(best.cell, chosen["cell"].tolist(), settings, data.cell_names),
        "threads": own_threads if len(set(own_threads.values())) > 1 else {},
        "world_size": int(best.world_size),
    }
    words = {"losses": _ranges_of_losses([losses])}
    sources = (of_cells("scaling", [best.cell, best.baseline, *chosen["cell"]]),)
    if (value.low if is_wide(best) else value.estimate) > SUSPECT_RATIO:
        return Finding("baseline_suspect", values, sources, (best.cell, best.baseline), "warnings", words)
    kind = "efficiency_uncertain" if is_wide(best) else "efficiency"
    return Finding(kind, values, sources, (best.cell, best.baseline), words=words)


def _workload(name: CellName) -> str:
    """Return the workload and stack of a cell, without fields that are the same everywhere."""
    return name.say("subject", *name.settings, *PLACE, always=("subject",))


def losses_of(row: object) -> dict[str, float]:
    """Return by part the share of the ideal that it loses, without parts that the shape does not have.

    With the factors f1 (DDP), f2 (intra-node) and f3 (inter-node): 1 - f1, f1 (1 - f2), f1 f2 (1 - f3).
    """
    left, losses = 1.0, {}
    for part in PARTS:
        if not is_unknown(factor := getattr(row, part.name)):
            losses[part.name] = left * (1 - float(factor))
            left *= float(factor)
    return losses


@once_per_report
def loss_rows(data: ReportData) -> list[dict]:
    """Return where throughput is lost at the largest measured shape of each workload and stack, the largest first.

    Losses and efficiency sum to 1, so a row is left out if its baseline is not one rank without DDP, and if the
    efficiency is uncertain or its baseline suspect. A gain is negative.
    """
    found = []
    for finding in efficiency_findings(data):
        cell, losses = finding.cells[0], finding.values["losses_ratio"]
        left, name = 1 - sum(losses.values()), data.cell_names[finding.cells[0]]
        if finding.kind == "efficiency" and abs(left - finding.values["efficiency"].estimate) < ROUNDING:
            row = {"name": name.without("shape").full, "cell": cell, "shape": name.parts["shape"], "kept": left}
            row |= {"losses": [(part.name, losses.get(part.name)) for part in PARTS]}
            found.append(row | {"num_ranks": finding.values["world_size"]})
    return sorted(found, key=lambda row: (-row["num_ranks"], natural(row["name"])))


def _summary(data: ReportData) -> Finding:
    """Return the ends of the efficiencies at the largest size, and where most is lost.

    An end has an interval or range: one launch cannot say how far it is off. A suspect baseline makes no end.
    """
    found = headline_rows(data, efficiency_findings(data), lambda finding: finding.cells)
    largest = max(finding.values["world_size"] for finding in found)
    found = sorted(
        (finding for finding in found if finding.values["world_size"] == largest),
        key=lambda finding: finding.values["efficiency"].estimate,
    )
    names = {finding.cells[0]: _workload(data.cell_names[finding.cells[0]]) for finding in found}
    ends = [f for f in found if f.kind == "efficiency" and f.values["efficiency"].low is not None]
    known = {row["cell"]: {part: loss for part, loss in row["losses"] if loss is not None} for row in loss_rows(data)}
    known = {f.cells[0]: known[f.cells[0]] for f in ends if f.cells[0] in known}
    lost = {cell: max(losses, key=losses.get) for cell, losses in known.items() if max(losses.values(), default=0) > 0}
    missing, ranks = _without_result(data, largest), ranks_word(data.device)
    values = {"world_size": largest, "num_workloads": len(found), "without_result": missing}
    values |= {"largest_losses": lost, "largest_losses_ratio": {cell: known[cell][part] for cell, part in lost.items()}}
    words = {"ranks": ranks, "losses": _ranges_of_losses(list(known.values()))}
    for name, end in zip(("lowest", "highest"), (ends[0], ends[-1]) if ends else (), strict=False):
        values[f"{name}_ratio"] = end.values["efficiency"]
        words[name] = names[end.cells[0]] if len(ends) > 1 else ""
    others = [finding for finding in found if finding not in ends and finding.kind != "baseline_suspect"]
    values["num_uncertain"] = len(others)
    words["uncertain"] = [f"{names[f.cells[0]]} {f.values['efficiency']}" for f in others]
    words["suspect"] = [names[finding.cells[0]] for finding in found if finding.kind == "baseline_suspect"]
    words |= {"missing": [_workload(data.cell_names[cell]) for cell in missing]}
    words |= {"missing_size": max(missing.values(), default=None), "sharing": found[0].values["threads"] and ranks}
    cells = tuple(finding.cells[0] for finding in found)
    values |= unreliable(data, [cell for finding in found for cell in finding.cells])
    return Finding("scaling", values, (of_cells("scaling", cells),), cells, words=words)


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


def _ranges_of_losses(rows: list[dict[str, float]]) -> dict[str, str]:
    """Return each loss in percentage points, with its range over workloads."""
    found = {}
    for part in PARTS:
        if losses := [row[part.name] for row in rows if part.name in row]:
            low, high = percent_number(min(losses)), percent_number(max(losses))
            found[part.label] = low if low == high else f"{low} to {high}"
    return found
