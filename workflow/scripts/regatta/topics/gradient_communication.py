"""How much of the exchange of gradients a step has to wait for: tables/strategies.csv, and what a cell's memory is made of:
tables/memory.csv. Definitions: docs/metrics.md.
"""

import pandas as pd

from regatta.core.statistics import over_launches
from regatta.core.text import UNKNOWN, bracket, duration, is_unknown, natural, percent, spread_head, three, times
from regatta.report.findings import Finding, Value, of_cells, percent_number, time_text
from regatta.report.panels import (
    Figure,
    Section,
    Table,
    how_to_read,
    in_order,
    make_figure,
    name_rows,
    on_one_shape,
    panels,
)
from regatta.report.plotting import Axis, Panel, Point, Series
from regatta.store.collect import cell_row
from regatta.store.tables import CELL, REAL, SHAPE_COLUMNS, STEP_COLUMNS, TEXT, WHOLE, make_table
from regatta.topics.base import ReportData, TableSpec, Topic
from regatta.topics.scaling.tables import LaunchValues, known

STRATEGIES = {
    "cell": TEXT,
    **{name: CELL[name] for name in (*STEP_COLUMNS, *SHAPE_COLUMNS)},
    "num_planned": WHOLE,
    "num_launches": WHOLE,
    "interval": TEXT,
    "step_p50_s": REAL,
    "step_mean_s": REAL,
    "step_std_s": REAL,
    "whole_step_s": REAL,
    "no_sync_s": REAL,
    "communication_s": REAL,
    "exposed_s": REAL,
    "exposed_low_s": REAL,
    "exposed_high_s": REAL,
    "exposed_share_ratio": REAL,
    "hidden_ratio": REAL,
    "host_wait_s": REAL,
    "communication_stream_s": REAL,
    "exposed_stream_s": REAL,
    "num_calls": WHOLE,
    "gradient_bytes": WHOLE,
    "algorithm_bytes": WHOLE,
}
MEDIANS = {
    "step_p50_s": "p50_s",
    "step_mean_s": "mean_s",
    "step_std_s": "std_s",
    **{name: name for name in ("whole_step_s", "no_sync_s", "communication_s", "host_wait_s")},
    **{name: name for name in ("communication_stream_s", "exposed_stream_s")},
}
LARGEST = ("num_calls", "gradient_bytes", "algorithm_bytes")


def strategies_table(campaign: dict, measurements: pd.DataFrame) -> pd.DataFrame:
    """Return one row for each train_step cell of several ranks, measured or not. One rank has nothing to exchange."""
    cells = [cell for cell in step_cells(campaign) if cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"] > 1]
    launches = LaunchValues(measurements, [*MEDIANS.values(), *LARGEST])
    planned = {"num_planned": campaign["repeats"]}
    return make_table([cell_row(cell) | planned | _exchange(cell["id"], launches) for cell in cells], STRATEGIES)


def step_cells(campaign: dict) -> list[dict]:
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
        **{name: largest(launches.of(cell, name)) for name in LARGEST},
    }


def largest(values: list[float]) -> int | None:
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
    words, table, rows = (alt, caption), _table(title, told), told[list(STRATEGIES)]
    return make_figure(figure_id, f"Gradient synchronization: {title}", panel, words, table, rows, "strategies")


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


def section(data: ReportData) -> Section:
    figures = strategy_figures(data.tables["strategies"], data.measurements)
    empty = "No step was measured with and without gradient synchronization."
    return Section("strategies", "Gradient communication", empty, figures=tuple(figures))


def findings(data: ReportData) -> list[Finding]:
    """Return the cell whose step waits longest for gradient communication, as a share of the step."""
    rows = data.tables["strategies"]
    rows = rows[rows["exposed_share_ratio"].notna() & rows["exposed_s"].notna()]
    if rows.empty:
        return []
    worst = max(rows.itertuples(), key=lambda row: row.exposed_share_ratio)
    values = {
        "name": data.names[worst.cell],
        "share_ratio": float(worst.exposed_share_ratio),
        "exposed": Value.of(worst, "exposed", "s"),
        "step_s": float(worst.whole_step_s),
        "num_cells": len(rows),
    }
    return [Finding("exposed", values, (of_cells("strategies", [worst.cell]),), (worst.cell,), "strategies")]


def sentence(finding: Finding) -> str:
    values = finding.values
    return (
        f"Exposed communication: up to {percent_number(values['share_ratio'])} % of the step ({values['name']}):"
        f" {time_text(values['exposed'])} of {duration(values['step_s'])}."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    specs = [cell["spec"] for cell in campaign["cells"] if cell["spec"]["benchmark"] == "train_step"]
    wrapped = [spec for spec in specs if spec["parameters"].get("strategy") not in (None, "none")]
    if all(spec["nodes"] * spec["gpus_per_node"] < 2 for spec in wrapped):
        return []
    text = (
        "Step time with minus without gradient synchronization: medians of interleaved rounds within each launch, then the"
        " median over launches. Hidden: 1 − exposed / time of the communication alone. n: launches with both steps. Unknown"
        " for fsdp and static graphs, which have no step without synchronization."
    )
    return [("Exposed communication", text)]


TABLES = {
    "strategies": TableSpec(STRATEGIES, lambda campaign, tables: strategies_table(campaign, tables["measurements"]))
}
TOPIC = Topic("gradient_communication", "Gradient communication", TABLES, section, findings, sentence, methods=methods)
