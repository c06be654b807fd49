"""Assemble report.html: one file without scripts or foreign assets. The same results give the same bytes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd

from regatta.core.names import names_by_cell
from regatta.core.text import UNKNOWN, natural, plural, size, three
from regatta.report.methods import interruptions, left_out, methods, num_left_out
from regatta.report.panels import Section
from regatta.report.plotting import bitmaps, filters
from regatta.report.provenance import provenance
from regatta.report.sources import HEADERS, Finding, Trace, anchor_of, file_of, of_rows
from regatta.report.warnings import disagreement, environments, shared_hosts, warnings
from regatta.store.collect import collected_csv, read_collected
from regatta.store.launch_files import read_frozen, read_one_line
from regatta.store.records import one_line, violation
from regatta.store.tables import to_csv
from regatta.topics.base import read_tables
from regatta.topics.failures import STATUSES, failure_groups, skipped_groups, told_status
from regatta.topics.preflight import PreflightSection, preflight_advice, preflight_findings, preflight_section
from regatta.topics.sections import Numbers, sections
from regatta.topics.stragglers.figures import worst_times
from regatta.topics.stragglers.spike_words import spike_advice

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MARKS = {
    "ok": "\N{CHECK MARK}",
    "not_measured": "\N{WHITE CIRCLE}",
    "not_started": "\N{WHITE CIRCLE}",
    "skipped": "\N{EN DASH}",
}
MOST_ROWS_OPEN = 20  # a longer table is folded, so that the page can be read from top to bottom
MOST_ROWS_TOLD = 2  # of a statement; more are folded
MOST_ROWS_NAMED = 20  # in there; more are counted
MOST_CELLS_IN_FULL = 1000  # with more, the page is kept under ten megabytes: see is_large
BAD_MARK = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Results:
    """All that a report is made of. collected: by name, as in measurements.csv, epochs.csv, ranks.csv.

    headers: the first line, where it is valid, of each launch file with a row in `measurements`. num_other_launches: how
    many launch files lie beside these.
    """

    campaign: dict
    collected: dict[str, pd.DataFrame]
    problems: dict
    tables: dict[str, pd.DataFrame]
    headers: list[dict]
    num_other_launches: int
    preflight: PreflightSection | None = None
    nccl: dict[str, dict] = field(default_factory=dict)
    straggler_times_ns: np.ndarray | None = None

    @property
    def measurements(self) -> pd.DataFrame:
        return self.collected["measurements"]


def read_results(
    campaign: Path, measurements: Path, problems: Path, tables: Path, launches: Path, preflight: Path | None = None
) -> Results:
    collected = read_collected(measurements)
    used, paths = set(collected["measurements"]["launch"].dropna()), sorted(launches.glob("*.jsonl"))
    own = [path for path in paths if path.stem in used]
    looked = read_frozen(preflight) if preflight else None
    read = read_tables(tables)
    return Results(
        read_frozen(campaign),
        collected,
        read_frozen(problems),
        read,
        [header for path in own if (header := _header(path)) is not None],
        len(paths) - len(own),
        preflight_section(looked) if looked else None,
        {stack["stack"]: stack["verdict"] for stack in looked["stacks"]} if looked else {},
        worst_times(read, launches),
    )


def _header(path: Path) -> dict | None:
    """Return the first line of a launch file if it is as the schema says, without reading the samples behind it."""
    line = read_one_line(path, 1)
    return line if line is not None and line["kind"] == "launch" and violation(line) is None else None


def render(results: Results, folder: Path) -> str:
    """Return the report. folder: where it will lie, the results folder: links to launch files and logs are relative to it."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {
        **filters(is_large(results.campaign)),
        "status": status_text,
        "file": file_of,
        "anchor": anchor_of,
    }
    environment.globals |= {"headers": HEADERS, "most_rows_open": MOST_ROWS_OPEN}
    environment.globals |= {"most_rows_told": MOST_ROWS_TOLD, "most_rows_named": MOST_ROWS_NAMED}
    return environment.get_template("report.html.j2").render(content(results, folder))


def content(results: Results, folder: Path) -> dict:
    """Return all that the page shows, by the names that the template has for it."""
    campaign, measurements = results.campaign, results.measurements
    names = names_by_cell(campaign)
    numbers = Numbers(
        campaign, measurements, results.tables, results.headers, results.collected["epochs"], results.nccl,
        results.collected["waits"], results.straggler_times_ns,
    )  # fmt: skip
    with bitmaps(is_large(campaign)):
        shown = sections(numbers)
    planned = measurements[measurements["repeat"].notna()]
    told = warnings(campaign, measurements, results.headers, results.problems, results.tables)
    told += preflight_advice(results.preflight, measurements)
    told += spike_advice(results.tables["stragglers"], results.tables["straggler_hosts"])
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "campaign": campaign,
        "is_cpu": campaign["device"] == "cpu",
        "facts": facts(results),
        "counts": _counts(measurements),
        "num_planned": len(planned),
        "num_left_out": num_left_out(results.problems),
        "num_other_launches": results.num_other_launches,
        "cell_names": names,
        "preflight": results.preflight,
        "findings": [
            *preflight_findings(results.preflight),
            *findings(shown, planned, results.tables, names),
        ],
        "failures": failure_groups(results.tables["failures"], folder),
        "skipped": skipped_groups(results.tables["failures"]),
        "interruptions": interruptions(results.problems),
        "sections": shown,
        "contents": contents(planned, shown, results.preflight, len(told)),
        "warnings": told,
        "methods": methods(campaign),
        "left_out": left_out(results.problems, names),
        "provenance": provenance(results.headers),
        "runs": run_table(measurements),
        "is_large": is_large(campaign),
        "downloads": [
            (f"{name}.csv", text)
            for name, text in (
                *collected_csv(results.collected).items(),
                *((name, to_csv(table)) for name, table in results.tables.items()),
            )
        ],
    }  # fmt: skip


def is_large(campaign: dict) -> bool:
    """Return whether figures are bitmaps, CSV files compressed, and the records of a cell told in numbers only."""
    return len(campaign["cells"]) > MOST_CELLS_IN_FULL


def findings(
    shown: list[Section], planned: pd.DataFrame, tables: dict[str, pd.DataFrame], names: dict[str, str]
) -> list[Finding]:
    """Return what did not run, what makes all times doubtful, and the worst figures."""
    bad = planned[planned["status"] != "ok"]
    text = f"{len(bad)} of {len(planned)} planned measurements have no valid result."
    of_bad = (of_rows("failures", bad), Trace("measurements.csv", what="all rows with a repeat"))
    found = [Finding(text, "failures", "Failures", of_bad)] if len(bad) else []
    ok = planned[planned["status"] == "ok"]
    for doubt in (shared_hosts(ok), disagreement(tables["launch_ranges"], names)):
        found += [Finding(doubt.found, "warnings", "Warnings", doubt.traces)] if doubt else []
    for section in shown:
        for kind, num in section.findings:
            own = [figure for figure in section.figures if figure.id.startswith(kind)]
            heaviest = sorted(own, key=lambda figure: -figure.weight)[:num]
            found += [Finding(figure.alt, figure.id, f"Figure {figure.title}", figure.traces) for figure in heaviest]
        found += section.told
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


def run_table(measurements: pd.DataFrame) -> list[dict]:
    """Return for each cell its command and, for each repeat, its status and where its record is."""
    columns = ["cell", "repeat", "status", "launch", "line", "command"]
    told = measurements.assign(status=told_status(measurements))
    planned = told.loc[told["repeat"].notna(), columns].astype(object)
    rows: dict[str, dict] = {}
    for run in planned.where(planned.notna(), None).to_dict("records"):
        row = rows.setdefault(run["cell"], {"cell": run["cell"], "command": run["command"], "runs": []})
        row["runs"].append(run)
    return sorted(rows.values(), key=lambda row: natural(row["cell"]))


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
    images = {(cell["spec"]["stack"]["name"], cell["spec"]["stack"].get("image_id")) for cell in campaign["cells"]}
    images = [f"{name} {one_line(image)[:8]}" for name, image in sorted(images, key=str) if image]
    if images:
        found.append(("Images", ", ".join(images)))
    measured = results.measurements
    hours = (measured["elapsed_s"] * measured["world_size"]).sum() / 3600
    if measured["elapsed_s"].notna().any():
        one = "GPU" if campaign["device"] != "cpu" else "Process"
        found.append((f"{one} hours measured", three(float(hours))))
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
    numbers = Counter(told_status(measurements))
    return [(status, numbers[status]) for status in STATUSES if numbers[status] or status == "ok"]


def status_text(status: str) -> str:
    return f"{MARKS.get(status, BAD_MARK)} {status.replace('_', ' ')}"
