"""The figures of train_step: throughput and efficiency over the number of ranks, and the efficiency heatmap."""

import itertools
import math

import pandas as pd

from regatta.core.names import SEPARATOR
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    interval_heading,
    is_unknown,
    percent,
    plural,
    rank_word,
    ranks_word,
    ratio_text,
    shape,
    status_text,
    thousands,
    three,
)
from regatta.report.findings import Value, percent_text, value_text
from regatta.report.panels import (
    Figure,
    Table,
    baseline_first,
    baseline_of,
    ends,
    how_to_read,
    in_order,
    launches,
    make_figure,
    make_series,
    milliseconds,
    name_rows,
    panels,
    ranks_axis,
    text_of,
)
from regatta.report.plotting import INK, WIDTH_IN, Axis, Panel, image_of, new_canvas
from regatta.store.csv_files import CELL, to_csv
from regatta.topics.scaling.tables import SCALING, grades_within, is_too_wide

PERCENT = 100
# Rates that only some models and machines have: heading -> column and how it is written.
FURTHER_RATES = {
    "tokens/s": ("throughput_tokens_per_s", three),
    "TFLOP/s per {}": ("compute_per_gpu_tflop_per_s", three),
    "MFU (%)": ("mfu_ratio", percent),
}
Threads = dict[tuple[int, int], set[int]]  # threads of a rank by shape (nodes, ranks per node)


def scaling_figures(
    scaling: pd.DataFrame, steps: dict[str, list[float]], device: str, threads: Threads | None = None
) -> list[Figure]:
    """Return throughput and efficiency in turn, for each workload. steps: seconds per step of each launch, by cell.

    threads: given where ranks of different shapes may have different numbers of them, which is on CPUs.
    """
    scaling = _with_baseline(in_order(name_rows(scaling, "train_step")), threads or {})
    shown = [(title, baseline_first(rows)) for title, rows in panels(scaling) if rows["step_s"].notna().any()]
    figures = []
    for number, (title, rows) in enumerate(shown, start=1):
        base = baseline_of(rows, scaling) if rows["efficiency_ratio"].notna().any() else ""
        figures.append(_throughput(f"throughput-{number}", title, rows, base, steps, device))
        if base:
            figures.append(_efficiency(f"efficiency-{number}", title, rows, base, steps, device))
    return figures


def _with_baseline(scaling: pd.DataFrame, threads: Threads) -> pd.DataFrame:
    """Add the baseline's throughput per rank, and the threads of row and baseline if they differ."""
    shapes = {row.cell: (row.nodes, row.gpus_per_node) for row in scaling.itertuples()}
    uneven = []
    for row in scaling.itertuples():
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
    measured, best, ranks = rows[rows["step_s"].notna()], best_of_largest(rows), ranks_word(device)
    rate = value_text(Value.of(best, "throughput", "samples_per_s"), three, "samples/s")
    guides, ideal, ideal_rate = (), "no ideal: the baseline was not measured", ""
    if base:
        of_rank = float(rows["per_gpu_baseline"].max())
        guides = (("ideal", tuple((n, of_rank * n) for n in sorted({1, *measured["world_size"]}))),)
        ideal, ideal_rate = f"dashed: ideal from {base}", f"; ideal {three(of_rank * best.world_size)}"
    alt = f"{title}, {best.name}: {rate}{_chosen_text(rows)}{ideal_rate}."
    caption = f"Throughput by number of {ranks}; {ideal}. {how_to_read(rows, 'step_s')}"
    panel = Panel(ranks_axis(measured), Axis("samples/s", is_log=True, show=thousands), series, guides)
    columns = {
        "cell": lambda row: row.full_name,
        "n": launches,
        "step (ms)": text_of("step_s", milliseconds),
        "samples/s": text_of("throughput_samples_per_s", three),
        interval_heading(rows["interval"]): lambda row: ends(row, "throughput", "samples_per_s"),
        f"per {rank_word(device)}": text_of("throughput_per_gpu_samples_per_s", three),
    }
    for head, (column, show) in FURTHER_RATES.items():
        if rows[column].notna().any():
            columns[head.format(rank_word(device))] = text_of(column, show)
    table = Table.of(f"Throughput of {title}", columns, rows)
    return make_figure(figure_id, f"Throughput: {title}", panel, (alt, caption), table, rows[list(SCALING)], "scaling")


def _efficiency(figure_id: str, title: str, rows: pd.DataFrame, base: str, steps: dict, device: str) -> Figure:
    others = rows[rows["cell"] != rows["baseline"].fillna("")]
    shown = others if others["efficiency_ratio"].notna().any() else rows

    def values(row) -> list[float]:
        if is_unknown(row.efficiency_ratio):
            return []
        return [PERCENT * row.batch_size / step / row.per_gpu_baseline for step in steps[row.cell]]

    series = make_series(shown, "label", "world_size", values, lambda row: PERCENT * row.efficiency_ratio)
    measured, known = shown[shown["step_s"].notna()], shown[shown["efficiency_ratio"].notna()]
    sizes = measured["world_size"]
    guides = (("100 %", ((sizes.min(), PERCENT), (sizes.max(), PERCENT))),)
    panel = Panel(ranks_axis(measured), Axis("efficiency (%)", low=0), series, guides)
    best = best_of_largest(known)
    value = percent_text(Value.of(best, "efficiency", "ratio", "efficiency_interval"))
    what = "efficiency uncertain," if is_wide(best) else "efficiency"
    alt = f"{title}, {best.name}: {what} {value}{_chosen_text(known)}, relative to {base}."
    uneven = {place: nums for row in known.itertuples() for place, nums in row.uneven.items()}
    caption = (
        f"Throughput per {rank_word(device)} relative to {base}."
        f" {how_to_read(shown, 'efficiency_ratio')} {threads_text(uneven, ranks_word(device))}"
    ).strip()
    columns = {
        "cell": lambda row: row.full_name,
        "n": launches,
        "efficiency (%)": text_of("efficiency_ratio", percent),
        f"{interval_heading(rows['efficiency_interval'])} (%)": lambda row: (
            NOT_PLANNED if _is_baseline(row) else ends(row, "efficiency", "ratio", percent, "efficiency_interval")
        ),
        "DDP": lambda row: NOT_PLANNED if row.strategy == "none" else ratio_text(row.wrapper_ratio),
        "intra-node": lambda row: ratio_text(row.intra_node_ratio) if row.gpus_per_node > 1 else NOT_PLANNED,
        "inter-node": lambda row: ratio_text(row.inter_node_ratio) if row.nodes > 1 else NOT_PLANNED,
        "grade": _grade,
    }
    table = Table.of(f"Efficiency of {title} relative to {base}", columns, rows)
    return make_figure(figure_id, f"Efficiency: {title}", panel, (alt, caption), table, rows[list(SCALING)], "scaling")


def _is_baseline(row) -> bool:
    return not is_unknown(row.baseline) and row.cell == row.baseline


def _grade(row) -> str:
    """Return the grade, both words if the range crosses a limit, or why there is none.

    Where the ranks had fewer cores than the baseline's, a word would judge the machine's size.
    """
    if _is_baseline(row):
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


def is_wide(row) -> bool:
    return is_too_wide(row.efficiency_ratio, row.efficiency_low_ratio, row.efficiency_high_ratio)


def threads_text(threads: Threads, ranks: str) -> str:
    """Return how many threads each rank had, by shape; empty if nothing differs. ranks: processes or GPUs."""
    places = sorted(threads.items())
    listed = ", ".join(f"{'/'.join(map(str, sorted(nums)))} at {shape(*place)}" for place, nums in places)
    return f"The {ranks} share the cores of a host (threads per rank: {listed})." if listed else ""


def candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the measured cells of the largest world size; if any have all their launches, those alone.

    The median of fewer launches is more prone to selection bias.
    """
    measured = rows[rows["step_s"].notna()]
    largest = measured[measured["world_size"] == measured["world_size"].max()]
    complete = largest[largest["num_launches"] >= largest["num_planned"]]
    return complete if len(complete) else largest


def best_of_largest(rows: pd.DataFrame):
    """Return the fastest of the candidates."""
    return max(candidates(rows).itertuples(), key=lambda row: row.throughput_samples_per_s)


def _chosen_text(rows: pd.DataFrame) -> str:
    """Return from how many cells the best was selected, because the selection favors noise."""
    num = len(candidates(rows))
    return f", fastest of {plural(num, 'cell')}" if num > 1 else ""


# The heatmap: every training cell of a campaign, workloads down, shapes across. The scale is 0 to 100 % in every panel
# and report, so that two maps can be compared. A planned cell without a value is hatched and has the letter of its
# reason; what was not planned is empty.

MOST_PANELS, MOST_ROWS, MOST_COLUMNS = 4, 10, 8
LETTERS = {
    "failed": "F",
    "timeout": "T",
    "out_of_memory": "M",
    "placement": "P",
    "node_failure": "N",
    "not_measured": "\N{WHITE CIRCLE}",
    "no_baseline": "?",
}
PIXELS_PER_INCH = 100  # CSS pixels: WIDTH_IN is 390 pixels on the page
DARK_BELOW = 0.55  # color value below which white letters have contrast 4.5:1 and black ones do not


def heatmap_figures(scaling: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return the maps, each with at most ten workloads and eight shapes; none if no efficiency was planned."""
    rows = in_order(name_rows(scaling, "train_step"))
    rows = rows[(rows["cell"] != rows["baseline"].fillna("")) & rows["baseline"].notna()]
    if rows.empty or rows["efficiency_ratio"].isna().all():
        return []
    if rows.groupby(["workload", "series"]).ngroups > MOST_PANELS * MOST_ROWS:
        rows = _best_buckets(rows)
    rows = rows.assign(
        row_name=rows["workload"] + "\n" + rows["series"].str.replace("\n", SEPARATOR),
        shape=[shape(k, g) for k, g in zip(rows["nodes"], rows["gpus_per_node"], strict=True)],
        letter=rows["cell"].map(_letters(measurements)),
    )
    names = rows.sort_values("workload", kind="stable")["row_name"].unique()
    shapes = rows.sort_values(["world_size", "nodes"], kind="stable")["shape"].unique()
    parts = list(itertools.product(_even_parts(list(names), MOST_ROWS), _even_parts(list(shapes), MOST_COLUMNS)))
    return [
        _heatmap(number, len(parts), rows[rows["row_name"].isin(part[0]) & rows["shape"].isin(part[1])], *part)
        for number, part in enumerate(parts, start=1)
    ]


def _best_buckets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the most efficient of the rows that differ only in bucket size, for each shape."""
    rows = rows.sort_values("efficiency_ratio", ascending=False, na_position="last", kind="stable")
    same = [name for name in CELL if name in rows and name != "bucket_cap_mb"]
    named = name_rows(rows.drop_duplicates(same), "train_step", without=("bucket_cap_mb",))
    return in_order(named.assign(series=named["series"] + f"{SEPARATOR}best bucket"))


def _even_parts(names: list[str], most: int) -> list[list[str]]:
    """Divide names into as few parts as `most` allows, of the same size but for the last."""
    num = math.ceil(len(names) / math.ceil(len(names) / most))
    return [names[start : start + num] for start in range(0, len(names), num)]


def _letters(measurements: pd.DataFrame) -> dict[str, str]:
    """Return for each cell the letter of its most common status that is not ok; `?` where all are ok."""
    failed = measurements[measurements["status"] != "ok"].groupby("cell")["status"]
    letters = {cell: LETTERS.get(statuses.mode().iloc[0], "?") for cell, statuses in failed}
    return dict.fromkeys(measurements["cell"], LETTERS["no_baseline"]) | letters


def _heatmap(number: int, num_parts: int, rows: pd.DataFrame, names: list[str], shapes: list[str]) -> Figure:
    values = {(row.row_name, row.shape): row for row in rows.itertuples()}
    title = "Efficiency of all cells" + (f" ({number} of {num_parts})" if num_parts > 1 else "")
    known = rows[rows["efficiency_ratio"].notna()]
    if known.empty:
        alt = f"{title}: no value for {plural(len(rows), 'cell')}."
    else:
        extremes = (pick(known.itertuples(), key=lambda row: row.efficiency_ratio) for pick in (min, max))
        texts = (f"{percent(row.efficiency_ratio)} % ({row.cell_name.full})" for row in extremes)
        alt = f"{title}: {' to '.join(texts)}, {len(known)} of {plural(len(rows), 'cell')} with a value."
    letters = sorted(set(rows.loc[rows["efficiency_ratio"].isna(), "letter"].dropna()))
    reasons = {letter: status_text(status) for status, letter in LETTERS.items()}
    hatched = f" Hatched: {', '.join(f'{letter} {reasons[letter]}' for letter in letters)}." if letters else ""
    caption = f"Scaling efficiency in percent; color scale from 0 to 100. Empty: not planned.{hatched}"
    body = ((name.replace("\n", ": "), *(_text(values.get((name, place))) for place in shapes)) for name in names)
    table = Table(f"{title} (%)", ("workload", *shapes), tuple(body))
    height_in = 0.55 + 0.34 * len(names)
    svg = _draw_heatmap(names, shapes, values, height_in)
    size = (round(PIXELS_PER_INCH * WIDTH_IN), round(PIXELS_PER_INCH * height_in))
    return Figure(f"heatmap-{number}", title, svg, alt, caption, table, to_csv(rows[list(SCALING)]), size, "scaling")


def _text(row) -> str:
    if row is None:
        return NOT_PLANNED
    return str(row.letter) if is_unknown(row.efficiency_ratio) else percent(row.efficiency_ratio)


def _draw_heatmap(names: list[str], shapes: list[str], values: dict, height_in: float) -> bytes:
    with new_canvas(WIDTH_IN, height_in, **{"hatch.linewidth": 0.5}) as canvas:
        axes = canvas.add_axes((0.42, 0.04, 0.56, 1 - 0.45 / height_in))
        for (name, place), row in values.items():
            _draw_square(axes, shapes.index(place), names.index(name), row)
        axes.set(xlim=(0, len(shapes)), ylim=(len(names), 0))
        axes.set_xticks([x + 0.5 for x in range(len(shapes))], shapes, fontsize=8)
        axes.set_yticks([y + 0.5 for y in range(len(names))], names, fontsize=7.5, linespacing=1.05)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        return image_of(canvas)


def color_of(ratio: float) -> tuple[float, float, float, float]:
    """Return the map's color for an efficiency; 100 % and more are the brightest."""
    from matplotlib import colormaps

    return colormaps["cividis"](min(max(float(ratio), 0.0), 1.0))


def _draw_square(axes, x: int, y: int, row) -> None:
    from matplotlib.patches import Rectangle

    if is_unknown(row.efficiency_ratio):
        box = {"facecolor": "white", "edgecolor": "#999999", "hatch": "////", "linewidth": 0.5}
        text, color, ground = str(row.letter), INK, {"facecolor": "white", "edgecolor": "none", "pad": 1}
    else:
        box = {"facecolor": color_of(row.efficiency_ratio), "edgecolor": "white", "linewidth": 1}
        text, ground = f"{100 * row.efficiency_ratio:.0f}", None
        color = "white" if row.efficiency_ratio < DARK_BELOW else "black"
    axes.add_patch(Rectangle((x, y), 1, 1, **box))
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8.5, color=color, bbox=ground)
