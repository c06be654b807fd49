"""The models that were fitted, drawn over what they were fitted to; and those that were refused, with the reason."""

import pandas as pd

from regatta.analysis.communication_model import COMMUNICATION_MODELS, communication_curve
from regatta.analysis.scaling_models import SCALING_MODELS, scaling_curve
from regatta.analysis.tables import CELL, to_csv
from regatta.numbers import (
    UNKNOWN,
    bracket,
    duration,
    duration_tick,
    is_unknown,
    percent,
    shape,
    size,
    thousands,
    three,
)
from regatta.report.figures import Axis, Panel, Point, Series, draw, size_ticks
from regatta.report.panels import Figure, Table

MOST = 4  # figures of each kind: those of the largest shapes; the table has all
STEPS = 24  # points of a drawn curve
WORDS = {"usl": "USL", "amdahl": "Amdahl"}


def scaling_model_figures(models: pd.DataFrame, scaling: pd.DataFrame, steps: dict, device: str) -> list[Figure]:
    """Return the accepted scaling models of the fastest curves, each over its launches and up to twice as many ranks."""
    fitted = models[models["refusal"].isna()]
    fastest = fitted.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable")
    drawn = fastest.drop_duplicates("model")[:MOST]
    found = []
    for number, row in enumerate(drawn.to_dict("records"), start=1):
        own = _cells_of(row, scaling[scaling["step_s"].notna()], SCALING_MODELS).sort_values(
            "world_size", kind="stable"
        )
        found.append(_scaling_model(f"scaling-model-{number}", row, own, steps, device))
    return found


def _scaling_model(figure_id: str, row: dict, cells: pd.DataFrame, steps: dict, device: str) -> Figure:
    points = tuple(
        Point(
            float(cell.world_size),
            tuple(cell.world_size * cell.batch_size / step for step in steps.get(cell.cell, [])),
            float(cell.throughput_samples_per_s),
        )
        for cell in cells.itertuples()
    )
    last, beyond = int(row["max_world_size"]), int(row["extrapolated_world_size"])
    within = scaling_curve(row, sorted({int(n) for n in cells["world_size"]}))
    further = scaling_curve(row, [last, beyond])
    model = WORDS.get(row["scaling_model"], row["scaling_model"])
    guides = ((model, _dots(within, "world_size", "throughput_samples_per_s")),)
    guides += (("not measured", _dots(further, "world_size", "throughput_samples_per_s")),)
    name = f"{row['model']}, {_series(row)}"
    ranks = "processes" if device == "cpu" else "GPUs"
    x = Axis(ranks, is_log=True, ticks=size_ticks([*within["world_size"], beyond], str))
    panel = Panel(
        x,
        Axis("samples/s", is_log=True, show=thousands),
        (Series("measured", points, False),),
        guides,
        dotted=("not measured",),
    )
    at_most = bracket(row["extrapolated_low_samples_per_s"], row["extrapolated_high_samples_per_s"])
    alt = (
        f"{name}: {model}, fitted with residuals up to {percent(row['max_residual_ratio'])} %, has a contention σ of"
        f" {percent(row['sigma_ratio'])} % {_percents(row, 'sigma')}"
        + ("" if is_unknown(row["kappa_ratio"]) else f" and a coherence κ of {three(100 * row['kappa_ratio'])} %")
        + f"; at {beyond} {ranks}, which were not measured, it gives {three(row['extrapolated_samples_per_s'])} samples/s {at_most} (n = {row['num_launches']})."
    )
    caption = (
        f"Points: launches; a bar the value of the table. Dashed: {model}, fitted to the medians; dotted: its extrapolation to twice the"
        f" largest measured size, no further. Largest residual {percent(row['max_residual_ratio'])} %."
    )
    table = Table(f"Scaling model of {name}", ("sizes", "contention σ (%)", "coherence κ (%)", f"samples/s at {beyond}"),
                  ((f"{row['min_world_size']} to {last}", percent(row["sigma_ratio"]), UNKNOWN if is_unknown(row["kappa_ratio"]) else three(100 * row["kappa_ratio"]), three(row["extrapolated_samples_per_s"])),))  # fmt: skip
    return Figure(figure_id, f"Scaling model: {name}", draw(panel), alt, caption, table, to_csv(pd.DataFrame([row])))


def communication_model_figures(models: pd.DataFrame, collectives: pd.DataFrame) -> list[Figure]:
    """Return the accepted communication models that have a curve, of the largest shapes."""
    fitted = models[models["refusal"].isna() & models["latency_a_s"].notna() & models["bandwidth_b_gb_per_s"].notna()]
    largest = fitted.sort_values("world_size", ascending=False, kind="stable").drop_duplicates("operation")
    found = []
    for number, row in enumerate(largest[:MOST].to_dict("records"), start=1):
        own = _cells_of(row, collectives[collectives["latency_s"].notna()], COMMUNICATION_MODELS)
        found.append(_communication_model(f"communication-model-{number}", row, own.sort_values("message_bytes")))
    return found


def _communication_model(figure_id: str, row: dict, cells: pd.DataFrame) -> Figure:
    low, high = int(row["min_bytes"]), int(row["max_bytes"])
    ratio = (high / low) ** (1 / STEPS)
    curve = communication_curve(row, sorted({round(low * ratio**i) for i in range(STEPS)} | {high}))
    points = tuple(Point(float(c.message_bytes), (float(c.latency_s),), float(c.latency_s)) for c in cells.itertuples())
    sizes = [int(value) for value in cells["message_bytes"]]
    x = Axis("message", True, low, high, size_ticks(sizes, lambda value: size(int(value)), most=4))
    panel = Panel(x, Axis("time per call", True, show=duration_tick), (Series("measured", points, False),),
                  (("model", _dots(curve, "message_bytes", "latency_s")),))  # fmt: skip
    name = f"{row['operation']}, {row['dtype']}, {shape(row['nodes'], row['gpus_per_node'])}, {row['stack']}"
    alt = (
        f"{name}: a call costs {duration(row['latency_a_s'])} before the first byte and sends at"
        f" {three(row['bandwidth_b_gb_per_s'])} GB/s; half of that is reached at {size(round(row['half_bandwidth_bytes']))}."
    )
    caption = (
        "T(S) = a + c √S + S/B, fitted in logarithms to the medians over launches (bars); the term with c only where it makes the"
        f" fit better. Largest residual {percent(row['max_residual_ratio'])} %."
    )
    table = Table(f"Communication model of {name}", ("sizes", "a", "B (GB/s)", "half of B at"),
                  ((str(row["num_sizes"]), duration(row["latency_a_s"]), three(row["bandwidth_b_gb_per_s"]), size(round(row["half_bandwidth_bytes"]))),))  # fmt: skip
    return Figure(
        figure_id, f"Communication model: {name}", draw(panel), alt, caption, table, to_csv(pd.DataFrame([row]))
    )


def _cells_of(model: dict, cells: pd.DataFrame, columns: dict) -> pd.DataFrame:
    """Return the cells that a model was fitted to: those that are what it says of a cell, unknown where it is unknown."""
    for name in (name for name in columns if name in CELL):
        cells = cells[cells[name].isna() if is_unknown(model[name]) else (cells[name] == model[name]).fillna(False)]
    return cells


def refusal_table(scaling_models: pd.DataFrame, communication_models: pd.DataFrame) -> Table | None:
    """Return how many curves were not fitted, for each reason; None where all were."""
    rows = []
    for kind, models in (("scaling", scaling_models), ("communication", communication_models)):
        for reason, own in models[models["refusal"].notna()].groupby("refusal", sort=True):
            rows.append((kind, str(len(own)), reason))
    return (
        Table("Curves without a model, and why", ("kind", "curves", "reason"), tuple(rows), is_words=True)
        if rows
        else None
    )


def _dots(curve: pd.DataFrame, x: str, y: str) -> tuple[tuple[float, float], ...]:
    return tuple(zip(curve[x].astype(float), curve[y].astype(float), strict=True))


def _series(row: dict) -> str:
    bucket = "" if is_unknown(row["bucket_cap_mb"]) else f" {row['bucket_cap_mb']:g} MiB"
    return f"{row['strategy']}{bucket}, {row['stack']}"


def _percents(row: dict, name: str) -> str:
    spread = bracket(row[f"{name}_low_ratio"], row[f"{name}_high_ratio"], percent)
    return "" if spread == UNKNOWN else spread


def best_bucket_table(buckets: pd.DataFrame) -> Table | None:
    """Return the best bucket of each workload and shape, as measured and as predicted; None without two sizes."""
    rows = buckets[(buckets["num_buckets"] > 1) & buckets["best_bucket_cap_mb"].notna()]
    heads = ("workload", "best (MiB)", "not told apart from (MiB)", "predicted (MiB)", "spread", "from, or why not")
    texts = tuple(
        (
            f"{row.model}, {row.strategy}, {shape(row.nodes, row.gpus_per_node)}, {row.stack}",
            f"{row.best_bucket_cap_mb:g}",
            UNKNOWN if is_unknown(row.indistinguishable_mb) else row.indistinguishable_mb,
            three(row.predicted_bucket_mib),
            bracket(row.predicted_low_mib, row.predicted_high_mib),
            row.reason if is_unknown(row.predicted_bucket_mib) else row.source,
        )
        for row in rows.itertuples()
    )
    return (
        Table("Best bucket size, measured, and predicted as sqrt(s w o)", heads, texts, is_words=True)
        if texts
        else None
    )
