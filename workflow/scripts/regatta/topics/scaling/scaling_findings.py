"""Findings on scaling: the efficiency of each workload and stack at its largest shape, and where the loss goes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from regatta.core.benchmarks import axes_of
from regatta.core.moderation import CONFIDENCE, MIN_LAUNCHES
from regatta.core.names import PLACE, SEPARATOR, CellName
from regatta.core.text import is_unknown, natural, plural, rank_word, ranks_word, with_minus_signs
from regatta.core.verdicts import Verdict
from regatta.kit.columns import Column, Row, launches, table_rows
from regatta.kit.kinds import FAIR, RESULT, SUMMARY, Kind, Value, filled
from regatta.report.findings import Finding, Source, of_cells, percent_number
from regatta.report.plots import named
from regatta.store.waits import COMPUTE, LAG_RATIO
from regatta.tables.baselines import (
    EFFICIENCY,
    INTER_NODE,
    PARTS_OF_LOSS,
    WIDE_RATIO,
    is_baseline,
    is_wide,
)
from regatta.tables.counterparts import BaselineLookup
from regatta.tables.facts import values_by
from regatta.tables.metrics import EXPOSED_SHARE, THROUGHPUT
from regatta.tables.pairs import compared_steps
from regatta.tables.places import ratios_without
from regatta.tables.primary_times import times_by_cell
from regatta.topics import base
from regatta.topics.base import (
    FASTEST,
    ReportData,
    best_row,
    fastest_of_groups,
    on_most_ranks,
    once_per_report,
)

WORKLOAD = [name for name, axis in axes_of("train_step").items() if not axis.is_series]
MOST_EFFICIENCIES = 4  # among the findings
MOST_LAUNCHES = 100  # that are advised
ROUNDING = 1e-3  # the product of the factors may differ from the efficiency by the rounding of the tables
LEAST_RANGE = 0.05  # of efficiencies, from which their workloads are named
LEAST_EXPOSED = 0.1  # share of the step, above which the summary names exposed communication
SLOW_NODE = Column("slow_node_ratio", "slow node", shown_as="%", figures=2)
LOSSES = (*PARTS_OF_LOSS, SLOW_NODE)
WITHOUT = "up to {without_slow_node_ratio:number} without {slow_node}"
SUSPECT_RATIO = 1.1  # an efficiency above says that the baseline was slow

KINDS = (
    Kind(
        *("scaling", SUMMARY),
        lead=(
            "{what} on {on}: {range}, {without}",
            "{what} on {on}: {range}",
            "{what} on {on}: {lowest_ratio}, {without}",
            "{what} on {on}: {lowest_ratio}",
            "{what} on {on}: {best_open}: {unknown}",
            "{what} on {on}: {unknown}",
        ),
        parts=(
            "lowest: {lowest}, highest: {highest}",
            "{certain} of {num_workloads} workloads",
            "losses in percentage points: {losses}",
            "exposed communication: up to {exposed_share_ratio:number} of the step",
            "more launches are needed: {open}",
            "baseline implausible, as the efficiency is above 110 %: {suspect}",
            "no result on {missing_size} {ranks}: {missing}",
            "{sharing} share the cores of a host",
        ),
        place=3,
    ),
    Kind(
        *("best_throughput", SUMMARY),
        lead="Throughput: {throughput_samples_per_s}",
        parts=("{name}", "first of {num_workloads} workloads", "no {missing}"),
        key="scaling",
        place=3,
    ),
    Kind(
        *("efficiency", RESULT),
        lead="{name}: {efficiency:number} scaling efficiency ({efficiency:ends}).",
        parts=("Losses in percentage points: {losses}.", f"U{WITHOUT[1:]}.", *FASTEST),
        term="Efficiency",
        help="Throughput per rank relative to that of the baseline cell: the product of DDP, X(1) / X_none(1),"
        " intra-node, X(g) / (g X(1)), and inter-node, X(kg) / (k X(g)), for throughput X on k nodes of g ranks. Losses"
        " are reported if the interval of their factor excludes 1. Uncertain: the interval is wider than"
        f" {100 * WIDE_RATIO:g} % of the efficiency. Within noise: not excluded by multiple comparisons with the best.",
    ),
    Kind(
        *("efficiency_uncertain", RESULT),
        lead="{name}: {efficiency:number} scaling efficiency ({efficiency:ends}): too noisy.",
        parts=(("About {launches_needed:launch/launches} would suffice.", f"More than {MOST_LAUNCHES} are needed."),),
        next_step="narrow uncertain efficiencies: `repeats: {repeats}`, `{run}`",
    ),
    Kind(
        *("baseline_suspect", FAIR),
        lead="Implausible baseline: {name} has an efficiency of {efficiency}, above 110 %, relative to {baseline}.",
        advice="Check the baseline's launches for other load, too few cores or memory. Measure it again.",
        next_step="check the baselines, then raise `repeats`",
    ),
    Kind("listed", RESULT, "Listed: {num} of {num_groups:efficiency/efficiencies} that the breakdown lacks."),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the summary, and the efficiencies that the throughput breakdown lacks; without any, the throughput."""
    if not (found := efficiency_findings(data)):
        return _throughput(data)
    found = sorted(found, key=lambda item: item.values["efficiency"].estimate)
    others = {name: [of for of in found if of.kind == name] for name in ("efficiency_uncertain", "baseline_suspect")}
    drawn = {bar.cell for bar in loss_bars(data)}
    lacking = [of for of in found if of.kind == "efficiency" and of.cells[0] not in drawn]
    results = [*lacking, *others["efficiency_uncertain"]]
    shown = results[:MOST_EFFICIENCIES]
    if len(results) > len(shown):
        source = Source("cells.csv", what="all rows with an efficiency")
        shown.append(Finding("listed", {"num": len(shown), "num_groups": len(results)}, (source,)))
    return [_summary(data), *shown, *others["baseline_suspect"]]


def _on_most_ranks(rows: Sequence[Row]) -> list[Row]:
    return on_most_ranks([row for row in rows if not is_unknown(row.step_s)])


def fastest(rows: Sequence[Row]) -> Row:
    """Return the fastest measured cell of the largest world size, the first of equal ones."""
    return best_row(_on_most_ranks(rows), THROUGHPUT)


@once_per_report
def workloads(data: ReportData) -> list[list[Row]]:
    """Return the rows of each workload and stack, in the order of the campaign file."""
    rows = named(data, data.cells_of("train_step"))
    keys = ["subject_place", *WORKLOAD, *({"stack_place"} & {*rows}), "stack", "backend"]
    return [table_rows(of) for _, of in rows.groupby(keys, dropna=False, sort=True)]


@once_per_report
def efficiency_findings(data: ReportData) -> list[Finding]:
    """Return the efficiency of the fastest cell at the largest shape of each workload and stack that has one.

    near: the cells that may be faster (`compare_settings`). num_undecided: those with too few launches. noise: the
    parts of the loss whose factor may be 1.
    """
    known = [[row for row in rows if _has_efficiency(row)] for rows in workloads(data)]
    groups = [_on_most_ranks(rows) for rows in known if rows]
    times, lookup = times_by_cell(data.measurements), _without_nodes(data)[1]
    best = fastest_of_groups(data, groups, THROUGHPUT)
    parts = [lookup.parts(lookup.cells[row.cell]) for row, _ in best]
    factors = compared_steps([pair for of in parts for pair in of.values()], times, margin=0.0)
    found = []
    for (row, compared), rows, pairs in zip(best, groups, parts, strict=True):
        name, value, (losses, host) = data.cell_names[row.cell], Value.of(row, EFFICIENCY), losses_of(data, row)
        noise = [part for part, pair in pairs.items() if pair in factors and _may_be_noise(factors[pair])]
        values = {
            "name": SEPARATOR.join((_workload(name), f"{name.parts['shape']} {name.ranks}")),
            "efficiency": value,
            "baseline": data.names[row.baseline],
            "losses_ratio": losses,
            "slow_node": host,
            "without_slow_node_ratio": Value(SLOW_NODE, value.estimate + losses[SLOW_NODE.name]) if host else None,
            "noise": noise,
            **compared,
            "world_size": int(row.world_size),
        }
        kind, is_suspect = "efficiency", (value.low if is_wide(row) else value.estimate) > SUSPECT_RATIO
        if is_suspect or is_wide(row):
            kind = "baseline_suspect" if is_suspect else "efficiency_uncertain"
            values |= {} if is_suspect else {"launches_needed": launches_needed(value, data.campaign.repeats)}
        words = {"losses": _text_of_losses([{part: losses[part] for part in losses if part not in noise}])}
        sources = (of_cells("cells", [row.cell, row.baseline, *(one.cell for one in rows)]),)
        found.append(Finding(kind, values, sources, (row.cell, row.baseline), words=words))
    known = [one.values["launches_needed"] for one in found if one.values.get("launches_needed")]
    return [replace(one, words=one.words | {"repeats": max(known, default=None)}) for one in found]


def launches_needed(efficiency: Value, repeats: int) -> int | None:
    """Return about how many launches make an uncertain efficiency certain; None if more than MOST_LAUNCHES.

    The width of an interval is assumed to fall with the square root of their number. repeats: those planned.
    """
    excess = (efficiency.high - efficiency.low) / (WIDE_RATIO * efficiency.estimate)
    num = max(MIN_LAUNCHES, repeats + 1, math.ceil(efficiency.num_launches * excess**2))
    return num if num <= MOST_LAUNCHES else None


def _has_efficiency(row: Row) -> bool:
    return not is_baseline(row) and not is_unknown(row.efficiency_ratio)


def _may_be_noise(factor: Verdict) -> bool:
    """Return whether a factor may be 1: its interval has 1, or it is not significant among those of all workloads."""
    low, high, p = factor.ratio.low, factor.ratio.high, factor.p_adjusted or 0
    return low is not None and (low <= 1 <= high or p > 1 - CONFIDENCE)


def _throughput(data: ReportData) -> list[Finding]:
    """Return the line on the highest throughput of the first workload at the largest shape; none without any.

    Workloads are not compared.
    """
    highest = [best_row(of, THROUGHPUT) for rows in workloads(data) if (of := _on_most_ranks(rows))]
    largest = on_most_ranks(highest)
    for row in largest[:1]:
        values = {"world_size": int(row.world_size), THROUGHPUT.name: Value.of(row, THROUGHPUT)}
        words = {"missing": "result besides baselines" if is_baseline(row) else "baseline was measured"}
        words |= {"name": data.names[row.cell], "num_workloads": len(largest) if len(largest) > 1 else None}
        return [Finding("best_throughput", values, (of_cells("cells", [row.cell]),), (row.cell,), words=words)]
    return []


def _workload(name: CellName) -> str:
    """Return the workload and stack of a cell, without fields that are the same everywhere."""
    return name.say("subject", *name.settings, *PLACE, always=("subject",))


@once_per_report
def _without_nodes(data: ReportData) -> tuple[dict[str, dict[str, float | None]], BaselineLookup]:
    """Return, for each node that computes slowly, by how much it lengthens the cells on it, and their baselines."""
    hosts = data.tables["straggler_hosts"]
    slow = hosts.loc[hosts["is_persistent"] & (hosts["quantity"] == COMPUTE), "host"]
    found = {host: ratios_without(data.measurements, host) for host in slow}
    return found, BaselineLookup(data.campaign.cells_of("train_step"))


def losses_of(data: ReportData, row: Row) -> tuple[dict[str, float], str | None]:
    """Return by part the share of the ideal that a cell loses, without parts that the shape does not have, and the node
    that causes some of it by computing slowly, if one does.

    With the factors f1 (DDP), f2 (intra-node) and f3 (inter-node): 1 - f1, f1 (1 - f2), f1 f2 (1 - f3). The last one is
    partly the slow node's, unless the cells with fewer nodes ran on it too.
    """
    left, losses, (slow, lookup) = 1.0, {}, _without_nodes(data)
    for part in PARTS_OF_LOSS:
        if not is_unknown(factor := getattr(row, part.name)):
            losses[part.name] = left * (1 - float(factor))
            left *= float(factor)
    ratio, host = max(((of.get(row.cell) or 1, host) for host, of in slow.items()), default=(1, None))
    pairs = lookup.parts(lookup.cells[row.cell]).values() if ratio > 1 + LAG_RATIO else ()
    if INTER_NODE.name not in losses or not pairs or not ({*chain(*pairs)} - {row.cell}).isdisjoint(slow[host]):
        return losses, None
    loss = float(row.efficiency_ratio) * (ratio - 1)
    return losses | {INTER_NODE.name: losses[INTER_NODE.name] - loss, SLOW_NODE.name: loss}, host


@dataclass(frozen=True)
class Bar:
    """Where the throughput of one cell goes. group: workload and settings; label: shape. parts: in percent. launches:
    those with a value, of those planned.

    The first part is what is left, the others are lost; None: unknown, or does not apply. A gain is negative.
    """

    group: str
    label: str
    cell: str
    parts: tuple[float | None, ...]
    launches: str = ""


@once_per_report
def loss_bars(data: ReportData) -> list[Bar]:
    """Return where throughput is lost at each shape of each workload and stack, those with the largest shape first.

    All bars of a workload and stack are of its fastest configuration on most ranks. Losses and efficiency sum to 1, so
    a bar is left out if its baseline is not one rank without DDP, and if the efficiency is uncertain or its baseline
    suspect. A gain is negative.
    """
    groups = []
    for rows in workloads(data):
        known = [row for row in rows if row.world_size > 1 and _has_efficiency(row)]
        configurations = [data.cell_names[row.cell].without("shape").full for row in known]
        line = configurations[known.index(fastest(known))] if known else ""
        of_line = [row for row, configuration in zip(known, configurations, strict=True) if configuration == line]
        found = []
        for row in sorted(of_line, key=lambda row: (-row.world_size, -row.nodes)):
            (losses, _), value = losses_of(data, row), Value.of(row, EFFICIENCY)
            left, name = 1 - sum(losses.values()), data.cell_names[row.cell]
            if not (is_wide(row) or value.estimate > SUSPECT_RATIO) and abs(left - value.estimate) < ROUNDING:
                shares = (left, *(losses.get(part.name) for part in LOSSES))
                percents = tuple(None if share is None else 100 * share for share in shares)
                group, label = name.without("shape", "bucket_cap_mb").full, name.parts["shape"]
                bar = Bar(group, label, row.cell, percents, launches(row))
                found.append((-row.world_size, bar))
        groups += [found] if found else []
    groups.sort(key=lambda found: found[0][0])
    return [bar for found in groups for _, bar in found]


def _summary(data: ReportData) -> Finding:
    """Return the ends of the efficiencies at the largest size, and where most is lost.

    An end has an interval or range: one launch cannot say how far it is off. Ends of several are stated without it,
    since it ignores that they were selected. A suspect baseline makes no end. Losses that may be noise are left out.
    """
    found = base.headline_rows(data, efficiency_findings(data), lambda finding: finding.cells)
    largest = max(finding.values["world_size"] for finding in found)
    found = [finding for finding in found if finding.values["world_size"] == largest]
    found.sort(key=lambda finding: finding.values["efficiency"].estimate)
    names = {finding.cells[0]: _workload(data.cell_names[finding.cells[0]]) for finding in found}
    groups = {name: [one for one in found if _certainty(one) == name] for name in map(_certainty, found)}
    ends, known = groups.get("certain", []), {}
    for end in ends if largest > 1 else ():
        losses, noise = end.values["losses_ratio"], end.values["noise"]
        if abs(1 - sum(losses.values()) - end.values["efficiency"].estimate) >= ROUNDING:
            continue
        known[end.cells[0]] = {part: loss for part, loss in losses.items() if part not in noise}
    lost = {cell: max(losses, key=losses.get) for cell, losses in known.items() if max(losses.values(), default=0) > 0}
    missing, ranks = _without_result(data, largest), ranks_word(data.device)
    values = {"world_size": largest, "num_workloads": len(found), "without_result": missing}
    values |= {"largest_losses": lost, "largest_losses_ratio": {cell: known[cell][part] for cell, part in lost.items()}}
    still_open = [*groups.get("uncertain", ()), *groups.get("undecided", ())]
    values["num_uncertain"] = len(still_open)
    on = plural(largest, rank_word(data.device), ranks)
    words = {"what": "Scaling efficiency" if largest > 1 else "Efficiency", "on": on, "ranks": ranks}
    words |= {"losses": _text_of_losses(list(known.values()))}
    if len(nodes := {end.values["slow_node"] for end in ends}) == 1 and all(nodes):
        highest = max(ends, key=lambda end: end.values["without_slow_node_ratio"].estimate).values
        values |= {name: highest[name] for name in ("slow_node", "without_slow_node_ratio")}
        words["without"] = filled(WITHOUT, values)
    for name, end in zip(("lowest", "highest"), (ends[0], ends[-1]) if ends else (), strict=False):
        value = end.values["efficiency"]
        values[f"{name}_ratio"] = replace(value, low=None, high=None) if len(ends) > 1 else value
        words[name] = names[end.cells[0]]
    if len(ends) > 1:
        low, high = values["lowest_ratio"], values["highest_ratio"]
        words["range"] = f"{low:number} to {high:number}"
    if len(ends) < 2 or high.estimate - low.estimate < LEAST_RANGE:
        words["lowest"] = words["highest"] = ""
    for name, listed in (("open", still_open), ("suspect", groups.get("suspect", ()))):
        words[name] = [f"{names[one.cells[0]]} {one.values['efficiency']}" for one in listed]
    words["certain"] = len(ends) if len(ends) < len(found) else None
    words["unknown"] = "too noisy" if "uncertain" in groups else "undecided"
    if not ends and (words["unknown"] == "too noisy" or not still_open):
        words["mark"] = "uncertain"
    elif still_open or missing:
        words["mark"] = "partly measured"
    if still_open and not ends:  # the value before the judgement
        best = max(still_open, key=lambda one: one.values["efficiency"].estimate)
        words |= {"best_open": best.values["efficiency"]}
        words |= {"open": [names[best.cells[0]]]} if len(still_open) == 1 else {}
    words |= {"missing": [_workload(data.cell_names[cell]) for cell in missing]}
    shares = data.cells_of("train_step").set_index("cell")[EXPOSED_SHARE.name].reindex([of.cells[0] for of in found])
    if (shares > LEAST_EXPOSED).any():
        values[EXPOSED_SHARE.name] = Value(EXPOSED_SHARE, float(shares.max()))
    words |= {"missing_size": max(missing.values(), default=None), "sharing": threads_text(data) and ranks}
    cells = tuple(finding.cells[0] for finding in found)
    with_baselines = tuple(cell for finding in found for cell in finding.cells)
    return Finding("scaling", values, (of_cells("cells", cells),), with_baselines, words=words)


def _certainty(finding: Finding) -> str:
    if finding.kind == "efficiency":
        return "undecided" if finding.values["efficiency"].low is None else "certain"
    return "suspect" if finding.kind == "baseline_suspect" else "uncertain"


@once_per_report
def threads_text(data: ReportData) -> str:
    """Return how many threads each rank had, by shape (on CPUs); empty if nothing differs."""
    facts = [fact for fact in data.facts if fact.name == "threads per rank" and fact.value is not None]
    by_shape = {place: values for (*_, place), values in values_by(facts, "launch", "shape").items()}
    if data.device != "cpu" or len(set(map(frozenset, by_shape.values()))) < 2:
        return ""
    listed = [f"{'/'.join(sorted(by_shape[place], key=int))} at {place}" for place in sorted(by_shape, key=natural)]
    return f"The {ranks_word(data.device)} share the cores of a host (threads per rank: {', '.join(listed)})."


def _without_result(data: ReportData, largest: int) -> dict[str, int]:
    """Return the largest planned size, by one of its cells, of workloads that have no efficiency there.

    Workloads that were planned only on fewer ranks than `largest`, or without a baseline, are left out.
    """
    found = {}
    for rows in workloads(data):
        planned = [row for row in rows if not is_unknown(row.baseline) and not is_baseline(row)]
        size = max((row.world_size for row in planned), default=0)
        planned = [row for row in planned if row.world_size == size]
        if size >= largest and not any(map(_has_efficiency, planned)):
            found[planned[0].cell] = int(size)
    return found


def _text_of_losses(rows: list[dict[str, float]]) -> str:
    """Return each loss in percentage points, with its range over workloads."""
    found = []
    for part in LOSSES:
        if losses := [row[part.name] for row in rows if part.name in row]:
            low, high = (with_minus_signs(percent_number(end(losses))) for end in (min, max))
            between = " to " if "\N{MINUS SIGN}" in low else "\N{EN DASH}"
            found.append(f"{part.label} {low}" if low == high else f"{part.label} {low}{between}{high}")
    return ", ".join(found)
