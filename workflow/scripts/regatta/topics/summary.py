"""The first block of the report: a line for each finding of the summary, how far to trust them, and what to do next.

The same lines end a run on the terminal, and are in answer.json for other programs.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace

from regatta.core.text import natural, plural, rank_word, ranks_word
from regatta.kit.kinds import FAIR, LOW, NOTE, RESULT, SUMMARY, Value, joined
from regatta.report.commands import price_text
from regatta.report.findings import Finding
from regatta.report.page import shown_status
from regatta.report.panels import Figure, Section, drawn_and_listed
from regatta.store.csv_files import plain_rows
from regatta.store.history import ALWAYS_RETRIED
from regatta.tables.facts import own_facts
from regatta.topics.base import ReportData, invalid_cells, once_per_report, unreliable_cells

# Lines by id: what was compared, which is best, how it scales, what failed. Others come before what failed.
ORDER = ("subject", "comparison", "nodes", "bucket", "scaling", "scripts", "programs", "communication")
ORDER += ("training_runs", "failed")
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
    "fair": ("\N{WARNING SIGN}", "bad"),  # confidence
    "low": ("\N{WARNING SIGN}", "bad"),
    "slow": ("\N{BLACK UP-POINTING TRIANGLE}", "bad"),
    "failed": ("\N{MULTIPLICATION X}", "bad"),
}
OF_STATEMENTS = {"equal": "equal", "uncertain": "uncertain", "undecided": "uncertain"}  # by the first word
MOST_SUBJECTS = 5  # all named
MOST_REASONS = 3  # of low or fair confidence in its line
MOST_STEPS = 3  # in the line on what to do next
KINDS_OF_STACKS = {"contained": "image", "bind-mounted": "image with libraries of the host"}  # that need an explanation
NOTHING_OPEN = "all is "
EXTEND = NOTHING_OPEN + "measured; to add cells, edit the campaign file, then `{run}`: only new cells are measured"
INDEX = NOTHING_OPEN + "imported; to compare it with other campaigns: `make index`"
HEADLINES = ("sweep", "scaling", "scripts", "programs", "communication", "training_runs")  # sections, the first counts
COMPARISONS = "comparisons"  # instead of a strip: without several places, only what is compared differs
STRETCH = {"lines": 1.55, "rows": 1.2}  # of its height, by its form: beside six or seven facts
WHERE = "run commands in Regatta's folder"
ELSEWHERE = "run commands in the folder that contains results/"
SETTING = re.compile(r"`(\w+): (\[?)([^`\]]+)\]?`")  # in a next step
URGENT_FIRST = (SUMMARY, LOW, FAIR, RESULT, NOTE)
# Lines whose values in answer.json include those of warnings: kind -> key, and whether it lists all or has the first.
OF_WARNINGS = {
    "failed": {"loaded_timeouts": ("loaded_timeouts", False)},
    "confidence": {
        "slow_node": ("slow_launches", True),
        "slow_launch": ("slow_launches", True),
        "loaded_measurements": ("loaded_measurements", False),
        "straggler_host": ("straggler", False),
        "straggler_rank": ("straggler", False),
        **dict.fromkeys(("noisy_machine", "variation", "some_variation"), ("variation", False)),
    },
}


@dataclass(frozen=True)
class Line:
    """One line. lead: the statement. text: what qualifies it. anchor: the section. values: as the tables have them."""

    id: str
    lead: str
    text: str = ""
    anchor: str = ""
    values: dict[str, object] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return what the line is about, the lead up to its colon; empty if it has none."""
        return self.lead.partition(": ")[0] if ": " in self.lead else ""

    @property
    def statement(self) -> str:
        return self.lead.partition(": ")[2] or self.lead

    @property
    def mark(self) -> str:
        """Return the word of the line's mark, a key of MARKS."""
        values = self.values
        if "confidence" in values:
            return values["confidence"]
        if self.id == "failed":
            is_complete = values["num_planned"] and not values["num_not_measured"]
            return "failed" if values["num_failed"] else "complete" if is_complete else "missing"
        if self.id == "nodes":
            return _mark_of_nodes(values)
        if self.id == "comparison":
            outcomes = {part["outcome"] for part in values["parts"]}
            is_open = outcomes & {"uncertain", "undecided"}
            return "different" if outcomes & {"slower", "both_ways"} else "uncertain" if is_open else "equal"
        if self.id == "confidence":
            return values["word"]
        if self.id == "next":
            return "optional" if values["steps"][0].startswith(NOTHING_OPEN) else "to do"
        if word := OF_STATEMENTS.get(re.split(r"\W", self.statement)[0]):
            return word
        if self.statement.endswith("too noisy"):
            return "uncertain"
        return "partly measured" if values.get("num_uncertain") or values.get("without_result") else "measured"

    @property
    def plain(self) -> str:
        return f"{self.lead}; {self.text}" if self.text else self.lead


def _mark_of_nodes(values: dict[str, object]) -> str:
    if values["nodes"]["failed"]:
        return "failed"
    if values["num_slower"] or values["pairs"]:
        return "slow"
    return "no slow node" if values["num_settled"] == values["num_nodes"] else "uncertain"


@once_per_report
def summary(data: ReportData) -> list[Line]:
    """Return the lines in the page's order."""
    found = [_trusted(data, finding) for finding in data.findings if finding.rank == SUMMARY]
    lines = {line.id: line for line in [subject(data), *reversed(found)]}  # the first line of an id counts
    lines |= {name: _with_warnings(data, lines[name]) for name in OF_WARNINGS if name in lines}
    last = [confidence(data, lines.pop("confidence"))] if "confidence" in lines else []
    steps = next_steps(data)
    shown = " ".join(steps[:MOST_STEPS])
    is_elsewhere = f"`{data.commands['run']}" in shown  # than in Regatta's folder
    text = WHERE if re.search(r"`(make|\.venv/)", shown) else ELSEWHERE if is_elsewhere else ""
    last += [Line("next", f"Next: {'; '.join(steps[:MOST_STEPS])}", text, values={"steps": steps})] if steps else []
    places = {name: place for place, name in enumerate(ORDER)}
    return sorted(lines.values(), key=lambda line: places.get(line.id, places["failed"] - 0.5)) + last


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
        "lines": [vars(line) for line in summary(data)],
    }


def _trusted(data: ReportData, finding: Finding) -> Line:
    """Return a finding as a line that says whether it rests on an invalid cell: no other cell could have been chosen.

    A warning on many cells, such as all on a slow node, excludes none of them, but the line counts those that it rests
    on, except of comparisons, whose sides share the warning. Those of topics that judge validity do not depend on it.
    """
    line, reason = line_of(finding), "no cell without a warning"
    is_judge = any(topic.is_judge and finding.declared in topic.kinds for topic in data.topics)
    num_warned = len(unreliable_cells(data).intersection(finding.cells)) if line.id != "comparison" else 0
    if is_judge:
        return line
    if not invalid_cells(data).isdisjoint(finding.cells):
        values, text = {"unreliable": reason}, reason
    elif num_warned:
        text = f"{num_warned:,} of {plural(len(finding.cells), 'cell')} with a warning"
        values = {"num_warned": num_warned}
    else:
        return line
    ranks = {of.rank for of in data.findings if of.rank in (LOW, FAIR) and not set(of.cells).isdisjoint(finding.cells)}
    word = LOW if LOW in ranks else FAIR
    text = "; ".join(filter(None, (line.text, f"confidence {word}: {text}")))
    return replace(line, text=text, values=line.values | values | {"confidence": word})


def line_of(finding: Finding) -> Line:
    """Return a finding as a line."""
    return Line(finding.declared.line or finding.kind, *finding.statement, finding.anchor, numbers(finding))


def numbers(finding: Finding) -> dict[str, object]:
    """Return the values of a finding as answer.json has them."""
    values: dict[str, object] = {}
    for name, value in finding.values.items():
        values |= value.by_name(name) if isinstance(value, Value) else {name: value}
    return values


def subject(data: ReportData) -> Line:
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
    return Line("subject", " \N{MIDDLE DOT} ".join(filter(None, parts)), anchor="matrix", values=values)


def _with_warnings(data: ReportData, line: Line) -> Line:
    """Return a line with the values of the warnings that belong to it; the line on failures also has their text."""
    found = [finding for finding in data.findings if finding.kind in OF_WARNINGS[line.id]]
    values = line.values.copy()
    for finding in found:
        key, has_all = OF_WARNINGS[line.id][finding.kind]
        values[key] = [*values.get(key, []), numbers(finding)] if has_all else values.get(key) or numbers(finding)
    texts = [finding.text.removesuffix(".") for finding in found if line.id == "failed"]
    return replace(line, text="; ".join(filter(None, (line.text, *texts))), values=values)


def confidence(data: ReportData, line: Line) -> Line:
    """Return how far the numbers can be trusted, and what invalidates them, worst first. line: with counts."""
    found = sorted((of for of in data.findings if of.rank in (LOW, FAIR)), key=lambda of: of.rank != LOW)
    reasons = [
        {"kind": finding.kind, "rank": finding.rank, "text": finding.statement[0].removesuffix(".")}
        for finding in found
    ]
    word = reasons[0]["rank"] if reasons else "good"
    texts = [f"{reason['text'][:1].lower()}{reason['text'][1:]}" for reason in reasons[:MOST_REASONS]] or [line.lead]
    texts += [f"and {len(reasons) - MOST_REASONS} more"] if len(reasons) > MOST_REASONS else []
    values = {"word": word, "straggler": None} | line.values
    values |= {"reasons": reasons, "num_unreliable": len(unreliable_cells(data))}
    return replace(line, lead=f"Confidence: {word}", text="; ".join(texts), values=values)


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


def headline_figure(shown: list[Section]) -> Figure | None:
    """Return the figure of the first screen: of the first section in HEADLINES that has one.

    Instead of a strip, that of comparisons if cells have one size; without any, the first figure of several cells.
    """
    by_id = {section.id: section for section in shown}
    sections = [by_id[name] for name in HEADLINES if name in by_id and _figures_of(by_id[name])]
    found = [figure for section in sections for figure in _figures_of(section)]
    compared = by_id[COMPARISONS].headline if COMPARISONS in by_id else None
    if not found or found[0].chart.form == "rows":
        several = (figure for figure in found if len({*figure.chart.frame["cell"]} - {""}) > 1)
        first = None if sections and _has_sizes(sections[0]) else compared
        found = [figure for figure in (first, next(several, None), *found) if figure]
    if not found:
        return None
    chart = replace(found[0].chart, stretch=STRETCH.get(found[0].chart.form, 1.0))
    table = replace(found[0].table, caption=f"Summary: {found[0].table.caption}")  # landmarks are unique
    return replace(found[0], id="headline", table=table, drawing=chart)


def _figures_of(section: Section) -> tuple[Figure, ...]:
    return (section.headline,) if section.headline else section.figures


def without_headline(shown: list[Section]) -> list[Section]:
    """Return the sections without the figure of the first screen, if it is the only one of its section."""
    first = headline_figure(shown)
    titles = [first.title] if first else []
    return [
        replace(section, figures=())
        if not section.headline and [figure.title for figure in section.figures] == titles
        else section
        for section in shown
    ]


def _has_sizes(section: Section) -> bool:
    """Return whether any figure of a section is over several places, as that of throughput with the baseline is."""
    return any(figure.chart.form == "lines" for figure in (*section.figures, *section.folded[1]))


def figures_of_page(shown: list[Section]) -> list[Figure]:
    """Return the figures that the page draws: that of the first screen, then those of sections and their parts."""
    first = headline_figure(shown)
    found = [first] if first else []
    for section in (one for outer in without_headline(shown) for one in (outer, *outer.parts)):
        for figures in (section.figures, section.folded[1]):
            found += drawn_and_listed(figures)[0]
        found += [section.content["figure"]] if section.content.get("figure") else []
    return found
