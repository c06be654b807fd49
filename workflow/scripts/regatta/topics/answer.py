"""The first block of the report: at most six lines, each with its numbers and the section that supports it.

The same lines end a run on the terminal, and are in answer.json for other programs.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.names import PLACE, CellName
from regatta.core.text import plural, rank_time, rank_word, ranks_word, status_text
from regatta.kit.findings import FAIR
from regatta.report.findings import percent_number
from regatta.report.page import shown_status
from regatta.topics import slow_launches
from regatta.topics.answer_results import RESULTS, AnswerLine, join_names, line_of
from regatta.topics.base import ReportData, once_per_report, plain_rows
from regatta.topics.comparison import section as comparison
from regatta.topics.failures import groups_of, lost_time
from regatta.topics.machines import shared_host_findings
from regatta.topics.matrix import NO_RECORD
from regatta.topics.quality import CELLS_GOOD_RATIO, CELLS_LOW_RATIO, DISAGREEMENT_RATIO
from regatta.topics.stragglers import section as stragglers
from regatta.topics.timeline import allocated_hours

MOST_LINES = 6
LEAST_IDLE_RATIO = 0.01  # of the allocated time; less is not shown


@once_per_report
def answer(data: ReportData) -> list[AnswerLine]:
    """Return the lines in the page's order: what ran, what came out, then failures and confidence.

    If there are too many, the least informative line is merged into another.
    """
    found = [line for of in (subject, *RESULTS, failed, confidence) if (line := of(data)) is not None]
    lines = {line.id: line for line in found}
    merges = [("scaling", "bucket"), ("confidence", "failed")]
    for line, other in merges if lines["failed"].values["num_failed"] else reversed(merges):
        if len(lines) > MOST_LINES and {line, other} <= lines.keys():
            lines[line] = _merged(lines[line], lines.pop(other))
    return list(lines.values())[:MOST_LINES]


def _merged(line: AnswerLine, other: AnswerLine) -> AnswerLine:
    """Return a line with another as the last part of its text, and the other's numbers under its id."""
    lead = f"{other.lead[:1].lower()}{other.lead[1:]}" + (f" ({other.text})" if other.text else "")
    text = "; ".join(filter(None, (line.text, lead)))
    return replace(line, text=text, values=line.values | {other.id: other.values})


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
    cells, names = data.campaign["cells"], list(data.cell_names.values())[: len(data.campaign["cells"])]
    specs = [cell["spec"] for cell in cells]
    sizes = sorted({spec["nodes"] * spec["gpus_per_node"] for spec in specs})
    stacks = list(dict.fromkeys(spec["stack"]["name"] for spec in specs))
    parts = [join_names(list(dict.fromkeys(name.parts["subject"] for name in names)))]
    if sizes:
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}\N{EN DASH}{sizes[-1]}"
        parts.append(f"{span} {(ranks_word if sizes[-1] > 1 else rank_word)(data.device)}")
    if sweep := data.campaign.get("sweep"):
        num_nodes = len({host for spec in specs for host in spec["hosts"]})
        parts.append(f"{plural(num_nodes, 'node')}, {'one by one' if sweep == 'nodes' else 'in pairs'}")
    parts.append(f"stack {stacks[0]}" if len(stacks) == 1 else f"stacks {join_names(stacks)}")
    parts.append(plural(data.campaign["repeats"], "launch per cell", "launches per cell"))
    values = {"num_cells": len(cells), "world_sizes": sizes, "stacks": stacks}
    return AnswerLine("subject", " \N{MIDDLE DOT} ".join(filter(None, parts)), anchor="matrix", values=values)


def failed(data: ReportData) -> AnswerLine:
    """Return how many measurements failed, and what those with the most common cause share."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    statuses = shown_status(planned)
    num_missing = int(statuses.isin(NO_RECORD).sum())
    num_failed = int((statuses != "ok").sum()) - num_missing
    missing = f"{num_missing} {missing_text(Counter(statuses))}" if num_missing else ""
    cost, costs = cost_of(data)
    values = {"num_planned": len(planned), "num_failed": num_failed, "num_not_measured": num_missing} | cost
    if not num_failed:
        text = "; ".join(filter(None, (missing, *costs)))
        return AnswerLine("failed", f"Failed: 0 of {plural(len(planned), 'measurement')}", text, "failures", values)
    groups = [g for g in groups_of(data) if g["status"] not in NO_RECORD]
    largest = max(groups, key=lambda group: len(group["items"]))
    values |= {"num_of_cause": len(largest["items"]), "cause": largest["cause"], "status": largest["status"]}
    if len(largest["items"]) == 1 < num_failed:  # no cause is more common than the others
        counts = Counter(status for status in statuses if status not in ("ok", *NO_RECORD))
        what = ", ".join(f"{num} {status_text(status)}" for status, num in counts.most_common())
    else:
        what = status_text(largest["status"], largest["phase"])
        what = what if len(largest["items"]) == num_failed else f"most common: {len(largest['items'])} {what}"
        hosts = largest["hosts"]
        where = f"on {hosts[0][0]}" if len(hosts) == 1 and hosts[0][1] == len(largest["items"]) else ""
        shared = shared_text([item["cell"] for item in largest["items"]], data.cell_names)
        what = ", ".join(filter(None, (what, shared, where)))
    of_load = {f.kind: f for f in slow_launches.findings(data) if f.kind == "loaded_timeouts"}
    beside = [slow_launches.TOPIC.text_of(finding).removesuffix(".") for finding in of_load.values()]
    texts, values = [what, *beside, missing, *costs], values | {kind: f.values for kind, f in of_load.items()}
    lead = f"Failed: {num_failed:,} of {len(planned):,}"
    return AnswerLine("failed", lead, "; ".join(filter(None, texts)), "failures", values)


def cost_of(data: ReportData) -> tuple[dict, list[str]]:
    """Return the rank-hours lost to failures and idle in allocations, as values (None if unknown) and texts."""
    lost = [part.hours for part in lost_time(data.tables["timeline"], data.measurements) if part.hours is not None]
    allocations = data.tables["allocations"].dropna(subset="gpu_hours")
    sums = allocated_hours(plain_rows(allocations, tuple(allocations)))
    idle, allocated = sums["idle"], sums["total"]
    hours = {"lost_hours": sum(lost) if lost else None}
    hours |= dict.fromkeys(("idle_hours", "measuring_hours", "allocated_hours"))
    is_idle = allocated > 0 and idle / allocated >= LEAST_IDLE_RATIO
    longer = max(sum(lost), idle if is_idle else 0)
    texts = [f"{rank_time(sum(lost), data.device, longer)} lost to failures"] if lost else []
    if allocated > 0:
        hours |= {"idle_hours": idle, "measuring_hours": sums["measuring"], "allocated_hours": allocated}
    if is_idle:
        share = f"{percent_number(idle / allocated)} % of the allocated time"
        share += f", measuring {percent_number(sums['measuring'] / allocated)} %"
        texts.append(f"{rank_time(idle, data.device, longer)} idle ({share})")
    return hours, texts


def missing_text(counts: Mapping[str, int]) -> str:
    """Return the word for measurements without a record: not measured, not started, or both."""
    return " or ".join(status_text(status) for status in NO_RECORD if counts.get(status))


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
    late = [line_of(stragglers.TOPIC, f) for f in stragglers.findings(data) if stragglers.TOPIC.kind_of(f).rank == FAIR]
    share, num_in_blocks = num / len(ratios) if len(ratios) else None, len(comparison.in_blocks(data))
    if share is None or share > CELLS_LOW_RATIO or shared:
        word = "low"
    elif share <= CELLS_GOOD_RATIO and num_launches >= MIN_LAUNCHES and not (num_in_blocks or late):
        word = "good"
    else:
        word = "fair"
    disturbed = [finding for finding in slow_launches.findings(data) if finding.kind != "loaded_timeouts"]
    slow = [finding.values for finding in disturbed if finding.kind != "loaded_measurements"]
    of_load = {"slow_launches": slow} if slow else {}
    of_load |= {finding.kind: finding.values for finding in disturbed if finding.kind == "loaded_measurements"}
    texts = [slow_launches.TOPIC.text_of(finding).removesuffix(".") for finding in disturbed]
    texts += [
        f"{num} of {plural(len(ratios), 'cell')} {'varies' if num == 1 else 'vary'} by more than"
        f" {100 * DISAGREEMENT_RATIO:g} %"
        if len(ratios)
        else "no cell has two valid launches"
        if num_launches > 1
        else "one launch per cell, without ranges"
    ]
    if 1 < num_launches < MIN_LAUNCHES:
        texts.append(f"{plural(num_launches, 'launch', 'launches')}: ranges, not confidence intervals")
    texts += ["compared sides not interleaved in time"] if num_in_blocks else []
    texts += [line.lead.removesuffix(".") for line in late]
    texts += [f"{v['num']} of {v['num_ok']} measurements shared a host with ranks of another launch" for v in shared]
    values = {"word": word, "num_varying": num, "num_cells": len(ratios), "num_launches": num_launches} | of_load
    values["straggler"] = late[0].values if late else None
    return AnswerLine("confidence", f"Confidence: {word}", "; ".join(texts), "stability", values)
