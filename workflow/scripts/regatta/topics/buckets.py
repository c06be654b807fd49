"""Best bucket size, measured and predicted: tables/buckets.csv. Definitions and derivation: docs/metrics.md."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.text import UNKNOWN, interval_heading, is_unknown, natural, percent, plural, ranks_word, shape
from regatta.kit.columns import OF_CURVE, REAL, TEXT, WHOLE, Column, Columns, in_file
from regatta.kit.findings import RESULT, SUMMARY, Kind
from regatta.report.findings import Finding, of_cells, percent_number
from regatta.report.matrix import Group, Matrix, Row, Square
from regatta.report.page import MARKS
from regatta.report.panels import Section
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, SHAPE_COLUMNS, interval_columns, make_table
from regatta.store.records import one_line
from regatta.topics.bandwidth import BYTES_PER_GB
from regatta.topics.base import UNRELIABLE, ReportData, TableSpec, Topic, grouped, headline_rows, plain_rows, unreliable
from regatta.topics.fits.collectives import LIBRARY
from regatta.topics.fits.scaling import CURVE, SHAPE
from regatta.topics.matrix import square_without_value, statuses_by_cell
from regatta.topics.percentiles import bucket_tables
from regatta.topics.scaling.tables import STEP
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

MIB = 2**20  # bucket_cap_mb is in MiB, in torch's DDP and here
MIN_BUCKETS = 3  # minimum for fitting a line
MAX_RESIDUAL = 0.25
WORST_TINT = 0.5  # slowdown with the full color
MOST_MATRICES_SHOWN = 12  # more are folded
SHOWN = ("interval", "num_launches", "num_planned")

STRATEGY = tuple(name for name, axis in axes_of("train_step").items() if axis.is_series)
WORKLOAD = tuple(name for name in CURVE if name not in (*STRATEGY, *SHAPE_COLUMNS))
PREDICTED = ("predicted_bucket_mib", "predicted_low_mib", "predicted_high_mib")
CELLS = (*GROUP, "cell", "bucket_cap_mb", *STEP.names)
BEST = "the fastest, and its `step_s`. Empty if fewer than two"
OTHERS = "the others that may be the best, or `none`. Empty if undecided"
BUCKETS = Columns(
    *(Column(name, type=CELL[name]) for name in GROUP),
    Column("num_buckets", type=WHOLE, help="number of measured bucket sizes"),
    Column("best_bucket_cap_mb", "fastest bucket", group=OF_CURVE, help=BEST),
    Column("best_step_s", help=BEST),
    Column("indistinguishable_mb", "within noise of it (MiB)", TEXT, group=OF_CURVE, help=OTHERS),
    Column("gradient_bytes", type=WHOLE, help="s"),
    *in_file(REAL, "w and o. Empty if neither source exists", "bandwidth_w_gb_per_s", "call_o_s"),
    Column("source", type=TEXT, help="`all_reduce` or `bucketed`: see below"),
    Column(
        PREDICTED[0], "predicted bucket (MiB)", group=OF_CURVE, help="√(s w o) / 2²⁰, limited to s: a single bucket"
    ),
    *in_file(REAL, "prediction with the low ends of both w and o, and with the high ends", *PREDICTED[1:]),
    Column("predicted_to_best_ratio", "predicted / measured", group=OF_CURVE, help="predicted over measured best"),
    Column("reason", "no prediction", TEXT, group=OF_CURVE, help="why there is no prediction: see below"),
)


@dataclass(frozen=True)
class Cost:
    """Cost of gradient synchronization: bytes/s and seconds per call, each with the ends of its interval."""

    source: str
    bandwidth: tuple[float | None, ...]
    call_s: tuple[float | None, ...]


def best_bucket_bytes(gradient_bytes: float, bytes_per_s: float, call_s: float) -> float:
    """Return b = sqrt(s w o), which minimizes (s/b) o + b/w; at most s, one bucket for all."""
    return min(math.sqrt(gradient_bytes * bytes_per_s * call_s), gradient_bytes)


def buckets_table(
    scaling: pd.DataFrame, strategies: pd.DataFrame, models: pd.DataFrame, settings: pd.DataFrame
) -> pd.DataFrame:
    """Return one row for each workload, strategy with buckets, shape and stack of several ranks.

    models: as `communication_models_table` makes it. settings: as `settings_table` does.
    """
    by_cell = settings_of(settings, "bucket_cap_mb")
    is_synchronized = scaling["bucket_cap_mb"].notna() & (scaling["world_size"] > 1)
    gradients = dict(zip(strategies["cell"], strategies["gradient_bytes"], strict=True))
    is_bucketed = strategies["strategy"] == "bucketed"
    lines = grouped(
        plain_rows(strategies[is_bucketed], (*WORKLOAD, *SHAPE_COLUMNS, "num_calls", "communication_s")),
        (*WORKLOAD, *SHAPE_COLUMNS),
    )
    is_all_reduce = (
        (models["operation"] == "all_reduce") & (models["algorithm"] == LIBRARY) & (models["dtype"] == "fp32")
    )
    all_reduces = grouped(plain_rows(models[is_all_reduce], tuple(models)), SHAPE_COLUMNS)
    rows = []
    for key, cells in grouped(plain_rows(scaling[is_synchronized], CELLS), GROUP).items():
        row = dict(zip(GROUP, key, strict=True))
        found = [gradients[cell["cell"]] for cell in cells if not is_unknown(gradients[cell["cell"]])]
        num_bytes = max(found, default=None) or None
        place = tuple(row[name] for name in SHAPE_COLUMNS)
        bucketed = lines.get((*(row[name] for name in WORKLOAD), *place), [])
        cost = _cost(row, num_bytes, all_reduces.get(place, []), bucketed)
        row |= _best(cells, by_cell) | {"gradient_bytes": num_bytes}
        rows.append(row | _prediction(num_bytes, cost, row["best_bucket_cap_mb"]))
    return make_table(rows, BUCKETS)


def _best(cells: list[dict], settings: dict[str, Setting]) -> dict:
    """Return the bucket size of the fastest step, and the others that may be the best; unknown if undecided."""
    measured = sorted((cell for cell in cells if cell["step_s"] is not None), key=lambda cell: cell["bucket_cap_mb"])
    row = {"num_buckets": len({cell["bucket_cap_mb"] for cell in measured}), "best_bucket_cap_mb": None}
    if row["num_buckets"] < 2:
        return row
    may_be_best = {cell["cell"]: (settings.get(cell["cell"]) or Setting(1)).may_be_best for cell in measured}
    best, *others = sorted(measured, key=lambda cell: cell["step_s"])
    row |= {"best_bucket_cap_mb": best["bucket_cap_mb"], "best_step_s": best["step_s"]}
    if may_be_best[best["cell"]] is None:
        return row
    near = sorted({cell["bucket_cap_mb"] for cell in others if may_be_best[cell["cell"]]})
    return row | {"indistinguishable_mb": ", ".join(f"{bucket:g}" for bucket in near) or "none"}


def _cost(row: dict, num_bytes: int | None, all_reduces: list[dict], bucketed: list[dict]) -> Cost | str:
    """Return the cost from all-reduces measured at the same place, else from strategy bucketed; else why it is unknown.

    Gradients are fp32 with any data type of the forward pass (autocast).
    """
    if num_bytes is None:
        return "gradient size unknown"
    if row["compression"] not in (None, "none"):
        return f"gradients are compressed to {row['compression']}, so messages are smaller than buckets"
    measured = _from_all_reduces(all_reduces)
    if isinstance(measured, Cost):
        return measured
    fitted = _from_buckets(num_bytes, bucketed)
    return fitted if isinstance(fitted, Cost) else f"{measured}; {fitted}"


def _from_all_reduces(models: list[dict]) -> Cost | str:
    """Return a as the cost of a call and B as the bandwidth. models: those of one place, so at most one."""
    if not models:
        return "no fp32 all_reduce was measured on this shape and stack"
    [model] = models
    if model["refusal"] is not None:
        return f"no all_reduce model ({model['refusal']})"
    if model["latency_a_s"] is None or model["bandwidth_b_gb_per_s"] is None:
        return f"the all_reduce model is incomplete ({model['left_out']})"
    bandwidth = (model[name] * BYTES_PER_GB for name in interval_columns("bandwidth_b", "gb_per_s"))
    return Cost("all_reduce", tuple(bandwidth), tuple(model[name] for name in interval_columns("latency_a", "s")))


def _from_buckets(num_bytes: int, bucketed: list[dict]) -> Cost | str:
    """Return the slope and, as s/w, the intercept of the line `communication_s` = o x calls + s/w over bucket sizes."""
    pairs = [(row["num_calls"], row["communication_s"]) for row in bucketed]
    calls, seconds = np.array([pair for pair in pairs if None not in pair], float).reshape(-1, 2).T
    num = len(set(calls))
    if num < MIN_BUCKETS:
        return f"strategy bucketed was measured with {plural(num, 'bucket size')}; a fit needs {MIN_BUCKETS}"
    import scipy.stats

    line = scipy.stats.linregress(calls, seconds)
    if line.slope <= 0 or line.intercept <= 0:
        return "a linear fit to the synchronization times of strategy bucketed has a slope or intercept of 0 or less"
    away = float(abs((line.intercept + line.slope * calls) / seconds - 1).max())
    if away > MAX_RESIDUAL:
        return f"a linear fit to the synchronization times of strategy bucketed is off by up to {percent(away)} %"
    return Cost("bucketed", (num_bytes / line.intercept, None, None), (line.slope, None, None))


def _prediction(num_bytes: int | None, cost: Cost | str, best_mb: float | None) -> dict:
    if isinstance(cost, str):
        return {"reason": cost}
    pairs = zip(cost.bandwidth, cost.call_s, strict=True)
    mib = [None if None in pair else best_bucket_bytes(num_bytes, *pair) / MIB for pair in pairs]
    return {
        "bandwidth_w_gb_per_s": cost.bandwidth[0] / BYTES_PER_GB,
        "call_o_s": cost.call_s[0],
        "source": cost.source,
        **dict(zip(PREDICTED, mib, strict=True)),
        "predicted_to_best_ratio": None if best_mb is None else mib[0] / best_mb,
    }


# The section: a small matrix for each workload and stack.


def bucket_matrices(data: ReportData) -> tuple[Matrix, ...]:
    """Return a matrix for each workload and stack, the most different bucket sizes first: shapes down, sizes across.

    A shape with one planned size has no row; a workload without a shape with two measured sizes has no matrix.
    Skipped sizes have a square with the reason.
    """
    names, statuses = data.cell_names, statuses_by_cell(data.measurements)
    settings = settings_of(data.tables["settings"], "bucket_cap_mb")
    cells = plain_rows(data.tables["scaling"].dropna(subset=["bucket_cap_mb"]), (*CELLS, *SHOWN))
    cells += _skipped_cells(data.campaign)
    found = []
    for rows in grouped(cells, tuple(name for name in GROUP if name not in SHAPE)).values():
        rows = sorted(rows, key=lambda row: (row["world_size"], row["nodes"]))
        by_shape = {shape(*key): group for key, group in grouped(rows, SHAPE[:2]).items()}
        several = {place: cells for place, cells in by_shape.items() if len(grouped(cells, ("bucket_cap_mb",))) > 1}
        if any(_best(cells, settings)["best_bucket_cap_mb"] is not None for cells in several.values()):
            name = names[rows[0]["cell"]].without("shape", "bucket_cap_mb")
            found.append(_matrix(name.say(*name.parts, always=("subject",)), several, statuses, settings))

    def largest_level(matrix: Matrix) -> float:
        return max(square.level or 0 for row in matrix.groups[0].rows for square in row.squares if square)

    return tuple(sorted(found, key=lambda matrix: (-largest_level(matrix), natural(matrix.caption))))


def _skipped_cells(campaign: dict) -> list[dict]:
    """Return rows of the skipped cells with a bucket size: without numbers, with the reason."""
    skipped = [cell for cell in campaign["skipped"] if cell["spec"]["parameters"].get("bucket_cap_mb") is not None]
    nothing = dict.fromkeys((*STEP.names, *SHOWN))
    return [
        {name: cell_row(cell).get(name) for name in CELLS} | nothing | {"reason": cell["reason"]} for cell in skipped
    ]


def _matrix(
    title: str, by_shape: dict[str, list[dict]], statuses: dict[str, Counter], settings: dict[str, Setting]
) -> Matrix:
    sizes = sorted({cell["bucket_cap_mb"] for cells in by_shape.values() for cell in cells})
    rows = []
    for place, cells in by_shape.items():
        best, by_size = _best(cells, settings), grouped(cells, ("bucket_cap_mb",))
        squares = [
            _square(place, by_size[size,], best, statuses, settings) if (size,) in by_size else None for size in sizes
        ]
        rows.append(Row(place, tuple(squares)))
    return Matrix(title, tuple(f"{size:g} MiB" for size in sizes), (Group(title, tuple(rows)),))


def _square(
    place: str, cells: list[dict], best: dict, statuses: dict[str, Counter], settings: dict[str, Setting]
) -> Square:
    """Return the square of one bucket size of one shape. best: of `_best` for this shape."""
    ids, size = tuple(cell["cell"] for cell in cells), cells[0]["bucket_cap_mb"]
    counts, name = sum((statuses[cell] for cell in ids), Counter()), f"{place}, bucket {size:g} MiB"
    measured = [cell for cell in cells if cell["step_s"] is not None]
    if reasons := [one_line(cell["reason"], 200) for cell in cells if cell.get("reason")]:
        return Square(MARKS["skipped"], None, "skipped", ids, f"{name}: skipped: {'; '.join(reasons)}")
    if not measured:
        is_ok = counts["ok"] > 0
        unknown = Square(UNKNOWN, None, "missing", ids, f"{name}: step time unknown")
        return unknown if is_ok else square_without_value(name, ids, counts)
    cell = min(measured, key=lambda cell: cell["step_s"])
    ratio = cell["step_s"] / best.get("best_step_s", cell["step_s"]) - 1
    setting = settings.get(cell["cell"], Setting(1))
    cost = "" if setting.low is None else f" ({cost_of(setting):ends})"
    near = best.get("indistinguishable_mb")
    is_best, is_near = size == best["best_bucket_cap_mb"], f"{size:g}" in (near or "").split(", ")
    row = SimpleNamespace(**cell)
    note = f"{name}: {STEP.label} {STEP.cell(row)} ms, {interval_heading([cell['interval']])} {STEP.ends(row)},"
    note += f" n = {cell['num_launches']}/{cell['num_planned']}"
    if best["num_buckets"] < 2:
        note += "; no other size measured"
    else:
        above = f"; {percent_number(ratio)} % above {best['best_bucket_cap_mb']:g} MiB{cost}"
        note += "; fastest" if is_best else above
        is_undecided = near is None or setting.may_be_best is None
        note += "; noise unknown" if is_undecided else "; within noise" if is_near and not is_best else ""
    states = {"best": is_best, "near": is_near and not is_best, "partial": counts.total() > counts["ok"]}
    text = "0" if ratio == 0 else percent_number(ratio)
    return Square(text, ratio / WORST_TINT, " ".join(state for state, is_so in states.items() if is_so), ids, note)


def section(data: ReportData) -> Section | None:
    matrices, tables = bucket_matrices(data), bucket_tables(data.tables["percentiles"], data.device)
    if not matrices and not tables:
        return None
    content = {"matrices": matrices, "most_shown": MOST_MATRICES_SHOWN, "tables": tables}
    content["ranks"] = ranks_word(data.device)
    state = (plural(len(matrices) or len(tables), "table"), "quiet")
    return Section("bucket", "Bucket size", template="settings.html.j2", content=content, state=state)


KINDS = (
    Kind(
        *("bucket", SUMMARY),
        lead=(
            "Bucket size: equal within {equal}",
            "Bucket size: uncertain, up to {upper} slower",
            "Bucket size: {best:g} MiB is best",
            "Bucket size: best is one of {near:g} MiB",
            "Bucket size: uncertain, one launch per cell",
        ),
        parts=(
            "fastest: {fastest:g} MiB",
            ("these are equal within {near_equal}", "these differ by up to {near_upper}"),
            "for {num_agreeing} of {num} workloads",
            "unknown for {num_untested} of {num_workloads:workload}: one launch",
            "undecided: {undecided_mb:g} MiB (one launch)",
            (
                "highest mean cost of {num_several} workloads: {worst_cost_ratio:number} ({worst_bucket_cap_mb:g} MiB)",
                "{worst_bucket_cap_mb:g} MiB costs {worst_cost_ratio:number} ({worst_cost_ratio:ends})",
            ),
            UNRELIABLE,
        ),
        term="Best bucket",
        help="The size with the lowest pipelined step time, or one that may be as fast: multiple comparisons with the"
        f" best, 95 %. Equal: no interval of a cost exceeds {100 * EQUAL_RATIO:g} %. Predicted (cell drawer): √(s w o),"
        " for s bytes of gradients, bandwidth w and overhead o per all-reduce. All calls then cost as much as the last"
        " bucket, which cannot overlap with computation. The range covers the uncertainty of w and o alone.",
    ),
    Kind(
        *("bucket_cost", RESULT),
        lead=(
            "{name}: {cost_ratio:number} slower than {best_mb:g} MiB, the highest mean cost of {num_several} workloads"
            " and shapes.",
            "{name}: {cost_ratio:number} slower than {best_mb:g} MiB ({cost_ratio:ends}).",
        ),
    ),
)


def findings(data: ReportData) -> list[Finding]:
    """Return the bucket sizes that may be best at the largest shape, and the highest cost if another shape has it."""
    settings = defaultdict(lambda: Setting(1), settings_of(data.tables["settings"], "bucket_cap_mb"))
    rows = plain_rows(data.tables["scaling"].dropna(subset=["bucket_cap_mb", "step_s"]), CELLS)
    groups = [sorted(cells, key=lambda cell: cell["step_s"]) for cells in grouped(rows, GROUP).values()]
    groups = [cells for cells in groups if len(cells) > 1]
    largest = max((cells[0]["world_size"] for cells in groups), default=1)
    found = []
    if largest > 1:
        chosen = [cells for cells in groups if cells[0]["world_size"] == largest]
        chosen = headline_rows(data, chosen, lambda cells: {cell["cell"] for cell in cells})
        summary = _summary(chosen, settings)
        found.append(replace(summary, values=summary.values | unreliable(data, summary.cells)))
    # Significant over all rows; the interval is of one, so that the highest of several cannot claim it.
    costly = [(best, cell) for best, *others in groups for cell in others if is_costly(settings[cell["cell"]])]
    best, worst = max(costly, key=lambda pair: settings[pair[1]["cell"]].cost, default=(None, None))
    if worst and worst["world_size"] != largest:
        cells = (worst["cell"], best["cell"])
        values = {"best_mb": best["bucket_cap_mb"], "cost_ratio": cost_of(settings[worst["cell"]])}
        words = {"name": data.names[worst["cell"]], "num_several": len(groups) if len(groups) > 1 else None}
        found.append(Finding("bucket_cost", values, (of_cells("scaling", cells),), cells, "bucket", words))
    return found


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
    chosen = sorted(size for size, num in counts.items() if num == max(counts.values()))
    undecided = sizes(cell for cells in tested for cell in cells if is_undecided(cell))
    values = {"world_size": groups[0][0]["world_size"], "bucket_cap_mb": chosen}
    values |= {"num_best": max(counts.values()), "num": len(near), "undecided_mb": undecided}
    others = [cell for cells in groups for cell in cells if cell["bucket_cap_mb"] not in chosen]
    costly = [cell for cell in others if is_costly(settings[cell["cell"]])]
    if worst := max(costly, key=lambda cell: settings[cell["cell"]].cost, default=None):
        values |= {"worst_bucket_cap_mb": worst["bucket_cap_mb"], "worst_cost_ratio": cost_of(settings[worst["cell"]])}
    words = {
        "num_agreeing": values["num_best"] if values["num_best"] < len(near) else None,
        "num_several": len(near) if len(near) > 1 else None,
        "num_untested": len(groups) - len(tested) if tested else None,
        "num_workloads": len(groups),
    }
    cost = highest_cost([cell["cell"] for cells in near for cell in cells if cell["bucket_cap_mb"] in chosen], settings)
    if not tested:
        words["fastest"] = chosen
    elif near == tested and not undecided:
        words |= cost
    elif len(chosen) == 1:
        words["best"] = chosen[0]
    else:
        words |= {"near": chosen} | {f"near_{name}": text for name, text in cost.items()}
    cells = tuple(cell["cell"] for group in groups for cell in group)
    return Finding("bucket", values, (of_cells("scaling", cells),), cells, "bucket", words)


TABLES = {
    "buckets": TableSpec.of(BUCKETS, buckets_table, "scaling", "strategies", "communication_models", "settings"),
    "settings": TableSpec.of(SETTINGS, settings_table, "scaling", "collectives", "measurements"),
}
TOPIC = Topic("buckets", "Bucket size", TABLES, section, findings, kinds=KINDS)
