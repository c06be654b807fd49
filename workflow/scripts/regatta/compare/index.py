"""The index of a results folder: a line for each campaign, and key figures over those that share cells.

What is planned and missing comes from answer.json; the store is not read. The same files give the same page.
"""

import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from regatta.compare.campaign_history import MOST_CAMPAIGNS, Keys, Point, Trend, read_keys, read_trends
from regatta.compare.since_previous import SincePrevious
from regatta.core.errors import UserError
from regatta.core.files import address, is_results_folder
from regatta.core.text import UNKNOWN, one_line, plural
from regatta.report.page import NO_RECORD, TEMPLATES, load_template, script_source
from regatta.store.frozen_files import mismatch
from regatta.store.launch_files import read_file, write_text
from regatta.tables.pairs import MARGIN

COMPARISONS = "compare"  # folder of comparison pages in the results folder
MOST_ANSWERS = 5  # groups of campaigns whose last change begins the page
MOST_NAME, MOST_TEXT = 80, 300  # characters; a campaign's name has at most 64
LABELS = {"equivalent": "No change", "inconclusive": "Inconclusive"}  # without slower or faster cells, by verdict
MARKER = b'<meta name="generator" content="Regatta">'  # in each page that Regatta wrote
OF_CAMPAIGN = ("answer.json", "plan.json", "report.html", "measurements.csv", "launches")


@dataclass(frozen=True)
class IndexEntry:
    """One campaign. answer: answer.json, None if missing or damaged. problem: how it is damaged.

    keys: what its cells measure (read_keys), None if unknown.
    """

    folder: Path
    answer: dict | None
    problem: str | None
    keys: Keys | None

    @property
    def name(self) -> str:
        return one_line(self.folder.name, MOST_NAME)

    @property
    def last_record_utc(self) -> str:
        return (self.answer or {}).get("last_record_utc") or ""

    @property
    def report(self) -> str | None:
        return self.file("report.html")

    def file(self, name: str) -> str | None:
        """Return the address of a file of the campaign, relative to the index; None if it does not exist."""
        return address(self.folder.name, name) if os.path.isfile(self.folder / name) else None

    @property
    def records(self) -> list[str]:
        """Return the times of the first and the last record to the minute; the day of the import if imported."""
        answer = self.answer or {}
        times = [answer.get(name) for name in ("first_record_utc", "last_record_utc")]
        if None in times:
            return [UNKNOWN]
        if self.keys == {}:
            return [f"imported {times[0][:10]}"]
        first, last = (time[:16].replace("T", " ") for time in times)
        return [first] if first == last else [first, last[11:] if first[:10] == last[:10] else last]

    @property
    def machine(self) -> str:
        if self.answer is None:
            return UNKNOWN
        return ", ".join(one_line(self.answer[name], MOST_NAME) for name in ("cluster", "device"))

    @property
    def status(self) -> list[tuple[str, str]]:
        """Return (text, CSS class): complete, or how many measurements failed, or are missing (incomplete)."""
        if self.answer is None:
            return [(f"answer.json damaged: {self.problem}", "bad") if self.problem else ("no report yet", "quiet")]
        planned, counts = self.answer["num_planned"], self.answer["num_by_status"]
        num_missing = sum(counts.get(status, 0) for status in NO_RECORD)
        num_failed = sum(counts.values()) - counts.get("ok", 0) - num_missing
        numbers = {"incomplete": num_missing, "failed": num_failed}
        found = [(f"{word}: {number:,} of {planned:,}", "bad") for word, number in numbers.items() if number]
        return found or ([("complete", "good")] if planned else [("nothing planned", "quiet")])


def read_entries(results: Path) -> tuple[list[IndexEntry], list[str]]:
    """Return the campaigns of a results folder, the latest record first, and the names of its other folders.

    Raises UserError if the folder does not exist.
    """
    try:
        names = sorted(name for name in os.listdir(results) if not name.startswith("."))
    except OSError as error:
        raise UserError(
            f"{results}: cannot be read ({error.strerror}). Specify a folder that contains results folders,"
            " such as results."
        ) from None
    folders = [results / name for name in names if os.path.isdir(results / name)]
    entries = {folder: entry for folder in folders if (entry := read_entry(folder))}
    others = [one_line(folder.name, MOST_NAME) for folder in folders if folder not in entries]
    ordered = sorted(entries.values(), key=lambda entry: entry.last_record_utc, reverse=True)
    return ordered, [name for name in others if name != COMPARISONS]


def read_entry(folder: Path) -> IndexEntry | None:
    """Return a campaign, as far as it can be read; None if the folder contains no file of one."""
    frozen = sorted(folder.glob("campaign.*.json"))
    if not frozen and not any(os.path.lexists(folder / name) for name in OF_CAMPAIGN):
        return None
    answer, problem = None, None
    if os.path.lexists(folder / "answer.json"):
        try:
            answer = json.loads(read_file(folder / "answer.json").decode())
            problem = mismatch(answer, "answer")
        except OSError as error:
            problem = error.strerror
        except (ValueError, RecursionError):
            problem = "not a JSON object"
    problem = problem and one_line(problem, MOST_TEXT)
    return IndexEntry(folder, None if problem else answer, problem, read_keys(frozen[0]) if len(frozen) == 1 else None)


@dataclass(frozen=True)
class Neighbors:
    """Two compared campaigns. page: of their comparison, else the command that writes it."""

    base: str
    test: str
    page: str | None
    command: str | None


def neighbors(results: Path, trend: Trend) -> list[Neighbors | None]:
    """Return the comparison of each campaign with the previous comparable one; None without one."""
    found = []
    for test, since in zip(trend.folders, trend.since, strict=True):
        if since is None:
            found.append(None)
            continue
        base = trend.folders[since.base]
        file = f"{base.name}-vs-{test.name}.html"
        page = address(COMPARISONS, file) if os.path.isfile(results / COMPARISONS / file) else None
        words = [os.path.join(".", path) if str(path).startswith("-") else str(path) for path in (base, test)]
        words += ["--html", str(results / COMPARISONS / file)]
        command = f".venv/bin/python3 workflow/scripts/compare.py {shlex.join(words)}"
        # A name with a line break or a control character cannot be copied from a page.
        command = command if one_line(command, len(command)) == command else None
        found.append(Neighbors(*(one_line(path.name, MOST_NAME) for path in (base, test)), page, command))
    return found


@dataclass(frozen=True)
class IndexRow:
    """A campaign in the table. states: its status, as (text, CSS class). trend: its history, where it is at `place`.

    environment: what changed; None if unknown. compared: with the previous comparable campaign; None without one.
    """

    entry: IndexEntry
    states: list[tuple[str, str]]
    trend: Trend | None = None
    place: int = 0
    compared: Neighbors | None = None

    @property
    def since(self) -> SincePrevious | None:
        return self.trend.since[self.place] if self.trend else None

    def point(self, title: str) -> Point | None:
        """Return a key figure of the campaign; None if unknown."""
        followed = (of for of in self.trend.followed if of.title == title) if self.trend else ()
        return next((of.points[self.place] for of in followed if self.place in of.points), None)


def rows_of(entries: list[IndexEntry], trends: list[tuple], problems: dict[Path, str]) -> list[IndexRow]:
    """Return the rows of the table. Good: all is measured, compared, and not slower. problems: unreadable campaigns."""
    places = {
        folder: (trend, place, compared[place])
        for trend, compared in trends
        for place, folder in enumerate(trend.folders)
    }
    found = []
    for entry in entries:
        row = IndexRow(entry, entry.status, *places.get(entry.folder, ()))
        states = row.since.states if row.since else [("cannot be read", "bad")] * (entry.folder in problems)
        is_good = row.since and all(css == "faster" for _, css in states)
        status = [(text, css if is_good or css != "good" else "") for text, css in entry.status]
        found.append(replace(row, states=status + states))
    return found


def answers(trends: list[Trend]) -> list[tuple[str, str, str, str]]:
    """Return CSS class, label, lead and text on the last change of each group of campaigns: what is slower first."""
    found = []
    for trend in sorted(trends, key=lambda trend: not trend.is_worse):
        names, known = trend.names, [place for place, since in enumerate(trend.since) if since]
        if known:
            place = known[-1] if trend.last_change is None else trend.last_change
            since = trend.since[place]
            notes = [f"since {names[since.base]}", *(trend.changes[place] or ())]
            notes += [f"no further change up to {names[-1]}"] if place < len(names) - 1 else []
            label = " and ".join(since.directions).capitalize() or LABELS[since.verdict]
            found.append((since.verdict, label, f"{names[place]}: {since.text}", "; ".join(notes)))
    return found


def write_index(results: Path) -> Path:
    """Write the page and return its path.

    Raises UserError if the folder has no results of a campaign, or if the file there is not an index of Regatta.
    """
    path, (entries, _) = results / "index.html", read_entries(results)
    if not any(entry.answer or is_results_folder(entry.folder) for entry in entries):
        raise UserError(
            f"{results}: contains no results folder. Run a campaign first, or specify a folder that contains results"
            " folders, such as results. Nothing was written."
        )
    if os.path.isdir(path) or (os.path.exists(path) and MARKER not in read_file(path)):
        raise UserError(f"{path}: was not written by Regatta. Rename or delete it. Nothing was written.")
    write_text(path, index_page(results))
    return path


def index_page(results: Path) -> str:
    """Return the page. Raises UserError if the folder does not exist."""
    entries, others = read_entries(results)
    found = read_trends({entry.folder: entry.keys for entry in entries if entry.answer and entry.keys != {}})
    trends = [(trend, neighbors(results, trend)) for trend in found.trends]
    files = sorted(path.name for path in (results / COMPARISONS).glob("*.html") if os.path.isfile(path))
    pages = [(one_line(name.removesuffix(".html"), 2 * MOST_NAME), address(COMPARISONS, name)) for name in files]
    script = (TEMPLATES / "sort.js").read_text(encoding="utf-8")
    missing = [pair for _, compared in trends for pair in compared if pair and pair.command and not pair.page]
    machines = sorted({entry.machine for entry in entries if entry.answer})
    lead = f"{plural(len(entries), 'campaign')}, latest record first. Times are UTC."
    return load_template("index.html.j2").render(
        title="Results",
        lead=f"{lead} {machines[0]}." if len(machines) == 1 else lead,
        machines=machines if len(machines) > 1 else [],
        contents=[("campaigns", "Campaigns"), *([("comparisons", "Comparisons")] if pages or missing else [])],
        answers=answers(found.trends),
        most_answers=MOST_ANSWERS,
        rows=rows_of(entries, trends, found.problems),
        figures=list(dict.fromkeys(of.title for trend in found.trends for of in trend.followed)),
        others=others,
        trends=trends,
        num_more=found.num_more,
        problems=[one_line(problem, MOST_TEXT) for problem in found.problems.values()],
        pages=pages,
        missing=missing,
        margin=MARGIN,
        script=script,
        script_source=script_source(script),
        most_campaigns=MOST_CAMPAIGNS,
        name_of=lambda folder: one_line(folder.name, MOST_NAME),
    )
