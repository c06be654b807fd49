"""The lines of the answer on results: scaling, bucket size, comparison, communication, training runs."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.text import plural
from regatta.kit.findings import SUMMARY, Value
from regatta.report.findings import Finding, percent_number
from regatta.topics import communication, training_runs
from regatta.topics.base import ReportData, Topic, grouped, plain_rows
from regatta.topics.comparison import section as comparison
from regatta.topics.comparison.heatmap import difference_text
from regatta.topics.comparison.texts import margins_text, significant_text
from regatta.topics.scaling import section as scaling
from regatta.topics.settings import GROUP, Setting, cost_text, highest_cost, is_costly, settings_of
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


def summary_of(topic: Topic) -> Callable[[ReportData], AnswerLine | None]:
    """Return a function that returns the line of a topic, if it has one."""

    def line(data: ReportData) -> AnswerLine | None:
        found = (finding for finding in topic.findings(data) if topic.kind_of(finding).rank == SUMMARY)
        return next((line_of(topic, finding) for finding in found), None)

    return line


def line_of(topic: Topic, finding: Finding) -> AnswerLine:
    """Return the line of a finding of the summary."""
    kind = topic.kind_of(finding)
    lead, text = kind.words(finding.values | finding.words)
    return AnswerLine(kind.line or kind.name, lead, text, finding.anchor or topic.id, numbers(finding))


def numbers(finding: Finding) -> dict[str, object]:
    """Return the values of a finding as answer.json has them."""
    values: dict[str, object] = {}
    for name, value in finding.values.items():
        values |= value.by_name(name) if isinstance(value, Value) else {name: value}
    return values


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
        cost = highest_cost([cell["cell"] for cells in tested for cell in cells], settings)
        word = f"equal within {cost['equal']}" if "equal" in cost else f"uncertain, up to {cost['upper']} slower"
        return AnswerLine("bucket", f"Bucket size: {word}", unknown, "bucket", values)
    texts = (
        [] if values["num_best"] == num else [f"fastest or within noise for {values['num_best']} of {num} workloads"]
    )
    texts += ([unknown] if unknown else []) if is_tested else ["noise unknown: one launch per cell"]
    texts += [f"undecided (one launch): {', '.join(f'{size:g}' for size in undecided)} MiB"] if undecided else []
    size, worst = _worst_bucket(measured, settings, chosen)
    if worst:
        values |= {"worst_bucket_cap_mb": size, "worst_cost_ratio": worst.cost}
        values |= {"worst_cost_low_ratio": worst.low, "worst_cost_high_ratio": worst.high}
        cost = percent_number(worst.cost)
        of_several = f"highest mean cost of {num} workloads: {cost} % ({size:g} MiB)"  # its interval is of one row
        texts.append(of_several if num > 1 else f"{size:g} MiB is {cost} %{cost_text(worst)} slower")
    *others, last = (f"{size:g}" for size in chosen)
    named = f"{', '.join(others)} or {last}" if others else last
    lead = f"Bucket size: {named} MiB"
    return AnswerLine("bucket", lead, "; ".join(texts), "bucket", values)


def _at_largest(scaling: pd.DataFrame, world_size: int) -> list[dict]:
    rows = scaling[scaling["step_s"].notna() & scaling["bucket_cap_mb"].notna() & (scaling["world_size"] == world_size)]
    return plain_rows(rows, (*GROUP, "cell", "bucket_cap_mb"))


def _may_be_best(cells: list[dict], settings: dict[str, Setting]) -> set[float]:
    """Return the bucket sizes of a row that may be the best, with undecided ones; none if all are undecided.

    The line covers all rows, of which one in twenty would exclude a size by chance.
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
    """Return the slowest bucket size that is not chosen, and its setting, if significant over all rows."""
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
    *(
        nodes,
        summary_of(scaling.TOPIC),
        bucket,
        compared,
        summary_of(communication.TOPIC),
        summary_of(training_runs.TOPIC),
    ),
)
