"""Check that what the report says stands in the rows that it names, number by number.

A number of a sentence is traced if a named row has it, in the unit that stands beside it and after the report's own
rounding, or if it is one of the few results (DERIVED) that a sentence may make of named rows itself.
"""

import csv
import io
import math
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from regatta.core.statistics import DRIFT_P
from regatta.core.text import duration, percent, size, three
from regatta.core.verdicts import FALSE_DISCOVERIES
from regatta.report.sources import NAMES, row_names
from regatta.store.collect import read_collected
from regatta.store.tables import COLLECTED
from regatta.topics.catalog import read_tables
from regatta.topics.communication import message_size
from regatta.topics.fits.collectives import communication_curve
from regatta.topics.fits.scaling import scaling_curve

UNITS = r"%|samples/s|GB/s|ms|\N{MICRO SIGN}s|s|KiB|MiB|GiB|kB|MB|GB|B|times"
NUMBER = r"-?\d+(?:,\d{3})*(?:\.\d+)?(?:e-?\d+)?"
# A value, its spread behind it, and the unit before or behind the spread: 380 [370, 390] µs, 27.7 % (27.3 to 27.9).
QUANTITY = re.compile(
    rf"(?<![\w.×\-/])(?P<value>{NUMBER})(?:\s(?P<unit>{UNITS})(?![\w/]))?"
    rf"(?P<spread>\s[\[(]{NUMBER}(?:\s(?:{UNITS}))?(?:,\s|\sto\s){NUMBER}(?:\s(?:{UNITS}))?[\])])?(?:\s(?P<behind>{UNITS})(?![\w/]))?(?![\w×/-])"
)
# What has digits and is no measured number.
EXEMPT = (
    re.compile(r"\([^()]*threads? a rank[^()]*\)"),  # of the machine; the first lines of launch files have it
    re.compile(r"\(\d+ of \d+\)"),  # the number of a figure among those that show one thing
    re.compile(r"guess\w* \S+ %"),
    re.compile(r"by more than 5 % of their median"),  # limits of the warnings, constants of the code
    re.compile(r"more than (10 times the median|5 % of the samples)|fewer than 10 % as many"),
    re.compile(r"95 % interval"),
    re.compile(r"than the \d+ asked for"),  # the campaign says it
    re.compile(r"asked for, ±[\d.]+ %( or ±[\d.]+ %)*|no verdict is possible below 3 launches"),
)


class Tables:
    """All files of a results folder, as the report read them and as text."""

    def __init__(self, folder: Path):
        self.frames = {**read_tables(folder / "tables"), **read_collected(folder / "measurements.csv")}
        self.files = {name: folder / ("" if name in COLLECTED else "tables") / f"{name}.csv" for name in self.frames}
        self.by_name = {
            name: dict(zip(row_names(name, rows), rows.to_dict("records"), strict=True))
            for name, rows in self.frames.items()
            if name in NAMES or "cell" not in rows
        }

    def lines(self, name: str) -> tuple[list[str], list[tuple[str, ...]]]:
        """Return the heading and the rows of a file, each field as it stands there."""
        heading, *rows = csv.reader(io.StringIO(self.files[name].read_text(encoding="utf-8")))
        return heading, [tuple(row) for row in rows]

    def rows_of(self, traces) -> list[dict]:
        """Return the rows that are named, each with `table`. Raises KeyError for a row that is in no table."""
        found = []
        for trace in traces:
            name = Path(trace.file).stem
            if trace.file == str(self.files.get(name, "")).removeprefix(f"{self.files['epochs'].parent}/"):
                found += [{**self.by_name[name][row], "table": name} for row in trace.rows]
        return found


def numbers(sentence: str) -> list[tuple[str, str]]:
    """Return (number, unit) of all numbers in a sentence that stand for themselves; those in names are part of a word."""
    for exempt in EXEMPT:
        sentence = exempt.sub("", sentence)
    found = []
    for match in QUANTITY.finditer(sentence):
        unit = match["unit"] or match["behind"] or ""
        found.append((match["value"], unit))
        spread = re.findall(rf"({NUMBER})(?:\s({UNITS}))?", match["spread"] or "")
        found += [(number, own or unit) for number, own in spread]
    return with_unit_of_the_last(sentence, found)


def with_unit_of_the_last(sentence: str, found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Give the first of `10.1 to 20.2 ms` and `10.1 and 20.2 ms` the unit of the second."""
    given = []
    for (number, unit), (after, of_after) in zip(found, [*found[1:], ("", "")], strict=True):
        is_pair = after and re.search(
            rf"(?<!batch ){re.escape(number)} (?:to|and) {re.escape(after)} {re.escape(of_after)}", sentence
        )
        given.append((number, of_after if not unit and is_pair else unit))
    return given


def texts_of(column: str, value: object) -> set[tuple[str, str]]:
    """Return how the report writes a value of a column, with the unit beside it."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return set()
    texts = {(f"{value:g}", ""), (f"{int(value):,}", "")} if float(value).is_integer() else set()
    if column.endswith("_ratio"):
        texts |= {(percent(value), "%"), (three(100 * value), "%")}
        texts |= {(text, unit) for text in (three(value), f"{value:.3f}") for unit in ("", "times")}
    elif column.endswith("_per_s"):
        texts |= {(three(value), "GB/s" if "_gb_" in column else "samples/s")}
    elif column.endswith("_s"):
        texts |= {(three(value), "s"), (three(1e3 * value), "ms"), (three(1e6 * value), "\N{MICRO SIGN}s")}
        texts |= {tuple(duration(value).split(" "))}
    elif column.endswith("_bytes"):
        texts |= {tuple(show(round(value)).split(" ")) for show in (size, message_size)}
    elif column.endswith("_mb"):
        texts |= {(f"{value:g}", "MiB")}
    elif column.endswith("_loss") or column == "num_expected_launches":
        texts |= {(three(value), ""), (f"{value:.4f}", "")}
    return texts


def untraced(sentence: str, known: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the numbers of a sentence that are not known. known: as `known_of` returns it."""
    return [number for number in numbers(sentence) if number not in known]


def known_of(anchor: str, traces, tables: Tables) -> set[tuple[str, str]]:
    """Return (number, unit) of all that the named rows have, and of what a statement with this anchor may make of them."""
    rows = tables.rows_of(traces)
    models = [row for row in rows if row["table"].endswith("_models")]  # beside them the cells that they were fitted to
    own = models or rows[: next((num for begin, num in NUM_TOLD.items() if anchor.startswith(begin)), None)]
    known = {text for row in own for column, value in row.items() for text in texts_of(column, value)}
    known |= {
        (word, "") for row in rows for word in re.findall(r"\d+", str(row.get("ranks", "")))
    }  # of straggler_hosts
    return known | {t for begin, derived in DERIVED.items() if anchor.startswith(begin) for t in derived(rows, tables)}


def ideal(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """The first row's number of ranks times the throughput of one rank of a baseline, which are rows too; and of how many
    rows, without the baselines or with them, it is the fastest."""
    bases = [row for row in rows if row["cell"] == row["baseline"]]
    one = [base["throughput_samples_per_s"] / base["world_size"] for base in bases]
    found = {(three(max(one) * rows[0]["world_size"]), unit) for unit in ("samples/s", "") if one}
    return found | {(str(len(rows) - num), "") for num in (0, len(bases))}


def fitted(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """How many models, how many that were not refused and how many cells are named; and how far these cells lie from the first model, in percent, how many
    sizes they have and how often the distance changes sign from one to the next."""
    models = [row for row in rows if row["table"].endswith("_models")]
    cells = [row for row in rows if not row["table"].endswith("_models")]
    found = {str(len(models)), str(len(cells)), str(sum(pd.isna(row["refusal"]) for row in models))}
    size, value = ("world_size", "throughput_samples_per_s") if "step_s" in cells[0] else ("message_bytes", "latency_s")
    cells = sorted(cells, key=lambda row: (row[size], row["nodes"]))
    cells = [row for i, row in enumerate(cells) if i == 0 or cells[i - 1][size] != row[size]]
    curve = (scaling_curve if size == "world_size" else communication_curve)(
        models[0], [int(row[size]) for row in cells]
    )
    away = [row[value] / model - 1 for row, model in zip(cells, curve[value], strict=True)]
    changes = sum((a > 0) != (b > 0) for a, b in pairwise(away))
    percents = {(percent(end), "%") for end in (min(away), max(away))}
    return {(text, "") for text in (*found, str(len(cells)))} | {(str(changes), "times"), (str(changes), "")} | percents


def bandwidth_spread(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """Bus bandwidth is a number of bytes over a time: its spread is that of the time."""
    row = rows[0]
    if pd.isna(row["latency_low_s"]):
        return set()
    return {
        (three(row["busbw_gb_per_s"] * row["latency_s"] / row[f"latency_{end}_s"]), "GB/s") for end in ("low", "high")
    }


def above_the_best(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    slow, fast = rows
    return {(percent(slow["step_s"] / fast["step_s"] - 1), "%")}


def own_over_torch(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """The ratio of the two implementations on one input."""
    inputs = ("batch_size", "hidden", "dtype", "nodes", "gpus_per_node", "stack", "backend")
    times = {(*(row[name] for name in inputs), row["implementation"]): row["time_s"] for row in rows}
    pairs = [
        (times[*key, "own"], times[*key, "torch"]) for *key, name in times if name == "own" and (*key, "torch") in times
    ]
    return {(three(own / torch), unit) for own, torch in pairs for unit in ("times", "")}


def of_iterations(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """What share of iterations a rank was last in; of spikes their sums over shapes, shares and cost."""
    shares = {(f"{100 * row['num_last'] / row['num_iterations']:.0f}", "%") for row in rows if "num_last" in row}
    return shares | spikes(rows, tables) | looked_at(tables)


def looked_at(tables: Tables) -> set[tuple[str, str]]:
    """How many measurements and launches were looked at; and in how many launches a rank would have to be last to be beyond
    chance: so many that the chance of it, times the rows of the table, is below the rate of false discoveries."""
    waits, rows = tables.frames["waits"], tables.frames["stragglers"]
    found = {int(waits.loc[waits["rank"] == 0, "num_records"].sum()), waits["launch"].nunique()}
    for ranks in set(rows["world_size"]):
        found.add(next(k for k in range(1, 100) if len(rows) / ranks**k <= FALSE_DISCOVERIES))
    return {(str(num), "") for num in found}


def spikes(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    looked = [row for row in rows if row["table"] == "stragglers" and not pd.isna(row["num_fenced"])]
    cost = {(percent(row["spike_cost_iterations"] / row["num_fenced"]), "%") for row in looked if row["num_fenced"]}
    places = {
        tuple(row[name] for name in ("nodes", "gpus_per_node", "stack", "device", "quantity")): row for row in looked
    }
    kinds = ("num_spikes_all_ranks", "num_spikes_one_host", "num_spikes_one_rank")
    sums = {name: int(sum(row[name] for row in places.values())) for name in ("num_fenced", "num_spikes", *kinds)}
    sums["unknown"] = sums["num_spikes"] - sum(sums[name] for name in kinds)
    found = {(f"{num:,}", "") for num in sums.values()} | cost
    if sums["num_fenced"]:
        lost = sum(row["spike_cost_iterations"] for row in places.values())
        found |= {(three(100 * lost / sums["num_fenced"]), "%")}
    return found | ({(percent(sums["num_spikes"] / sums["num_fenced"]), "%")} if sums["num_fenced"] else set())


def verdict_counts(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """How many of the named rows there are, of each verdict, of each kind of spread, and without 1 in the spread."""
    frame = pd.DataFrame(rows)
    counts = {len(frame), *frame["verdict"].value_counts(), *frame["interval"].value_counts()}
    for _, own in frame.groupby("interval"):
        counts.add(int(((own["time_low_ratio"] > 1) | (own["time_high_ratio"] < 1)).sum()))
    counts |= {0} if set(frame["verdict"]) != {"slower", "faster", "inconclusive", "equivalent"} else set()
    counts.add(int((frame[["num_launches", "num_reference_launches"]].min(axis=1) < 3).sum()))
    margins = {(percent(margin), "%") for margin in frame["margin_ratio"].unique()}
    return {(str(count), "") for count in counts} | margins | direction(frame["time_ratio"])


def direction(ratios: pd.Series) -> set[tuple[str, str]]:
    """How many ratios are on the side of 1 that most are on, how far from it they are, and how likely that is by chance."""
    side = max(ratios[ratios > 1], ratios[ratios < 1], key=len)
    if not len(side):
        return set()
    most = max(side, key=lambda ratio: abs(math.log(ratio)))
    p_value = binomtest(len(side), int((ratios != 1).sum())).pvalue
    told = {(percent(abs(ratio - 1)), "%") for ratio in (ratios.median(), most)}
    return told | {(str(len(side)), ""), ("0.001" if p_value < 0.001 else three(p_value), "")}


def with_a_value(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    return {(str(len(rows)), ""), (str(sum(not pd.isna(row["efficiency_ratio"]) for row in rows)), "")}


def counts(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    """How many rows are named, of how many cells, and how many rows their table has that could be."""
    if not rows:
        return set()
    table = tables.frames[rows[0]["table"]]
    measured = tables.frames["measurements"]
    ok = measured[measured["status"] == "ok"]
    of_all = {
        len(table),
        len(ok),
        int(measured["repeat"].notna().sum()),
        measured["cell"][measured["repeat"].notna()].nunique(),
    }
    of_all |= {int(table["range_ratio"].notna().sum())} if "range_ratio" in table else set()
    of_all |= {int(ok[name].notna().sum()) for name in ("has_drift", "effective_samples", "num_outliers")}
    of_all |= {int((ok["first_iteration_s"] / ok["p50_s"]).notna().sum())}
    counted = ok[ok["num_outliers"].notna()]
    of_all |= {int(counted[name].sum()) for name in ("num_outliers", "num_iterations")}
    ranges = [row["range_ratio"] for row in rows if row["table"] == "launch_ranges" != rows[0]["table"]]
    rows = [row for row in rows if row["table"] == rows[0]["table"]]
    widths = [row["half_width_ratio"] for row in rows if not pd.isna(row.get("half_width_ratio"))]
    medians = {(percent(pd.Series(ratios).median()), "%") for ratios in (ranges, widths) if ratios}
    by_chance = DRIFT_P * ok["has_drift"].notna().sum()
    medians.add((f"{by_chance:.0f}" if by_chance >= 9.5 else f"{by_chance:.2g}", ""))
    medians.add((percent(counted["num_outliers"].sum() / max(counted["num_iterations"].sum(), 1)), "%"))
    own = {len(rows), len({row["cell"] for row in rows}), *pd.Series([row.get("stop") for row in rows]).value_counts()}
    rises = sum((row.get("drift_ratio") or 0) > 0 for row in rows)
    return medians | {(str(count), "") for count in {*of_all, *own, rises, len(rows) - rises}}


def first_iterations(rows: list[dict], tables: Tables) -> set[tuple[str, str]]:
    return {(three(row["first_iteration_s"] / row["p50_s"]), "times") for row in rows[:1] if "first_iteration_s" in row}


NUM_TOLD = {"comparison": 1, "heatmap": 2}  # rows that are told by their numbers, the first; the others are counted
# What a sentence makes of its rows itself, by the beginning of its anchor: a ratio or a difference of two, or a count.
DERIVED = {
    "throughput": ideal,
    "efficiency": ideal,
    "scaling-model": fitted,
    "communication-model": fitted,
    "residuals": fitted,
    "bandwidth": bandwidth_spread,
    "bucket": above_the_best,
    "batch-norm": own_over_torch,
    "straggler": of_iterations,
    "comparison": verdict_counts,
    "heatmap": with_a_value,
    "failures": counts,
    "warnings": lambda rows, tables: counts(rows, tables) | first_iterations(rows, tables),
}
