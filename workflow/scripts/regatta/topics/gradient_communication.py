"""How much of the exchange of gradients a step has to wait for: tables/strategies.csv, and what a cell's memory is made of:
tables/memory.csv. Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import over_launches
from regatta.core.text import UNKNOWN, bracket, is_unknown, natural, percent, spread_head, three, times
from regatta.report.panels import Figure, Table, how_to_read, in_order, name_rows, on_one_shape, panels
from regatta.report.plotting import Axis, Panel, Point, Series, draw
from regatta.report.sources import of_cells
from regatta.store.collect import cell_row
from regatta.store.records import MEMORY_BYTES
from regatta.store.tables import MEMORY, STRATEGIES, make_table, to_csv
from regatta.topics.scaling.tables import LaunchValues, known

MEDIANS = {
    "step_p50_s": "p50_s",
    "step_mean_s": "mean_s",
    "step_std_s": "std_s",
    **{name: name for name in ("whole_step_s", "no_sync_s", "communication_s", "host_wait_s")},
    **{name: name for name in ("communication_stream_s", "exposed_stream_s")},
}
LARGEST = ("num_calls", "gradient_bytes", "algorithm_bytes")
OWN_PARTS = ("parameter_bytes", "gradient_bytes", "optimizer_bytes", "saved_bytes", "algorithm_bytes")


def strategies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of several ranks, measured or not. One rank has nothing to exchange."""
    cells = [cell for cell in _trained(campaign) if cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] > 1]
    launches = LaunchValues(measurements, [*MEDIANS.values(), *LARGEST])
    planned = {"num_planned": campaign["repeats"]}
    return make_table([cell_row(cell) | planned | _exchange(cell["id"], launches) for cell in cells], STRATEGIES)


def memory_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell: the largest of its launches, in bytes on one rank."""
    launches = LaunchValues(measurements, MEMORY_BYTES)
    rows = []
    for cell in _trained(campaign):
        largest = {name: _largest(launches.of(cell["id"], name)) for name in MEMORY_BYTES}
        own = {"num_launches": launches.num_launches(cell["id"]), "part_bytes": _sum_of_parts(largest)}
        rows.append(cell_row(cell) | own | largest)
    return make_table(rows, MEMORY)


def _trained(campaign: dict) -> list[dict]:
    cells = [cell for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    return sorted(cells, key=lambda cell: natural(cell["id"]))


def _exchange(cell: str, launches: LaunchValues) -> dict:
    """Return the columns of one cell. What is hidden and exposed is taken within each launch, then over launches."""
    whole, alone = launches.with_gaps(cell, "whole_step_s"), launches.with_gaps(cell, "communication_s")
    exposed = whole - launches.with_gaps(cell, "no_sync_s")
    spread = over_launches(known(exposed).tolist())
    return {
        "num_launches": launches.num_launches(cell),
        "interval": spread.kind,
        **{name: over_launches(launches.of(cell, column)).median for name, column in MEDIANS.items()},
        "exposed_s": spread.median,
        "exposed_low_s": spread.low,
        "exposed_high_s": spread.high,
        "exposed_share_ratio": over_launches(known(exposed / whole).tolist()).median,
        "hidden_ratio": over_launches(known(1 - exposed / alone).tolist()).median,
        **{name: _largest(launches.of(cell, name)) for name in LARGEST},
    }


def _sum_of_parts(largest: dict) -> int | None:
    """Return the sum of the parts that are known, or None where what autograd saves is not among them."""
    return None if largest["saved_bytes"] is None else sum(largest[name] or 0 for name in OWN_PARTS)


def _largest(values: list[float]) -> int | None:
    return int(max(values)) if values else None


# The figures of strategies: how much of the exchange of gradients a step waits for.

MILLISECONDS = 1e3
MOST = 3  # cells in a panel, so that their names find room
# What a line shows, its column in strategies.csv, and the column of one launch.
SHOWN = {"exposed": "exposed_s", "exchange\nalone": "communication_s", "host wait": "host_wait_s"}


def strategy_figures(strategies: pd.DataFrame, measurements: pd.DataFrame) -> list[Figure]:
    """Return exposed communication by strategy, for each workload and shape.

    A strategy that has no step without exchange to compare with, such as fsdp, is not drawn: it is in the last table.
    """
    rows = in_order(name_rows(strategies, "train_step"))
    rows = rows[rows["step_p50_s"].notna()]
    ok = measurements[measurements["status"] == "ok"]
    num_exposed = (ok["whole_step_s"].notna() & ok["no_sync_s"].notna()).groupby(ok["cell"]).sum()
    rows = rows.assign(num_exposed=rows["cell"].map(num_exposed))
    found = []
    exposed = rows["exposed_s"].notna()
    others = dict(panels(rows[~exposed], lambda name: name.series, on_one_shape, (), len(rows)))
    for title, part in panels(rows[exposed], lambda name: name.series, on_one_shape, most=MOST):
        left = others.pop(on_one_shape(part["cell_name"].iloc[0]), None)
        told = part if left is None else pd.concat([part, left])
        found.append(_exchange_figure(f"strategy-{len(found) + 1}", title, part, told, ok))
    return found


def _exchange_figure(figure_id: str, title: str, rows: pd.DataFrame, told: pd.DataFrame, ok: pd.DataFrame) -> Figure:
    """rows: what is drawn. told: what the table has."""
    of_launch = ok.assign(exposed_s=ok["whole_step_s"] - ok["no_sync_s"]).groupby("cell")
    series = []
    for label, column in SHOWN.items():
        points = []
        for place, row in enumerate(rows.itertuples()):
            values = of_launch.get_group(row.cell)[column].dropna()
            if len(values):
                dots = tuple(float(value) * MILLISECONDS for value in values)
                points.append(Point(place, dots, float(getattr(row, column)) * MILLISECONDS))
        if points:
            series.append(Series(label, tuple(points), has_line=False))
    ticks = tuple((place, text.replace(" ", "\n", 1)) for place, text in enumerate(rows["label"]))
    x = Axis("", low=-0.5, high=len(rows) - 0.5, ticks=ticks)
    panel = Panel(x, Axis("time per step (ms)"), tuple(series))
    best, worst = rows.loc[rows["exposed_s"].idxmin()], rows.loc[rows["exposed_s"].idxmax()]
    alt = f"{title}: {_told(best)}"
    alt += f"; {_told(worst)}; {_apart(best, worst)}." if best["cell"] != worst["cell"] else "."
    caption = (
        "Exposed: the step minus the same step without exchange of gradients, in turns. Beside it the exchange alone, and how long the"
        " host waited, which on a GPU is no communication time. Lower is better. n counts launches that have both steps; p50,"
        " mean and std are of all."
        f" {how_to_read(rows.assign(num_launches=rows['num_exposed']), 'exposed_s')}"
    ).replace(", the line joins the values of the table", ", a bar the value of the table")
    if len(told) > len(rows):
        names = ", ".join(told["label"].iloc[len(rows) :]).replace("\n", " ")
        caption += f" {names}: no step without exchange was measured, so what is exposed is not known."
    traces = (of_cells("strategies", (best["cell"], worst["cell"])),)
    csv, weight = to_csv(told[list(STRATEGIES)]), float(worst["exposed_share_ratio"])
    return Figure(figure_id, f"Exchange of gradients: {title}", draw(panel), alt, caption, _table(title, told), csv, weight, source="strategies", traces=traces)  # fmt: skip


def _told(row: pd.Series) -> str:
    """Return what a strategy costs, in words."""
    name = row["cell_name"].say(*row["cell_name"].series)
    spread = bracket(*(times(row[f"exposed_{end}_s"], MILLISECONDS) for end in ("low", "high")), row["interval"])
    spread = "" if spread == UNKNOWN else f" {spread}"
    text = f"{name} exposes {three(row['exposed_s'] * MILLISECONDS)} ms{spread} of a step of {three(row['whole_step_s'] * MILLISECONDS)} ms"
    return f"{text} (median share {percent(row['exposed_share_ratio'])} %, n = {row['num_exposed']})"


def _apart(best: pd.Series, worst: pd.Series) -> str:
    """Return whether the least and the most exposed differ by more than their spreads. It is no test."""
    if is_unknown(best["exposed_high_s"]) or is_unknown(worst["exposed_low_s"]):
        return "too few launches for a spread"
    differ = "do not differ" if best["exposed_high_s"] >= worst["exposed_low_s"] else "differ"
    return f"the two {differ} by more than the spread"


def _table(title: str, rows: pd.DataFrame) -> Table:
    heads = (
        "strategy",
        "n",
        "step p50 (ms)",
        "mean (ms)",
        "std (ms)",
        "step in turns (ms)",
        "without exchange (ms)",
        "exchange alone (ms)",
    )
    heads += (
        "exposed (ms)",
        f"{spread_head(rows['interval'])} (ms)",
        "exposed (%)",
        "hidden (%)",
        "host wait (ms)",
        "calls",
    )
    columns = ("step_p50_s", "step_mean_s", "step_std_s", "whole_step_s", "no_sync_s", "communication_s", "exposed_s")
    return Table(
        f"Step and communication of {title}",
        heads,
        tuple(
            (
                row.cell_name.say(*row.cell_name.series),
                f"{row.num_launches if is_unknown(row.exposed_s) else row.num_exposed}/{row.num_planned}",
                *(three(times(getattr(row, column), MILLISECONDS)) for column in columns),
                bracket(times(row.exposed_low_s, MILLISECONDS), times(row.exposed_high_s, MILLISECONDS), row.interval),
                *(
                    UNKNOWN if is_unknown(ratio) else percent(ratio)
                    for ratio in (row.exposed_share_ratio, row.hidden_ratio)
                ),
                three(times(row.host_wait_s, MILLISECONDS)),
                UNKNOWN if is_unknown(row.num_calls) else str(row.num_calls),
            )
            for row in rows.itertuples()
        ),
    )
