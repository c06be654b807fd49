"""Predictions of scaling laws in the figures of scaling: which lines have one to draw, and why the others have none.

The interval of an efficiency is that of the predicted throughput; the baseline's value is taken as exact.
"""

from collections import Counter
from dataclasses import dataclass

import pandas as pd

from regatta.core.text import is_unknown, plural, rank_word, ranks_word
from regatta.kit.columns import Column
from regatta.kit.kinds import Value
from regatta.report.series import Prediction
from regatta.topics.base import plain_rows
from regatta.topics.fits.fits_section import reason_of
from regatta.topics.fits.scaling import CURVE, PREDICTED
from regatta.topics.scaling.scaling_tables import EFFICIENCY, PER_RANK

MOST_PREDICTED = 4  # lines of one figure: bands of more would hide each other
LEAST_SPAN = 4  # largest to smallest measured size: else the measured part is less than two thirds of the axis
COVERED = {"amdahl": "Amdahl, USL", "usl": "USL"}  # by the selected model: docs/metrics.md, Predictions


@dataclass(frozen=True)
class PredictedLine:
    """A line with a prediction to draw. model: its row of scaling_models. baseline: samples/s of a rank at 100 %."""

    label: str
    model: dict[str, object]
    baseline: float

    def prediction(self, column: Column, device: str) -> Prediction:
        """Return the prediction of throughput or efficiency, in the unit of the page."""
        num, covered = self.model["extrapolated_world_size"], COVERED[self.model["scaling_model"]]
        one = num * self.baseline if column is EFFICIENCY else 1
        ratios = [self.model[name] / one for name in PREDICTED.names]
        value, *ends = map(column.shown, ratios)
        place = plural(num, rank_word(device), ranks_word(device))
        number = Value(column, *ratios, self.model["interval"], self.model["num_launches"])
        name = self.label.replace("\n", ", ")
        text = f"{name}: predicted for {place}, not measured: {number}; models: {covered}"
        return Prediction(float(num), value, tuple(ends), place, covered, text)


def models_by_curve(models: pd.DataFrame) -> dict[tuple, dict]:
    """Return the rows of scaling_models by the fields of their curves."""
    return {tuple(row[name] for name in CURVE): row for row in plain_rows(models, tuple(models))}


def predicted_lines(rows: pd.DataFrame, models: dict[tuple, dict]) -> tuple[list[PredictedLine], Counter[str]]:
    """Return the lines of a panel with a prediction to draw, and the number of the others by reason.

    rows: of the panel, with `label` and `is_context`. Lines of the context have none.
    """
    measured = rows[rows["step_s"].notna() & ~rows["is_context"]]
    largest, found, reasons = measured["world_size"].max(), [], Counter()
    for label, of_line in measured.sort_values("world_size").groupby("label", sort=False):
        last = plain_rows(of_line.tail(1), (*CURVE, PER_RANK.name, EFFICIENCY.name))[0]
        model = models.get(tuple(last[name] for name in CURVE))
        if model is None:
            continue
        if is_unknown(model[PREDICTED.name]):
            reasons[reason_of(model["refusal"])] += 1
        elif model["max_world_size"] < largest:
            reasons["not measured at the largest shape"] += 1
        elif model["max_world_size"] < LEAST_SPAN * model["min_world_size"]:
            reasons[f"sizes span less than {LEAST_SPAN}\N{MULTIPLICATION SIGN}"] += 1
        else:
            found.append(PredictedLine(label, model, last[PER_RANK.name] / (last[EFFICIENCY.name] or float("nan"))))
    if len(found) > MOST_PREDICTED:
        reasons[f"more than {MOST_PREDICTED} predictions in a figure"] += len(found)
        found = []
    return found, reasons


def predictions_text(num: int, reasons: Counter[str], largest: int, device: str) -> str:
    """Return the sentence on what is hatched, and on the lines without a prediction. num: of lines with one."""
    parts = ["Hatched: prediction with its interval, not measured."] if num else []
    if total := reasons.total():
        why = ", ".join(f"{reason} {count}" if len(reasons) > 1 else reason for reason, count in reasons.most_common())
        place = plural(largest, rank_word(device), ranks_word(device))
        parts.append(f"Not predicted beyond {place}: {total} of {plural(total + num, 'line')} ({why}).")
    return " ".join(parts)
