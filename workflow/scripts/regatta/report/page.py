"""Assemble report.html: one file without scripts or foreign assets. The same results give the same bytes."""

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import jinja2
import pandas as pd

from regatta.analysis.all_tables import read_tables
from regatta.analysis.tables import MEASUREMENTS, read_csv, to_csv
from regatta.cell_words import natural, varying_words
from regatta.numbers import UNKNOWN, is_unknown, plural, size
from regatta.report.advice import disagreement, environments, warnings
from regatta.report.methods import interruptions, left_out, methods, num_left_out
from regatta.report.panels import Section
from regatta.report.preflight_section import PreflightSection, preflight_findings, preflight_section
from regatta.report.provenance import provenance
from regatta.report.sections import Numbers, sections
from regatta.store.launch_files import parse_line, read_frozen
from regatta.store.records import one_line, violation

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
STATUSES = ("ok", "failed", "timeout", "out_of_memory", "placement", "node_failure", "not_measured", "skipped")
MARKS = {"ok": "\N{CHECK MARK}", "not_measured": "\N{WHITE CIRCLE}", "skipped": "\N{EN DASH}"}
WHERE_FROM = re.compile(r"rank \d+ on (host )?[^\s:]+: ")  # whose words a cause begins with
BAD_MARK = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Results:
    """All that a report is made of.

    headers: the first line, where it is valid, of each launch file with a row in `measurements`. num_other_launches: how
    many launch files lie beside these.
    """

    campaign: dict
    measurements: pd.DataFrame
    problems: dict
    tables: dict[str, pd.DataFrame]
    headers: list[dict]
    num_other_launches: int
    preflight: PreflightSection | None = None


def read_results(
    campaign: Path, measurements: Path, problems: Path, tables: Path, launches: Path, preflight: Path | None = None
) -> Results:
    table = read_csv(measurements, MEASUREMENTS)
    used, paths = set(table["launch"].dropna()), sorted(launches.glob("*.jsonl"))
    own = [path for path in paths if path.stem in used]
    return Results(
        read_frozen(campaign),
        table,
        json.loads(problems.read_text(encoding="utf-8")),
        read_tables(tables),
        [header for path in own if (header := _header(path)) is not None],
        len(paths) - len(own),
        preflight_section(read_frozen(preflight)) if preflight else None,
    )


def _header(path: Path) -> dict | None:
    """Return the first line of a launch file if it is as the schema says, without reading the samples behind it."""
    with path.open("rb") as file:
        try:
            line = parse_line(file.readline())
        except ValueError:
            return None
    return line if line["kind"] == "launch" and violation(line) is None else None


def render(results: Results, folder: Path) -> str:
    """Return the report. folder: where it will lie, so that links to launch files are relative."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {"data_uri": data_uri, "status": status_text}
    return environment.get_template("report.html.j2").render(_context(results))


def _context(results: Results) -> dict:
    campaign, measurements = results.campaign, results.measurements
    words = varying_words(campaign)
    shown = sections(Numbers(campaign, measurements, results.tables, results.headers))
    planned = measurements[measurements["repeat"].notna()]
    told = warnings(campaign, measurements, results.headers, results.problems)
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "campaign": campaign,
        "is_cpu": campaign["device"] == "cpu",
        "facts": facts(results),
        "counts": _counts(measurements),
        "num_planned": len(planned),
        "num_left_out": num_left_out(results.problems),
        "num_other_launches": results.num_other_launches,
        "cell_words": words,
        "preflight": results.preflight,
        "findings": [
            *preflight_findings(results.preflight),
            *findings(shown, planned, words),
        ],
        "failures": failure_groups(results.tables["failures"]),
        "skipped": skipped_groups(results.tables["failures"]),
        "interruptions": interruptions(results.problems),
        "sections": shown,
        "contents": contents(planned, shown, results.preflight, len(told)),
        "warnings": told,
        "methods": methods(campaign),
        "left_out": left_out(results.problems, words),
        "provenance": provenance(results.headers),
        "runs": run_table(measurements),
        "downloads": [
            (f"{name}.csv", to_csv(table)) for name, table in {"measurements": measurements, **results.tables}.items()
        ],
    }  # fmt: skip


def findings(shown: list[Section], planned: pd.DataFrame, words: dict[str, str]) -> list[tuple[str, str, str]]:
    """Return (sentence, anchor, name of what is there): what did not run, how far launches disagree, the worst figures."""
    num_bad = int((planned["status"] != "ok").sum())
    bad = f"{num_bad} of {len(planned)} planned measurements have no valid result."
    found = [(bad, "failures", "Failures")] if num_bad else []
    apart = disagreement(planned[planned["status"] == "ok"], words)
    found += [(apart.found, "warnings", "Warnings")] if apart else []
    for section in shown:
        for kind, num in section.findings:
            own = [figure for figure in section.figures if figure.id.startswith(kind)]
            heaviest = sorted(own, key=lambda figure: -figure.weight)[:num]
            found += [(figure.alt, figure.id, f"Figure {figure.title}") for figure in heaviest]
    return found


def contents(
    planned: pd.DataFrame, shown: list[Section], preflight: PreflightSection | None, num_warnings: int
) -> list[tuple[str, str, str, str]]:
    """Return (anchor, title, state in words, class of the state) of each section that is there, in the page's order."""
    num_bad = int((planned["status"] != "ok").sum())
    found = [("findings", "Findings", "", "")]
    found += [("failures", "Failures", f"{num_bad} not ok" if num_bad else "none", "bad" if num_bad else "good")]
    for section in shown:
        if section.has_content:
            num = len(section.figures)
            state = plural(num, "figure") if num else plural(len(section.tables), "table")
            found.append((section.id, section.title, state, "quiet"))
    if preflight:
        num_failed = sum(not stack.ok for stack in preflight.stacks)
        found.append(("preflight", "Preflight", *(("failed", "bad") if num_failed else ("ok", "good"))))
    found.append(("warnings", "Warnings", str(num_warnings) if num_warnings else "none", "quiet"))
    return [*found, ("methods", "Methods", "", ""), ("provenance", "Provenance", "", "")]


def failure_groups(failures: pd.DataFrame) -> list[dict]:
    """Return what is not ok, grouped by status, phase and cause: one broken node often fails many cells."""
    bad = failures[failures["status"] != "skipped"]
    keys = bad[["status", "phase", "cause"]].fillna("")
    keys["cause"] = keys["cause"].map(lambda cause: WHERE_FROM.sub("", cause))  # one error of many ranks is one
    groups = []
    for (status, phase, cause), rows in bad.groupby([keys["status"], keys["phase"], keys["cause"]], sort=True):
        items = rows.astype(object).where(rows.notna(), None).to_dict("records")
        for item in items:
            match = WHERE_FROM.match(item["cause"] or "")
            item["where"] = match[0].removesuffix(": ") if match else None
        groups.append({"status": status, "phase": phase or None, "cause": cause or UNKNOWN, "items": items})
    return sorted(groups, key=lambda group: (STATUSES.index(group["status"]), -len(group["items"]), group["cause"]))


def skipped_groups(failures: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Return (reason, cells) of the cells that were never planned to run."""
    skipped = failures[failures["status"] == "skipped"]
    return [(reason, sorted(rows["cell"], key=natural)) for reason, rows in skipped.groupby("cause", sort=True)]


def run_table(measurements: pd.DataFrame) -> list[dict]:
    """Return for each cell its command and, for each repeat, its status and where its record is."""
    rows = []
    by_cell = measurements[measurements["repeat"].notna()].groupby("cell")
    for cell, group in sorted(by_cell, key=lambda pair: natural(pair[0])):
        runs = group[["repeat", "status", "launch", "line", "p50_s"]].astype(object)
        runs = runs.where(runs.notna(), None).to_dict("records")
        command = group["command"].iloc[0]
        rows.append({"cell": cell, "command": None if is_unknown(command) else command, "runs": runs})
    return rows


def facts(results: Results) -> list[tuple[str, str]]:
    """Return (name, value) of the masthead: what ran, on which machine, when. A value that differs shows all it had."""
    campaign, headers = results.campaign, results.headers
    all_of = environments(headers)
    hosts = [host for environment in all_of for host in environment["hosts"]]
    gpus = [gpu for environment in all_of for gpu in environment.get("gpus") or []]
    times = sorted(results.measurements["time_utc"].dropna())
    found = [("Cluster", campaign["cluster"]["name"]), ("Device", campaign["device"])]
    if campaign["device"] != "cpu":
        found.append(("GPU", _one_of(gpu.get("name") for gpu in gpus)))
    return [
        *found,
        ("CPU", _one_of(host.get("cpu_model") for host in hosts)),
        ("Cores per host", _one_of(host.get("num_cores") for host in hosts)),
        ("Memory per host", _one_of(size(m) for m in {host.get("memory_bytes") for host in hosts} - {None})),
        ("torch", _one_of(environment.get("torch") for environment in all_of)),
        ("First record", times[0] if times else UNKNOWN),
        ("Last record", times[-1] if times else UNKNOWN),
        ("Commit", ", ".join(_git(headers)) or UNKNOWN),
        ("Launches per cell", str(campaign["repeats"])),
    ]


def _one_of(values: Iterable[object]) -> str:
    """Return the different values that are known, or n/a."""
    return ", ".join(sorted({one_line(value) for value in values if value is not None})) or UNKNOWN


def _git(headers: list[dict]) -> list[str]:
    """Return each commit that was measured, short, with a word if its tree was dirty."""
    found = set()
    for header in headers:
        git = header.get("git") or {}
        if git.get("commit"):
            found.add(one_line(git["commit"])[:12] + (" (dirty)" if git.get("is_dirty") else ""))
    return sorted(found)


def _counts(measurements: pd.DataFrame) -> list[tuple[str, int]]:
    """Return (status, number): measurements by status, cells skipped last; ok and what is not 0."""
    numbers = Counter(measurements["status"])
    return [(status, numbers[status]) for status in STATUSES if numbers[status] or status == "ok"]


def status_text(status: str) -> str:
    return f"{MARKS.get(status, BAD_MARK)} {status.replace('_', ' ')}"


def data_uri(content: str | bytes, mime: str) -> str:
    raw = content.encode() if isinstance(content, str) else content
    return f"data:{mime};base64,{base64.b64encode(raw).decode()}"
