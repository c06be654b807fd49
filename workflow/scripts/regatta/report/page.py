"""The parts of report.html that belong to no topic: facts, contents, counts, provenance and general methods.

topics/catalog.py adds the topics and renders the page: one reproducible file without external assets.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from html import unescape
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from regatta.core.benchmarks import load_benchmark
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.names import slug
from regatta.core.statistics import CONFIDENCE, MIN_SAMPLES_INTERVAL, Z_95
from regatta.core.text import UNKNOWN, natural, nodes_text, plural, rank_time, size, status_text, with_minus_signs
from regatta.kit.kinds import WORDS
from regatta.model.frozen import FrozenCampaign
from regatta.report.findings import (
    HEADERS,
    anchor_of,
    asides,
    copied,
    file_of,
    numbered,
    percent_number,
    unbroken,
    with_code,
)
from regatta.report.panels import Section, Table, drawn_and_listed
from regatta.store.launch_files import launch_paths, read_one_line
from regatta.store.records import one_line, violation
from regatta.tables.facts import ABSENT, SECRET, Fact, known_values, shown_variable, values_by

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
STATUSES = (
    *("ok", "failed", "timeout", "out_of_memory", "placement", "node_failure"),
    *("not_measured", "not_started", "skipped"),
)
NO_RECORD = ("not_measured", "not_started")  # these have not failed
PARTLY_FAILED = "partly_failed"  # status of a cell: some of its launches are ok, others failed
MARKS = {"ok": "\N{CHECK MARK}", "skipped": "\N{EN DASH}", PARTLY_FAILED: "\N{CIRCLE WITH LEFT HALF BLACK}"}
MARKS |= dict.fromkeys(NO_RECORD, "\N{WHITE CIRCLE}")
CELL_MARK = re.compile(r' data-(cell|line)="([^"]*)"')  # of report/lines.py
BAD_MARK = "\N{BALLOT X}"
LIMITS = {  # of templates
    "most_rows_listed": 50,  # of a table; all are in CSV files
    "most_rows_printed": 4,  # longer tables are not printed; on screen, all are collapsed
    "most_rows_named": 20,  # folded rows that are named; more are counted
    "min_launches": MIN_LAUNCHES,  # these are of intervals
    "min_samples": MIN_SAMPLES_INTERVAL,
    "confidence": f"{100 * CONFIDENCE:g}",
    "z": Z_95,
}
PROVENANCE = {  # tables of facts by stack: the groups of each
    "Software": ("stack", "version", "commit"),
    "Environment variables": ("variable",),
    "PyTorch settings": ("setting",),
}
LEFT_OUT = {  # by key of problems.json: what is not used, and a text for each
    "corrupt": ("{num:integrity error}", "{text}"),
    "invalid": ("{num:line} violating the schema", "{launch}, line {line!s} ({kind}): {problem}"),
    "superseded": (
        "{num:record} superseded by a later record",
        "{name}, launch {number!s}: {status} in {launch}, line {line!s}; later record {by}",
    ),
    "beyond_repeats": (
        "{num:record} beyond the campaign's launches",
        "{name}, launch {number!s}: {launch}, line {line!s}",
    ),
    "not_planned": ("{num:record} of {num_cells:cell} not in this campaign", "{cell}: {num_records:record}"),
}
OF_HOSTS = ("machine", "detail")
OF_LAUNCHES = ("ranks", "threads per rank")  # of these groups


@cache
def load_template(name: str) -> jinja2.Template:
    """Return a template of workflow/report/."""
    options = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, **options)
    environment.filters |= {"minus": with_minus_signs, "status": marked_status, "file": file_of, "anchor": anchor_of}
    environment.filters |= {"cell_index": cell_index, "cell_marks": cell_marks, "percent": percent_number}
    environment.filters |= {"code": with_code, "plural": plural, "size": size, "slug": slug}
    environment.filters |= {"unbroken": unbroken, "asides": asides, "copied": copied, "numbered": numbered}
    environment.filters["drawn_and_listed"] = drawn_and_listed
    environment.globals |= LIMITS | {
        "style": style("style.css"),
        "explore_style": style("explore.css"),
        "script": script_text(),
        "headers": HEADERS,
    }
    environment.globals["script_source"] = script_source(environment.globals["script"])
    return environment.get_template(name)


def render(template: str, **content: object) -> str:
    """Return a page. Styles of drawings, whose names say what they are, stand once: in its head."""
    page = load_template(template).render(content)
    of_drawing = re.compile(r"<style>((?:\.chart [^<]*)?)</style>\n")  # texts of users have no <
    rules = dict.fromkeys(rule for text in of_drawing.findall(page) for rule in re.findall(r"\S[^}]*\}", text))
    return of_drawing.sub("", page).replace("</style>", f"{''.join(rules)}\n</style>", 1)


def style(name: str) -> str:
    """Return a style sheet of workflow/report/ without comments and optional white space."""
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    return re.sub(r"\s*([{};,])\s*|(?<=:) +", r"\1", re.sub(r"(?s)/\*.*?\*/", "", text)).strip()


def script_text() -> str:
    """Return the script of workflow/report/ without comments and empty lines."""
    return re.sub(r"(?m)^ *(?://|/\*\*).*\n| // .*|\n(?=\n)", "", (TEMPLATES / "report.js").read_text(encoding="utf-8"))


def script_source(script: str) -> str:
    """Return the source of a content security policy that lets this inline script run, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@jinja2.pass_context
def cell_marks(context: jinja2.runtime.Context, svg: str) -> Markup:
    """Return a drawing whose marks have indices of cells instead of ids; none on a page without a data block."""
    indices = context.get("cell_indices") or {}

    def index(match: re.Match) -> str:
        found = [indices.get(cell) for cell in unescape(match[2]).split(" ")]
        return "" if None in found else f' data-{match[1]}="{" ".join(map(str, found))}"'

    return Markup(CELL_MARK.sub(index, svg))


@jinja2.pass_context
def cell_index(context: jinja2.runtime.Context, cells: str | Iterable[str]) -> str:
    """Return the value of the attribute data-cell for one cell or several; empty on a page without a data block."""
    indices = context.get("cell_indices") or {}
    wanted = [cells] if isinstance(cells, str) else cells
    return " ".join(str(indices[cell]) for cell in dict.fromkeys(wanted) if cell in indices)


def contents(shown: list[Section]) -> list[tuple[str, str, str, str]]:
    """Return (anchor, title, state, CSS class of the state) of each section with content, in the page's order."""
    found = [("summary", "Summary", "", "")]
    for section in shown:
        tables = plural(len(section.tables), "table") if section.tables else ""
        counted = plural(len(section.figures), "figure") if section.figures else tables
        found.append((section.id, section.title, *(section.state if section.state[0] else (counted, "quiet"))))
    found.append(("cells", "All cells", "", ""))
    return [*found, ("methods", "Methods", "", ""), ("provenance", "Provenance", "", "")]


def cell_hours(measurements: pd.DataFrame) -> float | None:
    """Return ranks x hours between the start and the record of cells: setup, checks, warm-up and sampling."""
    seconds = measurements["elapsed_s"] * measurements["world_size"]
    return float(seconds.sum() / 3600) if seconds.notna().any() else None


def cell_time_text(measurements: pd.DataFrame, launches: pd.DataFrame, device: str) -> str:
    """Return the cell time, with its parts if launches.csv has exactly the records of measurements.csv."""
    hours, ranks = cell_hours(measurements), launches["nodes"] * launches["gpus_per_node"] / 3600
    used = launches["launch"].isin(measurements["launch"].dropna())
    total, warmup, sampling = (
        float((launches[name] * ranks)[used].sum()) for name in ("cells_s", "warmup_s", "measuring_s")
    )
    if not hours or abs(total - hours) > 1e-6 * hours:
        return f"{rank_time(hours or 0, device)} (setup, checks, warm-up, sampling)"
    shares = {"sampling": sampling, "warm-up": warmup, "setup and checks": total - warmup - sampling}
    listed = ", ".join(f"{percent_number(part / total)} % {name}" for name, part in shares.items())
    return f"{rank_time(hours, device)}: {listed}"


def machine_line(campaign: FrozenCampaign, known: list[Fact], measurements: pd.DataFrame) -> list[str]:
    """Return cluster, processor, torch version and time of the measurements, for one line of the page's head."""
    names = {"torch": "torch ", "CPU" if campaign.device == "cpu" else "GPU": ""}
    found = [f"{word}{', '.join(of)}" for name, word in names.items() if (of := known_values(known, name))]
    days = sorted({time[:10] for time in measurements["time_utc"].dropna()})
    when = [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    when = [f"imported {day}" for day in when] if campaign.imported else when
    used = [f"{rank_time(hours, campaign.device)} in cells"] if (hours := cell_hours(measurements)) else []
    return [f"cluster {campaign.cluster['name']}", *found, *used, *when]


def facts(campaign: FrozenCampaign, measurements: pd.DataFrame, launches: pd.DataFrame) -> list[tuple[str, str]]:
    """Return (name, value) of what ran where and when. launches: launches.csv, for the parts of the cell time."""
    times = sorted(measurements["time_utc"].dropna())
    first, last = (times[0], times[-1]) if times else (UNKNOWN, UNKNOWN)
    when = [("Imported", last)] if campaign.imported else [("First record", first), ("Last record", last)]
    if cell_hours(measurements) is not None:
        when.append(("Cell time", cell_time_text(measurements, launches, campaign.device)))
    place = [("Cluster", nodes_text(campaign.cluster)), ("Device", campaign.device)]
    return [*place, *when, ("Launches per cell", str(campaign.repeats))]


def shown_status(rows: pd.DataFrame) -> pd.Series:
    """Return the status of each row on the page: a planned repeat that was skipped is not_started.

    Cells that were never planned to run, which have no repeat, stay skipped.
    """
    is_repeat = (rows["status"] == "skipped") & rows["repeat"].notna()
    return rows["status"].mask(is_repeat.fillna(False), "not_started")


def count_failed(counts: Mapping[str, int]) -> int:
    """Return how many measurements failed, by the number of each of their statuses (`shown_status`)."""
    return sum(num for status, num in counts.items() if status not in ("ok", "skipped", *NO_RECORD))


def status_counts(measurements: pd.DataFrame) -> list[tuple[str, int]]:
    """Return (status, number) of measurements, skipped cells last: ok, and each status that occurs."""
    numbers = Counter(shown_status(measurements))
    return [(status, numbers[status]) for status in STATUSES if numbers[status] or status == "ok"]


def marked_status(status: str, phase: str | None = None) -> str:
    """Return a status of `shown_status` with its mark."""
    text = status if status == "skipped" else status_text(status, phase)
    return f"{MARKS.get(status, BAD_MARK)} {text}"


# Provenance: what ran where.


def read_headers(launches: Path, measurements: pd.DataFrame) -> list[dict]:
    """Return the first line, if valid, of each launch file with a row in `measurements`. Samples are not read."""
    used = set(measurements["launch"].dropna().unique())
    lines = (read_one_line(path, 1) for path in launch_paths(launches) if path.stem in used)
    return [line for line in lines if line is not None and line["kind"] == "launch" and violation(line) is None]


def facts_table(caption: str, known: Iterable[Fact], by: str, source: str = HEADERS.file) -> Table:
    """Return a row for each fact that has a value, with its values in a column for each stack or host (by)."""
    found = values_by(known, by)
    places = sorted(set().union(*(of for values in found.values() for of in values.values())), key=natural)
    rows = tuple(
        (
            label.removeprefix(f"{group} "),
            *(", ".join(value for value, of in values.items() if value and at in of) or UNKNOWN for at in places),
        )
        for (group, label), values in found.items()
        if values.keys() - {None, ABSENT.get(group)}
    )
    return Table(caption, (by, *places), rows, is_words=True, sources=(source,))


def provenance(known: list[Fact], headers: list[dict]) -> dict:
    """Return what ran where: software by stack, hosts, libraries, and the command line of each launch."""
    tables = [
        facts_table(title, [fact for fact in known if fact.group in groups], "stack")
        for title, groups in PROVENANCE.items()
    ]
    of_hosts = [fact for fact in known if fact.host and fact.group in OF_HOSTS and fact.name not in OF_LAUNCHES]
    hosts = facts_table("Hosts", of_hosts, "host")
    heading, *rows = zip(hosts.columns, *hosts.rows, strict=True)  # of many hosts: below each other
    return {
        "tables": [table for table in (*tables, replace(hosts, columns=heading, rows=tuple(rows))) if table.rows],
        "libraries": sorted({fact.value for fact in known if fact.group == "library" and fact.value}),
        "launches": [(one_line(h.get("launch")), " ".join(map(one_line, h.get("argv") or []))) for h in headers],
    }


def text_without_secrets(campaign: FrozenCampaign) -> str:
    """Return the text of the campaign file with hashes instead of the values of variables that may be secrets."""
    text = campaign.text
    for stack in {cell.stack.name: cell.stack for cell in campaign.cells}.values():
        for name, value in (stack.settings.get("env") or {}).items():
            if SECRET.search(name) and value:
                at = re.compile(rf"({re.escape(name)}['\"]?\s*:\s*['\"]?){re.escape(str(value))}")
                text = at.sub(lambda found, name=name, value=value: found[1] + shown_variable(name, value), text)
    return text


def left_out(problems: dict, names: dict[str, str]) -> list[tuple[int, str, list[str]]]:
    """Return (number, reason, items) for everything in the store that the report does not use. names: by cell."""
    found = []
    for key, (reason, text) in LEFT_OUT.items():
        items = [item if isinstance(item, dict) else {"text": item} for item in problems[key]]
        items = [
            item | {"name": names.get(item.get("cell"), item.get("cell")), "number": (item.get("repeat") or 0) + 1}
            for item in items
        ]
        num = sum(item.get("num_records", 1) for item in items)
        counted = WORDS.vformat(reason, (), {"num": num, "num_cells": len(items)})
        found += [(num, counted, [WORDS.vformat(text, (), item) for item in items])] if items else []
    return found


def sampling(campaign: FrozenCampaign) -> str:
    """Return the rules by which launches stopped sampling, for Methods."""
    cells = [cell for cell in campaign.cells if cell.sampling]
    if not cells:
        return "Defined by the program whose files were imported." if campaign.cells else "No cell was planned."
    rules = {tuple(sorted((k, v) for k, v in cell.sampling.items() if k != "windows_ratio")) for cell in cells}
    texts = [
        f"Stops when the half-width of the {100 * CONFIDENCE:g} % confidence interval is at most"
        f" {100 * s['target_precision']:.2g} % of the median. Minimum: {s['min_seconds']:g} s and"
        f" {s['min_samples']:,} iterations; maximum: {s['max_seconds']:g} s or {s['max_samples']:,} iterations."
        f" Warm-up: at most {s['max_warmup_seconds']:g} s."
        for s in map(dict, sorted(rules))
    ]
    with_windows = [cell for cell in cells if load_benchmark(cell.benchmark).has_windows]
    ratios = sorted({cell.sampling.get("windows_ratio", 0) for cell in with_windows})  # 0: before there was that key
    shares = [f"{100 * r:.3g} % of the sampling time" if r else "at least 0.5 s" for r in ratios]
    return " Or: ".join(texts) + (f" Pipelined windows: {' or '.join(shares)}." if shares else "")
