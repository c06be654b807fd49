"""The first block of the report: a line for each finding of the summary, how far to trust them, and what to do next.

The same lines end a run on the terminal, and are in answer.json for other programs.
"""

import re
from collections import Counter
from dataclasses import replace

from regatta.core.text import natural, plural, rank_word, ranks_word
from regatta.kit.kinds import FAIR, LOW, NOTE, RESULT, SUMMARY, Kind, joined
from regatta.report.commands import price_text
from regatta.report.findings import Finding
from regatta.report.page import shown_status
from regatta.report.panels import Figure, Section, drawn_and_listed
from regatta.store.csv_files import plain_rows
from regatta.store.history import ALWAYS_RETRIED
from regatta.tables.facts import own_facts
from regatta.topics.base import ReportData, invalid_cells, once_per_report, unreliable_cells
from regatta.topics.comparison.comparison_section import change_by_pair
from regatta.topics.stability import LIMIT, counts_of_variation
from regatta.topics.sweep_section import precision_words

INCLUDED = "with slow node"
# Word of a mark -> its sign and CSS class. What is unknown or open is never good.
MARKS = {
    "complete": ("\N{CHECK MARK}", "good"),
    "good": ("\N{CHECK MARK}", "good"),
    "no slow node": ("\N{CHECK MARK}", "good"),
    "measured": ("\N{CHECK MARK}", "quiet"),
    "equal": ("=", "quiet"),
    "different": ("\N{NOT EQUAL TO}", ""),
    "uncertain": ("?", "quiet"),
    "partly measured": ("\N{CIRCLE WITH LEFT HALF BLACK}", "quiet"),
    "optional": ("\N{RIGHTWARDS ARROW}", "quiet"),
    "to do": ("\N{RIGHTWARDS ARROW}", "quiet"),
    "missing": ("\N{WHITE CIRCLE}", "bad"),
    "fair": ("\N{WARNING SIGN}", "warn"),  # confidence
    "low": ("\N{WARNING SIGN}", "warn"),
    INCLUDED: ("\N{WHITE CIRCLE}", "warn"),
    "slow": ("\N{BLACK UP-POINTING TRIANGLE}", "warn"),
    "failed": ("\N{MULTIPLICATION X}", "bad"),
}
MOST_SUBJECTS = 5  # all named
MOST_REASONS = 3  # of low or fair confidence in its line
MOST_CHANGES = 6  # rows of the change figure up to which a second figure fits
MOST_STEPS = 3  # in the line on what to do next
KINDS_OF_STACKS = {"contained": "image", "bind-mounted": "image with libraries of the host"}  # that need an explanation
NOTHING_OPEN = "all is "
EXTEND = NOTHING_OPEN + "measured; to add cells, edit the campaign file, then `{run}`: only new cells are measured"
INDEX = NOTHING_OPEN + "imported; to compare it with other campaigns: `make index`"
STRETCH = {"lines": 1.7, "rows": 1.2}  # of its height, by its form: beside six or seven facts
WHERE = "Run commands in Regatta's folder."
ELSEWHERE = "Run commands in the folder that contains results/."
SETTING = re.compile(r"`(\w+): (\[?)([^`\]]+)\]?`")  # in a next step
URGENT_FIRST = (SUMMARY, LOW, FAIR, RESULT, NOTE)
SUBJECT = Kind("subject", SUMMARY, "{subject}", place=0)
CONFIDENCE = Kind(
    *("confidence", SUMMARY, ("Precision: {precision}", "Confidence: {word}")),
    parts=(
        "median half-width of the 95 % CIs; margin {margin}",
        (
            "{listed}",
            f"variation between launches above {LIMIT} in {{num_varying}} of {{num_cells:cell}}: {{where}}",
            f"variation between launches above {LIMIT} in {{num_varying}} of {{num_cells:cell}}",
            f"none of {{num_cells:cell}} varies by more than {LIMIT} between launches",
            "no ranges",
        ),
    ),
    place=7,
    mark=("{mark}", "{word}"),
)
NEXT = Kind("next", SUMMARY, "Next: {shown}", ("{where}",), place=8)


@once_per_report
def summary(data: ReportData) -> list[Finding]:
    """Return the lines in the page's order: of findings with the same key, the first."""
    lines: dict[str, Finding] = {}
    for finding in data.findings:
        if finding.rank == SUMMARY:
            lines.setdefault(finding.key, _with_trust(data, finding))
    more = [] if data.ok.empty else [confidence(data)]
    found = [subject(data), *lines.values(), *more, to_do_next(data)]
    return sorted(found, key=lambda finding: finding.declared.place)


def answer_json(data: ReportData) -> dict:
    """Return answer.json: docs/contracts.md."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    counts, times = Counter(shown_status(planned)), planned["time_utc"].dropna()
    times = times[:0] if data.campaign.imported else times  # of an import, not of the measurements
    return {
        "schema": 1,
        "campaign": data.campaign.name,
        "cluster": data.campaign.cluster["name"],
        "device": data.campaign.device,
        "first_record_utc": None if times.empty else min(times),
        "last_record_utc": None if times.empty else max(times),
        "num_planned": len(planned),
        "num_by_status": dict(sorted(counts.items())),
        "lines": [
            {"id": of.key, "lead": of.statement[0], "text": of.statement[1], "anchor": of.anchor, "values": of.numbers}
            for of in summary(data)
        ],
    }


def _with_trust(data: ReportData, finding: Finding) -> Finding:
    """Return a line that says whether it rests on cells with a warning; on an invalid one, no other could be chosen.

    A warning on many cells, such as all on a slow node, excludes none of them, but the line counts those that it rests
    on. Lines of topics that judge validity do not depend on it.
    """
    is_judge = any(topic.is_judge and finding.declared in topic.kinds for topic in data.topics)
    num_warned, words = len(unreliable_cells(data).intersection(finding.cells)), {}
    if is_judge or not num_warned:
        return finding
    if invalid_cells(data).isdisjoint(finding.cells):
        doubt = f"with a warning: {num_warned:,} of {plural(len(finding.cells), 'cell')}"
        values = {"num_warned": num_warned}
    else:
        doubt = "no cell without a warning"
        values = {"unreliable": doubt}
    found = [of for of in data.findings if of.rank in (LOW, FAIR) and not set(of.cells).isdisjoint(finding.cells)]
    if all(of.words.get("included") for of in found):  # one alarm per cause; what was lost says more
        included = dict.fromkeys(data.places[cell] for cell in finding.cells if cell in data.places)
        doubt = "" if finding.values.get("slow_node") else f"includes {joined(list(included))}"
        words = {"mark": INCLUDED} if finding.mark == "measured" else {}
    else:
        values["confidence"] = LOW if any(of.rank == LOW for of in found) else FAIR
    kind = replace(finding.declared, parts=(*finding.declared.parts, "{doubt}"))
    words = finding.words | words | {"doubt": doubt}
    return replace(finding, declared=kind, values=finding.values | values, words=words)


def subject(data: ReportData) -> Finding:
    """Return what was measured: `resnet50, resnet101 · DDP · 1–32 GPUs · 2 stacks · 6 launches`."""
    cells, names = data.campaign.cells, list(data.cell_names.values())[: len(data.campaign.cells)]
    sizes, stacks = sorted({cell.world_size for cell in cells}), data.campaign.stack_names
    subjects = list(dict.fromkeys(name.parts["subject"] for name in names))
    parts = [", ".join(subjects) if len(subjects) <= MOST_SUBJECTS else joined(subjects)]
    if sizes:
        span = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]}\N{EN DASH}{sizes[-1]}"
        parts.append(f"{span} {(ranks_word if sizes[-1] > 1 else rank_word)(data.device)}")
    if sweep := data.campaign.sweep:
        num_nodes = len({host for cell in cells for host in cell.hosts})
        parts.append(f"{plural(num_nodes, 'node')}, {'one by one' if sweep == 'nodes' else 'in pairs'}")
    kinds = {cell.stack.name: KINDS_OF_STACKS.get(cell.stack.settings.get("kind")) for cell in cells}
    about = {stack: [kinds.get(stack), joined(of)] for stack, of in own_facts(data.campaign).items()}
    about = {stack: "; ".join(filter(None, of)) for stack, of in about.items()}
    shown = [f"{stack} ({about[stack]})" if about[stack] else stack for stack in stacks]
    parts.append(f"stack {shown[0]}" if len(stacks) == 1 else f"stacks {joined(shown)}")
    parts.append(plural(data.campaign.repeats, "launch per cell", "launches per cell"))
    values = {"num_cells": len(cells), "world_sizes": sizes, "stacks": stacks}
    words = {"subject": " \N{MIDDLE DOT} ".join(filter(None, parts))}
    return Finding("subject", values, (), anchor="matrix", words=words, declared=SUBJECT)


def confidence(data: ReportData) -> Finding:
    """Return how far the numbers can be trusted, and what invalidates them, worst first."""
    found = sorted((of for of in data.findings if of.rank in (LOW, FAIR)), key=lambda of: of.rank != LOW)
    reasons = [
        {"kind": finding.kind, "rank": finding.rank, "text": finding.statement[0].removesuffix(".")}
        for finding in found
    ]
    texts = [f"{reason['text'][:1].lower()}{reason['text'][1:]}" for reason in reasons[:MOST_REASONS]]
    texts += [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    values = {"word": reasons[0]["rank"] if reasons else "good", "straggler": None} | counts_of_variation(data)
    for finding in data.findings:
        name, is_list, _ = finding.declared.key.partition("[]")
        if is_list:
            values.setdefault(name, []).append(finding.numbers)
        elif name and finding.rank != SUMMARY:
            values[name] = values.get(name) or finding.numbers
    values |= {"reasons": reasons, "num_unreliable": len(unreliable_cells(data))}
    where = next((of.words.get("where") for of in data.findings if of.declared.key == "variation"), None)
    words = {"listed": "; ".join(texts), "where": where}
    # A slow node of a sweep is its result, and no doubt about the measurement.
    words |= precision_words(data) if data.campaign.sweep and not reasons else {}
    return Finding("confidence", values, (), (), "warnings", words, CONFIDENCE)


def to_do_next(data: ReportData) -> Finding:
    """Return the line on what to do next, and where."""
    steps = next_steps(data)
    shown = "; ".join(steps[:MOST_STEPS])
    shown += f"; {len(steps) - MOST_STEPS} more in answer.json" if len(steps) > MOST_STEPS else ""
    is_elsewhere = f"`{data.commands['run']}" in shown  # than in Regatta's folder
    where = WHERE if re.search(r"`(make|\.venv/)", shown) else ELSEWHERE if is_elsewhere else ""
    words = {"shown": shown, "where": where, "mark": "optional" if shown.startswith(NOTHING_OPEN) else "to do"}
    return Finding("next", {"steps": steps}, (), words=words, declared=NEXT)


def next_steps(data: ReportData) -> list[str]:
    """Return what to do next, the most urgent first: failures, then what lowers the confidence, then open questions.

    Steps that change the same setting are one: the second value would replace the first. A step with a command that
    measures has its price.
    """
    urgent, found = sorted(data.findings, key=lambda finding: URGENT_FIRST.index(finding.rank)), {}
    for step in filter(None, (finding.next_step for finding in urgent)):
        key = setting[1] if (setting := SETTING.search(step)) else step
        found[key] = _as_one(found[key], step) if found.get(key, step) != step else step
    steps = [_with_price(data, step) for step in found.values()]
    return steps or [INDEX if data.campaign.imported else EXTEND.format(**data.commands)]


def _with_price(data: ReportData, step: str) -> str:
    """Return a step with the number and time of the launches that its commands make, if there are any."""
    planned = data.measurements[data.measurements["repeat"].notna()]
    if f"`{data.commands['retry']}`" in step:
        rows = planned[planned["status"] != "ok"]
    elif f"`{data.commands['run']}`" in step:
        rows = planned[planned["status"].isin(["not_measured", *ALWAYS_RETRIED])]
    else:
        return step
    slots = [(row["cell"], row["repeat"]) for row in plain_rows(rows, ("cell", "repeat"))]
    more = re.search(r"`repeats: (\d+)`", step)
    slots += [
        (cell.id, n) for n in range(data.campaign.repeats, int(more[1]) if more else 0) for cell in data.campaign.cells
    ]
    price = price_text(data.campaign, data.measurements, data.tables["launches"], slots) if slots else ""
    return f"{step} ({price})" if price else step


def _as_one(one: str, other: str) -> str:
    """Return two steps of the form `what: commands` as one: with all of a list, or the larger of two numbers.

    Each command is there once.
    """
    settings = [SETTING.search(step) for step in (one, other)]
    values = sorted({value for setting in settings for value in setting[3].split(", ")}, key=natural)
    value = f"`{settings[0][1]}: [{', '.join(values)}]`" if settings[0][2] else f"`{settings[0][1]}: {values[-1]}`"
    parts = [SETTING.sub(value, step, count=1).partition(": `") for step in (one, other)]
    commands = dict.fromkeys(command for _, _, of in parts for command in re.findall("`[^`]+`", f"`{of}"))
    purposes = dict.fromkeys(of for what, _, _ in parts for of in what.split(", "))
    return f"{', '.join(purposes)}: {', '.join(commands)}"


# The figure of the first screen.


def headline_figures(data: ReportData, shown: list[Section]) -> list[Figure]:
    """Return the figures of the first screen: that of the first line whose section offers one, if there is any.

    Where compared values differ, their changes are first, and hide the other if they have more than MOST_CHANGES rows.
    """
    places, compared = [line.anchor for line in summary(data)], change_by_pair(data)
    offered = [section for section in shown if section.headlines]
    offered.sort(key=lambda section: places.index(section.id) if section.id in places else len(places))
    if not any(line.key == "comparison" and line.mark == "different" for line in summary(data)):
        return _as_headlines(first_figure(offered, compared))
    has_place = len(compared.table.rows) <= MOST_CHANGES and offered and _has_sizes(offered[0])
    return _as_headlines(compared, first_figure(offered, None) if has_place else None)


def first_figure(offered: list[Section], compared: Figure | None) -> Figure | None:
    """Return the first figure that sections offer. compared: the one of comparisons.

    Instead of a strip, that of comparisons if cells have one size; without any, the first figure of several cells.
    """
    found = [figure for section in offered for figure in section.headlines]
    if not found or found[0].chart.form == "rows":
        several = (figure for figure in found if len({*figure.chart.frame["cell"]} - {""}) > 1)
        first = None if offered and _has_sizes(offered[0]) else compared
        found = [figure for figure in (first, next(several, None), *found) if figure]
    return found[0] if found else None


def _as_headlines(*figures: Figure | None) -> list[Figure]:
    found = []
    for place, figure in enumerate(filter(None, figures)):
        chart = replace(figure.chart, stretch=STRETCH.get(figure.chart.form, 1.0) if len(figures) < 2 else 1.0)
        table = replace(figure.table, caption=f"Summary: {figure.table.caption}")  # landmarks are unique
        name = f"headline-{place + 1}" if place else "headline"
        found.append(replace(figure, id=name, table=table, drawing=chart))
    return found


def _has_sizes(section: Section) -> bool:
    """Return whether any figure of a section is over several places, as that of throughput with the baseline is."""
    return any(figure.chart.form == "lines" for of in (section, *section.parts) for figure in of.figures)


def without_figures(shown: list[Section], first: list[Figure]) -> list[Section]:
    """Return the sections without the figures of the first screen."""
    titles = {figure.title for figure in first}
    return [replace(one, figures=tuple(of for of in one.figures if of.title not in titles)) for one in shown]


def figures_of_page(shown: list[Section], first: list[Figure]) -> list[Figure]:
    """Return the figures that the page draws: those of the first screen, then those of sections and their parts."""
    found = [*first]
    for section in (one for outer in without_figures(shown, first) for one in (outer, *outer.parts)):
        found += drawn_and_listed(section.figures)[0]
    return found
