"""The figures of train_step: throughput and efficiency over the number of ranks."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from regatta.core.text import (
    UNKNOWN,
    is_unknown,
    shape,
    thousands,
)
from regatta.kit.columns import TEXT, Column
from regatta.report.panels import (
    CELL_NAME,
    LAUNCHES,
    MOST_FIGURES,
    Figure,
    Table,
    baseline_first,
    baseline_of,
    in_order,
    make_figure,
    make_series,
    name_rows,
    panels,
    ranks_axis,
)
from regatta.report.plotting import Axis, Panel, Series
from regatta.report.rows import table_rows
from regatta.store.csv_files import CELL
from regatta.topics.scaling.tables import (
    COST_OF_SAMPLES,
    COST_OF_TOKENS,
    EFFICIENCY,
    SCALING,
    THROUGHPUT,
    grades_within,
    is_baseline,
    is_too_wide,
)

PERCENT = 100
Threads = dict[tuple[int, int], set[int]]  # threads of a rank by shape (nodes, ranks per node)


def scaling_figures(
    scaling: pd.DataFrame, steps: dict[str, list[float]], device: str, threads: Threads | None = None
) -> list[Figure]:
    """Return throughput and efficiency in turn, for each workload. steps: seconds per step of each launch, by cell.

    threads: given where ranks of different shapes may have different numbers of them, which is on CPUs.
    """
    scaling = _with_baseline(in_order(name_rows(scaling, "train_step")), threads or {})
    split = panels(scaling, context="bucket_cap_mb")
    shown = [(title, baseline_first(rows)) for title, rows in split if rows["step_s"].notna().any()]
    if len(shown) > MOST_FIGURES:
        shown.sort(key=lambda panel: _lowest_efficiency(panel[1]))
    figures = []
    for number, (title, rows) in enumerate(shown, start=1):
        base = baseline_of(rows, scaling) if rows["efficiency_ratio"].notna().any() else ""
        figures.append(_throughput(f"throughput-{number}", title, rows, base, steps, device))
        if base:
            figures.append(_efficiency(f"efficiency-{number}", title, rows, base, steps, device))
    return figures


def _lowest_efficiency(rows: pd.DataFrame) -> float:
    """Return the efficiency of the fastest cell at the largest shape with one; infinity without any."""
    known = rows[rows["efficiency_ratio"].notna()]
    return float(best_of_largest(known).efficiency_ratio) if len(known) else math.inf


def best_buckets_first(series: tuple[Series, ...], rows: pd.DataFrame) -> tuple[Series, ...]:
    """Return the series, those as context whose bucket size is not the fastest at the largest shape of its kind."""
    same = [name for name in CELL if name in rows and name not in VARIED]
    measured = rows[rows["step_s"].notna()]
    same = [name for name in same if measured[name].nunique(dropna=False) > 1] or same[:1]
    used = ["label", "world_size", "step_s", "num_launches", "num_planned", "throughput_samples_per_s"]
    groups = measured[list(dict.fromkeys([*same, *used]))].groupby(same, dropna=False)
    best = {best_of_largest(group).label for _, group in groups}
    return tuple(replace(one, is_context=one.label not in best) for one in series)


VARIED = ("bucket_cap_mb", "nodes", "gpus_per_node", "world_size")  # between a series and its other bucket sizes
OTHER_BUCKETS = "other bucket sizes"


def _with_baseline(scaling: pd.DataFrame, threads: Threads) -> pd.DataFrame:
    """Add the baseline's throughput per rank, and the threads of row and baseline if they differ."""
    shapes = {row.cell: (row.nodes, row.gpus_per_node) for row in table_rows(scaling)}
    uneven = []
    for row in table_rows(scaling):
        known = {place: threads[place] for place in (shapes.get(row.baseline), shapes[row.cell]) if place in threads}
        uneven.append(known if len(set(map(frozenset, known.values()))) > 1 else {})
    world_sizes = scaling["baseline"].map(scaling.set_index("cell")["world_size"])
    return scaling.assign(per_gpu_baseline=scaling["baseline_samples_per_s"] / world_sizes, uneven=uneven)


def _throughput(figure_id: str, title: str, rows: pd.DataFrame, base: str, steps: dict, device: str) -> Figure:
    series = make_series(
        rows,
        "label",
        "world_size",
        lambda row: [row.world_size * row.batch_size / s for s in steps.get(row.cell, [])],
        lambda row: row.throughput_samples_per_s,
    )
    measured, guides = rows[rows["step_s"].notna()], ()
    if base:
        of_rank = float(rows["per_gpu_baseline"].max())
        guides = (("ideal", tuple((n, of_rank * n) for n in sorted({1, *measured["world_size"]}))),)
    series, y = best_buckets_first(series, rows), Axis(THROUGHPUT.heading(device), is_log=True, show=thousands)
    panel = Panel(ranks_axis(measured), y, series, guides, context=OTHER_BUCKETS)
    columns = (CELL_NAME, LAUNCHES, *SCALING.of_table("throughput"))
    table = Table.of_columns(f"Throughput of {title}", columns, rows, device)
    return make_figure(figure_id, f"Throughput: {title}", panel, table, "scaling")


def _efficiency(figure_id: str, title: str, rows: pd.DataFrame, base: str, steps: dict, device: str) -> Figure:
    others = rows[rows["cell"] != rows["baseline"].fillna("")]
    shown = others if others["efficiency_ratio"].notna().any() else rows

    def values(row) -> list[float]:
        if is_unknown(row.efficiency_ratio):
            return []
        return [PERCENT * row.batch_size / step / row.per_gpu_baseline for step in steps[row.cell]]

    series = make_series(shown, "label", "world_size", values, lambda row: PERCENT * row.efficiency_ratio)
    measured = shown[shown["step_s"].notna()]
    sizes = measured["world_size"]
    guides = (("100 %", ((sizes.min(), PERCENT), (sizes.max(), PERCENT))),)
    series = best_buckets_first(series, shown)
    panel = Panel(ranks_axis(measured), Axis(EFFICIENCY.heading(device), low=0), series, guides, context=OTHER_BUCKETS)
    columns = (CELL_NAME, LAUNCHES, *SCALING.of_table("efficiency"), GRADE)
    table = Table.of_columns(f"Efficiency of {title} relative to {base}", columns, rows, device)
    return make_figure(figure_id, f"Efficiency: {title}", panel, table, "scaling")


def cost_figures(scaling: pd.DataFrame, steps: dict[str, list[float]], device: str) -> list[Figure]:
    """Return ranks × hours per million samples, or tokens of a language model, for each workload: best buckets only.

    steps: seconds per step of each launch, by cell.
    """
    rows = in_order(name_rows(scaling, "train_step"))
    found = [(title, part) for title, part in panels(rows) if part["step_s"].notna().any()]
    return [_cost(f"cost-{number}", *panel, steps, device) for number, panel in enumerate(found, start=1)]


def _cost(figure_id: str, title: str, rows: pd.DataFrame, steps: dict, device: str) -> Figure:
    cost = COST_OF_SAMPLES if rows["context_length"].isna().all() else COST_OF_TOKENS
    series = make_series(
        rows,
        "label",
        "world_size",
        lambda row: [getattr(row, cost.name) * step_s / row.step_s for step_s in steps.get(row.cell, [])],
        lambda row: getattr(row, cost.name),
    )
    series = tuple(one for one in best_buckets_first(series, rows) if not one.is_context)
    shown = rows[rows["label"].isin([one.label for one in series])]
    panel = Panel(ranks_axis(rows[rows["step_s"].notna()]), Axis(cost.heading(device), low=0), series)
    table = Table.of_columns(f"Cost of {title}", (CELL_NAME, LAUNCHES, cost), shown, device)
    return make_figure(figure_id, f"Cost: {title}", panel, table, "scaling")


def _grade(row) -> str:
    """Return the grade, both words if the range crosses a limit, or why there is none.

    Where the ranks had fewer cores than the baseline's, a word would judge the machine's size.
    """
    if is_baseline(row):
        return "baseline"
    if is_unknown(row.efficiency_ratio) or row.uneven:
        return UNKNOWN
    if not is_unknown(row.grade):
        return row.grade
    if is_unknown(row.efficiency_low_ratio) or is_unknown(row.efficiency_high_ratio):
        return "one launch"
    if is_wide(row):
        return "uncertain"
    return " or ".join(grades_within(row.efficiency_low_ratio, row.efficiency_high_ratio))


GRADE = Column("grade", "grade", TEXT, text=_grade)


def is_wide(row) -> bool:
    return is_too_wide(row.efficiency_ratio, row.efficiency_low_ratio, row.efficiency_high_ratio)


def threads_text(threads: Threads, ranks: str) -> str:
    """Return how many threads each rank had, by shape; empty if nothing differs. ranks: processes or GPUs."""
    places = sorted(threads.items())
    listed = ", ".join(f"{'/'.join(map(str, sorted(nums)))} at {shape(*place)}" for place, nums in places)
    return f"The {ranks} share the cores of a host (threads per rank: {listed})." if listed else ""


def candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured cells of the largest world size; if any have all their launches, those alone.

    The mean of fewer launches is more prone to selection bias.
    """
    return rows.iloc[_candidate_places(rows)]


def _candidate_places(rows: pd.DataFrame) -> np.ndarray:
    """Return the places of the candidates: columns as arrays, since data frames of a few rows take milliseconds."""
    names = ("step_s", "world_size", "num_launches", "num_planned")
    step, size, num, planned = (rows[name].to_numpy(dtype=float, na_value=np.nan) for name in names)
    is_measured = ~np.isnan(step)
    is_largest = is_measured & (size == np.max(size, where=is_measured, initial=0))
    is_complete = is_largest & (num >= planned)
    return np.flatnonzero(is_complete if is_complete.any() else is_largest)


def best_of_largest(rows: pd.DataFrame):
    """Return the fastest of the candidates, the first of equal ones."""
    places = _candidate_places(rows)
    fastest = rows["throughput_samples_per_s"].to_numpy(dtype=float, na_value=np.nan)[places].argmax()
    return table_rows(rows)[places[fastest]]
