"""Best bucket size, measured and predicted: tables/buckets.csv. Definitions and derivation: docs/metrics.md."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd

from regatta.core.benchmarks import axes_of
from regatta.core.text import (
    UNKNOWN,
    bracket,
    four,
    interval_heading,
    is_unknown,
    natural,
    percent,
    plural,
    rank_word,
    ranks_word,
    shape,
)
from regatta.report.findings import Finding, Value, of_cells, percent_number, time_text
from regatta.report.matrix import Group, Matrix, Row, Square
from regatta.report.page import MARKS
from regatta.report.panels import Section, Table, milliseconds, name_rows
from regatta.report.rows import table_rows
from regatta.store.collect import cell_row
from regatta.store.csv_files import CELL, REAL, SHAPE_COLUMNS, TEXT, WHOLE, interval_columns, make_table
from regatta.store.records import one_line
from regatta.topics.bandwidth import BYTES_PER_GB
from regatta.topics.base import ReportData, TableSpec, Topic, grouped, plain_rows
from regatta.topics.fits.collectives import LIBRARY
from regatta.topics.fits.scaling import CURVE, SHAPE
from regatta.topics.matrix import square_without_value, statuses_by_cell
from regatta.topics.percentiles import WORKLOAD_AND_SHAPE, exact_ms, from_one_rank_up, rate_column

MIB = 2**20  # bucket_cap_mb is in MiB, in torch's DDP and here
MIN_BUCKETS = 3  # minimum for fitting a line
MAX_RESIDUAL = 0.25
USUAL_MIB = 25  # the default of DistributedDataParallel
WORST_TINT = 0.5  # slowdown with the full color
MOST_MATRICES_SHOWN = 12  # more are folded
SHOWN = ("interval", "num_launches", "num_planned")
COMPARED = ("p75_s", "p95_s")  # percentiles of the published comparison

STRATEGY = tuple(name for name, axis in axes_of("train_step").items() if axis.is_series)
WORKLOAD = tuple(name for name in CURVE if name not in (*STRATEGY, *SHAPE_COLUMNS))
PREDICTED = ("predicted_bucket_mib", "predicted_low_mib", "predicted_high_mib")
GROUP = (*(name for name in CURVE if name not in ("bucket_cap_mb", *SHAPE_COLUMNS)), *SHAPE_COLUMNS)
CELLS = (*GROUP, "cell", "bucket_cap_mb", "step_s", "step_low_s", "step_high_s")
BUCKETS = {
    **{name: CELL[name] for name in GROUP},
    "num_buckets": WHOLE,
    "best_bucket_cap_mb": REAL,
    "best_step_s": REAL,
    "indistinguishable_mb": TEXT,
    "gradient_bytes": WHOLE,
    "bandwidth_w_gb_per_s": REAL,
    "call_o_s": REAL,
    "source": TEXT,
    **dict.fromkeys(PREDICTED, REAL),
    "predicted_to_best_ratio": REAL,
    "reason": TEXT,
}


@dataclass(frozen=True)
class Cost:
    """Cost of gradient synchronization: bytes/s and seconds per call, each with the ends of its interval."""

    source: str
    bandwidth: tuple[float | None, ...]
    call_s: tuple[float | None, ...]


def best_bucket_bytes(gradient_bytes: float, bytes_per_s: float, call_s: float) -> float:
    """Return b = sqrt(s w o), which minimizes (s/b) o + b/w; at most s, one bucket for all."""
    return min(math.sqrt(gradient_bytes * bytes_per_s * call_s), gradient_bytes)


def buckets_table(scaling: pd.DataFrame, strategies: pd.DataFrame, models: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each workload, strategy with buckets, shape and stack of several ranks.

    models: as `communication_models_table` makes it.
    """
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
        row |= _best(cells) | {"gradient_bytes": num_bytes}
        rows.append(row | _prediction(num_bytes, cost, row["best_bucket_cap_mb"]))
    return make_table(rows, BUCKETS)


def _best(cells: list[dict]) -> dict:
    """Return the bucket size of the fastest step, and those with an overlapping range or interval."""
    measured = sorted((cell for cell in cells if cell["step_s"] is not None), key=lambda cell: cell["bucket_cap_mb"])
    row = {"num_buckets": len({cell["bucket_cap_mb"] for cell in measured}), "best_bucket_cap_mb": None}
    if row["num_buckets"] < 2:
        return row
    best, *others = sorted(measured, key=lambda cell: cell["step_s"])
    row |= {"best_bucket_cap_mb": best["bucket_cap_mb"], "best_step_s": best["step_s"]}
    if any(cell["step_low_s"] is None for cell in (best, *others)):
        return row
    near = sorted({cell["bucket_cap_mb"] for cell in others if cell["step_low_s"] <= best["step_high_s"]})
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
    cells = plain_rows(data.tables["scaling"].dropna(subset=["bucket_cap_mb"]), (*CELLS, *SHOWN))
    cells += _skipped_cells(data.campaign)
    found = []
    for rows in grouped(cells, tuple(name for name in GROUP if name not in SHAPE)).values():
        by_shape = {shape(*key): group for key, group in sorted(grouped(rows, SHAPE[:2]).items(), key=_by_world_size)}
        several = {place: cells for place, cells in by_shape.items() if len(grouped(cells, ("bucket_cap_mb",))) > 1}
        if any(_best(cells)["best_bucket_cap_mb"] is not None for cells in several.values()):
            name = names[rows[0]["cell"]].without("shape", "bucket_cap_mb")
            found.append(_matrix(name.say(*name.parts, always=("subject",)), several, statuses))
    return tuple(sorted(found, key=lambda matrix: (-_largest_level(matrix), natural(matrix.caption))))


def _skipped_cells(campaign: dict) -> list[dict]:
    """Return rows of the skipped cells with a bucket size: without numbers, with the reason."""
    skipped = [cell for cell in campaign["skipped"] if cell["spec"]["parameters"].get("bucket_cap_mb") is not None]
    nothing = dict.fromkeys(("step_s", "step_low_s", "step_high_s", *SHOWN))
    return [
        {name: cell_row(cell).get(name) for name in CELLS} | nothing | {"reason": cell["reason"]} for cell in skipped
    ]


def _by_world_size(item: tuple[tuple[int, int], list]) -> tuple:
    (nodes, gpus_per_node), _ = item
    return nodes * gpus_per_node, nodes


def _largest_level(matrix: Matrix) -> float:
    squares = (square for row in matrix.groups[0].rows for square in row.squares if square is not None)
    return max(square.level for square in squares if square.level is not None)


def _matrix(title: str, by_shape: dict[str, list[dict]], statuses: dict[str, Counter]) -> Matrix:
    sizes = sorted({cell["bucket_cap_mb"] for cells in by_shape.values() for cell in cells})
    rows = []
    for place, cells in by_shape.items():
        best, by_size = _best(cells), grouped(cells, ("bucket_cap_mb",))
        squares = (_square(place, by_size[size,], best, statuses) if (size,) in by_size else None for size in sizes)
        rows.append(Row(place, tuple(squares)))
    return Matrix(title, tuple(f"{size:g} MiB" for size in sizes), (Group(title, tuple(rows)),))


def _square(place: str, cells: list[dict], best: dict, statuses: dict[str, Counter]) -> Square:
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
    near = best.get("indistinguishable_mb")
    is_best, is_near = size == best["best_bucket_cap_mb"], f"{size:g}" in (near or "").split(", ")
    interval = bracket(cell["step_low_s"], cell["step_high_s"], cell["interval"], milliseconds)
    note = f"{name}: step time {milliseconds(cell['step_s'])} ms, {interval_heading([cell['interval']])} {interval},"
    note += f" n = {cell['num_launches']}/{cell['num_planned']}"
    if best["num_buckets"] < 2:
        note += "; no other size measured"
    else:
        note += "; fastest" if is_best else f"; {percent_number(ratio)} % above {best['best_bucket_cap_mb']:g} MiB"
        note += "; within noise" if is_near and not is_best else "; noise unknown" if near is None else ""
    states = {"best": is_best, "near": is_near and not is_best, "partial": counts.total() > counts["ok"]}
    text = "0" if ratio == 0 else percent_number(ratio)
    return Square(text, ratio / WORST_TINT, " ".join(state for state, is_so in states.items() if is_so), ids, note)


# The published comparison: PyTorch's DDP benchmark prints percentiles of each bucket size against the default's.


def bucket_tables(percentiles: pd.DataFrame, device: str) -> tuple[Table, ...]:
    """Return a table for each workload and bucket size against the default: the times of both, and their difference.

    Without the default, the sizes are compared with the largest.
    """
    rows = name_rows(percentiles, "train_step", without=("bucket_cap_mb",))
    rows = rows[rows["bucket_cap_mb"].notna()]
    sizes = set(rows["bucket_cap_mb"])
    base = USUAL_MIB if USUAL_MIB in sizes else max(sizes, default=None)
    bases = {_key(row): row for row in table_rows(rows[rows["bucket_cap_mb"] == base])}
    found = []
    for (_, workload), group in rows[rows["bucket_cap_mb"] != base].groupby(["bucket_cap_mb", "workload"], sort=True):
        pairs = [(bases[_key(row)], row) for row in table_rows(from_one_rank_up(group)) if _key(row) in bases]
        if any(not is_unknown(base.p50_s) and not is_unknown(row.p50_s) for base, row in pairs):
            found.append(_comparison(workload, pairs, device))
    return tuple(found)


def _comparison(workload: str, pairs: list[tuple], device: str) -> Table:
    base_mib, mib = (f"{row.bucket_cap_mb:g} MiB" for row in pairs[0])
    known = [time for time in COMPARED if any(not is_unknown(getattr(row, time)) for pair in pairs for row in pair)]
    known = known or ["p50_s"]  # too few samples for a higher percentile
    heads = ["cell", "n"]
    for name in (time.removesuffix("_s") for time in known):
        heads += [f"{name}, {base_mib} (ms)", f"{name}, {mib} (ms)", "samples/s", f"Δ {name} (%)"]
    body = []
    for base, row in pairs:
        texts = [row.name, f"{row.num_launches} vs. {base.num_launches}"]
        for time in known:
            before, after = getattr(base, time), getattr(row, time)
            texts += [exact_ms(before), exact_ms(after), four(getattr(row, rate_column(time)))]
            texts.append(UNKNOWN if is_unknown(before) or is_unknown(after) else percent(after / before - 1))
        body.append(tuple(texts))
    caption = f"Bucket size {mib} vs. {base_mib}: {workload} (single steps; samples/s per {rank_word(device)} at {mib})"
    return Table(caption, tuple(heads), tuple(body), sources=("percentiles",))


def _key(row) -> tuple:
    """Return what identifies a cell, without its bucket size. Unknown is a word here, since pd.NA equals nothing."""
    values = (getattr(row, name) for name in WORKLOAD_AND_SHAPE if name != "bucket_cap_mb")
    return tuple("unknown" if is_unknown(value) else value for value in values)


def section(data: ReportData) -> Section | None:
    matrices, tables = bucket_matrices(data), bucket_tables(data.tables["percentiles"], data.device)
    if not matrices and not tables:
        return None
    content = {"matrices": matrices, "most_shown": MOST_MATRICES_SHOWN, "tables": tables}
    content["ranks"] = ranks_word(data.device)
    state = (plural(len(matrices) or len(tables), "table"), "quiet")
    return Section("bucket", "Bucket size", template="settings.html.j2", content=content, state=state)


def findings(data: ReportData) -> list[Finding]:
    """Return the largest cost of a slow bucket size, where intervals do not overlap; else that all are within noise."""
    finding = _largest_difference(data.tables["scaling"].dropna(subset=["bucket_cap_mb", "step_s"]), data.names)
    return [finding] if finding else []


def _largest_difference(rows: pd.DataFrame, names: dict[str, str]) -> Finding | None:
    """Return the largest cost of a bucket size; pairs whose intervals do not overlap come first."""
    pairs = []
    for _, group in rows.groupby(list(GROUP), dropna=False, sort=True):
        if group["bucket_cap_mb"].nunique() > 1:
            best, *others = sorted(table_rows(group), key=lambda row: row.step_s)
            pairs += [(best, row) for row in others]
    if not pairs:
        return None
    apart = [(best, row) for best, row in pairs if _is_apart(best, row)]
    best, worst = max(apart or pairs, key=lambda pair: pair[1].step_s / pair[0].step_s)
    values = {
        "name": names[worst.cell],
        "best_mb": float(best.bucket_cap_mb),
        "bucket_mb": float(worst.bucket_cap_mb),
        "cost_ratio": worst.step_s / best.step_s - 1,
        "best_step": Value.of(best, "step", "s"),
        "step": Value.of(worst, "step", "s"),
        "num_pairs": len(pairs),
        "num_apart": len(apart),
        "num_unknown": sum(_is_unknown(*pair) for pair in pairs),
    }
    sources = (of_cells("scaling", [worst.cell, best.cell]),)
    return Finding("bucket_cost" if apart else "bucket_noise", values, sources, (worst.cell, best.cell), "bucket")


def _is_unknown(best, row) -> bool:
    """Return whether the intervals of two cells cannot be compared: one has a single launch."""
    return is_unknown(row.step_low_s) or is_unknown(best.step_high_s)


def _is_apart(best, row) -> bool:
    """Return whether the intervals of two cells do not overlap; unknown ends count as overlapping."""
    return not _is_unknown(best, row) and row.step_low_s > best.step_high_s


def sentence(finding: Finding) -> str:
    values = finding.values
    cost = percent_number(values["cost_ratio"])
    if finding.kind == "bucket_noise":
        num, known = values["num_pairs"], values["num_pairs"] - values["num_unknown"]
        partly = f"within noise in {known} of {num} pairs, unknown in the others (one launch)"
        lead = "all within noise" if known == num else partly
        largest = f"{cost} % ({values['name']}, vs. {values['best_mb']:g} MiB)"
        return f"Bucket size: {lead}; largest difference between median pipelined step times {largest}."
    return (
        f"Bucket size: {values['name']} is {cost} % slower than {values['best_mb']:g} MiB. Pipelined step time:"
        f" {time_text(values['step'])} vs. {time_text(values['best_step'])}."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    specs = [cell["spec"] for cell in campaign["cells"] if cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] > 1]
    if len({spec["parameters"].get("bucket_cap_mb") for spec in specs} - {None}) < 2:
        return []
    text = (
        "Measured: the size with the lowest median pipelined step time (windows, not single synchronized steps), not"
        " tested for significance. Predicted (in the cell drawer): √(s w o), for s"
        " bytes of gradients, bandwidth w and overhead o per all-reduce call. At this size the total call overhead"
        " equals the time of the last bucket, which cannot overlap with computation. The predicted range covers the"
        " uncertainty of w and o, not that of the formula."
    )
    return [("Best bucket", text)]


TABLES = {
    "buckets": TableSpec(
        BUCKETS,
        lambda _, tables: buckets_table(tables["scaling"], tables["strategies"], tables["communication_models"]),
    )
}
TOPIC = Topic("buckets", "Bucket size", TABLES, section, findings, sentence, methods=methods)
