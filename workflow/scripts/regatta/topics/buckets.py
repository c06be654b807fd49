"""Best bucket size. Definitions: docs/metrics.md."""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby
from types import SimpleNamespace

from regatta.core.benchmarks import axes_of
from regatta.core.names import SEPARATOR
from regatta.core.text import any_of, natural, plural, shape
from regatta.kit.kinds import SUMMARY, Kind, Value
from regatta.report.findings import Finding, of_cells, percent_number
from regatta.report.matrix import EN_DASH, PLUS_MINUS, Matrix, Square, merged, shape_columns, shapes_caption
from regatta.report.panels import Section
from regatta.store.csv_files import SHAPE_COLUMNS, cell_row, grouped, plain_rows
from regatta.tables.amdahl import CURVE, SHAPE
from regatta.tables.metrics import STEP
from regatta.tables.settings import (
    EQUAL_RATIO,
    GROUP,
    SETTINGS,
    SettingsOfCells,
    highest_cost,
    settings_of,
    settings_table,
)
from regatta.topics.base import ReportData, TableSpec, Topic, headline_rows
from regatta.topics.status_matrix import square_of, statuses_by_cell
from regatta.topics.warnings_section import marks, warnings

WORST_TINT = 0.1  # slowdown with the full color: twice the default margin of comparisons
MOST_TABLES = 4  # of more, the fastest sizes are shown, and the tables are folded
NOTES = (
    "Number: pipelined step time (steps back to back), in percent above the fastest bucket size of the row. ±: distance"
    " to the upper end of its simultaneous 95 % CI",
)
DEFAULT = "25 MiB"  # of DDP in torch
NOTES_OF_FASTEST = (
    "Bucket sizes that are fastest, or within noise of the fastest",
    f"Second number and color: slowdown (%) at the default, {DEFAULT}; if not measured, at the slowest size",
)
STATES = {"best": "fastest", "near": "within noise of the fastest; no frame: significantly slower"}
STATES |= {"uncertain": "undecided (one launch)"}
MIB = " MiB"
STRATEGY = tuple(name for name, axis in axes_of("train_step").items() if axis.is_series)
WORKLOAD = tuple(name for name in CURVE if name not in (*STRATEGY, *SHAPE_COLUMNS))
CELLS = (*GROUP, "cell", "bucket_cap_mb", *STEP.names)
SHOWN = (*CELLS, "interval", "num_launches", "num_planned")


# The section: shapes down, bucket sizes across; of many workloads also the fastest sizes alone.


def bucket_squares(data: ReportData) -> list[list[Square]]:
    """Return the squares of each workload and stack, in the order of the campaign.

    A shape with one planned size has none, and a workload without a shape with two measured sizes.
    """
    settings, found = settings_of(data.tables["settings"], "bucket_cap_mb"), []
    cells = plain_rows(data.cells_of("train_step").dropna(subset=["bucket_cap_mb"]), SHOWN)
    skipped = map(cell_row, data.campaign.skipped)
    cells += [{name: row.get(name) for name in SHOWN} for row in skipped if row.get("bucket_cap_mb")]
    for rows in grouped(cells, tuple(name for name in GROUP if name not in SHAPE)).values():
        rows = sorted(rows, key=lambda row: (row["world_size"], row["nodes"], row["bucket_cap_mb"]))
        name = data.cell_names[rows[0]["cell"]].without("shape", "bucket_cap_mb")
        group, squares, is_known = (name.say(*name.parts, always=("subject",)),), [], False
        for place, of_shape in grouped(rows, SHAPE[:2]).items():
            by_size = grouped(of_shape, ("bucket_cap_mb",))
            best = _fastest_cell(of_shape)
            has_several = len({cell["bucket_cap_mb"] for cell in of_shape if cell["step_s"] is not None}) > 1
            if len(by_size) > 1:
                is_known |= has_several
                best = best if has_several else None
                num_near = sum(bool(settings[cell["cell"]].may_be_best) for cell in of_shape)
                here = group, shape(*place)
                squares += [_square(data, here, of, best, num_near, settings) for of in by_size.values()]
        found += [squares] if is_known else []
    places = {cell.id: place for place, cell in enumerate(data.campaign.all_cells)}
    return sorted(found, key=lambda squares: min(places[cell] for one in squares for cell in one.cells))


def _fastest_cell(cells: Iterable[dict]) -> dict | None:
    """Return the cell with the shortest step; None if none is measured. cells: the smallest bucket first."""
    return min((cell for cell in cells if cell["step_s"] is not None), key=lambda cell: cell["step_s"], default=None)


def _square(
    data: ReportData,
    here: tuple[tuple[str], str],
    cells: list[dict],
    best: dict | None,
    num_near: int,
    settings: SettingsOfCells,
) -> Square:
    """Return the square of one bucket size. here: its group and shape. best: the fastest of several measured sizes.

    num_near: sizes that may be the fastest; of several, none is marked as such.
    """
    group, place = here
    ids, size = tuple(cell["cell"] for cell in cells), cells[0]["bucket_cap_mb"]
    counts = sum((statuses_by_cell(data)[cell] for cell in ids), Counter())
    at, subject = (group, place, f"{size:g}{MIB}"), f"{SEPARATOR.join((*group, place))}, bucket {size:g}{MIB}"
    if not (cell := _fastest_cell(cells)):
        return square_of(at, ids, counts, subject)
    note = f"{STEP.label} {Value.of(SimpleNamespace(**cell), STEP)}, n = {cell['num_launches']}/{cell['num_planned']}"
    setting, ratio, states = settings[cell["cell"]], 0.0, []
    if best is not None:
        ratio = cell["step_s"] / best["step_s"] - 1
        is_best, is_open = size == best["bucket_cap_mb"], setting.low is None
        if not is_best:
            note += f"; {percent_number(ratio)} % above {best['bucket_cap_mb']:g} MiB"
            note += "; undecided" if is_open else f" ({setting.value:ends})"
        states = ["best"] if is_best and num_near == 1 else ["near"] if setting.may_be_best else []
        note += "; fastest" if is_best else "; within noise" if states else ""
        states += ["uncertain"] if is_open else []
    text = "0" if ratio == 0 else percent_number(ratio)
    if ratio and not is_open:
        text += f"{PLUS_MINUS}{percent_number(setting.high - setting.cost)}"
    values = ((setting.cost, setting.low, setting.high),) * (setting.low is not None)
    return square_of(at, ids, counts, subject, text=text, note=note, level=ratio, state=" ".join(states), values=values)


def _fastest(squares: list[Square]) -> Square:
    """Return the sizes of one shape that may be the fastest, and what the default costs. squares: by size."""
    measured = [one for one in squares if one.level is not None]
    states = {word for one in squares for word in one.state.split()}
    is_bad, title, place = not {"failed", "partial"}.isdisjoint(states), squares[0].group[0], squares[0].row
    subject, _, settings = title.partition(SEPARATOR)
    at, cells = ((subject,), settings, place), tuple(cell for one in squares for cell in one.cells)
    if len(measured) < 2:
        text = next(one.text for one in squares if one.level is None)
        return Square(*at, text, "failed" if is_bad else "missing", cells)
    sizes = [one.column.removesuffix(MIB) for one in measured]
    near = [number for number, one in enumerate(measured) if one.level == 0 or "near" in one.state.split()]
    is_range = near[-1] - near[0] == len(near) - 1
    text = EN_DASH.join(dict.fromkeys((sizes[near[0]], sizes[near[-1]]))) if is_range else plural(len(near), "size")
    slowest = max(measured, key=lambda one: one.level)
    default = next((one for one in measured if one.column == DEFAULT), slowest)
    note = f"{title}, {place}: fastest {', '.join(sizes[number] for number in near)}{MIB};"
    note += f" slowest {slowest.column}, {percent_number(slowest.level)} % slower"
    state = "partial" if is_bad else "uncertain" if "uncertain" in states else ""
    return Square(*at, text, state, cells, note, default.level, beside=f"+{percent_number(default.level)}")


def section(data: ReportData) -> Section | None:
    tables = bucket_squares(data)
    if not tables:
        return None
    by, fields = shapes_caption(data.device), {"states": STATES, "scale": (0, WORST_TINT), "kind": "above"}
    fold = f"Show all {len(tables)} tables" if len(tables) > MOST_TABLES else ""
    squares = merged((one for table in tables for one in table), {*data.places, *marks(data, warnings(data))})
    sizes = tuple(sorted({one.column for one in squares}, key=natural))
    matrices = [Matrix(f"{by}, by bucket size", sizes, squares, "Bucket sizes", NOTES, fold=fold, **fields)]
    if fold:
        squares = tuple(_fastest(list(of)) for table in tables for _, of in groupby(table, key=lambda one: one.row))
        shapes, used = shape_columns(cell.shape for cell in data.campaign.all_cells), {one.column for one in squares}
        fields |= {"columns": tuple(place for place in shapes if place in used), "notes": NOTES_OF_FASTEST}
        caption, label = f"{by}: fastest sizes (MiB)", "Fastest bucket sizes"
        matrices.insert(0, Matrix(caption, squares=squares, label=label, most_open=0, **fields))
    content, state = {"matrices": matrices}, (plural(len(tables), "table"), "quiet")
    return Section(template="matrix.html.j2", content=content, state=state)


KINDS = (
    Kind(
        *("bucket", SUMMARY),
        lead=(
            "Bucket size: any; these differ by at most {equal} (95 % CI)",
            "Bucket size: no winner yet; the choice costs up to {upper}",
            "Bucket size: best is {best}",
            "Bucket size: undecided, one launch per cell",
        ),
        parts=(
            "fastest: {fastest:g} MiB",
            ("these differ by at most {near_equal} (95 % CI)", "uncertain, may cost up to {near_upper}"),
            "in {num_agreeing} of {num} {groups}",
            "undecided in {num_untested} of {num_workloads} {groups}",
            "undecided: {undecided_mb:g} MiB",
            (
                "{worst_bucket_cap_mb:g} MiB: {up_to} {worst_cost_ratio:number} slower",
                "{worst_bucket_cap_mb:g} MiB: {worst_cost_ratio:number} slower ({worst_cost_ratio:ends})",
            ),
        ),
        place=2,
        term="Best bucket",
        help="The size with the lowest pipelined step time, or one within noise of it: multiple comparisons with the"
        f" best, 95 %. Equal: the interval of each cost ends at or below {100 * EQUAL_RATIO:g} %. Undecided: one"
        " launch.",
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the bucket sizes that may be best at the largest shape."""
    settings = settings_of(data.tables["settings"], "bucket_cap_mb")
    rows = plain_rows(data.cells_of("train_step").dropna(subset=["bucket_cap_mb", "step_s"]), CELLS)
    groups = [sorted(cells, key=lambda cell: cell["step_s"]) for cells in grouped(rows, GROUP).values()]
    groups = [cells for cells in groups if len(cells) > 1]
    largest = max((cells[0]["world_size"] for cells in groups), default=1)
    chosen = [cells for cells in groups if cells[0]["world_size"] == largest > 1]
    chosen = headline_rows(data, chosen, lambda cells: {cell["cell"] for cell in cells})
    return [_summary(chosen, settings)] if chosen else []


def groups_text(groups: list[list[dict]]) -> str:
    """Return what several groups of cells are: `workloads`, or `workload/stack pairs`."""
    fields = {"workload": WORKLOAD, "strategy": STRATEGY, "stack": ("stack", "backend"), "shape": SHAPE}
    kinds = {
        what: {tuple(of[0][name] for name in names if name in GROUP) for of in groups} for what, names in fields.items()
    }
    varied = [what for what, found in kinds.items() if len(found) > 1]
    if len(varied) < 2:
        return "strategies" if varied == ["strategy"] else f"{[*varied, 'workload'][0]}s"
    return f"{'/'.join(varied)} {'pairs' if len(varied) == 2 else 'combinations'}"


def _most_costly(cells: list[dict], settings: SettingsOfCells) -> dict | None:
    """Return the cell with the highest cost that is significant over all rows.

    Its interval is of one row, so that the highest of several cannot claim it.
    """
    costly = [cell for cell in cells if settings[cell["cell"]].is_costly]
    return max(costly, key=lambda cell: settings[cell["cell"]].cost, default=None)


def _summary(groups: list[list[dict]], settings: SettingsOfCells) -> Finding:
    """Return the sizes that may be best in most workloads. groups: cells of each workload, the fastest first.

    A size counts unless its cost is significant over all workloads, of which one in twenty would exclude it by chance.
    """

    def sizes(cells: Iterable[dict]) -> list[float]:
        return sorted({cell["bucket_cap_mb"] for cell in cells})

    every = [cell for cells in groups for cell in cells]
    is_open = {cell["cell"]: settings[cell["cell"]].may_be_best is None for cell in every}
    tested = [cells for cells in groups if not all(is_open[cell["cell"]] for cell in cells)]
    near = [[cell for cell in cells if not settings[cell["cell"]].is_costly] for cells in tested]
    near = near or [cells[:1] for cells in groups]
    counts = Counter(size for cells in near for size in sizes(cells))
    num_best = max(counts.values())
    chosen = sorted(size for size, num in counts.items() if num == num_best)
    undecided = sizes(cell for cells in tested for cell in cells if is_open[cell["cell"]])
    values = {"world_size": groups[0][0]["world_size"], "bucket_cap_mb": chosen}
    values |= {"num_best": num_best, "num": len(near), "undecided_mb": undecided}
    if worst := _most_costly([cell for cell in every if cell["bucket_cap_mb"] not in chosen], settings):
        values |= {"worst_bucket_cap_mb": worst["bucket_cap_mb"], "worst_cost_ratio": settings[worst["cell"]].value}
    words = {
        "num_agreeing": num_best if num_best < len(near) else None,
        "up_to": "up to" if len(near) > 1 else "",
        "num_untested": len(groups) - len(tested) if tested else None,
        "num_workloads": len(groups),
        "groups": groups_text(groups),
    }
    cost = highest_cost([cell["cell"] for cells in near for cell in cells if cell["bucket_cap_mb"] in chosen], settings)
    if not tested:
        words["fastest"] = chosen
    elif near == tested and not undecided:
        words |= cost
    else:
        words["best"] = any_of([f"{size:g}" for size in chosen]) + " MiB"
        words |= {f"near_{name}": text for name, text in cost.items()} if len(chosen) > 1 else {}
    words["mark"] = "equal" if "equal" in words else "measured" if "best" in words else "uncertain"
    cells = tuple(cell["cell"] for cell in every)
    return Finding("bucket", values, (of_cells("cells", cells),), cells, words=words)


TABLES = {"settings": TableSpec.of(SETTINGS, settings_table, "cells", "measurements")}
TOPIC = Topic(*("bucket", "Bucket size", TABLES, section, findings), kinds=KINDS, benchmarks=("train_step",))
