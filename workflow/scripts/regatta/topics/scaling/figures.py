"""The figures of train_step: throughput and efficiency over the number of ranks, and step time by bucket size."""

import pandas as pd

from regatta.core.names import PLACE, CellName
from regatta.core.text import (
    NOT_PLANNED,
    bracket,
    is_unknown,
    percent,
    rank_word,
    ranks_word,
    ratio_text,
    shape,
    spread_head,
    thousands,
    three,
    times,
)
from regatta.report.panels import (
    Baseline,
    Figure,
    Table,
    baseline_first,
    baseline_of,
    how_to_read,
    in_order,
    launches,
    make_figure,
    make_series,
    name_rows,
    panels,
)
from regatta.report.plotting import Axis, Panel, size_ticks
from regatta.topics.scaling.tables import SCALING
from regatta.topics.scaling.words import (
    Threads,
    best_of_largest,
    chosen_text,
    efficiency_caption,
    efficiency_text,
    further_rates,
    grade_word,
    launches_text,
    sharing,
)

PERCENT, MILLISECONDS = 100, 1e3
EFFICIENCY_TOP = 105
OVERLAPPING, APART = "spreads overlap", "spreads do not overlap"
NO_SPREAD = "too few launches for a spread"


def scaling_figures(
    scaling: pd.DataFrame, steps: dict[str, list[float]], device: str, threads: Threads | None = None
) -> list[Figure]:
    """Return throughput and efficiency in turn, for each workload. steps: seconds per step of each launch, by cell.

    threads: given where ranks of different shapes may have had different numbers of them, which is on CPUs.
    """
    scaling = with_baseline(in_order(name_rows(scaling, "train_step")), threads or {})
    figures = []
    shown = [(title, rows) for title, rows in panels(scaling) if rows["step_s"].notna().any()]
    for number, (title, rows) in enumerate(shown, start=1):
        base = baseline_of(rows, scaling) if rows["efficiency_ratio"].notna().any() else None
        figures.append(_throughput(f"throughput-{number}", title, baseline_first(rows), base, steps, device))
        if base is not None:
            figures.append(_efficiency(f"efficiency-{number}", title, baseline_first(rows), base, steps, device))
    return figures


def _throughput(
    figure_id: str, title: str, rows: pd.DataFrame, base: Baseline | None, steps: dict, device: str
) -> Figure:
    series = make_series(
        rows,
        "label",
        "world_size",
        lambda row: [row.world_size * row.batch_size / s for s in steps.get(row.cell, [])],
        lambda row: row.throughput_samples_per_s,
    )
    guides, best = (), best_of_largest(rows)
    rate = f"{three(best.throughput_samples_per_s)} samples/s ({launches_text(best)})"
    alt = f"{title}: {best.name}{chosen_text(rows)} reaches {rate}"
    if base is None:
        ideal, alt = "no baseline was measured, so no ideal line is drawn", f"{alt}."
    else:
        one = float(rows["per_gpu_baseline"].max())
        guides = (("ideal", tuple((n, one * n) for n in sorted({1, *measured_sizes(rows)}))),)
        ideal = f"the dashed ideal is {base} times the number of {ranks_word(device)}"
        alt += f"; ideal would be {three(one * best.world_size)}, from {base}."
    panel = Panel(world_axis(rows, device), Axis("samples/s", is_log=True, show=thousands), series, guides)
    caption = f"Throughput over the number of {ranks_word(device)}, both axes logarithmic; {ideal}. {how_to_read(rows, 'step_s')}"
    table = _throughput_table(title, rows, device)
    return make_figure(figure_id, f"Throughput: {title}", panel, (alt, caption), table, rows[list(SCALING)], "scaling")


def _throughput_table(title: str, rows: pd.DataFrame, device: str) -> Table:
    more_heads, more = further_rates(rows, rank_word(device))
    return Table(
        f"Throughput of {title}",
        ("cell", "n", "step (ms)", "samples/s", spread_head(rows["interval"]), f"per {rank_word(device)}", *more_heads),
        tuple(
            (
                row.full_name,
                launches(row),
                three(times(row.step_s, MILLISECONDS)),
                three(row.throughput_samples_per_s),
                bracket(row.throughput_low_samples_per_s, row.throughput_high_samples_per_s, row.interval),
                three(row.throughput_per_gpu_samples_per_s),
                *more(row),
            )
            for row in rows.itertuples()
        ),
    )


def _efficiency(figure_id: str, title: str, rows: pd.DataFrame, base: Baseline, steps: dict, device: str) -> Figure:
    others = rows[rows["cell"] != rows["baseline"].fillna("")]
    shown = others if others["efficiency_ratio"].notna().any() else rows

    def values(row) -> list[float]:
        if is_unknown(row.efficiency_ratio):
            return []
        return [PERCENT * row.batch_size / step / row.per_gpu_baseline for step in steps[row.cell]]

    series = make_series(shown, "label", "world_size", values, lambda row: PERCENT * row.efficiency_ratio)
    top = max([EFFICIENCY_TOP, *(1.02 * value for s in series for p in s.points for value in p.values)])
    y = Axis(
        "efficiency (%)",
        low=0,
        high=top,
        ticks=tuple((t, str(t)) for t in range(0, int(top) + 1, 20 if top <= 160 else 50 if top <= 400 else 200)),
    )
    sizes = measured_sizes(shown)
    panel = Panel(world_axis(shown, device), y, series, (("100 %", ((sizes[0], 100), (sizes[-1], 100))),))
    known = shown[shown["efficiency_ratio"].notna()]
    best = best_of_largest(known)
    caption = efficiency_caption(shown, base, rank_word(device), sharing(known))
    words = (efficiency_text(title, best, chosen_text(known), base, rank_word(device)), caption)
    table = _efficiency_table(title, rows, base)
    return make_figure(figure_id, f"Efficiency: {title}", panel, words, table, rows[list(SCALING)], "scaling")


def _efficiency_table(title: str, rows: pd.DataFrame, base: Baseline) -> Table:
    return Table(
        f"Efficiency of {title} against {base}",
        (
            "cell",
            "n",
            "efficiency (%)",
            f"{spread_head(rows['efficiency_interval'])} (%)",
            "wrapper",
            "intra-node",
            "inter-node",
            "grade",
        ),
        tuple(
            (
                row.full_name,
                launches(row),
                percent(row.efficiency_ratio),
                NOT_PLANNED
                if not is_unknown(row.baseline) and row.cell == row.baseline
                else bracket(row.efficiency_low_ratio, row.efficiency_high_ratio, row.efficiency_interval, percent),
                NOT_PLANNED if row.strategy == "none" else ratio_text(row.wrapper_ratio),
                ratio_text(row.intra_node_ratio) if row.gpus_per_node > 1 else NOT_PLANNED,
                ratio_text(row.inter_node_ratio) if row.nodes > 1 else NOT_PLANNED,
                grade_word(row),
            )
            for row in rows.itertuples()
        ),
    )


def with_baseline(scaling: pd.DataFrame, threads: Threads) -> pd.DataFrame:
    """Add of each row's baseline the throughput per rank and the launches, and the threads of both (None: all the same)."""
    by_cell = scaling.set_index("cell")
    world_sizes, num_launches = (scaling["baseline"].map(by_cell[name]) for name in ("world_size", "num_launches"))
    shapes = {row.cell: (row.nodes, row.gpus_per_node) for row in scaling.itertuples()}
    pairs = [(shapes[row.cell], shapes.get(row.baseline)) for row in scaling.itertuples()]
    return scaling.assign(
        per_gpu_baseline=scaling["baseline_samples_per_s"] / world_sizes,
        baseline_launches=num_launches,
        uneven=[
            {place: threads[place] for place in (base, own)}
            if own in threads and base in threads and threads[own] != threads[base]
            else None
            for own, base in pairs
        ],
    )


def bucket_figures(scaling: pd.DataFrame, steps: dict[str, list[float]]) -> list[Figure]:
    """Return the cost of each bucket size against the best of the same shape, where two sizes or more were measured."""
    scaling = name_rows(scaling, "train_step")
    rows = in_order(scaling[scaling["bucket_cap_mb"].notna() & scaling["step_s"].notna()])
    rows = rows.assign(curve=[name.label(*_curve_fields(name)) for name in rows["cell_name"]])
    curves = rows.groupby(["workload", "curve"])
    rows = rows.assign(best_step_s=curves["step_s"].transform("min"))
    rows = rows[curves["bucket_cap_mb"].transform("nunique") > 1]
    parts = enumerate(panels(rows, _curve_fields), start=1)
    return [_buckets(f"bucket-{number}", title, part, steps) for number, (title, part) in parts]


def _curve_fields(name: CellName) -> tuple[str, ...]:
    return ("shape", *(field for field in name.series if field != "bucket_cap_mb"), *PLACE)


def _buckets(figure_id: str, title: str, rows: pd.DataFrame, steps: dict) -> Figure:
    series = make_series(
        rows,
        "label",
        "bucket_cap_mb",
        lambda row: [PERCENT * (s / row.best_step_s - 1) for s in steps[row.cell]],
        lambda row: PERCENT * (row.step_s / row.best_step_s - 1),
    )
    sizes = sorted(set(rows["bucket_cap_mb"]))
    x = Axis("bucket size (MiB)", is_log=True, ticks=size_ticks(sizes, lambda value: f"{value:g}"))
    panel = Panel(x, Axis("step time above the best (%)"), series, (("best", ((sizes[0], 0), (sizes[-1], 0))),))
    table = Table(
        f"Step time of {title} by bucket size",
        ("cell", "n", "step (ms)", f"{spread_head(rows['interval'])} (ms)", "above the best (%)"),
        tuple(
            (
                row.full_name,
                launches(row),
                three(times(row.step_s, MILLISECONDS)),
                bracket(times(row.step_low_s, MILLISECONDS), times(row.step_high_s, MILLISECONDS), row.interval),
                percent(row.step_s / row.best_step_s - 1),
            )
            for row in rows.itertuples()
        ),
    )
    told, worst, best = _largest_difference(rows)
    alt = (
        f"{title}: {told}"
        f" ({three(worst.step_s * MILLISECONDS)} and {three(best.step_s * MILLISECONDS)} ms a step, n = {worst.num_launches} and"
        f" {best.num_launches}; {_overlap(worst, best)})."
    )
    caption = (
        "Step time by bucket size, in percent above the best median of the same shape (nodes × ranks per node); lower is"
        f" better. {how_to_read(rows, 'step_s')}"
    )
    return make_figure(figure_id, f"Bucket size: {title}", panel, (alt, caption), table, rows[list(SCALING)], "scaling")


def _largest_difference(rows: pd.DataFrame) -> tuple:
    """Return how far bucket sizes of one shape differ at most, in words, and the slow and the fast cell of which it is said."""
    bests = {row.curve: row for row in rows.itertuples() if row.step_s == row.best_step_s}
    pairs = [(row, bests[row.curve]) for row in rows.itertuples()]
    pairs = [(row, best) for row, best in pairs if row.cell != best.cell]
    apart = [pair for pair in pairs if _overlap(*pair) == APART]
    worst, best = max(apart or pairs, key=lambda pair: pair[0].step_s / pair[0].best_step_s)
    difference = f"{percent(worst.step_s / best.step_s - 1)} %, {worst.name} against {best.name}"
    if apart:
        is_known = all(
            _overlap(*pair) != NO_SPREAD or pair[0].step_s / pair[1].step_s <= worst.step_s / best.step_s
            for pair in pairs
        )
        difference = difference if is_known else f"{difference}, where there is a spread"
        return f"step times of bucket sizes differ by more than the spread, by up to {difference}", worst, best
    if _overlap(worst, best) == OVERLAPPING:
        return (
            f"bucket sizes show no difference larger than the spread between launches; the largest of the medians is {difference}",
            worst,
            best,
        )
    return f"step times of bucket sizes differ by up to {difference}", worst, best


def _overlap(slow, fast) -> str:
    """Return whether the spreads of two cells overlap. It is no test; it keeps noise from reading as a finding."""
    if is_unknown(slow.step_low_s) or is_unknown(fast.step_high_s):
        return NO_SPREAD
    return OVERLAPPING if slow.step_low_s <= fast.step_high_s else APART


def world_axis(rows: pd.DataFrame, device: str) -> Axis:
    """Return the axis of world sizes; each tick names its shapes too."""
    shapes: dict[int, set] = {}
    for row in rows[rows["step_s"].notna()].itertuples():
        shapes.setdefault(int(row.world_size), set()).add((row.nodes, row.gpus_per_node))
    texts = {n: f"{n}\n" + ", ".join(shape(*pair) for pair in sorted(pairs)) for n, pairs in shapes.items()}
    label = f"{ranks_word(device)} (nodes × {ranks_word(device)} per node)"
    return Axis(label, is_log=True, ticks=size_ticks(list(texts), lambda n: texts[n]))


def measured_sizes(rows: pd.DataFrame) -> list[int]:
    return sorted(set(rows.loc[rows["step_s"].notna(), "world_size"]))
