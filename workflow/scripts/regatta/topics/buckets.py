"""Best bucket size: tables/buckets.csv. Definitions: docs/metrics.md."""

from collections import Counter
from collections.abc import Iterable
from types import SimpleNamespace

import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.text import (
    any_of,
    interval_heading,
    natural,
    plural,
    ranks_word,
    shape,
)
from regatta.kit.columns import OF_CURVE, TEXT, WHOLE, Column, Columns
from regatta.kit.kinds import RESULT, SUMMARY, Kind
from regatta.report.findings import Finding, of_cells, percent_number
from regatta.report.matrix import Group, Matrix, MatrixRow, Square, shapes_in_order
from regatta.report.page import count_failed
from regatta.report.panels import Section
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, make_table
from regatta.tables.cells import rows_of
from regatta.tables.metrics import STEP
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, headline_rows, plain_rows
from regatta.topics.bucket_overview import bucket_overview
from regatta.topics.fits.scaling import CURVE, SHAPE
from regatta.topics.settings import (
    EQUAL_RATIO,
    GROUP,
    SETTINGS,
    Setting,
    cost_of,
    highest_cost,
    is_costly,
    settings_of,
    settings_table,
)
from regatta.topics.status_matrix import square_without_value, statuses_by_cell

WORST_TINT = 0.5  # slowdown with the full color
MOST_MATRICES, MOST_BESIDE = 4, 2  # tables that are shown; of more, the most different beside an overview
SHOWN = ("interval", "num_launches", "num_planned")

STRATEGY = tuple(name for name, axis in axes_of("train_step").items() if axis.is_series)
WORKLOAD = tuple(name for name in CURVE if name not in (*STRATEGY, *SHAPE_COLUMNS))
CELLS = (*GROUP, "cell", "bucket_cap_mb", *STEP.names)
BEST = "fastest bucket size, and its `step_s`. Empty with fewer than two measured sizes"
OTHERS = "the others that may be the best, or `none`. Empty if undecided"
BUCKETS = Columns(
    *(Column(name, type=CELL[name]) for name in GROUP),
    Column("num_buckets", type=WHOLE, help="number of measured bucket sizes"),
    Column("best_bucket_cap_mb", "fastest bucket", group=OF_CURVE, help=BEST),
    Column("best_step_s", help=BEST),
    Column("indistinguishable_mb", "within noise of it", TEXT, group=OF_CURVE, help=OTHERS),
)


def buckets_table(cells: pd.DataFrame, settings: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each workload, strategy with buckets, shape and stack of several ranks.

    settings: as `settings_table` makes it.
    """
    by_cell, scaling = settings_of(settings, "bucket_cap_mb"), rows_of(cells, "train_step")
    is_synchronized = scaling["bucket_cap_mb"].notna() & (scaling["world_size"] > 1)
    groups = grouped(plain_rows(scaling[is_synchronized], CELLS), GROUP)
    rows = [dict(zip(GROUP, key, strict=True)) | _best(cells, by_cell) for key, cells in groups.items()]
    return make_table(rows, BUCKETS)


def _best(cells: list[dict], settings: dict[str, Setting]) -> dict:
    """Return the bucket size of the fastest step, and the others that may be the best; unknown if undecided."""
    measured = sorted((cell for cell in cells if cell["step_s"] is not None), key=lambda cell: cell["bucket_cap_mb"])
    row = {"num_buckets": len({cell["bucket_cap_mb"] for cell in measured}), "best_bucket_cap_mb": None}
    if row["num_buckets"] < 2:
        return row
    best, *others = sorted(measured, key=lambda cell: cell["step_s"])
    row |= {"best_bucket_cap_mb": best["bucket_cap_mb"], "best_step_s": best["step_s"]}
    if settings[best["cell"]].may_be_best is None:
        return row
    near = {cell["bucket_cap_mb"] for cell in others if settings[cell["cell"]].may_be_best}
    return row | {"indistinguishable_mb": ", ".join(f"{bucket:g}" for bucket in sorted(near)) or "none"}


# The section: a small matrix for each workload and stack.


def bucket_matrices(data: ReportData) -> tuple[Matrix, ...]:
    """Return a matrix for each workload and stack, the most different bucket sizes first: shapes down, sizes across.

    A shape with one planned size has no row; a workload without a shape with two measured sizes has no matrix.
    """
    statuses, settings = statuses_by_cell(data.measurements), settings_of(data.tables["settings"], "bucket_cap_mb")
    cells = plain_rows(data.cells_of("train_step").dropna(subset=["bucket_cap_mb"]), (*CELLS, *SHOWN))
    skipped = map(cell_row, data.campaign.skipped)
    cells += [{name: row.get(name) for name in (*CELLS, *SHOWN)} for row in skipped if row.get("bucket_cap_mb")]
    found = []
    for rows in grouped(cells, tuple(name for name in GROUP if name not in SHAPE)).values():
        rows = sorted(rows, key=lambda row: (row["world_size"], row["nodes"]))
        by_shape = {shape(*key): grouped(group, ("bucket_cap_mb",)) for key, group in grouped(rows, SHAPE[:2]).items()}
        by_shape = {place: by_size for place, by_size in by_shape.items() if len(by_size) > 1}
        sizes = sorted({size for by_size in by_shape.values() for (size,) in by_size})
        lines, is_known = [], False
        for place, by_size in by_shape.items():
            best = _best([cell for group in by_size.values() for cell in group], settings)
            is_known |= best["num_buckets"] > 1
            squares = (_square(place, by_size.get((size,)), best, statuses, settings) for size in sizes)
            lines.append(MatrixRow(place, tuple(squares)))
        if is_known:
            name = data.cell_names[rows[0]["cell"]].without("shape", "bucket_cap_mb")
            title = name.say(*name.parts, always=("subject",))
            found.append(Matrix(title, tuple(f"{size:g} MiB" for size in sizes), (Group(title, tuple(lines)),)))

    def largest_level(matrix: Matrix) -> float:
        return max(square.level or 0 for row in matrix.groups[0].rows for square in row.squares if square)

    return tuple(sorted(found, key=lambda matrix: (-largest_level(matrix), natural(matrix.caption))))


def _square(
    place: str, cells: list[dict] | None, best: dict, statuses: dict[str, Counter], settings: dict[str, Setting]
) -> Square | None:
    """Return the square of one bucket size of one shape, None where it was not planned. best: of `_best`."""
    if cells is None:
        return None
    ids, size = tuple(cell["cell"] for cell in cells), cells[0]["bucket_cap_mb"]
    counts, note = sum((statuses[cell] for cell in ids), Counter()), f"{place}, bucket {size:g} MiB"
    measured = [cell for cell in cells if cell["step_s"] is not None]
    if not measured:
        return square_without_value(note, ids, counts)
    cell = min(measured, key=lambda cell: cell["step_s"])
    ratio = cell["step_s"] / best.get("best_step_s", cell["step_s"]) - 1
    setting, row = settings[cell["cell"]], SimpleNamespace(**cell)
    is_best, is_near = size == best["best_bucket_cap_mb"], setting.may_be_best is True
    note += f": {STEP.label} {STEP.cell(row)} ms, {interval_heading([cell['interval']])} {STEP.ends(row)},"
    note += f" n = {cell['num_launches']}/{cell['num_planned']}"
    if not is_best and best["num_buckets"] > 1:
        note += f"; {percent_number(ratio)} % above {best['best_bucket_cap_mb']:g} MiB"
        note += "; undecided" if setting.low is None else f" ({cost_of(setting):ends})"
    note += "; fastest" if is_best else "; within noise" if is_near else ""
    states = {"best": is_best, "near": is_near and not is_best, "partial": count_failed(counts)}
    states["incomplete"] = counts.total() > counts["ok"] and not states["partial"]
    states["uncertain"] = best["num_buckets"] > 1 and setting.low is None
    text = "0" if ratio == 0 else percent_number(ratio)
    return Square(text, ratio / WORST_TINT, " ".join(state for state, is_so in states.items() if is_so), ids, note)


def section(data: ReportData) -> Section | None:
    matrices = bucket_matrices(data)
    if not matrices:
        return None
    ranks, overview, most_shown = ranks_word(data.device), None, MOST_MATRICES
    if len(matrices) > MOST_MATRICES:
        rows = sorted(matrices, key=lambda matrix: natural(matrix.caption))
        shapes = [shape(*place) for place in shapes_in_order(data.campaign.all_cells)]
        overview, most_shown = bucket_overview(rows, shapes, ranks, WORST_TINT), MOST_BESIDE
    content = {"matrices": matrices, "most_shown": most_shown, "ranks": ranks, "overview": overview}
    state = (plural(len(matrices), "table"), "quiet")
    return Section("bucket", "Bucket size", template="settings.html.j2", content=content, state=state)


KINDS = (
    Kind(
        *("bucket", SUMMARY),
        lead=(
            "Bucket size: any; these differ by at most {equal} (95 % CI)",
            "Bucket size: uncertain, may cost up to {upper}",
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
                "{worst_bucket_cap_mb:g} MiB: up to {worst_cost_ratio:number} slower (worst of {num_several} {groups})",
                "{worst_bucket_cap_mb:g} MiB: {worst_cost_ratio:number} slower ({worst_cost_ratio:ends})",
            ),
        ),
        term="Best bucket",
        help="The size with the lowest pipelined step time, or one within noise of it: multiple comparisons with the"
        f" best, 95 %. Equal: the interval of each cost ends at or below {100 * EQUAL_RATIO:g} %. Undecided: one"
        " launch.",
    ),
    Kind(
        *("bucket_cost", RESULT),
        lead=(
            "{name}: {cost_ratio:number} slower than {best_mb:g} MiB, the highest mean cost of {num_several} {groups}.",
            "{name}: {cost_ratio:number} slower than {best_mb:g} MiB ({cost_ratio:ends}).",
        ),
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the bucket sizes that may be best at the largest shape, and the highest cost if another shape has it."""
    settings = settings_of(data.tables["settings"], "bucket_cap_mb")
    rows = plain_rows(data.cells_of("train_step").dropna(subset=["bucket_cap_mb", "step_s"]), CELLS)
    groups = [sorted(cells, key=lambda cell: cell["step_s"]) for cells in grouped(rows, GROUP).values()]
    groups = [cells for cells in groups if len(cells) > 1]
    largest = max((cells[0]["world_size"] for cells in groups), default=1)
    found = []
    if largest > 1:
        chosen = [cells for cells in groups if cells[0]["world_size"] == largest]
        chosen = headline_rows(data, chosen, lambda cells: {cell["cell"] for cell in cells})
        found.append(_summary(chosen, settings))
    worst = _most_costly([cell for cells in groups for cell in cells], settings)
    if worst and worst["world_size"] != largest:
        best = next(cells[0] for cells in groups if worst in cells)
        cells = (worst["cell"], best["cell"])
        values = {"best_mb": best["bucket_cap_mb"], "cost_ratio": cost_of(settings[worst["cell"]])}
        words = {"name": data.names[worst["cell"]], "num_several": len(groups) if len(groups) > 1 else None}
        words["groups"] = groups_text(groups)
        found.append(Finding("bucket_cost", values, (of_cells("cells", cells),), cells, "bucket", words))
    return found


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


def _most_costly(cells: list[dict], settings: dict[str, Setting]) -> dict | None:
    """Return the cell with the highest cost that is significant over all rows.

    Its interval is of one row, so that the highest of several cannot claim it.
    """
    costly = [cell for cell in cells if is_costly(settings[cell["cell"]])]
    return max(costly, key=lambda cell: settings[cell["cell"]].cost, default=None)


def _summary(groups: list[list[dict]], settings: dict[str, Setting]) -> Finding:
    """Return the sizes that may be best in most workloads. groups: cells of each workload, the fastest first.

    A size counts unless its cost is significant over all workloads, of which one in twenty would exclude it by chance.
    """

    def sizes(cells: Iterable[dict]) -> list[float]:
        return sorted({cell["bucket_cap_mb"] for cell in cells})

    def is_undecided(cell: dict) -> bool:
        return settings[cell["cell"]].may_be_best is None

    tested = [cells for cells in groups if not all(map(is_undecided, cells))]
    near = [[cell for cell in cells if not is_costly(settings[cell["cell"]])] for cells in tested]
    near = near or [cells[:1] for cells in groups]
    counts = Counter(size for cells in near for size in sizes(cells))
    num_best, every = max(counts.values()), [cell for cells in groups for cell in cells]
    chosen = sorted(size for size, num in counts.items() if num == num_best)
    undecided = sizes(cell for cells in tested for cell in cells if is_undecided(cell))
    values = {"world_size": groups[0][0]["world_size"], "bucket_cap_mb": chosen}
    values |= {"num_best": num_best, "num": len(near), "undecided_mb": undecided}
    if worst := _most_costly([cell for cell in every if cell["bucket_cap_mb"] not in chosen], settings):
        values |= {"worst_bucket_cap_mb": worst["bucket_cap_mb"], "worst_cost_ratio": cost_of(settings[worst["cell"]])}
    words = {
        "num_agreeing": num_best if num_best < len(near) else None,
        "num_several": len(near) if len(near) > 1 else None,
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
    cells = tuple(cell["cell"] for cell in every)
    return Finding("bucket", values, (of_cells("cells", cells),), cells, "bucket", words)


TABLES = {
    "buckets": TableSpec.of(BUCKETS, buckets_table, "cells", "settings"),
    "settings": TableSpec.of(SETTINGS, settings_table, "cells", "measurements"),
}
TOPIC = Topic("buckets", "Bucket size", TABLES, section, findings, kinds=KINDS)
