"""The section of an acceptance sweep: which nodes or pairs are slow, failed, or undecided, and by how much."""

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial

import numpy as np
import pandas as pd

from regatta.core.names import cell_names
from regatta.core.text import is_unknown, natural, plural
from regatta.core.verdicts import settled_direction
from regatta.kit.findings import MOST_NAMES, NOTE, RESULT, SUMMARY, Kind, Value
from regatta.report.findings import PROBLEMS, Finding, Source, of_rows
from regatta.report.matrix import Group, Matrix, Row, Square
from regatta.report.panels import LAUNCHES, Figure, Section, Table
from regatta.report.plotting import WIDTH_IN, Entry, new_canvas
from regatta.report.rows import table_rows
from regatta.report.svg import COLORS, GREY, GRID, INK, svg_of
from regatta.report.svg import MARKS as MARKS_ID
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report
from regatta.topics.comparison.heatmap import SCALE_END
from regatta.topics.comparison.tables import by_effect
from regatta.topics.comparison.texts import difference_text
from regatta.topics.matrix import NO_RECORD, square_without_value, statuses_by_cell
from regatta.topics.sweep.tables import PLACE, SWEEP, TIME_RATIO, VERDICT, WORDS, sweep_nodes_table, sweep_pairs_table

MOST_FINDINGS = 5
MOST_ROWS_OPEN = 12  # nodes; further groups are folded
MOST_NODES_MATRIX = 32  # of a matrix of pairs
MOST_NAMED = 3  # slow nodes named in a figure
STRIP_IN = 2.4
LINES = 10  # of names that fit above each other in a figure
# Groups of the matrix in its order: a node is in the first group that applies to any of its cells.
GROUPS = {
    "failed": "Failed",
    "slower": "Slower",
    "faster": "Faster",
    "missing": "No result",
    "inconclusive": "Inconclusive",
    "equivalent": "Within the margin",
}
EN_DASH = "\N{EN DASH}"
STYLES = {  # verdict -> color, marker
    "slower": (COLORS[1], "D"),
    "faster": (COLORS[2], "v"),
    "inconclusive": (GREY, "o"),
    "equivalent": (COLORS[0], "o"),
}


def tables_of(data: ReportData) -> list[tuple[str, str, pd.DataFrame]]:
    """Return name, noun and rows of the tables with rows: nodes first, then pairs."""
    found = [("sweep_nodes", "node"), ("sweep_pairs", "pair")]
    return [(name, noun, _labeled(data.tables[name])) for name, noun in found if len(data.tables[name])]


def _labeled(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the name of each row's workload: without its nodes, and with its shape only if shapes differ."""
    names = [name.without("hosts") for name in cell_names(rows.to_dict("records"))]
    return rows.assign(workload=[name.say(*name.parts, always=("subject",)) for name in names])


@once_per_report
def failed_hosts(data: ReportData) -> dict[str, int]:
    """Return the number of failed measurements of each node or pair that has any.

    A node of a sweep of pairs counts as failed if none of its measurements is ok: one broken node fails all its pairs.
    """
    statuses, num_failed, is_ok = statuses_by_cell(data.measurements), Counter(), set()
    for cell in data.campaign["cells"]:
        counts, hosts = statuses[cell["id"]], cell["spec"]["hosts"]
        for name in {", ".join(hosts), *hosts}:
            num_failed[name] += _num_failed(counts)
        is_ok |= set(hosts) if counts["ok"] and len(hosts) > 1 else set()
    return {name: num for name, num in num_failed.items() if num and name not in is_ok}


def _num_failed(counts: Counter) -> int:
    return sum(num for status, num in counts.items() if status not in ("ok", "skipped", *NO_RECORD))


def counts_of(data: ReportData, rows: pd.DataFrame) -> dict[str, list[str]]:
    """Return nodes or pairs by group, each in the first group that applies; largest effect first.

    rows: of one of the tables.
    """
    failed = failed_hosts(data)
    groups: dict[str, list[str]] = {name: [] for name in GROUPS}
    for hosts, part in by_effect(rows).groupby("hosts", sort=False):
        verdicts = set(part["verdict"].fillna("inconclusive")[part["time_s"].notna()])
        verdicts |= {"missing"} if part["time_s"].isna().any() else set()
        verdicts |= {"failed"} if hosts in failed else set()
        groups[next(name for name in GROUPS if name in verdicts)].append(hosts)
    return groups


FOUND = (
    "{num_slower} of {num_nodes:node} slower than the median node",
    "no slow node among {num_settled} ({num_checked} of {num_planned:measurement} checked)",
    "slow nodes: uncertain",
)
OUTSIDE = "{name} is {effect} than the median {noun}: {workload}."
KINDS = (
    Kind(
        *("nodes", SUMMARY),
        lead=(
            *(f"Failed nodes: {{failed}}; {text}" for text in FOUND),
            *(text[0].upper() + text[1:] for text in FOUND),
        ),
        parts=(
            "{slower}",
            "slow pairs: {slow_pairs}",
            "without result: {missing}",
            "inconclusive: {uncertain}",
            "skipped: {skipped_names}",
        ),
        next_step="check or exclude the slow nodes: `exclude_nodes: [{exclude}]`",
    ),
    *(
        Kind(name, RESULT, OUTSIDE, (part,))
        for name, part in (
            ("slower", "Slower in {num} of {several} workloads."),
            ("faster", "Faster in {num} of {several} workloads."),
            ("inconclusive", "Whether beyond the margin is not settled."),
        )
    ),
    Kind(
        *("healthy_avoided", NOTE, "Avoided nodes: {hosts} {num:is/are} within the margin, but avoided."),
        advice="They failed jobs of this campaign, so other jobs avoid them. Readmit them with clear_nodes.py.",
        next_step="readmit: `python workflow/scripts/clear_nodes.py results/{campaign} {hosts}`",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the summary; nodes, then pairs, that differ from the median one, largest effect first; then others.

    A pair is left out if one of its nodes has its verdict by itself, which explains it.
    """
    found, known = [], set()
    for table, noun, rows in tables_of(data):
        is_outside = [
            _is_outside(row) and known.isdisjoint((host, row.workload, row.verdict) for host in row.hosts.split(", "))
            for row in table_rows(rows)
        ]
        known = set(zip(rows["hosts"], rows["workload"], rows["verdict"], strict=True))
        parts = [part for _, part in by_effect(rows[is_outside]).groupby("hosts", sort=False)]
        num_workloads = rows["workload"].nunique()
        for part in parts[:MOST_FINDINGS]:
            values = effect_of(part) | {"noun": noun, "num_workloads": num_workloads, "num_outside": len(parts)}
            values["num"] = int((part["verdict"] == values["verdict"]).sum())
            words = {"name": values["hosts"].replace(", ", EN_DASH), "effect": _effect_text(values)}
            words["several"] = num_workloads if num_workloads > 1 else None
            source, cells = of_rows(table, part, ("hosts", "workload")), tuple(part["cell"].dropna())
            found.append(Finding(values["verdict"], values, (source,), cells, words=words))
    return [_summary(data, found), *found, *_healthy(data)] if tables_of(data) else []


def _is_outside(row) -> bool:
    """Return whether a row is slower or faster, or settled in its direction."""
    if is_unknown(row.verdict) or row.verdict != "inconclusive":
        return not is_unknown(row.verdict) and row.verdict != "equivalent"
    return settled_direction(row.time_low_ratio, row.time_high_ratio, row.p_adjusted) is not None


def effect_of(rows: pd.DataFrame) -> dict:
    """Return the largest slowdown of a node or pair, or its largest effect. rows: the largest effect first."""
    worst = max(table_rows(rows), key=lambda row: row.verdict == "slower")
    values = {name: getattr(worst, name) for name in ("hosts", "verdict", "workload", "interval")}
    for name in ("", "_low", "_high"):
        ratio = getattr(worst, f"time{name}_ratio")
        values[name.strip("_") or "ratio"] = None if is_unknown(ratio) else float(ratio)
    return values | {"num_launches": int(worst.num_launches)}


def _effect_text(values: dict) -> str:
    """Return `8.0 % slower (95 % CI 6.1-9.9 %)`. values: of `effect_of`."""
    ratio, low, high = (values[name] for name in ("ratio", "low", "high"))
    if ratio < 1:  # shown with the opposite sign
        ratio, low, high = 2 - ratio, *(None if end is None else 2 - end for end in (high, low))
    value = Value(TIME_RATIO, ratio, low, high, values["interval"], values["num_launches"])
    return f"{value:number} {'slower' if values['ratio'] >= 1 else 'faster'} ({value:ends})"


def _summary(data: ReportData, outside: list[Finding]) -> Finding:
    """Return how many nodes are slow or failed, and which. outside: findings on nodes and pairs."""
    table, _, rows = tables_of(data)[0]
    groups, failed, skipped = counts_of(data, rows), failed_hosts(data), data.campaign["skipped"]
    measured = by_effect(rows[rows["time_ratio"].notna()]).groupby("hosts", sort=False)
    effects = {hosts: effect_of(part) for hosts, part in measured}
    slower = [hosts for hosts, effect in effects.items() if effect["verdict"] == "slower"]
    pairs = [f for f in outside if (f.kind, f.values["noun"]) == ("slower", "pair")]
    settled = {hosts for name in ("slower", "faster", "equivalent") for hosts in groups[name]}
    hosts_of = {cell["id"]: set(cell["spec"]["hosts"]) for cell in data.campaign["cells"]}
    values = {
        "num_nodes": rows["hosts"].nunique(),
        "num_slower": len(slower),
        "num_settled": len(settled),
        "num_checked": sum(hosts_of[cell] <= settled for cell in data.ok["cell"]),
        "num_planned": int(data.measurements["repeat"].notna().sum()),
        "nodes": groups,
        "skipped": {", ".join(c["spec"]["hosts"]): c["reason"] for c in skipped if "hosts" in c["spec"]},
        "largest": [f.values for f in outside if f.values["hosts"] in slower][:1],
        "inconclusive": [effects[hosts] for hosts in groups["inconclusive"] if hosts in effects][:MOST_NAMES],
        "pairs": [pair.values for pair in pairs[:1]],
    }
    named = {hosts: f"{hosts} {_effect_text(effect)}" for hosts, effect in effects.items()}
    words = {
        "failed": sorted(groups["failed"], key=lambda hosts: -failed[hosts]),
        "slower": [named[hosts] for hosts in slower],
        "slow_pairs": [pair.words["name"] for pair in pairs],
        "missing": groups["missing"],
        "uncertain": [named.get(hosts, hosts) for hosts in groups["inconclusive"]],
        "skipped_names": list(values["skipped"]),
        "exclude": ", ".join(slower),
    }
    return Finding("nodes", values, (of_rows(table, rows, ("hosts", "workload")),), words=words)


def _healthy(data: ReportData) -> list[Finding]:
    """Return the finding on nodes that are avoided although they are healthy."""
    healthy = counts_of(data, tables_of(data)[0][2])["equivalent"]
    avoided = [node["host"] for node in data.problems.get("blamed_nodes", []) if node["host"] in healthy]
    values = {"hosts": " ".join(avoided), "num": len(avoided), "campaign": data.campaign["name"]}
    source = Source(PROBLEMS, what="blamed_nodes")
    return [Finding("healthy_avoided", values, (source,), (), "warnings")] if avoided else []


def section(data: ReportData) -> Section | None:
    if not (tables := tables_of(data)):
        return None
    figures = [
        _figure(f"sweep-{noun}-{number}", table, noun, part)
        for table, noun, rows in tables
        for number, part in enumerate(_by_workload(rows), start=1)
    ]
    _, noun, rows = tables[-1]
    num_slower = len(counts_of(data, tables[0][2])["slower"])
    margins = " or ".join(f"{100 * margin:g} %" for margin in sorted(set(rows["margin_ratio"])))
    return Section(
        "sweep",
        "Nodes" if noun == "node" else "Nodes and pairs",
        lead=f"Slower and faster: beyond the {margins} margin, and significant.",
        figures=tuple(figure for figure in figures if figure is not None),
        template="sweep.html.j2",
        content={
            "matrices": [_nodes_matrix(data, tables[0][2])],
            "pairs": _pair_matrices(data, rows) if noun == "pair" else [],
            "most_open": MOST_ROWS_OPEN,
        },
        state=(f"{num_slower} slower", "bad") if num_slower else ("", ""),
    )


def _by_workload(rows: pd.DataFrame) -> Iterable[pd.DataFrame]:
    return (part for _, part in rows.groupby("workload", sort=False))


def _figure(figure_id: str, table: str, noun: str, rows: pd.DataFrame) -> Figure | None:
    """Return the ranking of one workload, fastest first, with the interval of each node or pair."""
    rows = rows[rows["time_ratio"].notna()].sort_values("place", kind="stable")
    if rows.empty:
        return None
    workload = rows["workload"].iloc[0]
    columns, device = (*SWEEP.of_table("ranking"), LAUNCHES), rows["device"].iloc[0]
    caption = f"{workload}: {noun}s, slowest first"
    slowest_first = Table.of_columns(caption, columns, rows[::-1], device, noun=noun)
    title = f"{noun.capitalize()}s: {workload}"
    used = [verdict for verdict in STYLES if (rows["verdict"] == verdict).any()]
    legend = tuple(Entry(WORDS.get(name, name), STYLES[name][0], marker=STYLES[name][1]) for name in used)
    return Figure(figure_id, title, partial(_draw, figure_id, title, noun, rows), slowest_first, table, legend)


def _draw(figure_id: str, title: str, noun: str, rows: pd.DataFrame) -> str:
    """Draw estimates and intervals by place, with the names of the slowest. Dashed lines: the margin."""
    percent, low, high = (np.array(of, float) for of in zip(*map(TIME_RATIO.of, table_rows(rows)), strict=True))
    heading = TIME_RATIO.heading(rows["device"].iloc[0])
    places, verdicts = np.arange(1, len(rows) + 1), rows["verdict"].to_numpy()
    names, cells, margin = rows["hosts"].tolist(), [], float(rows["margin_ratio"].iloc[0])
    width, size = (0.8, 2.5) if len(rows) > 64 else (1.8, 5)
    with new_canvas(WIDTH_IN, STRIP_IN, **{"svg.hashsalt": figure_id}) as canvas:
        axes = canvas.add_axes((0.15, 0.19, 0.8, 0.68))
        for limit in (margin, 1 / (1 + margin) - 1):
            axes.axhline(100 * limit, color=GREY, dashes=(6, 2), linewidth=1, zorder=1.5)
        axes.axhline(0, color=GREY, linewidth=0.8, zorder=1.5)
        for verdict, (color, marker) in STYLES.items():
            chosen = verdicts == verdict
            if chosen.any():
                axes.vlines(places[chosen], low[chosen], high[chosen], color=color, linewidth=width, alpha=0.7)
                style = {"marker": marker, "markersize": size, "color": color, "linestyle": "none"}
                axes.plot(places[chosen], percent[chosen], **style)[0].set_gid(f"{MARKS_ID}{len(cells)}")
                cells.append([cell or "" for cell in rows["cell"].fillna("")[chosen]])
        for index in _named(percent, verdicts == "slower"):
            name = {"ha": "right", "va": "center", "fontsize": 8, "color": INK, "parse_math": False}
            axes.annotate(names[index], (places[index], percent[index]), (-6, 0), textcoords="offset points", **name)
        axes.set_xlim(0.4, len(rows) + 0.6)
        axes.set_xlabel(f"{noun}s, fastest first")
        axes.locator_params(axis="x", nbins=8, integer=True)
        axes.locator_params(axis="y", nbins=6)
        axes.grid(visible=True, axis="y", color=GRID, linewidth=0.8)
        canvas.text(0.01, 0.99, heading, va="top", fontsize=9)
        return svg_of(canvas, f"{title}: {heading} by place", cells)


def _named(percent: np.ndarray, is_slower: np.ndarray) -> list[int]:
    """Return the places of the slowest nodes or pairs, without those whose names would overlap."""
    found, gap = [], np.ptp(percent) / LINES
    for index in reversed(range(len(percent))):
        if is_slower[index] and (not found or percent[found[-1]] - percent[index] > gap):
            found.append(index)
    return found[:MOST_NAMED]


def _nodes_matrix(data: ReportData, rows: pd.DataFrame) -> Matrix:
    """Return nodes down, in groups, and workloads across."""
    workloads = list(dict.fromkeys(rows["workload"]))
    by_host: dict[str, dict[str, object]] = {}
    for row in table_rows(rows):
        by_host.setdefault(row.hosts, {})[row.workload] = row
    statuses, failed = statuses_by_cell(data.measurements), failed_hosts(data)
    groups = []
    for name, hosts in counts_of(data, rows).items():
        ordered = sorted(hosts, key=natural) if name in ("equivalent", "missing") else hosts
        lines = tuple(
            Row(
                host,
                tuple(_square(by_host[host].get(workload), statuses, failed.get(host, 0)) for workload in workloads),
            )
            for host in ordered
        )
        groups += [Group(f"{GROUPS[name]} ({len(lines)})", lines)] if lines else []
    caption = "Change in time against the median node (%)"
    return Matrix(caption, tuple(workloads), tuple(groups), label="Nodes")


def _square(row, statuses: dict[str, Counter], num_failed: int = 0) -> Square | None:
    """Return the square of a table row. num_failed: failed measurements of a node that has no cell itself."""
    if row is None:
        return None
    cells = () if is_unknown(row.cell) else (row.cell,)
    counts = statuses[row.cell] if cells else Counter({"failed": num_failed} if num_failed else {"not_measured": 1})
    name = f"{row.hosts}: {row.workload}"
    if is_unknown(row.time_ratio) and not is_unknown(row.time_s):
        return Square("n/a", None, "inconclusive", cells, f"{name}: nothing to compare with")
    if is_unknown(row.time_ratio):
        return square_without_value(name, list(cells), counts)
    ratio, limit = float(row.time_ratio), 1 + float(row.margin_ratio)
    note = f"{name}: {TIME_RATIO.cell(row)} % {TIME_RATIO.ends(row)}, place {PLACE.cell(row)}, {VERDICT.cell(row)}"
    bad = _num_failed(counts) if cells else 0
    state = f"{row.verdict}{' partial' if bad else ''}"
    note += f"; {bad} of {plural(counts.total(), 'measurement')} not ok" if bad else ""
    level = None if 1 / limit <= ratio <= limit else abs(math.log(ratio)) / math.log(SCALE_END)
    side = "" if level is None else "above" if ratio > 1 else "below"
    return Square(difference_text(ratio), level, state, cells, note, side)


def _pair_matrices(data: ReportData, rows: pd.DataFrame) -> list[Matrix]:
    """Return for each workload the pairs as a matrix of nodes by nodes, if they are few enough to read."""
    nodes = sorted({host for hosts in rows["hosts"] for host in hosts.split(", ")}, key=natural)
    if len(nodes) > MOST_NODES_MATRIX:
        return []
    statuses, found = statuses_by_cell(data.measurements), []
    for part in _by_workload(rows):
        squares = {frozenset(row.hosts.split(", ")): _square(row, statuses) for row in table_rows(part)}
        lines = tuple(Row(a, tuple(None if a == b else squares.get(frozenset((a, b))) for b in nodes)) for a in nodes)
        workload = part["workload"].iloc[0]
        caption = f"{workload}: change in time against the median pair (%)"
        found.append(Matrix(caption, tuple(nodes), (Group(workload, lines),), label=f"Pairs, {workload}"))
    return found


TABLES = {
    "sweep_nodes": TableSpec.of(SWEEP, sweep_nodes_table, "campaign", "measurements"),
    "sweep_pairs": TableSpec.of(SWEEP, sweep_pairs_table, "campaign", "measurements"),
}
TOPIC = Topic(*("sweep", "Nodes", TABLES, section, findings), is_of_sweeps=True, kinds=KINDS)
