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
    values: dict[str, object] = {}
    for name, value in finding.values.items():
        values |= value.by_name(name) if isinstance(value, Value) else {name: value}
    return AnswerLine(kind.line or kind.name, lead, text, finding.anchor or topic.id, values)


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


RESULTS: tuple[Callable[[ReportData], AnswerLine | None], ...] = (
    *(
        summary_of(sweep.TOPIC),
        summary_of(scaling.TOPIC),
        bucket,
        summary_of(comparison.TOPIC),
        summary_of(communication.TOPIC),
        summary_of(training_runs.TOPIC),
    ),
)
