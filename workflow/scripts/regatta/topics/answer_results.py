"""The lines of the answer on results: scaling, bucket size, comparison, communication, training runs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.text import duration, is_unknown, plural, ranks_word, three
from regatta.report.findings import Finding, percent_number
from regatta.topics import communication, training_runs
from regatta.topics.base import ReportData, grouped, plain_rows
from regatta.topics.comparison import section as comparison
from regatta.topics.comparison.heatmap import difference_text
from regatta.topics.comparison.texts import margins_text, significant_text
from regatta.topics.fits.section import crossover_sizes, crossover_text
from regatta.topics.scaling.figures import best_of_largest
from regatta.topics.scaling.section import PART_LABELS, efficiency_findings, loss_rows, workloads
from regatta.topics.settings import GROUP, Setting, cost_text, is_costly, settings_of
from regatta.topics.sweep import section as sweep

MOST_NAMES = 3  # models, operations or stacks named in one line


@dataclass(frozen=True)
class AnswerLine:
    """One line. lead: the answer. text: what qualifies it. anchor: the section. values: numbers in units of tables."""

    id: str
    lead: str
    text: str = ""
    anchor: str = ""
    values: dict[str, object] = field(default_factory=dict)

    @property
    def plain(self) -> str:
        return f"{self.lead}; {self.text}" if self.text else self.lead


def join_names(names: list[str]) -> str:
    shown = names if len(names) <= MOST_NAMES else names[: MOST_NAMES - 1]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")


def scaling(data: ReportData) -> AnswerLine | None:
    """Return the efficiency at the largest shape of each workload and stack, and where most is lost."""
    found = efficiency_findings(data)
    if not found:
        return _throughput(data)
    sizes = dict(data.tables["scaling"][["cell", "world_size"]].itertuples(index=False))
    largest = int(max(sizes[finding.cells[0]] for finding in found))
    found = sorted((finding for finding in found if sizes[finding.cells[0]] == largest), key=_efficiency)
    names, ranks = _workload_names(data), ranks_word(data.device)
    certain = [finding for finding in found if finding.kind == "efficiency"]
    all_losses = _largest_losses(data)
    losses = {f.cells[0]: all_losses[f.cells[0]] for f in certain if f.cells[0] in all_losses}
    parts, ratios = ({cell: found[place] for cell, found in losses.items()} for place in (0, 1))
    missing = _without_result(data, largest)
    values = {"world_size": largest, "num_workloads": len(found), "num_uncertain": len(found) - len(certain)}
    values |= {"lowest_ratio": _efficiency(certain[0]), "highest_ratio": _efficiency(certain[-1])} if certain else {}
    values |= {"largest_losses": parts, "largest_losses_ratio": ratios, "without_result": missing}
    uncertain = _uncertain_text([finding for finding in found if finding not in certain], names, len(found) == 1)
    texts = [_losses_text(losses, names), f"uncertain: {uncertain}" if certain and uncertain else uncertain]
    for size in sorted(set(missing.values())):
        cells = [cell for cell, of_cell in missing.items() if of_cell == size]
        texts.append(f"no result on {size} {ranks} for {join_names([names[cell] for cell in cells])}")
    if found[0].values["threads"]:
        texts.append(f"{found[0].values['ranks']} share the cores of a host")
    lead = f"Scaling efficiency on {largest} {ranks}: {_span(certain, names) if certain else 'uncertain'}"
    return AnswerLine("scaling", lead, "; ".join(filter(None, texts)), "scaling", values)


def _workload_names(data: ReportData) -> dict[str, str]:
    """Return the workload and stack of each cell by its id, without fields that are the same everywhere."""
    names = data.cell_names
    return {cell: name.say("subject", *name.settings, *PLACE, always=("subject",)) for cell, name in names.items()}


def _span(found: list[Finding], names: dict[str, str]) -> str:
    """Return `75 %`, or the ends with their workloads: `74 % (ResNet-152) to 76 % (ResNet-50)`. found: sorted."""
    ends = [(f"{percent_number(_efficiency(finding))} %", names[finding.cells[0]]) for finding in (found[0], found[-1])]
    (low, lowest), (high, highest) = ends
    return low if low == high else f"{low} ({lowest}) to {high} ({highest})"


def _uncertain_text(found: list[Finding], names: dict[str, str], is_only: bool) -> str:
    """Return the intervals of efficiencies that are uncertain, each with its workload unless there is only one."""
    if not found:
        return ""
    texts = []
    for finding in found:
        value = finding.values["efficiency"]
        ends = f"{percent_number(value.low)}\N{EN DASH}{percent_number(value.high)} %"
        word = "range" if value.kind == "range" else "95 % CI"
        texts.append(f"{word} {ends}" if is_only else f"{names[finding.cells[0]]} ({word} {ends})")
    return f"{join_names(texts)}; more launches needed"


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


def _largest_losses(data: ReportData) -> dict[str, tuple[str, float]]:
    """Return by cell the part with the largest loss, and its share of the ideal, where all parts are known."""
    found = {}
    for row in loss_rows(data):
        losses = {part: loss for part, loss in row["losses"] if loss is not None and loss > 0}
        found |= {row["cell"]: max(losses.items(), key=lambda item: item[1])} if losses else {}
    return found


def _losses_text(losses: dict[str, tuple[str, float]], names: dict[str, str]) -> str:
    """Return the largest losses in percentage points, by workload if the parts differ."""
    parts = [part for part, _ in Counter(part for part, _ in losses.values()).most_common()]
    texts = []
    for part in parts:
        of_part = {names[cell]: loss for cell, (of_cell, loss) in losses.items() if of_cell == part}
        low, high = percent_number(min(of_part.values())), percent_number(max(of_part.values()))
        points = f"{low} points" if low == high else f"{low}\N{EN DASH}{high} points"
        who = join_names(list(of_part)) if len(of_part) <= MOST_NAMES else f"{len(of_part)} of {len(losses)}"
        texts.append(f"{PART_LABELS[part]} ({f'{who}: ' if len(parts) > 1 else ''}{points})")
    return f"largest loss{'es' if len(losses) > 1 else ''}: {', '.join(texts)}" if texts else ""


def _efficiency(finding: Finding) -> float:
    return finding.values["efficiency"].estimate


def _throughput(data: ReportData) -> AnswerLine | None:
    """Return the highest throughput at the largest shape, for a campaign without any efficiency."""
    rows = data.tables["scaling"].dropna(subset="step_s")
    if rows.empty:
        return None
    best = best_of_largest(rows)
    rate = float(best.throughput_samples_per_s)
    lead = f"Throughput: {three(rate)} samples/s"
    values = {"world_size": int(best.world_size), "throughput_samples_per_s": rate}
    is_baseline = not is_unknown(best.baseline) and best.baseline == best.cell
    why = "no result besides baselines" if is_baseline else "no baseline was measured"
    return AnswerLine("scaling", lead, f"{data.names[best.cell]}; {why}", "scaling", values)


def bucket(data: ReportData) -> AnswerLine | None:
    """Return the bucket sizes that are best, or within noise of it, at the largest shape, and the cost of another."""
    rows = data.tables["buckets"]
    rows = rows[(rows["num_buckets"] > 1) & rows["best_bucket_cap_mb"].notna()]
    if rows.empty:
        return None
    sizes = rows["nodes"] * rows["gpus_per_node"]
    rows = rows[sizes == sizes.max()]
    measured = _at_largest(data.tables["scaling"], int(sizes.max()))
    settings = settings_of(data.tables["settings"], "bucket_cap_mb")
    by_row = [cells for cells in grouped(measured, GROUP).values() if len(cells) > 1]
    # One launch cannot say whether another size is within noise of the best.
    tested = [cells for cells in by_row if _may_be_best(cells, settings)]
    undecided = sorted({size for cells in tested for size in _undecided(cells, settings)})
    num_untested, is_tested = len(rows) - len(tested), bool(tested)
    unknown = (
        f"noise unknown for {num_untested} of {plural(len(rows), 'workload')} with one launch" if num_untested else ""
    )
    best = [{size} for size in rows["best_bucket_cap_mb"]]
    near = Counter(size for found in [_may_be_best(cells, settings) for cells in tested] or best for size in found)
    chosen, num = sorted(size for size, num in near.items() if num == max(near.values())), len(tested) or len(rows)
    values = {"world_size": int(sizes.max()), "bucket_cap_mb": chosen, "num_best": max(near.values()), "num": num}
    values |= {"undecided_mb": undecided}
    num_sizes = len({cell["bucket_cap_mb"] for cell in measured})
    if is_tested and not undecided and len(chosen) == num_sizes and values["num_best"] == num:
        return AnswerLine("bucket", "Bucket size: all within noise", unknown, "bucket", values)
    texts = (
        [] if values["num_best"] == num else [f"fastest or within noise for {values['num_best']} of {num} workloads"]
    )
    texts += ([unknown] if unknown else []) if is_tested else ["noise unknown: one launch per cell"]
    texts += [f"undecided (one launch): {', '.join(f'{size:g}' for size in undecided)} MiB"] if undecided else []
    size, worst = _worst_bucket(measured, settings, chosen)
    if worst:
        values |= {"worst_bucket_cap_mb": size, "worst_cost_ratio": worst.cost}
        values |= {"worst_cost_low_ratio": worst.low, "worst_cost_high_ratio": worst.high}
        texts.append(f"{size:g} MiB is up to {percent_number(worst.cost)} %{cost_text(worst)} slower")
    *others, last = (f"{size:g}" for size in chosen)
    named = f"{', '.join(others)} or {last}" if others else last
    lead = f"Bucket size: {named} MiB"
    return AnswerLine("bucket", lead, "; ".join(texts), "bucket", values)


def _at_largest(scaling: pd.DataFrame, world_size: int) -> list[dict]:
    rows = scaling[scaling["step_s"].notna() & scaling["bucket_cap_mb"].notna() & (scaling["world_size"] == world_size)]
    return plain_rows(rows, (*GROUP, "cell", "bucket_cap_mb"))


def _may_be_best(cells: list[dict], settings: dict[str, Setting]) -> set[float]:
    """Return the bucket sizes of a row that may be the best, with undecided ones; none if all are undecided.

    The line is a sentence on all rows: one in twenty would exclude a size by chance.
    """
    if _undecided(cells, settings) == {cell["bucket_cap_mb"] for cell in cells}:
        return set()
    return {cell["bucket_cap_mb"] for cell in cells if not is_costly(settings.get(cell["cell"]))}


def _undecided(cells: list[dict], settings: dict[str, Setting]) -> set[float]:
    """Return the bucket sizes with too few launches."""
    return {cell["bucket_cap_mb"] for cell in cells if settings.get(cell["cell"], Setting(1)).may_be_best is None}


def _worst_bucket(
    cells: list[dict], settings: dict[str, Setting], chosen: list[float]
) -> tuple[float, Setting] | tuple[None, None]:
    """Return the other bucket size that costs most, and its setting, among those that differ over all rows."""
    found = [
        (settings[cell["cell"]].cost, float(cell["bucket_cap_mb"]), settings[cell["cell"]])
        for cell in cells
        if cell["bucket_cap_mb"] not in chosen and is_costly(settings.get(cell["cell"]))
    ]
    return max(found, key=lambda item: item[:2], default=(None, None, None))[1:]


def compared(data: ReportData) -> AnswerLine | None:
    """Return which stack, or other compared value, takes longer, and whether that exceeds the margin."""
    found = comparison.findings(data)
    if not found:
        return None
    values = {name: value for name, value in found[0].values.items() if name not in ("largest_text", "margins")}
    margins, num, direction = found[0].values["margins"], values["num"], values["direction"]
    counts, beyond = values["by_verdict"], values["by_verdict"]["slower"] + values["by_verdict"]["faster"]
    values |= {"margins": margins, "num_in_blocks": len(comparison.in_blocks(data))}
    lead, margin = f"{values['pair'][:1].upper()}{values['pair'][1:]}", f"{margins_text(margins)} margin"
    within = counts["equivalent"]
    settled = f"{within} within it, {num - within} inconclusive" if within else "inconclusive"
    verdict = f"{beyond} of {num} beyond the {margin}" if beyond else f"none beyond the {margin} ({settled})"
    verdict = f"all within the {margin}" if within == num else f"all beyond the {margin}" if beyond == num else verdict
    texts = [significant_text(values["num_significant"], num), verdict]
    if values["num_undecidable"] == num:
        texts = ["too few launches for a verdict"]
    if direction is not None:
        word, ratio = "slower" if direction["is_slower"] else "faster", abs(direction["median_ratio"] - 1)
        lead += f": {percent_number(ratio)} % {word} (median)"
    elif values["median_ratio"] is not None:
        texts.append(f"median difference {difference_text(values['median_ratio'])} %")
    if values["num_in_blocks"]:
        texts.append(f"{plural(values['num_in_blocks'], 'pair')} not interleaved in time: drift is not excluded")
    return AnswerLine("comparison", lead, "; ".join(texts), "comparisons", values)


def collectives(data: ReportData) -> AnswerLine | None:
    """Return the highest bus bandwidth at the largest shape of the first operation, else its lowest latency."""
    found = [finding.values for finding in communication.findings(data)]
    found = [values for values in found if values["operation"] == found[0]["operation"]]
    if not found:
        return None
    best = max(found, key=lambda values: values.get("busbw_gb_per_s", -values["time"].estimate))
    time, rate = best["time"], best.get("busbw_gb_per_s")
    values = {"time_s": time.estimate, "busbw_gb_per_s": rate, "num_launches": time.num_launches}
    values |= {"latency_bound_below_bytes": None}
    texts = [best["name"]]
    for crossover in (finding.values for finding in crossover_sizes(data)):
        if (crossover["operation"], crossover["world_size"]) == (best["operation"], best["world_size"]):
            values["latency_bound_below_bytes"] = [crossover["low_bytes"], crossover["high_bytes"]]
            texts.append(crossover_text(crossover))
    lead = f"{three(rate)} GB/s bus bandwidth" if rate else f"{duration(time.estimate)} per call"
    return AnswerLine("communication", f"Communication: {lead}", "; ".join(texts), "communication", values)


def trainings(data: ReportData) -> AnswerLine | None:
    """Return time and accuracy of the fastest training run."""
    found = training_runs.findings(data)
    for finding in sorted(found, key=lambda finding: finding.values["total"].estimate)[:1]:
        total, accuracy = (finding.values[name].estimate for name in ("total", "accuracy"))
        lead = f"Training: {plural(finding.values['epochs'], 'epoch')} in {duration(total)}"
        values = {"total_s": total, "accuracy_ratio": accuracy, "epochs": finding.values["epochs"]}
        text = f"test accuracy {percent_number(accuracy)} %; {finding.values['name']}"
        return AnswerLine("training_runs", lead, text, "training-runs", values)
    return None


def nodes(data: ReportData) -> AnswerLine | None:
    """Return the slow or failed nodes of a sweep, and slow pairs that no slow node explains."""
    tables = sweep.tables_of(data)
    if not tables:
        return None
    _, noun, rows = tables[0]
    groups, found = sweep.counts_of(data, rows), sweep.findings(data)
    of_nodes = [finding.values for finding in found if finding.values["noun"] == "node"]
    slower = [values for values in of_nodes if values["verdict"] == "slower"]
    num_slower, num = len(set(rows.loc[rows["verdict"] == "slower", "hosts"])), rows["hosts"].nunique()
    texts = [join_names([f"{of_node['hosts']} {sweep.effect_text(of_node)}" for of_node in slower])] if slower else []
    pairs = [v for v in (finding.values for finding in found) if v["noun"] == "pair" and v["verdict"] == "slower"]
    slow_pairs = [of_pair["hosts"].replace(", ", "\N{EN DASH}") for of_pair in pairs]
    texts += [f"slow pairs: {join_names(slow_pairs)}"] if pairs else []
    effects = {hosts: sweep.effect_of(part) for hosts, part in rows[rows["time_ratio"].notna()].groupby("hosts")}
    uncertain = [effects[hosts] for hosts in groups["inconclusive"] if hosts in effects]
    named = groups | {"inconclusive": [_named(hosts, effects.get(hosts)) for hosts in groups["inconclusive"]]}
    texts += [f"{GROUP_WORDS[name]}: {join_names(named[name])}" for name in GROUP_WORDS if named[name]]
    skipped = sweep.skipped_hosts(data)
    texts += [f"{len(skipped)} skipped"] if skipped else []
    values = {
        "num_nodes": num,
        "num_slower": num_slower,
        "nodes": groups,
        "skipped": skipped,
        "largest": slower[:1],
        "inconclusive": uncertain[:MOST_NAMES],
        "pairs": pairs[:1],
    }
    num_settled = num - sum(len(groups[name]) for name in GROUP_WORDS)
    if num_slower or num_settled:
        lead = (
            f"{num_slower or 'None'} of {plural(num if num_slower else num_settled, noun)} slower than the median node"
        )
    else:
        lead = "Slow nodes: uncertain"
    return AnswerLine("nodes", lead, "; ".join(texts), "sweep", values)


def _named(hosts: str, effect: dict | None) -> str:
    return hosts if effect is None else f"{hosts} {sweep.effect_text(effect)}"


GROUP_WORDS = {"failed": "failed", "missing": "without result", "inconclusive": "inconclusive"}
RESULTS: tuple[Callable[[ReportData], AnswerLine | None], ...] = (
    *(nodes, scaling, bucket, compared, collectives, trainings),
)
