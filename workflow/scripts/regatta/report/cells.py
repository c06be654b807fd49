"""All cells of a campaign in one compact data block, for the filters, cell drawer and table of the page's script.

All numbers are those of the tables, in the unit of their label, with six significant digits. docs/contracts.md
describes the block.
"""

import base64
import gzip
import json
from collections.abc import Collection, Mapping
from types import MappingProxyType

import pandas as pd

from regatta.core.benchmarks import all_axes, axes_of, benchmark_names
from regatta.core.names import CellName
from regatta.core.text import NOT_PLANNED, UNKNOWN, is_unknown, natural, rank_word, ranks_word, three
from regatta.core.verdicts import verdict_text
from regatta.kit.columns import INTERVAL_ENDS, Column
from regatta.report.block_values import Texts, column_values, printable, rounded
from regatta.report.cell_launches import WORST_FIRST, add_launches, launch_files
from regatta.report.cell_numbers import DERIVED, SETTINGS, with_derived
from regatta.report.page import STATUSES, marked_status
from regatta.report.rows import table_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL

MOST_STATIC_ROWS = 50  # of the table without script
URL_KEYS = {"subject": "model", "bucket_cap_mb": "bucket"}  # other facets have the name of their field
# Not a facet's key: other columns of a cell, and other keys of an address.
RESERVED = {"id", "name", "status", "num_ok", "num_planned", "num_launches", "row", "command", "reason", "baseline"}
RESERVED |= {"prediction", "rejected_fit", "stack_facts", "warning", "invalid", "cell", "search", "sort"}
EMPTY: Mapping[str, str] = MappingProxyType({})
FIRST_FACETS = ("model", "stack", "shape", "bucket")
LABELS = {"nodes": "Nodes", "stack": "Stack", "backend": "Backend", "version": "Version", "hosts": "Nodes measured"}
TABLES_WITH_LAUNCHES = ("scaling", "collectives", "training_runs", "batch_norms", "launch_ranges")
COMPARED = {
    "ratio": "time_ratio",
    "low": "time_low_ratio",
    "high": "time_high_ratio",
    "p_value": "p_value",
    "p_adjusted": "p_adjusted",
    "margin": "margin_ratio",
    "launches_needed": "launches_needed",
    "num_launches": "num_launches",
    "num_reference_launches": "num_reference_launches",
}
PREDICTED = {
    "best_mib": "best_bucket_cap_mb",
    "predicted_mib": "predicted_bucket_mib",
    "low_mib": "predicted_low_mib",
    "high_mib": "predicted_high_mib",
    "ratio": "predicted_to_best_ratio",
}


def campaign_cells(campaign: dict) -> list[dict]:
    """Return the cells in the order of the data block: those to measure, then the skipped ones."""
    return [*campaign["cells"], *campaign["skipped"]]


def cell_indices(campaign: dict) -> dict[str, int]:
    """Return the place of each cell in the data block by its id, for the attribute data-cell."""
    return {cell["id"]: index for index, cell in enumerate(campaign_cells(campaign))}


def data_block(data, warnings: Mapping[str, str] = EMPTY, marks: Mapping[str, str] = EMPTY) -> dict:
    """Return the data of the page's script. data: ReportData (of topics.base, which imports this package).

    warnings: topics of the warnings on a cell, by its id; marks: of those that mark it as invalid for comparison.
    """
    cells, tables = campaign_cells(data.campaign), with_derived(data.tables)
    places = cell_indices(data.campaign)
    names = [data.cell_names[cell] for cell in places]
    texts = {name: Texts() for name in ("statuses", "causes", "files", "logs", "intervals", "words")}
    columns = {"id": list(places), "name": [name.full for name in names]}
    columns["command"] = [printable(cell["command"]) if cell.get("command") else None for cell in cells]
    marked = {cell: ("\N{WARNING SIGN} " if cell in marks else "") + text for cell, text in warnings.items()}
    columns["warning"] = [texts["words"].index(marked.get(cell)) for cell in places]
    columns["invalid"] = [texts["words"].index(marks.get(cell)) for cell in places]
    columns["stack_facts"] = [texts["words"].index(_stack_facts(cell["spec"]["stack"])) for cell in cells]
    launches = add_launches(columns, places, tables, texts)
    statuses = columns["status"]
    numbers = [
        (table, column)
        for table, declared in {**data.columns, **DERIVED}.items()
        for column in declared.declared
        if column.label and column.is_number
    ]
    facets, common = _facets(cells, names, statuses, {column.block_key for _, column in numbers})
    columns |= {key: facet.pop("indices") for key, facet in facets.items()}
    if marks:  # a filter value, not the status of a cell
        facets["status"]["values"].append("\N{WARNING SIGN} warning")
        facets["status"]["names"].append("warning")
    listed_numbers = _numbers(columns, places, tables, numbers, data.device, texts)
    columns["baseline"] = _by_cell(tables["scaling"], "baseline", places, lambda cell: places.get(cell))
    rows = [cell_row(cell) for cell in cells]
    columns["prediction"], predictions = _predictions(rows, tables["buckets"], texts)
    columns["rejected_fit"] = _rejected_fits(rows, tables, texts)
    settings = {column.name: column for column in SETTINGS}
    helps = {name: {column.helps(data.device): None} for name, column in settings.items() if column.help}
    for benchmark in sorted({cell["spec"]["benchmark"] for cell in cells} & set(benchmark_names())):
        for name, axis in axes_of(benchmark).items():
            helps.setdefault(URL_KEYS.get(name, name), {})[axis.help] = None
    listed = []
    for key in ("id", "name", *facets, "num_ok", "num_planned"):
        column = settings.get(key, Column(key))
        kind = "facet" if key in facets else "number" if column.is_number else "text"
        label = facets[key]["label"] if key in facets else column.label
        listed.append({"key": key, "label": label, "kind": kind, "digits": 3, "is_shown": column.is_shown})
        listed[-1] |= {"group": "settings"} | ({"help": "; ".join(helps[key])} if key in helps else {})
    return {
        "schema": 1,
        "rank": rank_word(data.device),
        "columns": [*listed, *listed_numbers],
        "facets": facets,
        "common": common,
        "cells": columns,
        "order": default_order(columns, facets, statuses),
        "launches": launches,
        "files": launch_files(texts["files"].all, data.headers, tables["launches"]),
        "comparisons": _comparisons(tables["comparisons"], places, texts),
        "predictions": predictions,
        "texts": {name: of.all for name, of in texts.items()},
    }


def encoded(block: dict) -> str:
    """Return a block as gzip of JSON in base64: the same bytes for the same content."""
    text = json.dumps(block, ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode("ascii")


def decoded(text: str) -> dict:
    """Return the block that `encoded` wrote."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _by_cell(table: pd.DataFrame, column: str, places: Mapping[str, int], show=rounded) -> list:
    """Return a column of a table with one row per cell, in the order of the block."""
    found = [None] * len(places)
    for cell, value in zip(table["cell"].to_numpy(dtype=object), column_values(table, column), strict=True):
        if cell in places and value is not None:
            found[places[cell]] = show(value)
    return found


def _stack_facts(stack: dict) -> str:
    """Return what a stack is in one line: its name, kind, image and binds."""
    image = [f"image {stack['image_id']}"] if stack.get("image_id") else []
    binds = [f"binds {', '.join(stack['binds'])}"] if stack.get("binds") else []
    return printable("; ".join([f"{stack['name']} ({stack.get('kind') or 'kind unknown'})", *image, *binds]))


def default_order(columns: dict, facets: Collection[str], statuses: list[str]) -> list[int]:
    """Return the cells as the table lists them: failed ones, the least efficient, the others, skipped ones.

    Ties are in the order of the facets' values: model or operation, stack, shape, bucket size, then the others.
    """
    efficiency = columns.get("efficiency_percent", [None] * len(statuses))
    keys = [key for key in facets if key != "status"]

    def rank(index: int) -> tuple:
        status, percent = statuses[index], efficiency[index]
        group = 3 if status == "skipped" else 0 if status != "ok" else 2 if percent is None else 1
        settings = (-1 if columns[key][index] is None else columns[key][index] for key in keys)
        return group, WORST_FIRST.index(status), percent if group == 1 else 0, *settings

    return sorted(range(len(statuses)), key=rank)


def _facets(
    cells: list[dict], names: list[CellName], statuses: list[str], numbers: Collection[str]
) -> tuple[dict[str, dict], list]:
    """Return the settings that vary, by their key in a URL, and (label, text) of those that all cells share.

    numbers: keys that are taken.
    """
    benchmarks = {cell["spec"]["benchmark"] for cell in cells}
    fields = list(dict.fromkeys(field for name in names for field in name.parts))
    found = {"benchmark": ("Benchmark", [cell["spec"]["benchmark"] for cell in cells], None)}
    ranks = ranks_word(cells[0]["spec"]["device"]) if cells else "ranks"
    labels = LABELS | {"subject": _subject_label(benchmarks), "shape": f"Shape (nodes \N{MULTIPLICATION SIGN} {ranks})"}
    for field in fields:
        raw = None if field in ("shape", "version", "hosts") else [_raw(cell["spec"], field) for cell in cells]
        label = labels.get(field) or (all_axes()[field].label if field in all_axes() else field.replace("_", " "))
        key = f"setting_{field}" if field in RESERVED or field in numbers else URL_KEYS.get(field, field)
        found[key] = (label, [name.parts.get(field) for name in names], raw)
    if len({cell["spec"]["gpus_per_node"] for cell in cells}) > 1:  # else the shape says as much
        found["nodes"] = (LABELS["nodes"], [str(cell["spec"]["nodes"]) for cell in cells], None)
    facets = {"status": _facet("Status", [marked_status(status) for status in statuses], statuses)}
    facets |= {key: _facet(label, texts, raw) for key, (label, texts, raw) in found.items()}
    common = [
        [facet["label"], facet["values"][0]]
        for facet in facets.values()
        if len(facet["values"]) == 1 and None not in facet["indices"]
    ]
    shown = [key for key in dict.fromkeys((*FIRST_FACETS, "status", *facets)) if key in facets]
    return {key: facets[key] for key in shown if len(facets[key]["values"]) > 1 or key == "status"}, common


def _subject_label(benchmarks: Collection[str]) -> str:
    are_collectives = {benchmark == "collective" for benchmark in benchmarks}
    return {(True,): "Operation", (False,): "Model"}.get(tuple(are_collectives), "Model or operation")


def _raw(spec: dict, field: str) -> object:
    """Return the value of a field as a campaign file has it."""
    if field == "subject":
        return spec["parameters"].get("model") or spec["parameters"].get("operation")
    return spec["stack"]["name"] if field == "stack" else spec.get(field, spec["parameters"].get(field))


def _facet(label: str, texts: list[str | None], raw: list | None) -> dict:
    """Return a facet with sorted values. raw: as a campaign file has them; they are the values in a URL if unique."""
    known = {text: value for text, value in zip(texts, raw or texts, strict=True) if text is not None}
    values = sorted(known, key=natural)
    if all(isinstance(value, int | float) for value in known.values()):
        values = sorted(known, key=known.__getitem__)  # 4 KiB before 1 MiB
    elif set(known.values()) <= set(STATUSES):
        values = sorted(known, key=lambda text: STATUSES.index(known[text]))
    names = {text: str(value).lower() if isinstance(value, bool) else str(value) for text, value in known.items()}
    if len(set(names.values())) < len(names):
        names = {text: text for text in names}
    place = {text: index for index, text in enumerate(values)}
    indices = [None if text is None else place[text] for text in texts]
    return {"label": label, "values": values, "names": [names[text] for text in values], "indices": indices}


def _numbers(
    columns: dict,
    places: Mapping,
    tables: Mapping,
    numbers: list[tuple[str, Column]],
    device: str,
    texts: Mapping[str, Texts],
) -> list[dict]:
    """Add each number with a known value to `columns`, with its interval; return their entries in the list.

    numbers: (table, column). Two tables may have the same number of different cells.
    """
    listed: dict[str, dict] = {}
    times: list[str] = []
    for table, column in numbers:
        key, found = column.block_key, _number(column, places, tables[table], texts)
        if column.is_main:
            others = [columns[time] for time in times]
            found = {end: _where_unknown(values, others) for end, values in found.items()}
        if all(value is None for value in found[""]):
            continue
        times += [key] if column.is_main else []
        for end, values in found.items():
            before = columns.get(f"{key}{end}", [None] * len(places))
            columns[f"{key}{end}"] = [b if a is None else a for a, b in zip(values, before, strict=True)]
        listed[key] = {"key": key, "label": column.heading(device), "kind": "number", "digits": 3}
        listed[key] |= {"is_shown": column.is_shown, "group": column.group}
        listed[key]["is_larger_worse"] = column.better != "larger"
        more = {"note": column.note, "help": column.helps(device)}
        listed[key] |= {name: text for name, text in more.items() if text}
    columns["num_launches"] = [None] * len(places)
    for name in TABLES_WITH_LAUNCHES:
        nums = _by_cell(tables[name], "num_launches", places)
        columns["num_launches"] = [b if a is None else a for a, b in zip(columns["num_launches"], nums, strict=True)]
    return list(listed.values())


def _number(column: Column, places: Mapping, table: pd.DataFrame, texts: Mapping[str, Texts]) -> dict[str, list]:
    """Return the values of a number, and of the ends and kind of its interval if it has one."""
    found = {
        end: _by_cell(table, name, places, lambda value: rounded(column.shown(value)))
        for end, name in zip(INTERVAL_ENDS, column.names, strict=False)
    }
    if column.interval:
        found["_interval"] = _by_cell(table, column.interval, places, texts["intervals"].index)
    return found


def _where_unknown(values: list, others: list[list]) -> list:
    """Return values, but None where one of the others is known."""
    return [None if any(of[i] is not None for of in others) else value for i, value in enumerate(values)]


def _comparisons(table: pd.DataFrame, places: Mapping[str, int], texts: Mapping[str, Texts]) -> dict:
    pairs = zip(table["cell"], table["reference"], strict=True)
    table = table.loc[[cell in places and reference in places for cell, reference in pairs]]
    words = ("axis", "value", "reference_value", "test")
    return {
        "cell": [places[cell] for cell in table["cell"]],
        "reference": [places[cell] for cell in table["reference"]],
        "interval": [texts["intervals"].index(kind) for kind in table["interval"]],
        **{name: [rounded(value) for value in column_values(table, column)] for name, column in COMPARED.items()},
        **{name: [texts["words"].index(word) for word in table[name]] for name in words},
        "verdict": [
            texts["words"].index(None if is_unknown(row.verdict) else verdict_text(row)) for row in table_rows(table)
        ],
    }


def _keyed(table: pd.DataFrame) -> tuple[list[str], dict[tuple, int]]:
    """Return the columns that describe the cells of a row, and the row by their values."""
    names = [name for name in table if name in CELL]
    rows = zip(*(column_values(table, name) for name in names), strict=True)
    return names, {key: index for index, key in enumerate(rows)}


def _predictions(rows: list[dict], buckets: pd.DataFrame, texts: Mapping[str, Texts]) -> tuple[list, dict]:
    """Return for each cell its row of tables/buckets.csv, and the columns of these rows."""
    names, by_key = _keyed(buckets)
    is_bucketed = ((row["benchmark"] == "train_step" and row.get("bucket_cap_mb") is not None) for row in rows)
    indices = [
        by_key.get(tuple(row.get(name) for name in names)) if is_one else None
        for row, is_one in zip(rows, is_bucketed, strict=True)
    ]
    found = {name: [rounded(value) for value in column_values(buckets, column)] for name, column in PREDICTED.items()}
    found |= {
        name: [texts["words"].index(value) for value in column_values(buckets, name)]
        for name in ("indistinguishable_mb", "source", "reason")
    }
    return indices, found


def _rejected_fits(rows: list[dict], tables: Mapping, texts: Mapping[str, Texts]) -> list:
    """Return for each cell why its curve has no model or prediction; None if it has, or there is no curve."""
    found: list = [None] * len(rows)
    for name, benchmark in (("scaling_models", "train_step"), ("communication_models", "collective")):
        names, by_key = _keyed(tables[name])
        refusals = [texts["words"].index(value) for value in column_values(tables[name], "refusal")]
        for index, row in enumerate(rows):
            key = tuple(row.get(column) for column in names)
            if row["benchmark"] == benchmark and key in by_key:
                found[index] = refusals[by_key[key]]
    return found


# The table of a page without script.


def static_rows(block: dict) -> dict:
    """Return headings, rows (index, texts), marks by index, number of cells, and (label, definition) of columns.

    At most MOST_STATIC_ROWS rows, in the default order.
    """
    shown = [column for column in block["columns"] if column["is_shown"]]
    chosen, words = block["order"][:MOST_STATIC_ROWS], block["texts"]["words"]
    return {
        "columns": shown,
        "rows": [(index, [_text(block, column, index) for column in shown]) for index in chosen],
        "marks": {index: words[word] for index in chosen if (word := block["cells"]["invalid"][index]) is not None},
        "num_cells": len(block["order"]),
        "definitions": [(column["label"], column["help"]) for column in block["columns"] if "help" in column],
    }


def _text(block: dict, column: dict, index: int) -> str:
    """Return the text of one cell's column, as the script shows it."""
    value = block["cells"][column["key"]][index]
    if column["key"] == "num_ok":
        num_planned = block["cells"]["num_planned"][index]
        return f"{value}/{num_planned}" if num_planned else NOT_PLANNED
    if value is None:
        return UNKNOWN
    if column["kind"] == "facet":
        return block["facets"][column["key"]]["values"][value]
    return three(value, column["digits"]) if column["kind"] == "number" else value
