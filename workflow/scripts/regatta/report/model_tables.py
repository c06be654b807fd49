"""What was trained: a table of models with their dimensions; their tokens and operations per second, and what these are held
against."""

from collections.abc import Callable

import pandas as pd

from regatta.numbers import NOT_PLANNED, UNKNOWN, is_unknown, percent, plural, three, times
from regatta.report.panels import Table

GIGA, MEGA = 1e-9, 1e-6
INPUT = ["model", "image_size", "context_length"]
DIMENSIONS = {
    "layers": "num_layers", "d_model": "d_model", "heads": "num_heads", "d_ff": "d_ff", "vocabulary": "vocab_size",
}  # fmt: skip
FURTHER_RATES = {
    "tokens/s": "throughput_tokens_per_s", "TFLOP/s per {}": "compute_per_gpu_tflop_per_s", "MFU (%)": "mfu_ratio",
}  # fmt: skip


def model_tables(measurements: pd.DataFrame) -> tuple[Table, ...]:
    """Return one table with a row for each model and size of its input, none where no record says how large it is."""
    rows = measurements[(measurements["benchmark"] == "train_step") & measurements["num_parameters"].notna()]
    if not len(rows):
        return ()
    models = rows.groupby(INPUT, dropna=False, sort=True).first().reset_index()
    known = {head: column for head, column in DIMENSIONS.items() if models[column].notna().any()}
    body = tuple(
        (
            row.model,
            _input(row),
            three(times(row.num_parameters, MEGA)),
            *(NOT_PLANNED if is_unknown(getattr(row, c)) else f"{getattr(row, c):,}" for c in known.values()),
            three(times(row.flops_per_sample, GIGA)),
        )
        for row in models.itertuples()
    )
    heads = ("model", "sample", "parameters (millions)", *known, "GFLOP of a step per sample")
    return (Table("Models", heads, body, sources=("measurements",)),)


def _input(row) -> str:
    if not is_unknown(row.context_length):
        return plural(row.context_length, "token")
    return UNKNOWN if is_unknown(row.image_size) else f"{row.image_size} px"


def further_rates(scaling: pd.DataFrame, one: str) -> tuple[tuple[str, ...], Callable[[object], list[str]]]:
    """Return the headings of those rates that are known of any row, and what makes a row's texts. one: word for a rank."""
    known = {head.format(one): column for head, column in FURTHER_RATES.items() if scaling[column].notna().any()}
    shows = {column: percent if column == "mfu_ratio" else three for column in known.values()}
    return tuple(known), lambda row: [show(getattr(row, column)) for column, show in shows.items()]


def peaks_text(campaign: dict, scaling: pd.DataFrame) -> str:
    """Return what MFU is held against, with the sources; nothing where there is no MFU."""
    used = {(row.peak_dtype, row.peak_tflop_per_s) for row in scaling[scaling["mfu_ratio"].notna()].itertuples()}
    by_source: dict[tuple[str, str], list[str]] = {}
    for peak in campaign["cluster"].get("peaks") or []:
        if (peak["dtype"], float(peak["tflop_per_s"])) in used:
            told = by_source.setdefault((peak["device"], peak["source"]), [])
            told.append(f"{peak['tflop_per_s']:g} TFLOP/s ({peak['dtype']})")
    texts = [f"{' or '.join(told)} of {device}, by {source}" for (device, source), told in by_source.items()]
    return f"MFU is the share of {'; '.join(texts)}." if texts else ""
