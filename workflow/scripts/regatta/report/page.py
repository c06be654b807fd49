"""Assemble report.html from the sections of its topics: one file without scripts or foreign assets, byte for byte reproducible.

It knows no topic: report.py hands it the list of topics/catalog.py.
"""

from collections.abc import Iterable
from pathlib import Path

import jinja2
import pandas as pd

from regatta.core.text import UNKNOWN, natural, plural, size, three
from regatta.report.findings import HEADERS, anchor_of, file_of
from regatta.report.methods import left_out, methods, num_left_out
from regatta.report.panels import Section
from regatta.report.plotting import bitmaps, filters
from regatta.report.provenance import environments, provenance
from regatta.report.status import shown_status, status_counts, status_text
from regatta.store.collect import collected_csv
from regatta.store.records import one_line
from regatta.store.tables import COLLECTED, to_csv

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MOST_ROWS_OPEN = 20  # a longer table is folded, so that the page can be read from top to bottom
MOST_ROWS_SHOWN = 2  # of the sources of a statement; more are folded
MOST_ROWS_NAMED = 20  # in there; more are counted
MOST_CELLS_IN_FULL = 1000  # with more, the page is kept under ten megabytes: see is_large


def render(data, topics: Iterable, folder: Path) -> str:
    """Return the report. data: a ReportData of topics/base.py. folder: where the page will lie, the results folder."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        **filters(is_large(data.campaign)),
        "status": status_text,
        "file": file_of,
        "anchor": anchor_of,
    }
    environment.globals |= {"headers": HEADERS, "most_rows_open": MOST_ROWS_OPEN}
    environment.globals |= {"most_rows_shown": MOST_ROWS_SHOWN, "most_rows_named": MOST_ROWS_NAMED}
    return environment.get_template("report.html.j2").render(content(data, topics, folder))


def content(data, topics: Iterable, folder: Path) -> dict:
    """Return all that the page shows, by the names that the template has for it."""
    campaign, measurements = data.campaign, data.measurements
    with bitmaps(is_large(campaign)):
        shown = [topic.section(data) for topic in topics if topic.section]
    shown = [section for section in shown if section is not None]
    advice = [advice for topic in topics for advice in topic.warnings(data)]
    num_launches = len(list(data.launches.glob("*.jsonl")))
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "campaign": campaign,
        "is_cpu": data.device == "cpu",
        "facts": facts(data),
        "counts": status_counts(measurements),
        "num_planned": int(measurements["repeat"].notna().sum()),
        "num_left_out": num_left_out(data.problems),
        "num_other_launches": num_launches - measurements["launch"].dropna().nunique(),
        "cell_names": data.names,
        "findings": findings(data, topics),
        "sections": shown,
        "contents": contents(shown, len(advice)),
        "warnings": advice,
        "methods": methods(campaign, [term for topic in topics for term in topic.methods(campaign)]),
        "left_out": left_out(data.problems, data.names),
        "provenance": provenance(data.headers),
        "runs": run_table(measurements),
        "is_large": is_large(campaign),
        "downloads": [
            *((f"{name}.csv", text) for name, text in collected_csv(data.tables).items()),
            *((f"{name}.csv", to_csv(table)) for name, table in data.tables.items() if name not in COLLECTED),
        ],
    }


def is_large(campaign: dict) -> bool:
    """Return whether figures are bitmaps, CSV files compressed, and the records of a cell told in numbers only."""
    return len(campaign["cells"]) > MOST_CELLS_IN_FULL


def findings(data, topics: Iterable) -> list[dict]:
    """Return each finding of each topic with its sentence, and where on the page more of it stands."""
    return [
        {
            "kind": finding.kind,
            "text": topic.sentence(finding),
            "anchor": finding.anchor or topic.id,
            "title": topic.title,
            "sources": finding.sources,
            "finding": finding,
        }
        for topic in topics
        for finding in topic.findings(data)
    ]


def contents(shown: list[Section], num_warnings: int) -> list[tuple[str, str, str, str]]:
    """Return (anchor, title, state in words, class of the state) of each section that is there, in the page's order."""
    found = [("findings", "Findings", "", "")]
    for section in shown:
        if section.has_content:
            num = len(section.figures)
            state = plural(num, "figure") if num else plural(len(section.tables), "table")
            found.append((section.id, section.title, *(section.state if section.state[0] else (state, "quiet"))))
    found.append(("warnings", "Warnings", str(num_warnings) if num_warnings else "none", "quiet"))
    return [*found, ("methods", "Methods", "", ""), ("provenance", "Provenance", "", "")]


def run_table(measurements: pd.DataFrame) -> list[dict]:
    """Return for each cell its command and, for each repeat, its status and where its record is."""
    columns = ["cell", "repeat", "status", "launch", "line", "command"]
    shown = measurements.assign(status=shown_status(measurements))
    planned = shown.loc[shown["repeat"].notna(), columns].astype(object)
    rows: dict[str, dict] = {}
    for run in planned.where(planned.notna(), None).to_dict("records"):
        row = rows.setdefault(run["cell"], {"cell": run["cell"], "command": run["command"], "runs": []})
        row["runs"].append(run)
    return sorted(rows.values(), key=lambda row: natural(row["cell"]))


def facts(data) -> list[tuple[str, str]]:
    """Return (name, value) of the masthead: what ran, on which machine, when. A value that differs shows all it had."""
    campaign, headers = data.campaign, data.headers
    all_of = environments(headers)
    hosts = [host for environment in all_of for host in environment["hosts"]]
    gpus = [gpu for environment in all_of for gpu in environment.get("gpus") or []]
    times = sorted(data.measurements["time_utc"].dropna())
    found = [("Cluster", campaign["cluster"]["name"]), ("Device", campaign["device"])]
    if campaign["device"] != "cpu":
        found.append(("GPU", _one_of(gpu.get("name") for gpu in gpus)))
    images = {(cell["spec"]["stack"]["name"], cell["spec"]["stack"].get("image_id")) for cell in campaign["cells"]}
    images = [f"{name} {one_line(image)[:8]}" for name, image in sorted(images, key=str) if image]
    if images:
        found.append(("Images", ", ".join(images)))
    measured = data.measurements
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
