"""Efficiencies in words: what a headline says of one, its grade, and how to read the figure."""

from collections.abc import Callable

import pandas as pd

from regatta.core.names import PLACE
from regatta.core.text import (
    NOT_PLANNED,
    UNKNOWN,
    bracket,
    is_unknown,
    percent,
    plural,
    ratio_text,
    shape,
    spread_head,
    three,
    times,
)
from regatta.report.panels import Baseline, Table, how_to_read, name_rows
from regatta.topics.scaling.tables import grades_within, is_inconclusive

# Which cell speaks for the largest shape in a headline, and of how many it was chosen.

# What candidates may differ in, and what they are called where it is that alone.
NOUNS = {
    "bucket_cap_mb": "bucket sizes",
    "strategy": "strategies",
    "stack": "stacks",
    "backend": "backends",
    "shape": "shapes",
}


def best_of_largest(rows: pd.DataFrame):
    """Return the fastest cell of the largest world size that was measured; of those with all their launches, if there are
    any: the median of fewer is the easier to be lucky with."""
    return max(candidates(rows).itertuples(), key=lambda row: row.throughput_samples_per_s)


def chosen_text(rows: pd.DataFrame) -> str:
    """Return of how many cells `best_of_largest` is the fastest, as `, the fastest of 2 bucket sizes,`; empty of a single one.

    The fastest of several medians looks faster than it is: noise helps to choose it.
    """
    chosen = candidates(rows)
    if len(chosen) < 2:
        return ""
    shapes = chosen["nodes"].astype(str) + "x" + chosen["gpus_per_node"].astype(str)
    told = chosen.assign(shape=shapes)
    fields = {"shape", *PLACE, *chosen["cell_name"].iloc[0].series} & set(told)
    varied = [name for name in fields if told[name].nunique(dropna=False) > 1]
    noun = NOUNS.get(varied[0], "cells") if len(varied) == 1 else "cells"
    is_part = len(chosen) < len(_of_largest(rows))
    text = f", the fastest of {len(chosen)} {noun}{' with all launches' if is_part else ''},"
    near = _not_told_apart(chosen)
    if near and noun == NOUNS["bucket_cap_mb"]:
        return f"{text} not told apart from {' and '.join(f'{row.bucket_cap_mb:g} MiB' for row in near)},"
    return f"{text} not told apart from the next," if near else text


def _not_told_apart(chosen: pd.DataFrame) -> list:
    """Return the cells whose spread reaches into that of the fastest. It is no test, as in tables/buckets.csv."""
    best, *others = sorted(chosen.itertuples(), key=lambda row: -row.throughput_samples_per_s)
    if is_unknown(best.step_high_s):
        return []
    return [row for row in others if not is_unknown(row.step_low_s) and row.step_low_s <= best.step_high_s]


def launches_text(row) -> str:
    """Return `n = 3`, or `n = 2 launches of 3 planned` where some are missing."""
    if row.num_launches >= row.num_planned:
        return f"n = {row.num_launches}"
    return f"n = {plural(row.num_launches, 'launch', 'launches')} of {row.num_planned} planned"


def _of_largest(rows: pd.DataFrame) -> pd.DataFrame:
    measured = rows[rows["step_s"].notna()]
    return measured[measured["world_size"] == measured["world_size"].max()]


def candidates(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of the largest world size of which the fastest is told."""
    largest = _of_largest(rows)
    whole = largest[largest["num_launches"] >= largest["num_planned"]]
    return whole if len(whole) else largest


Threads = dict[tuple[int, int], set[int]]  # threads of a rank by shape (nodes, ranks per node)


def efficiency_caption(rows: pd.DataFrame, base: Baseline, one: str, uneven: str) -> str:
    """Return how to read a figure of efficiencies. one: word for a rank; uneven: as `sharing` returns it."""
    return (
        f"Throughput per {one} as a share of {base}. A point is one launch over the median of the baseline, so the baseline's"
        " own scatter is in the table's spread and not in the points. Linear axis from 0; points above 100 % stay visible,"
        " they often mean a slow baseline. Wrapper × intra-node × inter-node is the efficiency against one"
        f" {one} without DDP. {how_to_read(rows, 'efficiency_ratio', 'efficiency_interval')}"
        + (f" Efficiency here is also the loss of cores {uneven}." if uneven else "")
    )


def sharing(rows: pd.DataFrame) -> str:
    """Return `(2 threads a rank in 1×1, 1 in 1×2: the ranks share the cores)` if that sets the rows and baselines apart."""
    uneven: Threads = {place: nums for row in rows.itertuples() for place, nums in (row.uneven or {}).items()}
    if not uneven:
        return ""
    told = []
    for place, nums in sorted(uneven.items()):
        noun = "" if told else " thread a rank" if nums == {1} else " threads a rank"
        told.append(f"{'/'.join(map(str, sorted(nums)))}{noun} in {shape(*place)}")
    return f"({', '.join(told)}: the ranks share the cores)"


def is_wide(row) -> bool:
    low, high = row.efficiency_low_ratio, row.efficiency_high_ratio
    return not is_unknown(low) and not is_unknown(high) and is_inconclusive(row.efficiency_ratio, low, high)


def grade_word(row) -> str:
    """Return the grade, both words where the spread lies on both sides of a limit, or why there is none.

    Where the ranks had fewer cores than the baseline's, a word would judge the machine's size.
    """
    if not is_unknown(row.baseline) and row.cell == row.baseline:
        return "baseline"
    if is_unknown(row.efficiency_ratio) or row.uneven:
        return UNKNOWN
    if not is_unknown(row.grade):
        return row.grade
    if is_unknown(row.efficiency_low_ratio) or is_unknown(row.efficiency_high_ratio):
        return "one launch"
    if is_wide(row):
        return "inconclusive"
    return " or ".join(grades_within(row.efficiency_low_ratio, row.efficiency_high_ratio))


def efficiency_text(title: str, row, chosen: str, base: Baseline, one: str) -> str:
    """Return what an efficiency says, or that it says nothing. chosen: of how many cells this is the fastest; one: word for a
    rank."""
    num = launches_text(row)
    if row.baseline_launches != row.num_launches:
        num += f", baseline n = {row.baseline_launches}"
    uneven = sharing(pd.DataFrame([row._asdict()]))
    uneven = f" {uneven}" if uneven else ""
    low, high = row.efficiency_low_ratio, row.efficiency_high_ratio
    what = f"the throughput per {one} of {base}"
    if is_wide(row):
        kind = "range" if row.efficiency_interval == "range" else "interval"
        spread = f"{kind} {percent(low)} to {percent(high)} %"
        told = f"median {percent(row.efficiency_ratio)} %, {spread}, {num}"
        return f"{title}: how much {row.name}{chosen} keeps of {what}{uneven} is inconclusive: {told}."
    spread = bracket(low, high, row.efficiency_interval, percent)
    kept = f"{percent(row.efficiency_ratio)} %" + ("" if spread == UNKNOWN else f" {spread}")
    parts = product_text(row)
    return f"{title}: {row.name}{chosen} keeps {kept} of {what}{uneven}, {num}" + (f"; {parts}." if parts else ".")


def product_text(row) -> str:
    """Return `wrapper 0.950 × intra-node 0.949 × inter-node 0.982` with the parts that this cell has.

    Where one is unknown there is no product: `wrapper n/a, intra-node 0.949`. An empty text where all are.
    """
    parts = (
        (row.strategy != "none", "wrapper", row.wrapper_ratio),
        (row.gpus_per_node > 1, "intra-node", row.intra_node_ratio),
        (row.nodes > 1, "inter-node", row.inter_node_ratio),
    )
    own = [(name, ratio) for applies, name, ratio in parts if applies]
    if all(is_unknown(ratio) for _, ratio in own):
        return ""
    between = ", " if any(is_unknown(ratio) for _, ratio in own) else " × "
    return between.join(f"{name} {ratio_text(ratio)}" for name, ratio in own)


# The efficiencies of the largest shape against every baseline, weak and strong apart.

MOST_ROWS = 40  # the CSV has all


def baseline_tables(efficiencies: pd.DataFrame, scaling: pd.DataFrame) -> tuple[Table, ...]:
    """Return a table of weak and one of strong scaling, each only where a cell has two baselines or a strong one."""
    named = name_rows(scaling, "train_step").set_index("cell")
    found = []
    for kind in ("weak", "strong"):
        rows = efficiencies[(efficiencies["scaling"] == kind) & efficiencies["efficiency_ratio"].notna()]
        if kind == "weak":
            rows = rows[rows.groupby("cell")["against"].transform("nunique") > 1]
        cells = named.loc[rows["cell"]]
        rows = rows.assign(world_size=cells["world_size"].to_numpy())
        rows = rows.sort_values("world_size", ascending=False, kind="stable")
        shown = rows[rows["cell"].isin(_first_cells(rows))]
        if len(rows):
            body = tuple(_row(row, named.loc[row.cell]) for row in shown.itertuples())
            heads = ("cell", "against", "n", "efficiency (%)", f"{spread_head(shown['interval'])} (%)")
            title = f"Efficiency by baseline, {kind} scaling; the largest shapes first"
            title += (
                f"; {len(shown)} of {len(rows)} rows, all are in efficiencies.csv" if len(shown) < len(rows) else ""
            )
            found.append(Table(title, heads, body, sources=("efficiencies",)))
    return tuple(found)


def _first_cells(rows: pd.DataFrame) -> list[str]:
    """Return as many cells as have MOST_ROWS rows together at most, and one at least: none is cut in two."""
    counts = rows.groupby("cell", sort=False).size()
    ends = counts.cumsum()
    return list(counts.index[(ends <= MOST_ROWS) | (ends == counts)])


def _row(row, cell: pd.Series) -> tuple[str, ...]:
    spread = bracket(row.efficiency_low_ratio, row.efficiency_high_ratio, row.interval, percent)
    num = f"{row.num_launches} against {row.num_baseline_launches}"
    ratio = UNKNOWN if is_unknown(row.efficiency_ratio) else percent(row.efficiency_ratio)
    return cell["cell_name"].full, row.against, num, ratio, spread


# What was trained: a table of models with their dimensions; their tokens and operations per second, and what these are held against.

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
