"""The section of an acceptance sweep: which nodes or pairs are slow, failed, or undecided, and by how much."""

from collections import Counter
from collections.abc import Iterable

import pandas as pd

from regatta.core.names import cell_names
from regatta.core.text import is_unknown, natural
from regatta.kit.columns import NUM_LAUNCHES, Row, table_rows
from regatta.kit.kinds import MOST_NAMES, NOTE, RESULT, SUMMARY, Kind, Value, joined
from regatta.report.chart import BAD, COLORS, GREY, GUIDE, SLOWER, Chart, PlotAxis, Style
from regatta.report.findings import PROBLEMS, Finding, Source, of_rows, percent_number
from regatta.report.forms import MOST_ROWS
from regatta.report.matrix import Matrix, Position, Square
from regatta.report.page import count_failed
from regatta.report.panels import Figure, Section, Table
from regatta.store.csv_files import plain_rows
from regatta.tables.pairs import by_effect, direction_of, half_widths
from regatta.tables.places import (
    POSITION,
    SWEEP,
    TIME_RATIO,
    VERDICT,
    sweep_nodes_table,
    sweep_pairs_table,
    workload_of,
)
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report
from regatta.topics.comparison.comparison_figures import RATIO_NOTE, RATIO_STATES, ratio_shown
from regatta.topics.failures import failing_hosts_of
from regatta.topics.status_matrix import square_of, statuses_by_cell

MOST_FINDINGS = 5
MOST_ROWS_OPEN = 12  # nodes; further groups are folded
MOST_NODES_MATRIX = 32  # of a matrix of pairs
MOST_FAILING = 0.25  # share of the nodes or pairs; more failing ones are not called failed without a test
# Groups of the matrix in its order, and their marks in a figure: a node is in the first one that applies to any of its
# cells.
GROUPS = {
    "failed": ("Failed", Style(BAD, "X")),
    "slower": ("Slower", Style(SLOWER, "D")),
    "faster": ("Faster", Style(COLORS[2], "v")),
    "missing": ("No result", Style(GREY, "s")),
    "inconclusive": ("Inconclusive", Style(GREY)),
    "equivalent": ("Within the margin", Style(COLORS[0])),
}
MARKS = GROUPS | {"slow link": ("Slow link", Style(SLOWER, "^"))}
# Values of a finding -> column
EFFECT = {name: name for name in ("hosts", "verdict", "workload", "interval", "num_launches")}
EFFECT |= {"ratio": "time_ratio", "low": "time_low_ratio", "high": "time_high_ratio"}


@once_per_report
def tables_of(data: ReportData) -> dict[str, pd.DataFrame]:
    """Return the tables with rows: of each node, then of each pair.

    `workload` has no nodes, and a shape only if shapes differ.
    """
    found = {}
    for noun in ("node", "pair"):
        rows = data.tables[f"sweep_{noun}s"]
        names = [name.without("hosts") for name in cell_names(rows.to_dict("records"))]
        found |= {noun: rows.assign(workload=[of.say(*of.parts, always=("subject",)) for of in names])} if names else {}
    return found


@once_per_report
def failed_hosts(data: ReportData) -> dict[str, int]:
    """Return the number of failed measurements of each node or pair that has any.

    A node of a sweep of pairs counts as failed if none of its measurements is ok: one broken node fails all its pairs.
    A workload that fails in many places says nothing about one of them, unless failures are more frequent there.
    """
    statuses, num_failed, is_ok, found = statuses_by_cell(data), Counter(), set(), failing_hosts_of(data)
    places = Counter(workload_of(cell) for cell in data.campaign.cells)
    failing = Counter(workload_of(cell) for cell in data.campaign.cells if count_failed(statuses[cell.id]))
    for cell in data.campaign.cells:
        counts, hosts, workload = statuses[cell.id], cell.hosts, workload_of(cell)
        if failing[workload] <= max(1, MOST_FAILING * places[workload]) or found.intersection(hosts):
            for name in {", ".join(hosts), *hosts}:
                num_failed[name] += count_failed(counts)
        is_ok |= set(hosts) if counts["ok"] and len(hosts) > 1 else set()
    return {name: num for name, num in num_failed.items() if num and name not in is_ok}


def counts_of(data: ReportData, rows: pd.DataFrame) -> dict[str, list[str]]:
    """Return nodes or pairs by group, each in the first group that applies; largest effect first.

    rows: of one of the tables.
    """
    groups: dict[str, list[str]] = {name: [] for name in GROUPS}
    for hosts, part in by_effect(rows).groupby("hosts", sort=False):
        verdicts = set(part["verdict"].fillna("inconclusive")[part["time_s"].notna()])
        verdicts |= {"missing"} if part["time_s"].isna().any() else set()
        verdicts |= {"failed"} if hosts in failed_hosts(data) else set()
        groups[next(name for name in GROUPS if name in verdicts)].append(hosts)
    return groups


KINDS = (
    Kind(
        *("nodes", SUMMARY),
        lead=(
            "Nodes: {faults}",
            "No slow node among {num_settled:node} with a verdict",
            "Slow nodes: uncertain",
        ),
        parts=(
            "than the median {medians}",
            "without result: {missing}",
            "inconclusive: {uncertain}",
            "skipped: {skipped}",
            "{num_checked} of {num_planned:measurement} checked",
        ),
        place=1,
        next_step="exclude failed or slow nodes: `exclude_nodes: [{exclude}]`",
    ),
    Kind(
        *("place", RESULT, "{name} \N{MIDDLE DOT} {workload}: {effect} than the median {noun}."),
        parts=(("{direction} in {num} of {several} workloads.", "{open}"),),
        next_step="check the cables and ports of link {link}, or exclude one of its nodes",
    ),
    Kind(
        *("healthy_avoided", NOTE, "Healthy nodes avoided: {hosts}."),
        advice="Jobs of this campaign failed on them, so later jobs avoid them. Readmit them with clear_nodes.py.",
        next_step="readmit: `.venv/bin/python3 workflow/scripts/clear_nodes.py results/{campaign} {hosts}`",
    ),
)


@once_per_report
def outside(data: ReportData) -> dict[str, pd.DataFrame]:
    """Return the rows of nodes, and of pairs, that differ from the median one, the largest effect first.

    A pair is left out if one of its nodes has its verdict by itself, which explains it.
    """
    found, known = {}, set()
    for noun, rows in tables_of(data).items():
        judged = rows.dropna(subset="verdict")
        is_outside = [
            row.verdict != "equivalent"
            and direction_of(row) is not None
            and known.isdisjoint((host, row.workload, row.verdict) for host in row.hosts.split(", "))
            for row in table_rows(judged)
        ]
        known = set(zip(rows["hosts"], rows["workload"], rows["verdict"], strict=True))
        found[noun] = by_effect(judged[pd.Series(is_outside, judged.index, bool)])  # a list selects columns if empty
    return found


def slow_links(data: ReportData) -> pd.DataFrame:
    """Return the rows of slow pairs that no slow node explains."""
    rows = [*outside(data).values()][-1]
    return rows[(rows["verdict"] == "slower") & rows["hosts"].str.contains(", ")]


def link_name(hosts: str) -> str:
    return hosts.replace(", ", "\N{EN DASH}")


def findings(data: ReportData) -> list[Finding]:
    """Return the summary; nodes, then pairs, that differ from the median one, largest effect first; then others."""
    found, tables = [], tables_of(data)
    for noun, rows in outside(data).items():
        parts = [part for _, part in rows.groupby("hosts", sort=False)]
        num = tables[noun]["workload"].nunique()
        for part in parts[:MOST_FINDINGS]:
            values = effect_of(part) | {"noun": noun, "num_workloads": num, "num_outside": len(parts)}
            word = values["verdict"]
            values["num"] = int((part["verdict"] == word).sum())
            words = {"name": link_name(values["hosts"]), "effect": _effect_text(values)}
            words["link"] = words["name"] if (noun, word) == ("pair", "slower") else None
            of_several = {"direction": word.capitalize(), "several": num} if num > 1 else {}
            words |= {"open": "May or may not exceed the margin."} if word == "inconclusive" else of_several
            source = of_rows(f"sweep_{noun}s", part, ("hosts", "workload"))
            found.append(Finding("place", values, (source,), tuple(part["cell"].dropna()), words=words))
    return [_summary(data, found), *found, *_healthy(data)] if tables else []


def effect_of(rows: pd.DataFrame) -> dict:
    """Return the largest slowdown of a node or pair, or its largest effect. rows: the largest effect first."""
    slower = rows[rows["verdict"] == "slower"]
    [worst] = plain_rows((slower if len(slower) else rows).head(1), tuple(EFFECT.values()))
    return {name: worst[column] for name, column in EFFECT.items()}


def _effect_text(values: dict) -> str:
    """Return `8.0 % slower (95 % CI 6.1-9.9 %)`. values: of `effect_of`."""
    ratio, low, high = (values[name] for name in ("ratio", "low", "high"))
    if ratio < 1:  # shown with the opposite sign
        ratio, low, high = 2 - ratio, *(None if end is None else 2 - end for end in (high, low))
    value = Value(TIME_RATIO, ratio, low, high, values["interval"], values["num_launches"])
    return f"{value:number} {'slower' if values['ratio'] >= 1 else 'faster'} ({value:ends})"


def _without_ends(effect: str) -> str:
    return effect.partition(" (")[0]


def _summary(data: ReportData, found: list[Finding]) -> Finding:
    """Return how many nodes and links are slow or failed, and which. found: findings on nodes and pairs."""
    rows, cells = tables_of(data)["node"], data.campaign.cells
    groups, failed = counts_of(data, rows), failed_hosts(data)
    measured = by_effect(rows[rows["time_ratio"].notna()]).groupby("hosts", sort=False)
    effects = {hosts: effect_of(part) for hosts, part in measured}
    named = {hosts: f"{hosts} {_effect_text(effect)}" for hosts, effect in effects.items()}
    slower = [hosts for hosts, effect in effects.items() if effect["verdict"] == "slower"]
    what = "bandwidth" if {cell.benchmark for cell in cells} == {"collective"} else "speed"
    links = []
    for of in (effect_of(part) for _, part in slow_links(data).groupby("hosts", sort=False)):
        share = f"({percent_number(1 / of['ratio'])} % of the {what})"
        links.append(f"link {link_name(of['hosts'])} {_without_ends(_effect_text(of))} {share}")
    slow = {"node": [_without_ends(named[hosts]) for hosts in slower], "pair": links}
    slow = {noun: joined(texts) for noun, texts in slow.items() if texts}
    settled = {hosts for name in ("slower", "faster", "equivalent") for hosts in groups[name]}
    checked = {cell.id for cell in cells if settled.issuperset(cell.hosts)}
    values = {
        "num_nodes": rows["hosts"].nunique(),
        "num_slower": len(slower),
        "num_settled": len(settled),
        "num_checked": int(data.ok["cell"].isin(checked).sum()),
        "num_planned": int(data.measurements["repeat"].notna().sum()),
        "nodes": groups,
        "skipped": {", ".join(cell.hosts): cell.reason for cell in data.campaign.skipped if cell.hosts},
        "largest": [of.values for of in found if of.values["hosts"] in slower][:1],
        "inconclusive": [effects[hosts] for hosts in groups["inconclusive"] if hosts in effects][:MOST_NAMES],
        "pairs": [of.values for of in found if of.words["link"]][:1],
    }
    failed = joined(sorted(groups["failed"], key=lambda hosts: -failed[hosts]))
    words = {
        "faults": ", ".join([f"{failed} failed"] * bool(failed) + [*slow.values()]),
        "medians": " and the median ".join(slow),
        "missing": groups["missing"],
        "uncertain": [named.get(hosts, hosts) for hosts in groups["inconclusive"]],
        "skipped": list(values["skipped"]),
        "exclude": ", ".join([*groups["failed"], *slower]),
        "mark": "no slow node" if len(settled) == values["num_nodes"] else "uncertain",
    }
    if words["faults"]:
        words["mark"] = "failed" if groups["failed"] else "slow"
    return Finding("nodes", values, (of_rows("sweep_nodes", rows, ("hosts", "workload")),), words=words)


def precision_words(data: ReportData) -> dict[str, str]:
    """Return what the trust in verdicts rests on, of pairs if there are any."""
    noun, rows = [*tables_of(data).items()][-1]
    if not (widths := half_widths(rows)):
        return {"precision": "unknown", "mark": "uncertain"}
    precision = f"\N{PLUS-MINUS SIGN}{percent_number(widths['median_ratio'])} % per {noun}"
    return {"precision": precision, "margin": f"{100 * rows['margin_ratio'].min():.2g} %", "mark": "measured"}


def _healthy(data: ReportData) -> list[Finding]:
    """Return the finding on nodes that are avoided although they are healthy."""
    healthy = counts_of(data, tables_of(data)["node"])["equivalent"]
    avoided = [node["host"] for node in data.problems.get("blamed_nodes", []) if node["host"] in healthy]
    values = {"hosts": " ".join(avoided), "num": len(avoided), "campaign": data.campaign.name}
    source = Source(PROBLEMS, what="blamed_nodes")
    return [Finding("healthy_avoided", values, (source,))] if avoided else []


def section(data: ReportData) -> Section | None:
    if not (tables := tables_of(data)):
        return None
    figures = tuple(
        _figure(f"sweep-{noun}-{number}", noun, part, data)
        for noun, rows in tables.items()
        for number, part in enumerate(filter(_is_ranked, _by_workload(rows, _cited(data, noun))), start=1)
    )
    nodes, (noun, rows) = tables["node"], [*tables.items()][-1]
    limits = [_limits(margin) for margin in set(rows["margin_ratio"])]
    margins = " or ".join(f"+{above:.2g} and \N{MINUS SIGN}{-below:.2g} %" for above, below in limits)
    lead = f"Slower and faster: beyond {margins}, and significant."
    matrices = [_nodes_matrix(data, nodes), *(_pair_matrices(data, rows) if noun == "pair" else ())]
    groups = counts_of(data, nodes)
    numbers = {"failed": len(groups["failed"]), "slower": len(groups["slower"]) + slow_links(data)["hosts"].nunique()}
    words = [f"{num} {name}" for name, num in numbers.items() if num]
    state, title = (", ".join(words), "bad" if words else ""), "Nodes and pairs" if noun == "pair" else ""
    more = {"template": "matrix.html.j2", "content": {"matrices": matrices}, "state": state, "title": title}
    return Section(lead, figures[1:], headlines=figures[:1], **more)


def _cited(data: ReportData, noun: str) -> str | None:
    """Return the workload of the first finding on a node or pair, which the summary also has."""
    return next((f.values["workload"] for f in findings(data) if f.values.get("noun") == noun), None)


def _by_workload(rows: pd.DataFrame, first: str | None = None) -> Iterable[pd.DataFrame]:
    """Return the rows of each workload, in the order of the table. first: the one that precedes the others."""
    parts = [part for _, part in rows.groupby("workload", sort=False)]
    return sorted(parts, key=lambda part: part["workload"].iloc[0] != first)


def _is_ranked(rows: pd.DataFrame) -> bool:
    return bool(rows["time_ratio"].notna().any())


def _limits(margin: float) -> tuple[float, float]:
    """Return the differences in percent beyond which a node is slower, and faster."""
    return 100 * margin, -100 * margin / (1 + margin)


def _figure(figure_id: str, noun: str, rows: pd.DataFrame, data: ReportData) -> Figure:
    """Return the ranking of one workload with the interval of each node or pair.

    The slowest and those without a result are on top, or at the right of many. Beside nodes are the slowest links.
    """
    statuses, failed, what = statuses_by_cell(data), failed_hosts(data), f"{noun}s"
    workload, device, links = rows["workload"].iloc[0], rows["device"].iloc[0], slow_links(data)
    links = links[links["workload"] == workload].head(MOST_FINDINGS)
    if noun == "node" and len(links):
        what, rows = "nodes and slow links", pd.concat([rows, links.assign(verdict="slow link", place=pd.NA)])
    rows = rows.sort_values("time_ratio", kind="stable")  # without a result: last
    words = [MARKS[_group_of(row, statuses, failed)][0].lower() for row in table_rows(rows)]
    columns, title = (*SWEEP.of_table("ranking"), NUM_LAUNCHES), f"{what.capitalize()}: {workload}"
    judged = rows.assign(verdict=words)[::-1]
    slowest_first = Table.of_columns(f"{workload}: {what}, slowest first", columns, judged, device, noun=noun)
    above, below = _limits(float(rows["margin_ratio"].iloc[0]))
    limits = {f"{above:.2g} % margin": above, f"\N{MINUS SIGN}{-below:.2g} % margin": below}
    shown = [TIME_RATIO.of(row) for row in table_rows(rows)]
    frame, places = pd.DataFrame(shown, columns=["y", "low", "high"]), range(1, len(rows) + 1)
    first = "fastest" if len(rows) > MOST_ROWS else "slowest"  # on top of a few rows
    places = places if first == "fastest" else places[::-1]
    frame = frame.assign(cell=rows["cell"].fillna("").tolist(), series=words, x=places)
    guides = pd.DataFrame({"cell": "", "series": [*limits], "y": [*limits.values()]})
    frame = pd.concat([frame, guides], ignore_index=True)[["cell", "series", "x", "y", "low", "high"]]
    frame = frame.astype(dict.fromkeys(("x", "y", "low", "high"), float))
    ticks = tuple(zip(places, map(link_name, rows["hosts"]), strict=True))
    names = PlotAxis(f"{what}, {first} first", ticks=ticks, is_categorical=True)
    values = PlotAxis(TIME_RATIO.heading(device), value=lambda of: f"{of:+z.{0 if abs(of) >= 100 else 1}f}")
    styles = {name.lower(): style for name, style in MARKS.values()} | dict.fromkeys(limits, GUIDE)
    strip = Chart("rows", frame, names, values, styles=styles)
    return Figure(figure_id, title, strip, slowest_first, f"sweep_{noun}s")


def _group_of(row: Row, statuses: dict[str, Counter], failed: dict[str, int]) -> str:
    """Return the verdict of a table row, or why it has none. failed: of `failed_hosts`."""
    if not is_unknown(row.time_ratio):
        return "inconclusive" if is_unknown(row.verdict) else row.verdict
    num_failed = failed.get(row.hosts, 0) if is_unknown(row.cell) else count_failed(statuses[row.cell])
    return "failed" if num_failed else "missing"


def _nodes_matrix(data: ReportData, rows: pd.DataFrame) -> Matrix:
    """Return nodes down, in groups, and workloads across."""
    columns, squares = tuple(dict.fromkeys(rows["workload"])), []
    by_place, groups = {(row.hosts, row.workload): row for row in table_rows(rows)}, counts_of(data, rows)
    for name, hosts in groups.items():
        title = f"{GROUPS[name][0]} ({len(hosts):,})"
        for host in sorted(hosts, key=natural) if name in ("equivalent", "missing") else hosts:
            known = [workload for workload in columns if (host, workload) in by_place]
            squares += [_square(data, ((title,), host, workload), by_place[host, workload]) for workload in known]
    first = next(len(hosts) for hosts in groups.values() if hosts)
    caption = "Difference in time from the median node (%)"
    fields = {"notes": (RATIO_NOTE,), "states": RATIO_STATES, "scale": (0, 1), "most_open": max(MOST_ROWS_OPEN, first)}
    return Matrix(caption, columns, tuple(squares), "Nodes by workload", most_dense=0, **fields)


def _square(data: ReportData, place: Position, row: Row) -> Square:
    """Return the square of a table row."""
    cells, name = () if is_unknown(row.cell) else (row.cell,), f"{row.hosts}: {row.workload}"
    num_failed = 0 if cells else failed_hosts(data).get(row.hosts, 0)  # of a node that has no cell itself
    lacking = Counter({"failed": num_failed} if num_failed else {"not_measured": 1})
    counts = statuses_by_cell(data)[row.cell] if cells else lacking
    if not is_unknown(row.time_ratio):
        note = f"{TIME_RATIO.cell(row)} % {TIME_RATIO.ends(row)}, place {POSITION.cell(row)}, {VERDICT.cell(row)}"
        return square_of(place, cells, counts if cells else Counter(), name, note=note, **ratio_shown(row, row.verdict))
    if not is_unknown(row.time_s):
        return Square(*place, "n/a", "inconclusive", cells, f"{name}: nothing to compare with")
    return square_of(place, cells, counts, name)


def _pair_matrices(data: ReportData, rows: pd.DataFrame) -> list[Matrix]:
    """Return for each workload the pairs as a matrix of nodes by nodes, if they are few enough to read."""
    nodes, found = sorted({host for hosts in rows["hosts"] for host in hosts.split(", ")}, key=natural), []
    for part in _by_workload(rows) if len(nodes) <= MOST_NODES_MATRIX else ():
        workload, of = part["workload"].iloc[0], {frozenset(row.hosts.split(", ")): row for row in table_rows(part)}
        places = [((workload,), one, other) for one in nodes for other in nodes]
        squares = [_square(data, at, of[pair]) for at in places if (pair := frozenset(at[1:])) in of]
        caption = f"{workload}: difference in time from the median pair (%)"
        fields = {"kind": "pairs", "scale": (0, 1), "fold": caption if found else ""}
        found.append(Matrix(caption, tuple(nodes), tuple(squares), f"Pairs, {workload}", **fields))
    return found


TABLES = {
    "sweep_nodes": TableSpec.of(SWEEP, sweep_nodes_table, "campaign", "measurements"),
    "sweep_pairs": TableSpec.of(SWEEP, sweep_pairs_table, "campaign", "measurements"),
}
TOPIC = Topic(*("sweep", "Nodes", TABLES, section, findings), is_of_sweeps=True, kinds=KINDS)
