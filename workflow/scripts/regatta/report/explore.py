"""All cells of a campaign in one compact data block, for the filters, cell drawer and table of the page's script.

All numbers are those of the tables, in the unit of their label, with six significant digits. docs/contracts.md
describes the block.
"""

import base64
import gzip
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median
from types import MappingProxyType

from regatta.core.benchmarks import all_axes, axes_of, benchmark_names
from regatta.core.names import CellName
from regatta.core.text import NOT_PLANNED, UNKNOWN, is_unknown, natural, ranks_word, with_minus_signs
from regatta.kit.columns import EACH, OF_CURVE, OF_PAIR, TEXT, WHOLE, Column, Columns, Row, table_rows
from regatta.model.frozen import Cell, FrozenCampaign, Stack
from regatta.report.cell_launches import OF_CELLS, WORST_FIRST, Texts, add_launches, launch_files, printable
from regatta.report.page import marked_status
from regatta.report.panels import Figure
from regatta.store.csv_files import CELL, cell_row
from regatta.tables.facts import stack_texts

URL_KEYS = {"subject": "model", "bucket_cap_mb": "bucket"}  # other facets have the name of their field
NOT_CELLS = {"cell", "search", "sort"}  # other keys of an address
EMPTY: Mapping[str, str] = MappingProxyType({})
FIRST_FACETS = ("model", "stack", "shape", "bucket", "status")
LABELS = {"nodes": "Nodes", "stack": "Stack", "backend": "Backend", "version": "Version", "hosts": "Nodes measured"}
LABELS["subject"] = "Model or operation"
NUMBER = re.compile(r"[\d.]+")
SHARES = {"efficiency_percent", "peak_percent", "mfu_percent"}  # of ideal or peak: marks of all figures have them
STRIP_RATIO = 0.05  # of a time, to either side in the strip of its interval
LEVEL = 6  # of compression: 9 takes five times as long and saves 1 % of the page
SETTINGS = (  # of a cell, besides the axes of benchmarks
    Column("id", "Cell id", TEXT),
    Column("name", "Cell", TEXT, help="combination of settings, measured once per launch", is_shown=True),
    Column("status", type=TEXT, help="of all launches; partly failed: some are valid, others failed", is_shown=True),
    Column("benchmark", type=TEXT, help="program that measures"),
    Column("shape", type=TEXT, help="nodes \N{MULTIPLICATION SIGN} {ranks} per node"),
    Column("stack", type=TEXT, help="software environment: host or container, with its environment variables"),
    Column("backend", type=TEXT, help="communication library"),
    Column("num_ok", "Valid launches", WHOLE, help="launches with a valid record / planned launches", is_shown=True),
    Column("num_planned", "Planned launches", WHOLE),
)


def cell_indices(campaign: FrozenCampaign) -> dict[str, int]:
    """Return the place of each cell in the data block by its id, for the attribute data-cell."""
    return {cell.id: index for index, cell in enumerate(campaign.all_cells)}


def data_block(data, warnings: Mapping[str, str] = EMPTY, marks: Mapping[str, str] = EMPTY) -> dict:
    """Return the data of the page's script. data: ReportData (of topics.base, which imports this package).

    warnings: topics of the warnings on a cell, by its id; marks: of those that mark it as invalid for comparison.
    """
    campaign, device, places = data.campaign, data.campaign.device, cell_indices(data.campaign)
    cells = campaign.all_cells
    tables, declared = data.tables, data.columns
    names = [campaign.cell_names[cell] for cell in places]
    words, files = Texts(), Texts()
    columns = {"id": list(places), "name": [name.full for name in names]}
    columns["command"] = [printable(cell.command) if cell.command else None for cell in cells]
    marked = {cell: ("\N{WARNING SIGN} " if cell in marks else "") + text for cell, text in warnings.items()}
    columns["warning"] = [words.index(marked.get(cell)) for cell in places]
    columns["invalid"] = [words.index(marks.get(cell)) for cell in places]
    stacks = {name: _stack_facts(stack) for name, stack in {cell.stack.name: cell.stack for cell in cells}.items()}
    columns["stack_facts"] = [words.index(stacks[cell.stack.name]) for cell in cells]
    launches, times = add_launches(columns, places, tables, words, files)
    baselines = {row.cell: row.baseline for row in table_rows(tables["cells"])}
    columns["baseline"] = [places.get(baselines.get(cell)) for cell in places]
    columns["curve"], curves = _curves([cell_row(cell) for cell in cells], tables, declared, device)
    numbers, texts, ends = _numbers(columns, places, tables, declared, device)
    if data.places:
        texts["slow"] = [data.places.get(cell) for cell in places]
        columns["slow"] = [re.sub(r" \(.*?\)", "", text or "") for text in texts["slow"]]
        numbers.append({"key": "slow", "label": "Slow node", "kind": "text", "is_shown": True, "group": "settings"})
        numbers[-1] |= {"is_share": True}
    texts["num_planned"] = [f"{num:,}" for num in columns["num_planned"]]
    counts = zip(columns["num_ok"], columns["num_planned"], strict=True)
    texts["main"] = _main_texts(numbers, texts, len(places))
    texts["num_ok"] = [f"{ok}/{num}" if num else NOT_PLANNED for ok, num in counts]
    statuses = columns["status"]
    facets, common = _facets(cells, names, statuses, {*columns, *NOT_CELLS})
    if marks:  # a filter value, not the status of a cell
        facets["status"]["values"].append("\N{WARNING SIGN} warning")
        facets["status"]["names"].append("warning")
    block = {
        "schema": 2,
        "columns": [*_settings(facets, cells, device), *numbers],
        "facets": {},
        "common": common,
        "cells": columns,
        "texts": texts,
        "ends": ends,
        "launches": launches,
        "times": times,
        "files": launch_files(files.all, data.headers),
        "comparisons": _comparisons(table_rows(tables["comparisons"]), places, declared["comparisons"], device),
        "curves": curves,
        "words": words.all,
    }
    for key, facet in facets.items():
        add_facet(block, key, facet)
    slower = {"slower": "cell", "faster": "reference"}  # which of a pair
    slow = [places.get(getattr(row, slower.get(row.verdict, ""), None)) for row in table_rows(tables["comparisons"])]
    return block | {"order": default_order(columns, facets, statuses, set(slow))}


def groups_of(block: dict, most: int) -> list[tuple[str, list[dict], list[int]]]:
    """Return each benchmark with the columns that its cells have, and its first cells. All in the table's order.

    most: cells of all benchmarks. Of a single benchmark, the name is empty.
    """
    cells, groups = block["cells"], defaultdict(list)
    for cell in block["order"]:
        groups[cells["benchmark"][cell] if "benchmark" in cells else None].append(cell)
    values = {of["key"]: block["texts"].get(of["key"]) or cells[of["key"]] for of in block["columns"] if of["is_shown"]}
    found = []
    for benchmark, rows in groups.items():
        known = {key for key, of in values.items() if any(of[cell] is not None for cell in rows)}
        name = "" if benchmark is None else block["facets"]["benchmark"]["values"][benchmark]
        found.append((name, [of for of in block["columns"] if of["key"] in known], rows[: most // len(groups)]))
    return found


def add_facet(block: dict, key: str, facet: Mapping) -> None:
    """Add a facet to a block, or replace the one with its key: the text of each value, and its index for each cell.

    Of each value also the text of its chip and what a search finds.
    """
    label, values = facet["label"], facet["values"]
    block["cells"][key] = facet["indices"]
    block["facets"][key] = {
        "label": label,
        "values": values,
        "names": facet["names"],
        "chips": [f"{label}: {text}" if NUMBER.fullmatch(text) else text for text in values],
        "search": [f"{text} {name}{_ranks_of(key, text)}" for text, name in zip(values, facet["names"], strict=True)],
    }


def figure_columns(figures: Iterable[Figure], places: Mapping[str, int]) -> dict[str, list[list]]:
    """Return the columns of the marks of figures, by the figure's id; of cells, their places in the block."""
    columns = {figure.id: figure.columns for figure in figures}
    return {name: [[places.get(cell, cell) for cell in of], *others] for name, (of, *others) in columns.items() if of}


def encoded(block: dict) -> str:
    """Return a block as gzip of JSON in base64: the same bytes for the same content."""
    text = json.dumps(block, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), LEVEL, mtime=0)).decode("ascii")


def decoded(text: str) -> dict:
    """Return the block that `encoded` wrote."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _stack_facts(stack: Stack) -> str:
    """Return what a stack is in one line: its name, kind, binds, and what it sets."""
    kind, image, binds = map(stack.settings.get, ("kind", "image_id", "binds"))
    parts = [f"image {image}"] if image else []
    parts += [f"binds {', '.join(binds)}"] if binds else []
    parts += [fact for fact in stack_texts(stack) if not fact.startswith("image ")]
    return printable("; ".join([f"{stack.name} ({kind or 'kind unknown'})", *parts]))


def default_order(columns: dict, facets: Collection[str], statuses: list[str], slower: Collection) -> list[int]:
    """Return the cells as the table lists them: failed ones, marked ones, slower ones, the others, skipped ones.

    Within these, the lowest efficiency relative to the median of its shape first; in a sweep, the slowest cell. Ties
    are in the order of the facets' values: model or operation, stack, shape, bucket size, then the others.
    """
    keys, unknown, marked = [key for key in facets if key != "status"], [None] * len(statuses), columns["invalid"]
    shapes, percents = columns.get("shape", unknown), columns.get("efficiency_percent", unknown)
    if "difference_percent" in columns:  # a sweep
        percents, marked, slower = [of and -of for of in columns["difference_percent"]], unknown, ()
    known = [(shape, percent) for shape, percent in zip(shapes, percents, strict=True) if percent is not None]
    usual = {shape: median(percent for of, percent in known if of == shape) for shape in dict(known)}

    def rank(index: int) -> tuple:
        status, percent = statuses[index], percents[index]
        is_problem = (status not in ("ok", "skipped"), marked[index] is not None, index in slower, status == "ok", True)
        below = math.inf if percent is None else percent - usual[shapes[index]]
        settings = (-1 if columns[key][index] is None else columns[key][index] for key in keys)
        return is_problem.index(True), WORST_FIRST.index(status), below, *settings

    return sorted(range(len(statuses)), key=rank)


def _facets(
    cells: Sequence[Cell], names: list[CellName], statuses: list[str], taken: Collection[str]
) -> tuple[dict[str, dict], list]:
    """Return the settings that not all cells share, by their key in a URL, and (label, text) of the others.

    taken: keys of the data block and of an address.
    """
    ranks = ranks_word(cells[0].device) if cells else "ranks"
    labels = LABELS | {"shape": f"Shape (nodes \N{MULTIPLICATION SIGN} {ranks})"}
    found = {"status": facet_of("Status", [marked_status(status) for status in statuses], statuses)}
    found["benchmark"] = facet_of("Benchmark", [cell.benchmark for cell in cells])
    for field in dict.fromkeys(field for name in names for field in name.parts):
        raw = None if field in ("shape", "version", "hosts") else [_raw(cell, field) for cell in cells]
        label = labels.get(field) or (all_axes()[field].label if field in all_axes() else field.replace("_", " "))
        key = f"setting_{field}" if field in taken else URL_KEYS.get(field, field)
        found[key] = facet_of(label, [name.parts.get(field) for name in names], raw)
    if len({cell.gpus_per_node for cell in cells}) > 1:  # else the shape says as much
        found["nodes"] = facet_of(LABELS["nodes"], [str(cell.nodes) for cell in cells])
    shared = [
        of for key, of in found.items() if key != "status" and len(of["values"]) == 1 and None not in of["indices"]
    ]
    common = [[of["label"], *of["values"]] for of in shared]
    # Also settings that only some benchmarks have, even if all of their cells share the value.
    shown = [key for key, of in found.items() if len(of["values"]) > 1 or None in of["indices"] or key == "status"]
    return {key: found[key] for key in sorted(shown, key=lambda key: (*FIRST_FACETS, *shown).index(key))}, common


def _raw(cell: Cell, field: str) -> object:
    """Return the value of a field as a campaign file has it."""
    return cell.field("model") or cell.field("operation") if field == "subject" else cell.field(field)


def facet_of(label: str, texts: list[str | None], raw: list | None = None) -> dict:
    """Return a facet with sorted values. raw: as a campaign file has them; they are the values in a URL if unique."""
    known = {text: value for text, value in zip(texts, raw or texts, strict=True) if text is not None}
    values = sorted(known, key=natural)
    if all(isinstance(value, int | float) for value in known.values()):
        values = sorted(known, key=known.__getitem__)  # 4 KiB before 1 MiB
    elif set(known.values()) <= set(OF_CELLS):
        values = sorted(known, key=lambda text: OF_CELLS.index(known[text]))
    names = {text: str(value).lower() if isinstance(value, bool) else str(value) for text, value in known.items()}
    if len(set(names.values())) < len(names):
        names = {text: text for text in names}
    place = {text: index for index, text in enumerate(values)}
    indices = [None if text is None else place[text] for text in texts]
    return {"label": label, "values": values, "names": [names[text] for text in values], "indices": indices}


def _ranks_of(key: str, text: str) -> str:
    """Return the number of ranks of a shape, as a search may name it; empty for other facets."""
    sizes = re.fullmatch(r"(\d+)\D(\d+)", text) if key == "shape" else None
    num = sizes and int(sizes[1]) * int(sizes[2])
    return f" {num} GPUs {num} processes" if num else ""


def _settings(facets: Mapping[str, dict], cells: Iterable[Cell], device: str) -> list[dict]:
    """Return the entries of names, facets with several values, and numbers of launches in the list of columns."""
    settings = {column.name: column for column in SETTINGS}
    helps = {name: {column.helps(device): None} for name, column in settings.items() if column.help}
    for benchmark in sorted({cell.benchmark for cell in cells} & set(benchmark_names())):
        for name, axis in axes_of(benchmark).items():
            helps.setdefault(URL_KEYS.get(name, name), {})[axis.help] = None
    listed = []
    varying = [key for key, facet in facets.items() if len(facet["values"]) > 1 or key == "status"]
    for key in ("id", "name", *varying, "num_ok", "num_planned"):
        column = settings.get(key, Column(key))
        kind = "facet" if key in facets else "number" if column.is_number else "text"
        label = facets[key]["label"] if key in facets else column.label
        entry = {"key": key, "label": label, "kind": kind, "is_shown": column.is_shown, "group": "settings"}
        listed.append(entry | ({"help": "; ".join(helps[key])} if key in helps else {}))
    return listed


def _numbers(
    columns: dict, places: Mapping, tables: Mapping, declared: Mapping[str, Columns], device: str
) -> tuple[list[dict], dict[str, list], dict[str, list]]:
    """Add each number with a known value to `columns`; return their entries in the list, their texts, and their ends.

    declared: the columns of each table. Two tables may have the same number of different cells.
    """
    listed, texts, ends, main, strips = {}, {}, {}, {}, {}
    of_cells = {name: table for name, table in declared.items() if table.is_of_cells}
    for name, table in of_cells.items():
        rows = [(places.get(row.cell), row) for row in table_rows(tables[name])]
        for column in (column for column in table.declared if column.label and column.is_number):
            key = column.block_key
            if column.shown_as == EACH and tables[name][column.name].notna().any():
                column = column.fitted(float(tables[name][column.name].min()))
            measured = itertools.compress(rows, tables[name][column.name].notna())
            values = [(*of, rounded(column.shown(getattr(of[1], column.name)))) for of in measured if of[0] is not None]
            known = [found for found in values if found[2] is not None]
            if column.is_main:
                known = [found for found in known if main.setdefault(found[0], key) == key]
            if not known:
                continue
            column = column.aligned([row for _, row, _ in known])
            lists = [of.setdefault(key, [None] * len(places)) for of in (columns, texts, ends, strips)]
            for place, row, value in known:
                found = (value, *(with_minus_signs(text) for text in (column.cell(row), _ends(column, row))))
                for values, text in zip(lists, (*found, column.is_main and _strip(column, row)), strict=True):
                    values[place] = text
            listed[key] = {"key": key, "label": column.heading(device), "kind": "number", "is_shown": column.is_shown}
            listed[key] |= {"group": column.group, "is_larger_worse": column.better != "larger"}
            listed[key] |= {"is_share": True} if key in SHARES else {}
            listed[key] |= {"strips": strips[key]} if column.is_main else {}
            more = {"note": column.note, "help": column.helps(device)}
            listed[key] |= {name: text for name, text in more.items() if text}
    return list(listed.values()), texts, ends


def _main_texts(numbers: list[dict], texts: Mapping[str, list], num_cells: int) -> list[str]:
    """Return the first shown result of each cell with its label. numbers: entries of the list of columns."""
    found = ["no result"] * num_cells
    for entry in reversed(numbers):
        if entry["is_shown"] and entry["group"] == "results":
            shown = (text and f"{entry['label']}: {text}" for text in texts[entry["key"]])
            found = [text or other for text, other in zip(shown, found, strict=True)]
    return found


def rounded(value: float | None) -> float | int | None:
    """Return a number with six significant digits, an integer where it is one; None if unknown or not finite."""
    if is_unknown(value) or not math.isfinite(value):
        return None
    number = float(f"{value:.6g}")
    return int(number) if number.is_integer() and abs(number) < 1e15 else number


def _ends(column: Column, row: Row) -> str:
    """Return the range or interval of a row's number; empty if it has none."""
    text = column.ends(row) if column.interval else ""
    return "" if text in (UNKNOWN, NOT_PLANNED) else text


def _strip(column: Column, row: Row) -> str | None:
    """Return the style of a strip (explore.css) from the low to the high end, with the value in the middle.

    A double line at both ends marks an interval that is longer than the strip.
    """
    value, low, high = column.of(row)
    if not value or low is None or high is None:
        return None
    low, high = (min(max(50 + 50 * (end / value - 1) / STRIP_RATIO, 0), 100) for end in (low, high))
    return f"--low:{low:.0f}%;--high:{high:.0f}%" + ";border-inline:3px double" * (low == 0 or high == 100)


def _lines(columns: Columns, group: str, row: Row, device: str, **words: str) -> list[tuple[str, str]]:
    """Return (label, text) of the columns of a group that are known. words: of the labels."""
    found = [
        column for column in columns.declared if column.group == group and not is_unknown(getattr(row, column.name))
    ]
    return [
        (column.heading(device, **words), with_minus_signs(f"{column.cell(row)} {_ends(column, row)}".strip()))
        for column in found
    ]


def _title(row: Row) -> str:
    result = "" if is_unknown(row.result_label) else f"{row.result_label}, "
    return f"{result}{row.axis}: {row.value} against {row.reference_value}"


def _comparisons(rows: list[Row], places: Mapping[str, int], columns: Columns, device: str) -> dict:
    rows = [row for row in rows if row.cell in places and row.reference in places]
    words = [{"other": row.value, "reference": row.reference_value} for row in rows]
    return {
        "cell": [places[row.cell] for row in rows],
        "reference": [places[row.reference] for row in rows],
        "title": [_title(row) for row in rows],
        "lines": [_lines(columns, OF_PAIR, row, device, **of) for row, of in zip(rows, words, strict=True)],
    }


def _curves(rows: list[dict], tables: Mapping, declared: Mapping[str, Columns], device: str) -> tuple[list, list]:
    """Return for each cell the place of its curve's lines, or None, and the lines of each curve."""
    lines: list[tuple] = [()] * len(rows)
    for table, columns in declared.items():
        benchmarks = {name for column in columns.declared if column.group == OF_CURVE for name in column.benchmarks}
        names = [name for name in columns if name in CELL]
        found = {}
        for row in table_rows(tables[table]) if benchmarks else ():
            values = (getattr(row, name) for name in names)
            key = tuple(None if is_unknown(value) else value for value in values)
            found[key] = tuple(_lines(columns, OF_CURVE, row, device))
        for index, row in enumerate(rows):
            if row["benchmark"] in benchmarks:
                lines[index] += found.get(tuple(row.get(name) for name in names), ())
    curves = {curve: place for place, curve in enumerate(dict.fromkeys(filter(None, lines)))}
    return [curves.get(curve) for curve in lines], list(curves)
