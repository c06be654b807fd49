"""Comparisons as forest plots, the largest effect first, and what differs between the environments as tables."""

import pandas as pd

from regatta.analysis.cell_labels import cell_labels
from regatta.analysis.comparison import ALIKE, by_effect, is_noise
from regatta.analysis.comparison_words import (
    finding_text,
    judged_rows,
    launches_text,
    margin_text,
    p_text,
    spread_text,
    summary,
    verdict_text,
)
from regatta.analysis.environment_differences import NOT_KNOWN, Difference
from regatta.analysis.tables import to_csv
from regatta.numbers import UNKNOWN, duration, is_unknown, plural, ratio_text
from regatta.report.forest import Row, draw_forest, pages
from regatta.report.panels import Figure, Table
from regatta.report.traces import of_rows
from regatta.verdicts import MIN_LAUNCHES_TEST, MIN_NOISE_PAIRS, NO_TEST

MAX_PANELS = 4  # of a benchmark; the smaller effects are in comparisons.csv
MAX_ALIKE = 10  # rows of alike stacks; the others are nearer to 1
HEADS = ("cell", "reference", "this", "ratio", "n", "test", "p", "p corrected", "verdict")
ALIKE_HEADS = ("cell", "reference", "this", "ratio", "n", "verdict")


def comparison_figures(comparisons: pd.DataFrame) -> list[Figure]:
    """Return forest plots of the rows that have a ratio, by benchmark: those beyond the margin first, then the others."""
    known = judged_rows(comparisons)
    if not len(known):
        return []
    known = known.assign(label=_labels(known))
    found: list[Figure] = []
    for benchmark, rows in known.groupby("benchmark", sort=False):
        left = _within_margin_last(rows)
        split = pages([_row(row) for row in left.itertuples()])[:MAX_PANELS]
        for index, page in enumerate(split):
            part, left = left.iloc[: len(page)], left.iloc[len(page) :]
            title = f"{benchmark} ({index + 1} of {len(split)})" if len(split) > 1 else benchmark
            num_left = len(left) if index == len(split) - 1 else 0
            everything = None if found else known
            found.append(_figure(f"comparison-{len(found) + 1}", title, part, page, num_left, everything))
    return found


def environment_table(title: str, found: list[Difference], reference: str, other: str) -> Table | None:
    """Return what differs between the environments of two sides, or None if nothing is known to."""
    rows = tuple((d.name.replace(NOT_KNOWN, f"{NOT_KNOWN}, so not compared", 1), d.reference, d.other) for d in found)
    return (
        Table(title, ("what", reference, other), rows, is_words=True, sources=("launches/*.jsonl",)) if rows else None
    )


def alike_table(comparisons: pd.DataFrame) -> Table | None:
    """Return the rows of stacks that differ in their name alone (A/A), those furthest from 1, or None without any."""
    rows = comparisons[(comparisons["verdict"] == ALIKE).fillna(False)]
    if not len(rows):
        return None
    shown = by_effect(rows.assign(label=_labels(rows))).head(MAX_ALIKE)
    most = f"{len(rows)}" if len(shown) == len(rows) else f"the {len(shown)} of {len(rows)} that are furthest from 1"
    title = (
        f"{_pair_words(rows)}: alike but for the name, so noise and not judged ({most}). From {MIN_NOISE_PAIRS} pairs of"
        f" {MIN_LAUNCHES_TEST} launches on they give the margin of their benchmark."
    )
    body = tuple((*_times(row), row.verdict) for row in shown.itertuples())
    return Table(title, ALIKE_HEADS, body, sources=("comparisons",))


def comparison_table(title: str, comparisons: pd.DataFrame, chosen: pd.Index) -> Table:
    """Return some rows as numbers for people. They are named by what varies among all comparisons."""
    known = judged_rows(comparisons)
    return _numbers(title, known.assign(label=_labels(known) if len(known) else []).loc[chosen])


def finding(comparisons: pd.DataFrame) -> str:
    """Return the sentence on all comparisons: which side takes longer where nearly all agree, how many ended in which word,
    by which margin, and the largest effect."""
    known = judged_rows(comparisons)
    text = f"{_pair_words(known)}: {finding_text(known)}"
    told = by_effect(known[known["verdict"].isin(["slower", "faster"])])
    if not len(told):
        return f"{text}."
    row = next(told.assign(label=_labels(known)).head(1).itertuples())
    return f"{text}. The largest difference: {row.label} takes {spread_text(row)} times as long (n = {launches_text(row)})."


def _told_first(known: pd.DataFrame) -> pd.DataFrame:
    """Return all rows that a finding is made of: that of its largest difference first, if it tells of one."""
    told = by_effect(known[known["verdict"].isin(["slower", "faster"])]).head(1)
    return pd.concat([told, known.drop(told.index)])


def _within_margin_last(rows: pd.DataFrame) -> pd.DataFrame:
    ordered = by_effect(rows)
    is_within = is_noise(ordered)
    return pd.concat([ordered[~is_within], ordered[is_within]])


def _labels(known: pd.DataFrame) -> pd.Series:
    """Return the name of each row: what is compared with what where it is not the same in all rows, and the cell."""
    axis = known["axis"].iloc[0]
    own = pd.Series(cell_labels(known, without=(axis,)), index=known.index)
    pairs = known["value"] + " : " + known["reference_value"]
    if pairs.nunique() == 1:
        return own
    told = known["value"] if known["reference_value"].nunique() == 1 else pairs
    return told + ", " + own


def _pair_words(known: pd.DataFrame) -> str:
    """Return what is compared with what: `stack bound against contained`."""
    axis, values, references = (list(dict.fromkeys(known[name])) for name in ("axis", "value", "reference_value"))
    word = "" if axis[0] == "campaign" else f"{axis[0].replace('_', ' ')} "
    return f"{word}{' and '.join(values)} against {' and '.join(references)}"


def _row(row) -> Row:
    low, high = (None if is_unknown(value) else float(value) for value in (row.time_low_ratio, row.time_high_ratio))
    return Row(row.label, float(row.time_ratio), low, high, row.interval == "interval", launches_text(row), row.verdict)


def _figure(
    figure_id: str, title: str, rows: pd.DataFrame, drawn: list[Row], num_left: int, everything: pd.DataFrame | None
) -> Figure:
    """everything: all comparisons where this is the first figure, whose text tells of all."""
    margin = float(rows["margin_ratio"].iloc[0])
    svg, size = draw_forest(drawn, margin)
    first = rows.iloc[0]
    largest = f"{first['label']}: {ratio_text(first['time_ratio'])} times as long, {first['verdict']}"
    alt = finding(everything) if everything is not None else f"{title}: {summary(rows)}. First: {largest}."
    return Figure(
        figure_id,
        f"{_pair_words(rows)}: {title}",
        svg,
        alt,
        _caption(rows, num_left, everything is not None),
        _numbers(f"Comparisons of {title}, by size of the effect", rows),
        to_csv(rows.drop(columns="label")),
        float(everything is not None),
        size,
        "comparisons",
        (of_rows("comparisons", rows if everything is None else _told_first(everything)),),
    )


def _caption(rows: pd.DataFrame, num_left: int, is_first: bool) -> str:
    kinds, is_paired = set(rows["interval"]), rows["is_paired"].fillna(False)
    spreads = {"interval": "a thick line its 95 % interval", "range": "a thin dashed line the range over launches"}
    text = "A mark is the median time (p50) of one cell over that of the other"
    text += "".join(f", {told}" for kind, told in spreads.items() if kind in kinds)
    is_even = (rows["num_launches"] == rows["num_reference_launches"]).all()
    text += f"; n counts launches of each{'' if is_even else ', the reference first'}"
    if is_paired.any():
        some = "" if is_paired.all() else f" in {plural(int(is_paired.sum()), 'row')}"
        text += f", compared in pairs{some}, each of one allocation"
    text += f". At 1 there is no difference, below 1 is faster; the grey band is the margin of {margin_text(rows)}."
    nothing = " (here nothing)" if is_noise(rows).all() else ""
    text += f" First what is beyond the margin{nothing}, then what is within it, each with the largest effect first."
    if is_first and (rows["test"].fillna(NO_TEST) != NO_TEST).any():
        text += " In the table p is of the named test that the ratio is 1, corrected by Benjamini and Hochberg over all"
        text += " comparisons; faster and slower also need the whole spread beyond the margin."
    if num_left:
        text += f" Not drawn: {plural(num_left, 'comparison')} further down that order, in comparisons.csv."
    return text


def _numbers(title: str, rows: pd.DataFrame) -> Table:
    return Table(
        title,
        HEADS,
        tuple(
            (
                *_times(row),
                UNKNOWN if is_unknown(row.test) else row.test,
                p_text(row.p_value),
                p_text(row.p_adjusted),
                verdict_text(row),
            )
            for row in rows.itertuples()
        ),
    )


def _times(row) -> tuple[str, ...]:
    return row.label, duration(row.reference_time_s), duration(row.time_s), spread_text(row), launches_text(row)
