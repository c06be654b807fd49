"""The parts of report.html that belong to no topic: facts, contents, counts, provenance and general methods.

topics/catalog.py adds the topics and renders the page: one reproducible file without external assets.
"""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from html import unescape
from pathlib import Path

import jinja2
import pandas as pd
from markupsafe import Markup

from regatta.core.benchmarks import load_benchmark
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.names import slug
from regatta.core.statistics import CONFIDENCE, MIN_SAMPLES_INTERVAL, Z_95
from regatta.core.text import UNKNOWN, nodes_text, plural, rank_time, size, status_text, with_minus_signs
from regatta.launchers import LAUNCHERS
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
from regatta.report.panels import MOST_FIGURES, Section, Table, drawn_and_listed
from regatta.store.launch_files import launch_paths, read_one_line
from regatta.store.records import one_line, violation

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MOST_CELLS_IN_FULL = 1000  # beyond this, the page is kept small: see is_large
MOST_ROWS_LISTED = {False: 1000, True: 20}  # of a table, by is_large; all rows are in its CSV
MOST_DRAWN = {False: MOST_FIGURES, True: 7}  # figures of one grid, by is_large; of the others the data is linked
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
    "most_rows_printed": 4,  # longer tables are not printed; on screen, all are collapsed
    "most_rows_named": 20,  # folded rows that are named; more are counted
    "min_launches": MIN_LAUNCHES,  # these are of intervals
    "min_samples": MIN_SAMPLES_INTERVAL,
    "confidence": f"{100 * CONFIDENCE:g}",
    "z": Z_95,
}
VERSIONS = ("python", "torch", "torchvision", "cuda", "nccl", "cudnn", "driver", "kernel")
# Variables that do not describe the software.
NEW_EACH_LAUNCH = (
    "MASTER_",
    "TORCHELASTIC_",
    *(v for launcher in LAUNCHERS.values() for v in launcher.ranks.variables),
)


@cache
def load_template(name: str, is_large: bool = False) -> jinja2.Template:
    """Return a template of workflow/report/. is_large: the page has thousands of cells."""
    options = {"undefined": jinja2.StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, **options)
    environment.filters |= {"minus": with_minus_signs, "status": marked_status, "file": file_of, "anchor": anchor_of}
    environment.filters |= {"cell_index": cell_index, "cell_marks": cell_marks, "percent": percent_number}
    environment.filters |= {"code": with_code, "plural": plural, "size": size, "slug": slug}
    environment.filters |= {
        "unbroken": unbroken,
        "asides": asides,
        "copied": copied,
        "numbered": numbered,
        "slug": slug,
    }
    environment.filters["drawn_and_listed"] = partial(drawn_and_listed, most=MOST_DRAWN[is_large])
    environment.globals |= LIMITS | {
        "is_large": is_large,
        "style": style("style.css"),
        "explore_style": style("explore.css"),
        "script": script_text(),
        "headers": HEADERS,
        "most_rows_listed": MOST_ROWS_LISTED[is_large],
    }
    environment.globals["script_source"] = script_source(environment.globals["script"])
    return environment.get_template(name)


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


def is_large(campaign: FrozenCampaign) -> bool:
    """Return whether the page has so many cells that it is kept small."""
    return len(campaign.cells) > MOST_CELLS_IN_FULL


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


def machine_line(campaign: FrozenCampaign, headers: list[dict], measurements: pd.DataFrame) -> list[str]:
    """Return cluster, processor, torch version and time of the measurements, for one line of the page's head."""
    facts_of = dict(facts(campaign, headers, measurements))
    processor = facts_of.get("GPU", facts_of["CPU"])
    days = sorted({time[:10] for time in measurements["time_utc"].dropna()})
    when = [" to ".join(dict.fromkeys((days[0], days[-1])))] if days else []
    when = [f"imported {day}" for day in when] if campaign.imported else when
    known = [f"torch {facts_of['torch']}"] if facts_of["torch"] != UNKNOWN else []
    known += [processor] if processor != UNKNOWN else []
    used = [f"{rank_time(hours, campaign.device)} in cells"] if (hours := cell_hours(measurements)) else []
    return [f"cluster {campaign.cluster['name']}", *known, *used, *when]


def facts(
    campaign: FrozenCampaign, headers: list[dict], measurements: pd.DataFrame, launches: pd.DataFrame | None = None
) -> list[tuple[str, str]]:
    """Return (name, value) of the page's head: what ran, where and when. A fact with several values shows them all.

    launches: launches.csv, for the parts of the cell time.
    """
    all_of = environments(headers)
    hosts = [host for environment in all_of for host in environment["hosts"]]
    gpus = [gpu for environment in all_of for gpu in environment.get("gpus") or []]
    times = sorted(measurements["time_utc"].dropna())
    found = [("Cluster", nodes_text(campaign.cluster)), ("Device", campaign.device)]
    if campaign.device != "cpu":
        found.append(("GPU", values_text(gpu.get("name") for gpu in gpus)))
    images = {(cell.stack.name, cell.stack.settings.get("image_id")) for cell in campaign.cells}
    if images := [f"{name} {one_line(image)[:8]}" for name, image in sorted(images, key=str) if image]:
        found.append(("Images", ", ".join(images)))
    first, last = (times[0], times[-1]) if times else (UNKNOWN, UNKNOWN)
    when = [("Imported", last)] if campaign.imported else [("First record", first), ("Last record", last)]
    if launches is not None and cell_hours(measurements) is not None:
        found.append(("Cell time", cell_time_text(measurements, launches, campaign.device)))
    return [
        *found,
        ("CPU", values_text(host.get("cpu_model") for host in hosts)),
        ("Cores per host", values_text(host.get("num_cores") for host in hosts)),
        ("Memory per host", _memory_text(hosts)),
        ("torch", values_text(environment.get("torch") for environment in all_of)),
        *when,
        ("Commit", values_text(map(_commit, headers))),
        ("Launches per cell", str(campaign.repeats)),
    ]


def _commit(header: dict) -> str | None:
    """Return the measured commit in short form, marked if its working tree was dirty."""
    git = header.get("git") or {}
    return git["commit"][:12] + (" (dirty)" if git.get("is_dirty") else "") if git.get("commit") else None


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


def environments(headers: Iterable[dict]) -> list[dict]:
    return [header["environment"] for header in headers if header.get("environment")]


def threads_by_shape(campaign: FrozenCampaign, headers: list[dict]) -> dict[tuple[int, int], set[int]]:
    """Return the threads per rank for each (nodes, ranks per node) of a CPU campaign; empty on GPUs."""
    threads: dict[tuple[int, int], set[int]] = {}
    for header in headers if campaign.device == "cpu" else ():
        number = (header.get("environment") or {}).get("threads_per_rank")
        if number is not None:
            threads.setdefault((header["nodes"], header["gpus_per_node"]), set()).add(number)
    return threads


def provenance(headers: list[dict]) -> dict:
    """Return what ran where: versions by stack, hosts, libraries, variables, and the command line of each launch."""
    found = environments(headers)
    by_stack = {
        stack: environments(header for header in headers if header["stack"] == stack)
        for stack in sorted({header["stack"] for header in headers})
    }
    versions = tuple(
        (stack, *(values_text(environment.get(name) for environment in of_stack) for name in VERSIONS))
        for stack, of_stack in by_stack.items()
    )
    hosts = {host["host"]: host for environment in found for host in environment.get("hosts", [])}
    host_rows = tuple(
        (one_line(name), *(values_text([host.get(key)]) for key in ("num_cores", "cpu_model")), _memory_text([host]))
        for name, host in sorted(hosts.items())
    )
    tables = (
        Table("Versions by stack", ("stack", *VERSIONS), versions, is_words=True),
        Table("Hosts", ("host", "available cores", "CPU", "memory"), host_rows, is_words=True),
    )
    lists = {
        "GPUs": _distinct(found, "gpus"),
        "Libraries loaded": _distinct(found, "libraries"),
        "Environment variables": _settings(found, "variables"),
        "PyTorch settings": _settings(found, "settings"),
    }
    return {
        "tables": [table for table in tables if table.rows],
        "lists": {title: items for title, items in lists.items() if items},
        "launches": [(one_line(h.get("launch")), " ".join(map(one_line, h.get("argv") or []))) for h in headers],
    }


def values_text(values: Iterable[object]) -> str:
    """Return the distinct known values, or n/a."""
    return ", ".join(sorted({one_line(value) for value in values if value is not None})) or UNKNOWN


def _memory_text(hosts: Iterable[dict]) -> str:
    return values_text(size(host["memory_bytes"]) for host in hosts if host.get("memory_bytes") is not None)


def _distinct(environments: list[dict], name: str) -> list[str]:
    """Return the distinct items of a list in the environments; a GPU without its rank and host."""
    found = set()
    for item in (item for environment in environments for item in environment.get(name) or []):
        if isinstance(item, dict):
            item = ", ".join(f"{key} {value}" for key, value in item.items() if key not in ("rank", "host"))
        found.add(one_line(item))
    return sorted(found)


def _settings(environments: list[dict], name: str) -> list[str]:
    """Return `KEY=value` lines; a key with several values shows at most three of them."""
    found: dict[str, set[str]] = {}
    for environment in environments:
        for key, value in (environment.get(name) or {}).items():
            found.setdefault(one_line(key), set()).add(one_line(value))
    more = {key: f" or {len(values) - 3} more" if len(values) > 3 else "" for key, values in found.items()}
    return [f"{key}={' or '.join(sorted(values)[:3])}{more[key]}" for key, values in sorted(found.items())]


def left_out(problems: dict, names: dict[str, str]) -> list[tuple[int, str, list[str]]]:
    """Return (number, reason, items) for everything in the store that the report does not use. names: by cell."""

    def place(p: dict) -> str:
        return f"{p['launch']}, line {p['line']}"

    def launch_of(p: dict) -> str:
        return f"{names.get(p['cell'], p['cell'])}, launch {p['repeat'] + 1}"

    other = plural(len(problems["not_planned"]), "cell")
    groups: dict[str, tuple[str, str, Callable]] = {
        "corrupt": ("integrity error", "", str),
        "invalid": ("line", " violating the schema", lambda p: f"{place(p)} ({p['kind']}): {p['problem']}"),
        "superseded": (
            *("record", " superseded by a later record"),
            lambda p: f"{launch_of(p)}: {p['status']} in {place(p)}; later record {p['by']}",
        ),
        "beyond_repeats": ("record", " beyond the campaign's launches", lambda p: f"{launch_of(p)}: {place(p)}"),
        "not_planned": (
            *("record", f" of {other} not in this campaign"),
            lambda p: f"{p['cell']}: {plural(p['num_records'], 'record')}",
        ),
    }
    found = []
    for key, (noun, reason, text) in groups.items():
        items = problems[key]
        num = sum(p["num_records"] for p in items) if key == "not_planned" else len(items)
        found += [(num, f"{plural(num, noun)}{reason}", list(map(text, items)))] if items else []
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
