"""The topic of fitted models: scaling laws, and the cost of a collective by message size. docs/metrics.md.

Each accepted model is drawn over the measurements, beside its residuals; rejected ones are listed with the reason.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from regatta.core.text import (
    UNKNOWN,
    bracket,
    duration,
    duration_tick,
    is_unknown,
    percent,
    plural,
    ranks_word,
    shape,
    size,
    thousands,
    three,
    times,
)
from regatta.report.findings import Finding, of_rows, percent_number
from regatta.report.panels import Figure, Section, Table, full_names, make_figure, text_of
from regatta.report.plotting import Axis, Panel, Point, Series, size_ticks
from regatta.store.csv_files import CELL, make_table
from regatta.topics.base import ReportData, TableSpec, Topic, cells_of, steps_by_cell
from regatta.topics.fits import collectives, scaling

MOST = 4  # figures of each kind: those of the largest shapes; the table has all
STEPS = 24  # points of a drawn curve
MOST_NAMED = 6  # curves of one reason
SCALING_LAWS = {"usl": "the Universal Scalability Law", "amdahl": "Amdahl's law"}


@dataclass(frozen=True)
class Fitted:
    """One size of a curve: its place on the axis, what was measured and what the model gives, in the same unit.

    launches: the values that are drawn, if several. is_on_line: the model was fitted to it.
    """

    size: float
    text: str
    measured: float
    model: float
    launches: tuple[float, ...] = ()
    is_on_line: bool = True


def residual_figure(
    figure_id: str, name: str, x: Axis, fitted: list[Fitted], source: str, unit: str = "", show: Callable = three
) -> Figure:
    """Return the relative residuals of a model in percent. fitted: sorted by size. source: the table of the model."""
    rows = pd.DataFrame(fitted)
    rows = rows.assign(residual_ratio=rows["measured"] / rows["model"] - 1)
    points = tuple(
        Point(f.size, tuple(100 * (v / f.model - 1) for v in f.launches or (f.measured,)), 100 * ratio, f.is_on_line)
        for f, ratio in zip(fitted, rows["residual_ratio"], strict=True)
    )
    guides = (("model", ((fitted[0].size, 0.0), (fitted[-1].size, 0.0))),)
    panel = Panel(x, Axis("residual (%)"), (Series("measured", points),), guides)
    residuals = rows.loc[rows["is_on_line"], "residual_ratio"]
    num = sum((a > 0) != (b > 0) for a, b in itertools.pairwise(residuals))
    alt = (
        f"{name}: residuals {percent(residuals.min())} to {percent(residuals.max())} %; {plural(num, 'sign change')}"
        f" over {plural(len(residuals), 'size')}."
    )
    caption = "Measured / model − 1, in percent. A curved pattern indicates lack of fit."
    columns = {
        x.label: text_of("text", str),
        f"measured{unit}": text_of("measured", show),
        f"model{unit}": text_of("model", show),
        "residual (%)": text_of("residual_ratio", percent),
    }
    table = Table.of(f"Residuals of {name}", columns, rows)
    data = rows[["size", "measured", "model", "residual_ratio"]]
    return make_figure(figure_id, f"Residuals: {name}", panel, (alt, caption), table, data, source)


def scaling_model_figures(models: pd.DataFrame, measured: pd.DataFrame, steps: dict, device: str) -> list[Figure]:
    """Return the accepted model of each trained model's fastest curve up to twice as many ranks, and its residuals."""
    fitted = models[models["refusal"].isna()]
    fastest = fitted.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable")
    drawn = fastest.drop_duplicates("model")[:MOST]
    found = []
    for number, row in enumerate(named_rows(drawn, models, "train_step"), start=1):
        cells = _cells_of(row, measured, scaling.SCALING_MODELS).sort_values(["world_size", "nodes"], kind="stable")
        figure_id = f"scaling-model-{number}"
        found.append(_scaling_model(figure_id, row, cells, steps, device))
        found.append(_scaling_residuals(f"residuals-{figure_id}", row, cells.dropna(subset="step_s"), steps, device))
    return found


def _scaling_model(figure_id: str, row: dict, planned: pd.DataFrame, steps: dict, device: str) -> Figure:
    """Return the figure of one model. planned: the cells of the curve, measured or not."""
    cells, missing = planned[planned["step_s"].notna()], planned[planned["step_s"].isna()]
    points = tuple(
        Point(float(cell.world_size), _rates(cell, steps), float(cell.throughput_samples_per_s))
        for cell in cells.itertuples()
    )
    beyond = int(row["extrapolated_world_size"])
    within = scaling.scaling_curve(row, sorted({int(n) for n in cells["world_size"]}))
    further = scaling.scaling_curve(row, [int(row["max_world_size"]), beyond])
    name, model, ranks = row["name"], scaling.NAMES[row["scaling_model"]], ranks_word(device)
    columns = ("world_size", "throughput_samples_per_s")
    guides = ((model, _dots(within, *columns)), ("not measured", _dots(further, *columns)))
    x = Axis(ranks, is_log=True, ticks=size_ticks([*within["world_size"], beyond], str))
    y = Axis("samples/s", is_log=True, show=thousands)
    panel = Panel(x, y, (Series("measured", points, False),), guides, dotted=("not measured",))
    sigma, kappa = percent(row["sigma_ratio"]), three(times(row["kappa_ratio"], 100))
    rate = three(row["extrapolated_samples_per_s"])
    rate_ends = bracket(row["extrapolated_low_samples_per_s"], row["extrapolated_high_samples_per_s"], row["interval"])
    sizes = f"{row['min_world_size']} to {row['max_world_size']}"
    names = ", ".join(shape(cell.nodes, cell.gpus_per_node) for cell in missing.itertuples())
    without = f" (excluding {names}: no value)" if names else ""
    coherency = "" if kappa == UNKNOWN else f", coherency κ {kappa} %"
    alt = (
        f"{name}: {model} fits {sizes} {ranks}{without} within {percent(row['max_residual_ratio'])} %."
        f" Contention σ {sigma} %{coherency}."
        f" Predicted: {rate} samples/s on {beyond} {ranks} (n = {row['num_launches']})."
    )
    caption = (
        f"Points: individual launches. Bars: values in the table. Dashed: {model}. Dotted: extrapolation."
        f" Largest deviation: {percent(row['max_residual_ratio'])} %."
    )
    texts = {
        "ranks fitted": sizes,
        "n": str(row["num_launches"]),
        "contention σ (%)": sigma,
        "σ interval (%)": bracket(row["sigma_low_ratio"], row["sigma_high_ratio"], row["interval"], percent),
        "coherency κ (%)": kappa,
        f"samples/s at {beyond}": rate,
        "prediction interval": rate_ends,
    }
    return _model_figure(figure_id, "Scaling model", row, panel, (alt, caption), texts, scaling.SCALING_MODELS)


def _scaling_residuals(figure_id: str, row: dict, cells: pd.DataFrame, steps: dict, device: str) -> Figure:
    """Return the residuals of one model. Of several shapes with as many ranks, the one with fewest nodes was fitted."""
    sizes = sorted({int(n) for n in cells["world_size"]})
    curve = scaling.scaling_curve(row, sizes)
    models = dict(zip(sizes, curve["throughput_samples_per_s"], strict=True))
    fitted, known = [], set()
    for cell in cells.sort_values(["world_size", "nodes"], kind="stable").itertuples():
        n, rate = int(cell.world_size), float(cell.throughput_samples_per_s)
        text = f"{n} ({shape(cell.nodes, cell.gpus_per_node)})"
        fitted.append(Fitted(float(n), text, rate, float(models[n]), _rates(cell, steps), n not in known))
        known.add(n)
    x = Axis(ranks_word(device), is_log=True, ticks=size_ticks(sizes, str))
    return residual_figure(figure_id, row["name"], x, fitted, "scaling_models", " (samples/s)")


def _rates(cell, steps: dict) -> tuple[float, ...]:
    """Return the throughput of each launch of a cell, in samples/s."""
    return tuple(cell.world_size * cell.batch_size / step for step in steps.get(cell.cell, []))


def communication_model_figures(models: pd.DataFrame, measured: pd.DataFrame) -> list[Figure]:
    """Return the accepted communication models that have a curve, of the largest shapes, each with its residuals."""
    fitted = models[models["refusal"].isna() & models["latency_a_s"].notna() & models["bandwidth_b_gb_per_s"].notna()]
    largest = fitted.sort_values("world_size", ascending=False, kind="stable").drop_duplicates("operation")[:MOST]
    columns = collectives.COMMUNICATION_MODELS
    found = []
    for number, row in enumerate(named_rows(largest, models, "collective"), start=1):
        cells = _cells_of(row, measured[measured["latency_s"].notna()], columns).sort_values("message_bytes")
        figure_id = f"communication-model-{number}"
        sizes = [int(value) for value in cells["message_bytes"]]
        ticks = size_ticks(sizes, lambda value: size(int(value)), most=4)
        x = Axis("message", True, int(row["min_bytes"]), int(row["max_bytes"]), ticks)
        seconds = collectives.communication_curve(row, sizes)["latency_s"]
        points = [
            Fitted(float(num_bytes), size(num_bytes), float(measured), float(model))
            for num_bytes, measured, model in zip(sizes, cells["latency_s"], seconds, strict=True)
        ]
        found.append(_communication_model(figure_id, row, x, points))
        source = "communication_models"
        found.append(residual_figure(f"residuals-{figure_id}", row["name"], x, points, source, show=duration))
    return found


def _communication_model(figure_id: str, row: dict, x: Axis, fitted: list[Fitted]) -> Figure:
    low, high, name, num = int(row["min_bytes"]), int(row["max_bytes"]), row["name"], str(len(fitted))
    ratio = (high / low) ** (1 / STEPS)
    curve = collectives.communication_curve(row, sorted({round(low * ratio**i) for i in range(STEPS)} | {high}))
    series = Series("measured", tuple(Point(f.size, (f.measured,), f.measured) for f in fitted), False)
    guides = (("model", _dots(curve, "message_bytes", "latency_s")),)
    panel = Panel(x, Axis("time per call", True, show=duration_tick), (series,), guides)
    latency, bandwidth = duration(row["latency_a_s"]), three(row["bandwidth_b_gb_per_s"])
    half = size(round(row["half_bandwidth_bytes"]))
    alt = (
        f"{name}: latency {latency}, algorithm bandwidth {bandwidth} GB/s, half of it at {half}"
        f" ({plural(len(fitted), 'cell')}, n = {row['num_launches']})."
    )
    caption = (
        "Bars: medians over launches. Dashed: T(S) = a + c √S + S/B."
        f" Largest deviation: {percent(row['max_residual_ratio'])} %."
    )
    texts = {
        "cells": num,
        "n": str(row["num_launches"]),
        "a": latency,
        "a interval": bracket(row["latency_a_low_s"], row["latency_a_high_s"], row["interval"], duration),
        "B (algbw, GB/s)": bandwidth,
        "B interval": bracket(row["bandwidth_b_low_gb_per_s"], row["bandwidth_b_high_gb_per_s"], row["interval"]),
        "size at B/2": half,
    }
    columns = collectives.COMMUNICATION_MODELS
    return _model_figure(figure_id, "Communication model", row, panel, (alt, caption), texts, columns)


def _model_figure(
    figure_id: str, kind: str, row: dict, panel: Panel, words: tuple[str, str], texts: dict[str, str], columns: dict
) -> Figure:
    """Draw a model beside its row. texts: heading -> text. columns: those of the model's table."""
    name, source = row["name"], f"{kind.lower().replace(' ', '_')}s"
    table = Table(f"{kind} of {name}", tuple(texts), (tuple(texts.values()),))
    data = make_table([{column: row[column] for column in columns}], columns)
    return make_figure(figure_id, f"{kind}: {name}", panel, words, table, data, source)


def named_rows(chosen: pd.DataFrame, models: pd.DataFrame, benchmark: str) -> list[dict]:
    """Return chosen rows with the `name` that each curve has among all models of its table."""
    names = pd.Series(full_names(models, benchmark), index=models.index, dtype=object)
    return chosen.assign(name=names[chosen.index]).to_dict("records")


def _cells_of(model: dict, cells: pd.DataFrame, columns: dict) -> pd.DataFrame:
    """Return the cells that a model was fitted to: those that equal it in every column of a cell."""
    for name in (name for name in columns if name in CELL):
        cells = cells[cells[name].isna() if is_unknown(model[name]) else (cells[name] == model[name]).fillna(False)]
    return cells


def _dots(curve: pd.DataFrame, x: str, y: str) -> tuple[tuple[float, float], ...]:
    return tuple(zip(curve[x].astype(float), curve[y].astype(float), strict=True))


def refusal_table(scaling_models: pd.DataFrame, communication_models: pd.DataFrame) -> Table | None:
    """Return which curves have no model, by reason; None where all have one."""
    rows = []
    kinds = (("scaling", scaling_models, "train_step"), ("communication", communication_models, "collective"))
    for kind, models, benchmark in kinds:
        for reason, rejected in models[models["refusal"].notna()].groupby("refusal", sort=True):
            names = [row["name"] for row in named_rows(rejected, models, benchmark)]
            rest = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            rows.append((kind, str(len(rejected)), reason.replace("kappa", "κ"), "; ".join(names[:MOST_NAMED]) + rest))
    sources = ("scaling_models", "communication_models")
    heads = ("kind", "curves", "reason", "configurations")
    return Table("Curves without an accepted model", heads, tuple(rows), True, sources) if rows else None


def section(data: ReportData) -> Section:
    tables = data.tables
    steps = steps_by_cell(data.measurements)
    figures = (
        *scaling_model_figures(tables["scaling_models"], tables["scaling"], steps, data.device),
        *communication_model_figures(tables["communication_models"], tables["collectives"]),
    )
    counts = [
        f"{int(tables[name]['refusal'].isna().sum())} of {plural(len(tables[name]), f'{kind} curve')}"
        for kind, name in (("communication", "communication_models"), ("scaling", "scaling_models"))
        if len(tables[name])
    ]
    refused = refusal_table(tables["scaling_models"], tables["communication_models"])
    lead = (
        "Shown: the fastest configuration of each trained model and the largest shape of each operation."
        f" Fitted: {' and '.join(counts)}."
    )
    empty = "No measurement is suitable for a model."
    return Section("models", "Fitted models", empty, lead if figures else "", figures, (refused,) if refused else ())


def findings(data: ReportData) -> list[Finding]:
    """Return the accepted scaling law of the curve with most ranks, then with the highest throughput."""
    models = data.tables["scaling_models"]
    fitted = models[models["refusal"].isna() & (models["num_launches"] > 1)]
    if fitted.empty:
        return []
    best = fitted.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable").head(1)
    [row] = named_rows(best, models, "train_step")
    values = {
        "name": row["name"],
        "law": row["scaling_model"],
        "sigma_ratio": float(row["sigma_ratio"]),
        "kappa_ratio": None if is_unknown(row["kappa_ratio"]) else float(row["kappa_ratio"]),
        "residual_ratio": float(row["max_residual_ratio"]),
        "num_ranks": int(row["extrapolated_world_size"]),
        "samples_per_s": float(row["extrapolated_samples_per_s"]),
        "ranks": ranks_word(data.device),
        "num_fitted": int(models["refusal"].isna().sum()),
        "num_curves": len(models),
    }
    return [Finding("scaling_law", values, (of_rows("scaling_models", best),), anchor="models")]


def sentence(finding: Finding) -> str:
    values = finding.values
    kappa = values["kappa_ratio"]
    coherency = "" if kappa is None else f", coherency κ {three(100 * kappa)} %"
    return (
        f"{values['name']}: {SCALING_LAWS[values['law']]} fits within {percent_number(values['residual_ratio'])} %"
        f" (contention σ {percent(values['sigma_ratio'])} %{coherency}). Predicted for {values['num_ranks']}"
        f" {values['ranks']}, not measured: {three(values['samples_per_s'])} samples/s."
    )


def methods(campaign: dict) -> list[tuple[str, str]]:
    sizes = {cell["spec"]["parameters"].get("message_bytes") for cell in campaign["cells"]} - {None}
    steps = [cell["spec"] for cell in cells_of(campaign, "train_step")]
    ranks = {spec["nodes"] * spec["gpus_per_node"] for spec in steps if spec["parameters"].get("strategy") != "none"}
    communication = (
        "T(S) = a + c √S + S/B, fitted to the latencies of a collective by robust least squares on logarithms."
        " Parameters that are not identifiable from the measured sizes are omitted. A model with too many large"
        " residuals is rejected. Intervals: from launches or from residuals, the wider of the two. B: algorithm"
        " bandwidth (algbw)."
    )
    scaling_text = (
        "X(n) = X₁ n / (1 + σ (n − 1) + κ n (n − 1)), fitted to weak-scaling throughput. κ = 0: Amdahl's law; else"
        " the Universal Scalability Law. Selected: the accepted model with the lower AICc. Rejected for lack of fit"
        f" (F test, p < {scaling.LACK_P:g}), unless every size is within {100 * scaling.LEAST_MISFIT:g} %. Predictions"
        " reach twice the largest n."
    )
    terms = [("Communication model", communication)] if len(sizes) >= collectives.MIN_SIZES else []
    return [*terms, *([("Scaling models", scaling_text)] if len(ranks) >= min(scaling.MIN_SIZES.values()) else [])]


TABLES = {
    "scaling_models": TableSpec(
        scaling.SCALING_MODELS,
        lambda _, tables: scaling.scaling_models_table(tables["scaling"], tables["measurements"]),
    ),
    "communication_models": TableSpec(
        collectives.COMMUNICATION_MODELS,
        lambda _, tables: collectives.communication_models_table(tables["collectives"], tables["measurements"]),
    ),
}
TOPIC = Topic("fits", "Fitted models", TABLES, section, findings, sentence, methods=methods)
