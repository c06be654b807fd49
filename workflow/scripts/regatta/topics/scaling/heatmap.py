"""The efficiency heatmap: every training cell of a campaign, workloads down, shapes across.

The scale is 0 to 100 % in every panel and report, so that two maps can be compared. A planned cell without a value is
hatched and has the letter of its reason; what was not planned is empty.
"""

import math

import pandas as pd

from regatta.core.names import SEPARATOR
from regatta.core.text import NOT_PLANNED, is_unknown, percent, plural, shape
from regatta.report.panels import Figure, Table, in_order, name_rows
from regatta.report.plotting import INK, WIDTH_IN, image_of, new_canvas
from regatta.store.tables import CELL, to_csv
from regatta.topics.scaling.tables import SCALING

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
PIXELS_PER_INCH = 100  # of the page, where WIDTH_IN is 390 pixels
DARK_BELOW = 0.55  # of the map, where white letters keep 4.5:1 on it and black ones no longer do


def heatmap_figures(scaling: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return the maps, each with at most ten workloads and eight shapes; none where no efficiency was planned."""
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
    names = list(dict.fromkeys(rows.sort_values("workload", kind="stable")["row_name"]))
    by_size = rows.drop_duplicates("shape").sort_values(["world_size", "nodes"], kind="stable")
    shapes = list(by_size["shape"])
    num_rows, num_columns = (_even(len(found), most) for found, most in ((names, MOST_ROWS), (shapes, MOST_COLUMNS)))
    parts = [
        (names[row : row + num_rows], shapes[column : column + num_columns])
        for row in range(0, len(names), num_rows)
        for column in range(0, len(shapes), num_columns)
    ]
    return [
        _figure(number, len(parts), rows[rows["row_name"].isin(part[0]) & rows["shape"].isin(part[1])], *part)
        for number, part in enumerate(parts, start=1)
    ]


def _best_buckets(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the most efficient of the rows that differ only in bucket size, for each shape."""
    rows = rows.sort_values("efficiency_ratio", ascending=False, na_position="last", kind="stable")
    same = [name for name in CELL if name in rows and name != "bucket_cap_mb"]
    named = name_rows(rows.drop_duplicates(same), "train_step", without=("bucket_cap_mb",))
    return in_order(named.assign(series=named["series"] + f"{SEPARATOR}best bucket"))


def _even(num: int, most: int) -> int:
    """Return the size of each part, with as few parts as `most` allows."""
    return math.ceil(num / math.ceil(num / most))


def _letters(measurements: pd.DataFrame) -> dict[str, str]:
    """Return for each cell the letter of its most common status that is not ok; `?` where all are ok."""
    failed = measurements[measurements["status"] != "ok"].groupby("cell")["status"]
    letters = {cell: LETTERS.get(statuses.mode().iloc[0], "?") for cell, statuses in failed}
    return dict.fromkeys(measurements["cell"], LETTERS["no_baseline"]) | letters


def _figure(number: int, num_parts: int, rows: pd.DataFrame, names: list[str], shapes: list[str]) -> Figure:
    values = {(row.row_name, row.shape): row for row in rows.itertuples()}
    title = "Efficiency of all cells" + (f" ({number} of {num_parts})" if num_parts > 1 else "")
    known = rows[rows["efficiency_ratio"].notna()]
    if known.empty:
        alt = f"{title}: no value for {plural(len(rows), 'cell')}."
    else:
        low, high = (known.loc[known["efficiency_ratio"].agg(pick)] for pick in ("idxmin", "idxmax"))
        alt = f"{title}: {_named(low)} to {_named(high)}, {len(known)} of {plural(len(rows), 'cell')} with a value."
    letters = sorted(set(rows.loc[rows["efficiency_ratio"].isna(), "letter"].dropna()))
    reasons = {letter: status.replace("_", " ") for status, letter in LETTERS.items()}
    hatched = f" Hatched: {', '.join(f'{letter} {reasons[letter]}' for letter in letters)}." if letters else ""
    caption = f"Scaling efficiency in percent; color scale from 0 to 100. Empty: not planned.{hatched}"
    table = Table(
        f"{title} (%)",
        ("workload", *shapes),
        tuple((name.replace("\n", ": "), *(_text(values.get((name, place))) for place in shapes)) for name in names),
    )
    height = round(PIXELS_PER_INCH * _height_in(names))
    svg, size = _draw(names, shapes, values), (round(PIXELS_PER_INCH * WIDTH_IN), height)
    csv = to_csv(rows[list(SCALING)])
    return Figure(f"heatmap-{number}", title, svg, alt, caption, table, csv, size, "scaling")


def _named(row: pd.Series) -> str:
    return f"{percent(row['efficiency_ratio'])} % ({row['cell_name'].full})"


def _text(row) -> str:
    if row is None:
        return NOT_PLANNED
    return str(row.letter) if is_unknown(row.efficiency_ratio) else percent(row.efficiency_ratio)


def _height_in(names: list[str]) -> float:
    return 0.55 + 0.34 * len(names)


def _draw(names: list[str], shapes: list[str], values: dict) -> bytes:
    height_in = _height_in(names)
    with new_canvas(WIDTH_IN, height_in, **{"hatch.linewidth": 0.5}) as canvas:
        axes = canvas.add_axes((0.42, 0.04, 0.56, 1 - 0.45 / height_in))
        for y, name in enumerate(names):
            for x, place in enumerate(shapes):
                row = values.get((name, place))
                if row is not None:
                    _square(axes, x, y, row)
        axes.set(xlim=(0, len(shapes)), ylim=(len(names), 0))
        axes.set_xticks([x + 0.5 for x in range(len(shapes))], shapes, fontsize=8)
        axes.set_yticks([y + 0.5 for y in range(len(names))], names, fontsize=7.5, linespacing=1.05)
        axes.xaxis.tick_top()
        axes.tick_params(length=0)
        for side in ("left", "bottom"):
            axes.spines[side].set_visible(False)
        return image_of(canvas)


def colour_of(ratio: float) -> tuple[float, float, float, float]:
    """Return the map's colour for an efficiency; 100 % and more are the brightest."""
    from matplotlib import colormaps

    return colormaps["cividis"](min(max(float(ratio), 0.0), 1.0))


def _square(axes, x: int, y: int, row) -> None:
    from matplotlib.patches import Rectangle

    if is_unknown(row.efficiency_ratio):
        box = {"facecolor": "white", "edgecolor": "#999999", "hatch": "////", "linewidth": 0.5}
        text, colour, ground = str(row.letter), INK, {"facecolor": "white", "edgecolor": "none", "pad": 1}
    else:
        box = {"facecolor": colour_of(row.efficiency_ratio), "edgecolor": "white", "linewidth": 1}
        text, ground = f"{100 * row.efficiency_ratio:.0f}", None
        colour = "white" if row.efficiency_ratio < DARK_BELOW else "black"
    axes.add_patch(Rectangle((x, y), 1, 1, **box))
    axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8.5, color=colour, bbox=ground)
