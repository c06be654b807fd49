"""The first block of the report: at most six lines, each with its numbers and the section that supports it.

The same lines end a run on the terminal, and are in answer.json for other programs.
"""

from collections import Counter
from dataclasses import replace

from regatta.core.text import plural, rank_word, ranks_word
from regatta.kit.findings import FAIR, LOW, SUMMARY
from regatta.report.page import shown_status
from regatta.topics.answer_results import RESULTS, AnswerLine, join_names, line_of, numbers
from regatta.topics.base import ReportData, once_per_report, unreliable_cells

MOST_LINES = 6
MOST_REASONS = 3  # of low or fair confidence in its line
# Lines whose values in answer.json include those of warnings: kind -> key, and whether it lists all or has the first.
OF_WARNINGS = {
    "failed": {"loaded_timeouts": ("loaded_timeouts", False)},
    "confidence": {
        "slow_node": ("slow_launches", True),
        "slow_launch": ("slow_launches", True),
        "loaded_measurements": ("loaded_measurements", False),
        "straggler_host": ("straggler", False),
        "straggler_rank": ("straggler", False),
    },
}


@once_per_report
def answer(data: ReportData) -> list[AnswerLine]:
    """Return the lines in the page's order: what ran, what came out, then failures and confidence.

    If there are too many, the least informative line is merged into another.
    """
    found = [subject(data), *(line for of in RESULTS if (line := of(data)) is not None)]
    found += [line_of(topic, finding) for topic, finding, rank in data.findings if rank == SUMMARY]
    lines = {line.id: line for line in found}
    lines["failed"] = _with_warnings(data, lines["failed"])
    if "confidence" in lines:
        lines["confidence"] = confidence(data, _with_warnings(data, lines.pop("confidence")))
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


def _with_warnings(data: ReportData, line: AnswerLine) -> AnswerLine:
    """Return a line with the values of the warnings that belong to it; the line on failures also has their text."""
    found = [(topic, finding) for topic, finding, _ in data.findings if finding.kind in OF_WARNINGS[line.id]]
    values = line.values.copy()
    for _, finding in found:
        key, has_all = OF_WARNINGS[line.id][finding.kind]
        values[key] = [*values.get(key, []), numbers(finding)] if has_all else values.get(key) or numbers(finding)
    texts = [topic.text_of(finding).removesuffix(".") for topic, finding in found if line.id == "failed"]
    return replace(line, text="; ".join(filter(None, (line.text, *texts))), values=values)


def confidence(data: ReportData, line: AnswerLine) -> AnswerLine:
    """Return how far the numbers can be trusted, and what invalidates them, worst first. line: with counts."""
    found = sorted((item for item in data.findings if item[2] in (LOW, FAIR)), key=lambda item: item[2] != LOW)
    reasons = [
        {"kind": finding.kind, "rank": rank, "text": line_of(topic, finding).lead.removesuffix(".")}
        for topic, finding, rank in found
    ]
    word = reasons[0]["rank"] if reasons else "good"
    texts = [reason["text"] for reason in reasons[:MOST_REASONS]] or [line.lead]
    texts += [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    values = {"word": word, "straggler": None} | line.values
    values |= {"reasons": reasons, "num_unreliable": len(unreliable_cells(data))}
    return replace(line, lead=f"Confidence: {word}", text="; ".join(texts), values=values)
