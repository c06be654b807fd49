"""The first block of the report: at most six lines, each with its numbers and the section that supports it.

The same lines end a run on the terminal, and are in answer.json for other programs.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from regatta.core.names import PLACE, CellName, campaign_names
from regatta.core.statistics import MIN_LAUNCHES_INTERVAL
from regatta.core.text import duration, is_unknown, plural, rank_word, ranks_word, status_text, three
from regatta.report.findings import percent_number
from regatta.report.page import shown_status
from regatta.topics import communication, training_runs
from regatta.topics.base import ReportData
from regatta.topics.buckets import GROUP
from regatta.topics.comparison import section as comparison
from regatta.topics.failures import groups_of
from regatta.topics.quality import CELLS_GOOD_RATIO, CELLS_LOW_RATIO, DISAGREEMENT_RATIO, shared_host_findings
from regatta.topics.scaling.figures import best_of_largest
from regatta.topics.scaling.section import PARTS, efficiency_findings

MOST_LINES = 6
MOST_NAMES = 3  # models, operations or stacks named in the first line
NO_RECORD = ("not_measured", "not_started")
LOSSES = {"wrapper_ratio": "in DDP itself", "intra_node_ratio": "within nodes", "inter_node_ratio": "between nodes"}


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


def answer(data: ReportData) -> list[AnswerLine]:
    """Return the lines in the page's order: what ran, what came out, then failures and confidence."""
    results = [line for of in RESULTS if (line := of(data)) is not None]
    ends = [line for of in (failed, confidence) if (line := of(data)) is not None]
    return [subject(data), *results[: MOST_LINES - 1 - len(ends)], *ends]


def answer_json(data: ReportData) -> dict:
    """Return answer.json: docs/contracts.md."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    counts, times = Counter(shown_status(planned)), planned["time_utc"].dropna()
    times = times[:0] if data.campaign.get("imported") else times  # of an import, not of the measurements
    return {
        "schema": 1,
        "campaign": data.campaign["name"],
        "cluster": data.campaign["cluster"]["name"],
        "device": data.campaign["device"],
        "first_record_utc": None if times.empty else min(times),
        "last_record_utc": None if times.empty else max(times),
        "num_planned": len(planned),
        "num_by_status": dict(sorted(counts.items())),
        "lines": [
            {"id": line.id, "lead": line.lead, "text": line.text, "anchor": line.anchor, "values": line.values}
            for line in answer(data)
        ],
    }


def subject(data: ReportData) -> AnswerLine:
    """Return what was measured: `resnet50, resnet101 · DDP · 1–32 GPUs · 2 stacks · 6 launches`."""
    cells, names = data.campaign["cells"], list(campaign_names(data.campaign).values())[: len(data.campaign["cells"])]
    specs = [cell["spec"] for cell in cells]
    sizes = sorted({spec["nodes"] * spec["gpus_per_node"] for spec in specs})
    stacks = list(dict.fromkeys(spec["stack"]["name"] for spec in specs))
    parts = [_listed(list(dict.fromkeys(name.parts["subject"] for name in names)))]
    if sizes:
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}\N{EN DASH}{sizes[-1]}"
        parts.append(f"{span} {(ranks_word if sizes[-1] > 1 else rank_word)(data.device)}")
    parts.append(f"stack {stacks[0]}" if len(stacks) == 1 else f"stacks {_listed(stacks)}")
    parts.append(plural(data.campaign["repeats"], "launch per cell", "launches per cell"))
    values = {"num_cells": len(cells), "world_sizes": sizes, "stacks": stacks}
    return AnswerLine("subject", " \N{MIDDLE DOT} ".join(filter(None, parts)), anchor="matrix", values=values)


def _listed(names: list[str]) -> str:
    shown = names if len(names) <= MOST_NAMES else names[: MOST_NAMES - 1]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")


def scaling(data: ReportData) -> AnswerLine | None:
    """Return the efficiency at the largest shape, over workloads and stacks, and where most is lost."""
    found = efficiency_findings(data)
    if not found:
        return _throughput(data)
    sizes = dict(data.tables["scaling"][["cell", "world_size"]].itertuples(index=False))
    largest = max(sizes[finding.cells[0]] for finding in found)
    found = [finding for finding in found if sizes[finding.cells[0]] == largest]
    lowest, highest = (pick(found, key=_efficiency) for pick in (min, max))
    low, high = (percent_number(_efficiency(finding)) for finding in (lowest, highest))
    values = {"world_size": int(largest), "num_workloads": len(found)}
    values |= {"lowest_ratio": _efficiency(lowest), "highest_ratio": _efficiency(highest)}
    texts = []
    uncertain = sum(finding.kind == "efficiency_uncertain" for finding in found)
    if uncertain:
        texts.append("uncertain" if len(found) == 1 else f"uncertain in {uncertain} of {len(found)}")
    parts = {name: lowest.values[name] for name in PARTS if name in lowest.values}
    if parts and min(parts.values()) < 1:
        values["largest_loss"] = min(parts, key=parts.get)
        texts.append(f"largest loss {LOSSES[values['largest_loss']]}")
    if lowest.values["threads"]:
        texts.append(f"{lowest.values['ranks']} share the cores of a host")
    span = low if low == high else f"{low}\N{EN DASH}{high}"
    lead = f"Scaling efficiency on {largest} {ranks_word(data.device)}: {span} %"
    return AnswerLine("scaling", lead, "; ".join(texts), "scaling", values)


def _efficiency(finding) -> float:
    return finding.values["efficiency"].estimate


def _throughput(data: ReportData) -> AnswerLine | None:
    """Return the highest throughput at the largest shape, for a campaign without baselines."""
    rows = data.tables["scaling"].dropna(subset="step_s")
    if rows.empty:
        return None
    best = best_of_largest(rows)
    rate = float(best.throughput_samples_per_s)
    lead = f"Throughput: {three(rate)} samples/s"
    values = {"world_size": int(best.world_size), "throughput_samples_per_s": rate}
    return AnswerLine("scaling", lead, f"{data.names[best.cell]}; no baseline was measured", "scaling", values)


def bucket(data: ReportData) -> AnswerLine | None:
    """Return the bucket sizes that are best, or within noise of it, at the largest shape, and the cost of another."""
    rows = data.tables["buckets"]
    rows = rows[(rows["num_buckets"] > 1) & rows["best_bucket_cap_mb"].notna()]
    if rows.empty:
        return None
    # One launch cannot say whether another size is within noise of the best.
    rows = rows[rows["indistinguishable_mb"].notna()] if rows["indistinguishable_mb"].notna().any() else rows
    sizes = rows["nodes"] * rows["gpus_per_node"]
    rows = rows[sizes == sizes.max()]
    is_tested = rows["indistinguishable_mb"].notna().any()
    tied = Counter(size for row in rows.itertuples() for size in _near_best(row))
    chosen = sorted(size for size, num in tied.items() if num == max(tied.values()))
    measured = _at_largest(data.tables["scaling"], int(sizes.max()))
    values = {"world_size": int(sizes.max()), "bucket_cap_mb": chosen, "num_best": max(tied.values()), "num": len(rows)}
    if len(chosen) == measured["bucket_cap_mb"].nunique() and values["num_best"] == len(rows):
        return AnswerLine("bucket", "Bucket size: all within noise", "", "bucket", values)
    texts = [] if values["num_best"] == len(rows) else [f"best or tied in {values['num_best']} of {len(rows)}"]
    texts += [] if is_tested else ["noise unknown: one launch per cell"]
    worst = _worst_bucket(measured, chosen)
    if worst:
        values |= {"worst_bucket_cap_mb": worst[0], "worst_cost_ratio": worst[1]}
        texts.append(f"{worst[0]:g} MiB is up to {percent_number(worst[1])} % slower")
    lead = f"Bucket size: {' or '.join(f'{size:g}' for size in chosen)} MiB"
    return AnswerLine("bucket", lead, "; ".join(texts), "bucket", values)


def _near_best(row) -> list[float]:
    """Return the best bucket size of a row of buckets.csv and those within noise of it."""
    near = "" if is_unknown(row.indistinguishable_mb) else row.indistinguishable_mb.replace("none", "")
    return [float(row.best_bucket_cap_mb), *map(float, filter(None, near.split(", ")))]


def _at_largest(scaling: pd.DataFrame, world_size: int) -> pd.DataFrame:
    return scaling[scaling["step_s"].notna() & scaling["bucket_cap_mb"].notna() & (scaling["world_size"] == world_size)]


def _worst_bucket(rows: pd.DataFrame, chosen: list[float]) -> tuple[float, float] | None:
    """Return the other bucket size that costs most, and its cost, among those beyond the interval of the best."""
    found = []
    for _, group in rows.groupby(list(GROUP), dropna=False, sort=True):
        best = min(group.itertuples(), key=lambda row: row.step_s)
        found += [
            (row.step_s / best.step_s - 1, float(row.bucket_cap_mb))
            for row in group.itertuples()
            if row.bucket_cap_mb not in chosen
            and not is_unknown(row.step_low_s)
            and not is_unknown(best.step_high_s)
            and row.step_low_s > best.step_high_s
        ]
    cost, size = max(found, default=(None, None))
    return None if cost is None else (size, float(cost))


def compared(data: ReportData) -> AnswerLine | None:
    """Return which stack, or other compared value, takes longer, and whether that exceeds the margin."""
    found = comparison.findings(data)
    if not found:
        return None
    values = {name: value for name, value in found[0].values.items() if name not in ("largest_text", "margins")}
    margins = found[0].values["margins"]
    margin = " or ".join(f"{percent_number(ratio)} %" for ratio in margins)
    beyond = values["by_verdict"]["slower"] + values["by_verdict"]["faster"]
    direction, num = values["direction"], values["num"]
    pair = f"{values['pair'][:1].upper()}{values['pair'][1:]}"
    if values["num_undecidable"] == num:
        verdict = "too few launches for a verdict"
    elif beyond:
        verdict = f"{beyond} of {num} beyond the {margin} margin"
    elif values["by_verdict"]["equivalent"] == num:
        verdict = f"within the {margin} margin"
    else:
        verdict = f"none of {num} settled beyond the {margin} margin"
    values |= {"margins": margins}
    if direction is None:
        return AnswerLine("comparison", pair, verdict, "comparisons", values)
    word, ratio = "slower" if direction["is_slower"] else "faster", abs(direction["median_ratio"] - 1)
    lead = f"{pair}: {percent_number(ratio)} % {word} (median)"
    text = f"{word} in {direction['num']} of {plural(direction['num_pairs'], 'pair')}; {verdict}"
    return AnswerLine("comparison", lead, text, "comparisons", values)


def collectives(data: ReportData) -> AnswerLine | None:
    """Return the highest bus bandwidth at the largest shape of the first operation, else its lowest latency."""
    for finding in communication.findings(data)[:1]:
        time, rate = finding.values["time"], finding.values.get("busbw_gb_per_s")
        values = {"time_s": time.estimate, "busbw_gb_per_s": rate, "num_launches": time.num_launches}
        lead = f"{three(rate)} GB/s bus bandwidth" if rate else f"{duration(time.estimate)} per call"
        return AnswerLine("communication", f"Communication: {lead}", finding.values["name"], "communication", values)
    return None


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


RESULTS: tuple[Callable[[ReportData], AnswerLine | None], ...] = (scaling, bucket, compared, collectives, trainings)


def failed(data: ReportData) -> AnswerLine:
    """Return how many measurements failed, and what those with the most common cause share."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    statuses = shown_status(planned)
    num_missing = int(statuses.isin(NO_RECORD).sum())
    num_failed = int((statuses != "ok").sum()) - num_missing
    missing = f"{num_missing} not measured" if num_missing else ""
    values = {"num_planned": len(planned), "num_failed": num_failed, "num_not_measured": num_missing}
    if not num_failed:
        return AnswerLine("failed", f"Failed: 0 of {plural(len(planned), 'measurement')}", missing, "failures", values)
    groups = [g for g in groups_of(data) if g["status"] not in NO_RECORD]
    largest = max(groups, key=lambda group: len(group["items"]))
    values |= {"num_of_cause": len(largest["items"]), "cause": largest["cause"], "status": largest["status"]}
    what = status_text(largest["status"], largest["phase"])
    what = what if len(largest["items"]) == num_failed else f"most common: {len(largest['items'])} {what}"
    shared = shared_text([item["cell"] for item in largest["items"]], campaign_names(data.campaign))
    hosts = largest["hosts"]
    where = f"on {hosts[0][0]}" if len(hosts) == 1 and hosts[0][1] == len(largest["items"]) else ""
    texts = [", ".join(filter(None, (what, shared, where))), missing]
    lead = f"Failed: {num_failed:,} of {len(planned):,}"
    return AnswerLine("failed", lead, "; ".join(filter(None, texts)), "failures", values)


def shared_text(cells: list[str], names: dict[str, CellName]) -> str:
    """Return what some cells share among those fields that vary in the campaign: `resnet152 · 8×4 · bound`."""
    found = [names[cell] for cell in dict.fromkeys(cells) if cell in names]
    if not found:
        return ""
    fields = [field for field in found[0].parts if field in ("subject", "shape", *PLACE) or field in found[0].varied]
    same = [field for field in fields if len({name.parts.get(field) for name in found}) == 1]
    varied = {field for field in same if len({name.parts.get(field) for name in names.values()}) > 1}
    return " \N{MIDDLE DOT} ".join(found[0].parts[field] for field in same if field in varied)


def confidence(data: ReportData) -> AnswerLine | None:
    """Return how far the numbers can be trusted: good, fair or low. Defined under Methods."""
    ratios = data.tables["launch_ranges"]["range_ratio"].dropna()
    if data.ok.empty:
        return None
    num_launches, num = data.campaign["repeats"], int((ratios > DISAGREEMENT_RATIO).sum())
    shared = [finding.values for finding in shared_host_findings(data)]
    share = num / len(ratios) if len(ratios) else None
    if share is None or share > CELLS_LOW_RATIO or shared:
        word = "low"
    elif share <= CELLS_GOOD_RATIO and num_launches >= MIN_LAUNCHES_INTERVAL:
        word = "good"
    else:
        word = "fair"
    texts = [
        f"{num} of {plural(len(ratios), 'cell')} {'varies' if num == 1 else 'vary'} by more than"
        f" {100 * DISAGREEMENT_RATIO:g} %"
        if len(ratios)
        else "no cell has two valid launches"
        if num_launches > 1
        else "one launch per cell, without ranges"
    ]
    if 1 < num_launches < MIN_LAUNCHES_INTERVAL:
        texts.append(f"{plural(num_launches, 'launch', 'launches')}: ranges, not confidence intervals")
    texts += [f"{v['num']} of {v['num_ok']} measurements shared a host with ranks of another launch" for v in shared]
    values = {"word": word, "num_varying": num, "num_cells": len(ratios), "num_launches": num_launches}
    return AnswerLine("confidence", f"Confidence: {word}", "; ".join(texts), "stability", values)
