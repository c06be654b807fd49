"""The models that were fitted, drawn over what they were fitted to; and those that were refused, with the reason."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace

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
)
from regatta.report.panels import Figure, Table, full_names
from regatta.report.plotting import Axis, Panel, Point, Series, draw, size_ticks
from regatta.store.tables import CELL, to_csv
from regatta.topics.fits.collectives import COMMUNICATION_MODELS, communication_curve
from regatta.topics.fits.scaling import SCALING_MODELS, scaling_curve

# How far measurements lie from a fitted model, over its sizes: beside noise it shows whether the curve has another shape.

PERCENT = 100


@dataclass(frozen=True)
class Fitted:
    """One size of a curve: place on the axis and its text; what was measured, of the launches (none where they are not
    drawn) and in the table; what the model says, in the same unit. is_on_line: the model was fitted to it."""

    place: float
    text: str
    launches: tuple[float, ...]
    measured: float
    model: float
    is_on_line: bool = True

    @property
    def residual(self) -> float:
        return self.measured / self.model - 1


@dataclass(frozen=True)
class Words:
    """What a curve is called, its sizes, what was measured, its unit, and how a value of it is written."""

    name: str
    size: str
    measured: str
    unit: str
    show: Callable[[float], str] = three


def residual_figure(figure_id: str, words: Words, x: Axis, fitted: list[Fitted]) -> Figure:
    """Return the relative residuals of a model, measured over model less one, in percent. fitted: by rising size."""
    points = tuple(
        Point(
            f.place,
            tuple(PERCENT * (value / f.model - 1) for value in f.launches or (f.measured,)),
            PERCENT * f.residual,
            f.is_on_line,
        )
        for f in fitted
    )
    ends = fitted[0].place, fitted[-1].place
    guides = (("model", ((ends[0], 0.0), (ends[1], 0.0))),)
    panel = Panel(x, Axis("measured over model, less 1 (%)"), (Series("measured", points),), guides)
    dots = "Each point is one launch, the line joins" if any(f.launches for f in fitted) else "The points are"
    caption = (
        f"Measured {words.measured} over that of the model, less one, in percent, by {words.size}. {dots} the values that the"
        " model was fitted to. About 0 on both sides in turn is noise; an arc is another shape than the model's, however small it is."
    )
    unit = f" ({words.unit})" if words.unit else ""
    heads = (words.size, f"measured{unit}", f"model{unit}", "measured over model, less 1 (%)")
    rows = tuple((f.text, words.show(f.measured), words.show(f.model), percent(f.residual)) for f in fitted)
    table = Table(f"Residuals of {words.name}", heads, rows)
    csv = to_csv(
        pd.DataFrame(
            {"size": f.place, "measured": f.measured, "model": f.model, "residual_ratio": f.residual} for f in fitted
        )
    )
    return Figure(figure_id, f"Residuals: {words.name}", draw(panel), _told(words, fitted), caption, table, csv)


def _told(words: Words, fitted: list[Fitted]) -> str:
    """Return how far the residuals reach, and how often they change sides: noise does it often, an arc once or twice."""
    own = [f.residual for f in fitted if f.is_on_line]
    num = sum((a > 0) != (b > 0) for a, b in itertools.pairwise(own))
    return (
        f"{words.name}: measured {words.measured} is {percent(min(own))} to {percent(max(own))} % off the model, and changes sides"
        f" {plural(num, 'time')} over {plural(len(own), 'size')}."
    )


MOST = 4  # figures of each kind: those of the largest shapes; the table has all
STEPS = 24  # points of a drawn curve
SCALING_LAWS = {"usl": "the Universal Scalability Law", "amdahl": "Amdahl's law"}
WORDS = {"usl": "USL", "amdahl": "Amdahl"}
MOST_NAMED = 6  # curves of one refusal
SPREAD_OF_FITS = {
    "range": "(a to b) is the range of what each launch gives.",
    "interval": "[a, b] is the 95 % interval over launches (bootstrap).",
    "residuals": "[a, b] of residuals is the 95 % interval that the scatter of the sizes around the fit gives: it reaches further than"
    " the launches, and holds for sizes like these and not for further launches.",
}


def scaling_model_figures(models: pd.DataFrame, scaling: pd.DataFrame, steps: dict, device: str) -> list[Figure]:
    """Return the accepted scaling models of the fastest curves, each over its launches and up to twice as many ranks, and
    beside each its residuals."""
    fitted = models[models["refusal"].isna()]
    fastest = fitted.sort_values(["max_world_size", "extrapolated_samples_per_s"], ascending=False, kind="stable")
    drawn = fastest.drop_duplicates("model")[:MOST]
    found = []
    for number, row in enumerate(named_rows(drawn, models, "train_step"), start=1):
        planned = _cells_of(row, scaling, SCALING_MODELS).sort_values(["world_size", "nodes"], kind="stable")
        own = planned[planned["step_s"].notna()]
        figure_id, told = f"scaling-model-{number}", drawn.iloc[[number - 1]]
        curves = models if len(fitted) == 1 else models[models["model"] == row["model"]]
        pair = (
            _scaling_model(figure_id, row, planned, steps, device, _chosen(row, curves)),
            _scaling_residuals(f"residuals-{figure_id}", row, own, steps, device),
        )
        found += _with_data(pair, "scaling_models", told)
    return found


def _chosen(row: dict, curves: pd.DataFrame) -> str:
    """Return of how many curves this one is told, refused ones among them; nothing of one curve alone."""
    num = int(curves["refusal"].isna().sum())
    if len(curves) == 1:
        return ""
    of = "" if curves["model"].nunique() > 1 else f" of {row['model']}"
    if num == 1:
        return f", the only one of {len(curves)} curves{of} that could be fitted"
    return f", the fastest of {num} fitted of {len(curves)} curves{of}"


def _sizes(row: dict, planned: pd.DataFrame, ranks: str) -> str:
    """Return `4 sizes from 1 to 32 GPUs (without 1×4, of which there is no value)`."""
    text = f"{row['num_sizes']} sizes from {row['min_world_size']} to {row['max_world_size']} {ranks}"
    missing = planned[planned["step_s"].isna()]
    names = ", ".join(shape(cell.nodes, cell.gpus_per_node) for cell in missing.itertuples())
    return f"{text} (without {names}, which gave no value)" if names else text


def _scaling_model(figure_id: str, row: dict, planned: pd.DataFrame, steps: dict, device: str, chosen: str) -> Figure:
    """planned: the cells of the curve, measured or not."""
    cells = planned[planned["step_s"].notna()]
    points = tuple(
        Point(float(cell.world_size), _rates(cell, steps), float(cell.throughput_samples_per_s))
        for cell in cells.itertuples()
    )
    last, beyond = int(row["max_world_size"]), int(row["extrapolated_world_size"])
    within = scaling_curve(row, sorted({int(n) for n in cells["world_size"]}))
    further = scaling_curve(row, [last, beyond])
    model = WORDS.get(row["scaling_model"], row["scaling_model"])
    guides = ((model, _dots(within, "world_size", "throughput_samples_per_s")),)
    guides += (("not measured", _dots(further, "world_size", "throughput_samples_per_s")),)
    name = row["name"]
    ranks = ranks_word(device)
    x = Axis(ranks, is_log=True, ticks=size_ticks([*within["world_size"], beyond], str))
    panel = Panel(
        x,
        Axis("samples/s", is_log=True, show=thousands),
        (Series("measured", points, False),),
        guides,
        dotted=("not measured",),
    )
    at_most = bracket(row["extrapolated_low_samples_per_s"], row["extrapolated_high_samples_per_s"], row["interval"])
    sizes = _sizes(row, planned, ranks)
    alt = (
        f"{name}{chosen}: {model}, fitted to {sizes} with residuals up to {percent(row['max_residual_ratio'])} %, has a contention σ of"
        f" {percent(row['sigma_ratio'])} % {_percents(row, 'sigma')}"
        + ("" if is_unknown(row["kappa_ratio"]) else f" and a coherence κ of {three(100 * row['kappa_ratio'])} %")
        + f"; at {beyond} {ranks}, which were not measured, it gives {three(row['extrapolated_samples_per_s'])} samples/s {at_most} (n = {row['num_launches']})."
    )
    caption = (
        f"Points: launches; a bar the value of the table. Dashed: {model}, fitted to the medians; dotted: its extrapolation to twice the"
        f" largest measured size, no further. Model and values are apart by a factor of {1 + row['max_residual_ratio']:.3f} at most; the next figure has all residuals. {SPREAD_OF_FITS[row['interval']]}"
    )
    table = _scaling_model_table(name, row)
    return Figure(figure_id, f"Scaling model: {name}", draw(panel), alt, caption, table, "")


def _scaling_model_table(name: str, row: dict) -> Table:
    heads = (
        "sizes",
        "n",
        "contention σ (%)",
        "spread of σ (%)",
        "coherence κ (%)",
        f"samples/s at {row['extrapolated_world_size']}",
        "spread of it",
    )
    kappa = UNKNOWN if is_unknown(row["kappa_ratio"]) else three(100 * row["kappa_ratio"])
    told = (
        f"{row['min_world_size']} to {row['max_world_size']}",
        str(row["num_launches"]),
        percent(row["sigma_ratio"]),
        _percents(row, "sigma"),
        kappa,
        three(row["extrapolated_samples_per_s"]),
        bracket(row["extrapolated_low_samples_per_s"], row["extrapolated_high_samples_per_s"], row["interval"]),
    )
    return Table(f"Scaling model of {name}", heads, (told,))


def _with_data(pair: tuple[Figure, Figure], table: str, model: pd.DataFrame) -> list[Figure]:
    """Return the figures of a model and its residuals; the first's data are the model's row of `table`."""
    columns = list(SCALING_MODELS if table == "scaling_models" else COMMUNICATION_MODELS)
    return [replace(pair[0], csv=to_csv(model[columns]), source=table), replace(pair[1], source=table)]


def _scaling_residuals(figure_id: str, row: dict, cells: pd.DataFrame, steps: dict, device: str) -> Figure:
    """Of several shapes with as many ranks the model was fitted to the one on the fewest nodes."""
    ranks = ranks_word(device)
    sizes = sorted({int(n) for n in cells["world_size"]})
    curve = scaling_curve(row, sizes)
    of_model = dict(zip(sizes, curve["throughput_samples_per_s"], strict=True))
    fitted, seen = [], set()
    for cell in cells.sort_values(["world_size", "nodes"], kind="stable").itertuples():
        n, rates = int(cell.world_size), _rates(cell, steps)
        text = f"{n} ({shape(cell.nodes, cell.gpus_per_node)})"
        fitted.append(
            Fitted(float(n), text, rates, float(cell.throughput_samples_per_s), float(of_model[n]), n not in seen)
        )
        seen.add(n)
    words = Words(row["name"], ranks, "throughput", "samples/s")
    return residual_figure(figure_id, words, Axis(ranks, is_log=True, ticks=size_ticks(sizes, str)), fitted)


def _rates(cell, steps: dict) -> tuple[float, ...]:
    """Return the throughput of each launch of a cell, in samples/s."""
    return tuple(cell.world_size * cell.batch_size / step for step in steps.get(cell.cell, []))


def communication_model_figures(models: pd.DataFrame, collectives: pd.DataFrame) -> list[Figure]:
    """Return the accepted communication models that have a curve, of the largest shapes, and beside each its residuals."""
    fitted = models[models["refusal"].isna() & models["latency_a_s"].notna() & models["bandwidth_b_gb_per_s"].notna()]
    largest = fitted.sort_values("world_size", ascending=False, kind="stable").drop_duplicates("operation")
    found = []
    for number, row in enumerate(named_rows(largest[:MOST], models, "collective"), start=1):
        own = _cells_of(row, collectives[collectives["latency_s"].notna()], COMMUNICATION_MODELS)
        own, figure_id = own.sort_values("message_bytes"), f"communication-model-{number}"
        told = largest.iloc[[number - 1]]
        pair = (
            _communication_model(figure_id, row, own),
            _communication_residuals(f"residuals-{figure_id}", row, own),
        )
        found += _with_data(pair, "communication_models", told)
    return found


def _communication_model(figure_id: str, row: dict, cells: pd.DataFrame) -> Figure:
    low, high = int(row["min_bytes"]), int(row["max_bytes"])
    ratio = (high / low) ** (1 / STEPS)
    curve = communication_curve(row, sorted({round(low * ratio**i) for i in range(STEPS)} | {high}))
    points = tuple(Point(float(c.message_bytes), (float(c.latency_s),), float(c.latency_s)) for c in cells.itertuples())
    panel = Panel(_message_axis(row, cells), Axis("time per call", True, show=duration_tick),
                  (Series("measured", points, False),), (("model", _dots(curve, "message_bytes", "latency_s")),))  # fmt: skip
    name = row["name"]
    latency, bandwidth = duration(row["latency_a_s"]), three(row["bandwidth_b_gb_per_s"])
    latency_ends = bracket(row["latency_a_low_s"], row["latency_a_high_s"], row["interval"], duration)
    bandwidth_ends = bracket(row["bandwidth_b_low_gb_per_s"], row["bandwidth_b_high_gb_per_s"], row["interval"])
    half = size(round(row["half_bandwidth_bytes"]))
    alt = (
        f"{name}: a call costs {latency} {latency_ends} before the first byte; the algorithm"
        f" bandwidth (algbw) is {bandwidth} GB/s {bandwidth_ends}; half of that is reached at {half}; fitted to {plural(len(cells), 'cell')}, n ="
        f" {row['num_launches']}."
    )
    caption = (
        "T(S) = a + c √S + S/B, fitted in logarithms to the medians over launches (bars); the term with c only where it makes the"
        " fit better. B is algorithm bandwidth, bytes of the message per second, and not the bus bandwidth of Communication."
        f" Model and values are apart by a factor of {1 + row['max_residual_ratio']:.3f} at most; the next figure has all residuals. {SPREAD_OF_FITS[row['interval']]}"
    )
    heads = ("cells", "n", "a", "spread of a", "B (algbw, GB/s)", "spread of B", "half of B at")
    told = (str(len(cells)), str(row["num_launches"]), latency, latency_ends, bandwidth, bandwidth_ends, half)
    table = Table(f"Communication model of {name}", heads, (told,))
    return Figure(figure_id, f"Communication model: {name}", draw(panel), alt, caption, table, "")


def _communication_residuals(figure_id: str, row: dict, cells: pd.DataFrame) -> Figure:
    sizes = [int(value) for value in cells["message_bytes"]]
    curve = communication_curve(row, sizes)
    fitted = [
        Fitted(float(num_bytes), size(num_bytes), (), float(seconds), float(model))
        for num_bytes, seconds, model in zip(sizes, cells["latency_s"], curve["latency_s"], strict=True)
    ]
    words = Words(row["name"], "message", "time per call", "", duration)
    return residual_figure(figure_id, words, _message_axis(row, cells), fitted)


def _message_axis(row: dict, cells: pd.DataFrame) -> Axis:
    sizes = [int(value) for value in cells["message_bytes"]]
    ticks = size_ticks(sizes, lambda value: size(int(value)), most=4)
    return Axis("message", True, int(row["min_bytes"]), int(row["max_bytes"]), ticks)


def named_rows(chosen: pd.DataFrame, models: pd.DataFrame, benchmark: str) -> list[dict]:
    """Return chosen rows with the `name` that each curve has among all models of its table."""
    names = pd.Series(full_names(models, benchmark), index=models.index, dtype=object)
    return chosen.assign(name=names[chosen.index]).to_dict("records")


def _cells_of(model: dict, cells: pd.DataFrame, columns: dict) -> pd.DataFrame:
    """Return the cells that a model was fitted to: those that are what it says of a cell, unknown where it is unknown."""
    for name in (name for name in columns if name in CELL):
        cells = cells[cells[name].isna() if is_unknown(model[name]) else (cells[name] == model[name]).fillna(False)]
    return cells


def refusal_table(scaling_models: pd.DataFrame, communication_models: pd.DataFrame) -> Table | None:
    """Return which curves were not fitted, for each reason; None where all were."""
    rows = []
    kinds = (
        ("scaling", scaling_models, "train_step"),
        ("communication", communication_models, "collective"),
    )
    for kind, models, benchmark in kinds:
        for reason, own in models[models["refusal"].notna()].groupby("refusal", sort=True):
            names = [row["name"] for row in named_rows(own, models, benchmark)]
            rest = f"; and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
            rows.append((kind, str(len(own)), reason, "; ".join(names[:MOST_NAMED]) + rest))
    sources = ("scaling_models", "communication_models")
    heads = ("kind", "curves", "reason", "which")
    return Table("Curves without a model, and why", heads, tuple(rows), True, sources) if rows else None


def _dots(curve: pd.DataFrame, x: str, y: str) -> tuple[tuple[float, float], ...]:
    return tuple(zip(curve[x].astype(float), curve[y].astype(float), strict=True))


def _percents(row: dict, name: str) -> str:
    spread = bracket(row[f"{name}_low_ratio"], row[f"{name}_high_ratio"], row["interval"], percent)
    return "" if spread == UNKNOWN else spread
