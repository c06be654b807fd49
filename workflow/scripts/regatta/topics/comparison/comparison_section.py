"""The topic of comparisons: ratios, verdicts, and how the environments of two sides differ. docs/metrics.md."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from regatta.core.text import plural
from regatta.kit.columns import TEXT, WHOLE, Column
from regatta.launchers import STACK_KEYS
from regatta.model.frozen import Cell
from regatta.report.findings import Finding, Source, of_rows
from regatta.report.page import NEW_EACH_LAUNCH, VERSIONS
from regatta.report.panels import Section, Table
from regatta.report.stack_facts import prologue_text, shown_variable
from regatta.run.preflight_verdict import COMMUNICATION, family_of
from regatta.store.records import one_line
from regatta.topics.base import ReportData, TableSpec, Topic, once_per_report
from regatta.topics.comparison import comparison_tables as tables
from regatta.topics.comparison import heatmap, texts
from regatta.topics.comparison.changes import changes_figure
from regatta.topics.comparison.sides import axis_label, axis_text, pair_text, sides_text, with_labels

MOST_ROWS = 40  # of a table; comparisons.csv has all
OF_STACK = "kind image_id wrapper_sha256 runtime runtime_options binds python".split()
OF_STACK += [*STACK_KEYS, "scripts", "prologue"]
OF_NCCL = ("network", "plugin", "provider", "transports")  # read by the preflight from NCCL's log
MOST_VALUES = 3
NOT_KNOWN, NOTHING = "not recorded", "nothing"
ABSENT = ("not set", "none", "not loaded")  # values of a fact that a side is known to lack


@dataclass(frozen=True)
class Difference:
    """A fact that differs. reference, other: all values of a side, as text."""

    name: str
    reference: str
    other: str


@dataclass(frozen=True)
class Side:
    """One side of a comparison. nccl: what the preflight found on its stack, or None."""

    headers: list[dict]
    cells: list[Cell]
    nccl: dict | None = None


def section(data: ReportData) -> Section:
    comparisons = data.tables["comparisons"]
    axis = axis_label(tables.versus_of(data.campaign)["axis"])
    alike = comparisons[(comparisons["verdict"] == tables.ALIKE).fillna(False)]
    environments = found = tuple(_environments(data))
    if len(alike):
        found += (pairs_table(alike, f"{pair_text(alike)}: identical stacks (A/A), no verdict"),)
    lead = f"Cells that differ only in {axis}. {texts.COMPARED}"
    lead += " Environment differences are listed below." if environments else ""
    judged = texts.judged_rows(comparisons)
    if not len(judged):
        return Section("comparisons", "Comparisons", lead, tables=found)
    found = (pairs_table(judged, "Largest effects"), *found)
    fold = f"Ratios: all {len(judged):,} pairs are equivalent" if texts.is_equal(judged) else ""
    content = {"matrices": heatmap.ratio_matrices(comparisons, data.names, fold)}
    template, state = "matrix.html.j2", (plural(len(judged), "pair"), "quiet")
    first = changes_figure(judged)
    return Section("comparisons", "Comparisons", lead, (), found, template, content, state, headline=first)


@once_per_report
def findings(data: ReportData) -> list[Finding]:
    """Return the statement on the compared pairs with the verdicts behind it, and the warnings."""
    comparisons, blocks = data.tables["comparisons"], in_blocks(data)
    judged = texts.judged_rows(comparisons)
    judged = judged.assign(label=judged["cell"].map(data.names))
    largest_first = pd.concat([texts.largest_effect(judged), judged]).drop_duplicates("cell")
    found = texts.compared_findings(judged, (_rows(largest_first),))
    found = [replace(finding, values=finding.values | {"num_in_blocks": len(blocks)}) for finding in found]
    alike, num_alike, expected = tables.alike_that_differ(comparisons)
    undecided = judged[judged["verdict"] == "inconclusive"]
    repeats = texts.repeats_needed(undecided, data.campaign.repeats) if len(undecided) else None
    axes = {"axis": ", ".join(map(axis_label, blocks["axis"].unique()))}
    num_compared = int(comparisons["verdict"].notna().sum())
    for kind, rows, cells, values, words in (
        ("alike_differ", alike, tuple(alike["cell"]), {"num_pairs": num_alike, "expected": expected}, {}),
        ("not_interleaved", blocks, (), {"num_pairs": num_compared}, axes),
        ("open_pairs", undecided, (), {"num_pairs": len(judged), "repeats": repeats}, {}),
    ):
        if len(rows):
            found.append(Finding(kind, {"num": len(rows)} | values, (_rows(rows),), cells, "warnings", words))
    return found


def _rows(comparisons: pd.DataFrame) -> Source:
    return of_rows("comparisons", comparisons, ("cell", "reference"))


MIN_LAUNCHES_ORDER = 2  # per side; one launch of each cannot alternate


@once_per_report
def in_blocks(data: ReportData) -> pd.DataFrame:
    """Return the compared rows for which all launches of one side started before all of the other.

    Launches without a recorded start, such as imported ones, are left out.
    """
    known = data.tables["launches"][["launch", "start_utc"]].dropna()
    starts = data.ok.merge(known, on="launch").groupby("cell")["start_utc"].agg(["min", "max", "count"])
    starts = starts[starts["count"] >= MIN_LAUNCHES_ORDER]
    rows = data.tables["comparisons"]
    rows = rows[rows["verdict"].notna() & rows["cell"].isin(starts.index) & rows["reference"].isin(starts.index)]
    one, other = (starts.loc[rows[side]].set_index(rows.index) for side in ("cell", "reference"))
    return rows[(one["max"] < other["min"]) | (other["max"] < one["min"])]


LABEL = Column("label", "cell", TEXT)
VERDICT = Column("verdict", "verdict", TEXT, text=texts.verdict_text)
LAUNCHES = Column("num_launches", "n", WHOLE, text=texts.launches_text)


def pairs_table(rows: pd.DataFrame, title: str) -> Table:
    """Return the rows with the largest effects, the verdict early so that a narrow screen shows it."""
    largest = tables.by_effect(with_labels(rows)).head(MOST_ROWS)
    words = dict(zip(("reference", "other"), sides_text(largest), strict=True))
    columns = LABEL, VERDICT, *tables.COMPARISONS.of_table("pairs"), LAUNCHES
    title += f": {len(largest)} of {len(rows):,} rows" if len(largest) < len(rows) else ""
    return Table.of_columns(title, columns, largest, largest["device"].iloc[0], ("comparisons",), **words)


def _environments(data: ReportData) -> Iterator[Table]:
    """Yield a table for each pair of values that were compared in different launches, where anything differed."""
    comparisons = data.tables["comparisons"]
    by_id = data.campaign.by_id
    nccl = {stack["stack"]: stack["verdict"] for stack in data.preflight["stacks"]} if data.preflight else {}
    launches = data.ok.groupby("cell")["launch"].agg(set).to_dict()
    known = comparisons[comparisons["verdict"].notna()]
    for (axis, reference, other), rows in known.groupby(["axis", "reference_value", "value"], sort=False):
        sides = [
            _side([by_id[cell] for cell in cells], set().union(*(launches[cell] for cell in cells)), data.headers, nccl)
            for cells in (rows["reference"], rows["cell"])
        ]
        if sides[0].headers != sides[1].headers:
            words = [axis_text(axis, value) for value in (reference, other)]
            title = f"Environment differences between {' and '.join(words)}"
            table = environment_table(title, differences(*sides), *words)
            if table:
                yield table


def _side(cells: list[Cell], launches: set[str], headers: list[dict], nccl: dict[str, dict]) -> Side:
    stacks = {cell.stack.name for cell in cells}
    found = nccl.get(next(iter(stacks))) if len(stacks) == 1 else None
    return Side([header for header in headers if header["launch"] in launches], cells, found)


# Environments of the two sides, read from first lines of launch files, stacks of cells, and the preflight.


def differences(reference: Side, other: Side) -> list[Difference]:
    """Return what differs, in a fixed order: stack, versions, network, libraries, machine, settings, variables.

    A fact known on one side only is no difference; the last entry names it on the other side.
    """
    facts = _facts(reference), _facts(other)
    names = [name for name in {**facts[0], **facts[1]} if facts[0].get(name) or facts[1].get(name)]
    values = {name: (_known_values(name, reference, facts[0]), _known_values(name, other, facts[1])) for name in names}
    found = [
        Difference(name, _values_text(name, pair[0]), _values_text(name, pair[1]))
        for name, pair in values.items()
        if all(pair) and pair[0] != pair[1]
    ]
    unknown = [_kinds(name for name, pair in values.items() if any(pair) and not pair[side]) for side in (0, 1)]
    if any(unknown):
        found.append(Difference(NOT_KNOWN, *(", ".join(names) or NOTHING for names in unknown)))
    return found


def by_stack(pairs: dict[str, tuple[Side, Side]]) -> list[Difference]:
    """Return what differs between two campaigns, with the stack's name if it does not apply to all."""
    found = {stack: differences(*sides) for stack, sides in pairs.items()}
    shared = [d for d in next(iter(found.values()), []) if all(d in of_stack for of_stack in found.values())]
    return shared + [
        replace(difference, name=f"{difference.name} (stack {stack})")
        for stack, of_stack in found.items()
        for difference in of_stack
        if difference not in shared
    ]


def environment_table(title: str, found: list[Difference], reference: str, other: str) -> Table | None:
    """Return what differs between the environments of two sides, or None if none is known to differ."""
    if not found:
        return None
    rows = tuple((d.name.replace(NOT_KNOWN, f"{NOT_KNOWN}, so not compared", 1), d.reference, d.other) for d in found)
    return Table(title, ("property", reference, other), rows, is_words=True, sources=("launches/*.jsonl",))


def environment_tables(found: list[Difference], reference: str, other: str) -> list[Table]:
    """Return what differs between two campaigns: values that changed, then what only one side has or recorded."""
    groups: dict[str, list[Difference]] = {
        "Changed": [],
        f"Only in {reference}": [],
        f"Only in {other}": [],
        "Unknown": [],
    }
    for difference in found:
        is_unknown = difference.name.startswith(NOT_KNOWN)
        lacks = difference.reference in ABSENT, difference.other in ABSENT
        title = (
            "Unknown" if is_unknown else "Changed" if not any(lacks) else f"Only in {other if lacks[0] else reference}"
        )
        groups[title].append(difference)
    return [table for title, of in groups.items() if (table := environment_table(title, of, reference, other))]


def _facts(side: Side) -> dict[str, set[str]]:
    """Return all values of each fact, over all launches of a side; none of what is absent or unknown."""
    facts: dict[str, set[str]] = {}
    for name, value in _all_facts(side):
        values = facts.setdefault(name, set())
        if value not in (None, [], ""):
            value = [f"{key}={of_key}" for key, of_key in value.items()] if isinstance(value, dict) else value
            values.add(one_line(" ".join(map(str, value)) if isinstance(value, list) else value))
    return facts


def _all_facts(side: Side) -> Iterator[tuple[str, object]]:
    """Yield names and values in the order of the table: stack, versions, network, libraries, machine, settings."""
    for cell in side.cells:
        yield "cluster", cell.spec.get("cluster")
        settings = {**cell.stack.settings, "prologue": prologue_text(cell.stack)}
        yield from ((name.replace("_", " "), settings.get(name)) for name in OF_STACK)
        for path, digest in cell.spec.get("executables", {}).items():
            yield f"SHA-256 of {Path(path).name}", digest[:12]
    yield from ((f"NCCL {name}", (side.nccl or {}).get(name)) for name in OF_NCCL)
    for header in side.headers:
        git, environment = header.get("git") or {}, header.get("environment") or {}
        yield "commit", git.get("commit") and git["commit"][:12] + (" (dirty)" if git.get("is_dirty") else "")
        yield from (("python version" if name == "python" else name, environment.get(name)) for name in VERSIONS)
        for path in environment.get("libraries") or []:
            yield family_of(Path(path).name) or "other libraries", path
        yield from (("GPU", gpu.get("name")) for gpu in environment.get("gpus") or [] if isinstance(gpu, dict))
        for file in environment.get("programs") or []:
            if not any("executables" in cell.spec for cell in side.cells):  # else a copy would be another one
                yield "program", f"{file['path']} ({file['size_bytes']} bytes of {file['time_utc']})"
        yield "threads per rank", environment.get("threads_per_rank")
        for host in environment.get("hosts", []):
            names = {"CPU": "cpu_model", "cores per host": "num_cores", "hosts": "host"}
            yield from ((name, host.get(key)) for name, key in names.items())
        for kind in ("setting", "variable"):
            values = (environment.get(f"{kind}s") or {}).items()
            yield from ((f"{kind} {name}", value) for name, value in values if not name.startswith(NEW_EACH_LAUNCH))
    recorded = {name for header in side.headers for name in (header.get("environment") or {}).get("variables") or {}}
    for cell in side.cells:  # ranks of programs record no variables
        env = (cell.stack.settings.get("env") or {}).items()
        yield from ((f"variable {name}", shown_variable(name, value)) for name, value in env if name not in recorded)


def _known_values(name: str, side: Side, facts: dict[str, set[str]]) -> set[str]:
    """Return the values of a fact. Absent: "not set" or "none" if it would have been recorded, else unknown."""
    if facts.get(name):
        return facts[name]
    environments = [h["environment"] for h in side.headers if h.get("environment") and not h.get("imported")]
    if name.startswith("variable "):
        is_known = any(environment.get("variables") is not None for environment in environments)
        is_known |= any("env" in cell.stack.settings for cell in side.cells)
        return {"not set"} if is_known else set()
    if name in COMMUNICATION:
        return {"not loaded"} if any(environment.get("libraries") for environment in environments) else set()
    is_recorded = side.nccl if name.startswith("NCCL ") else side.cells and name.replace(" ", "_") in OF_STACK[1:]
    return {"none"} if is_recorded else set()


def _kinds(names: Iterable[str]) -> list[str]:
    """Return the kinds of facts: `libraries`, `variables`, `settings`, `network`, else the name."""
    kinds = {"variable": "variables", "setting": "settings", "NCCL": "network"}
    return list(dict.fromkeys("libraries" if n in COMMUNICATION else kinds.get(n.split()[0], n) for n in names))


def _values_text(name: str, values: set[str]) -> str:
    if name == "other libraries" and len(values) > 1:
        return f"{len(values)} files"
    ordered = sorted(values)
    more = len(ordered) - MOST_VALUES
    return " | ".join(ordered[:MOST_VALUES]) + (f" and {more} more" if more > 0 else "")


TABLES = {"comparisons": TableSpec.of(tables.COMPARISONS, tables.comparisons_table, "campaign", "measurements")}
TOPIC = Topic("comparison", "Comparisons", TABLES, section, findings, is_judge=True, kinds=texts.KINDS)
