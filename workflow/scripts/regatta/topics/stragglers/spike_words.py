"""What is said of spikes: how many iterations lie far out, and whether all ranks, one host or one rank made them so."""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from regatta.core.text import UNKNOWN, is_unknown, percent, plural, shape, three
from regatta.report.panels import Table
from regatta.report.sources import of_rows
from regatta.report.warnings import Advice
from regatta.topics.stragglers.spikes import ALL_RANKS, ONE_HOST, ONE_RANK, Spike
from regatta.topics.stragglers.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE

MOST_ROWS = 20
FINDING_RATIO = 0.01  # of iterations, and of their time; fewer spikes, or cheaper ones, are told in the section alone
CLASSES = {ALL_RANKS: "all ranks", ONE_HOST: "one host", ONE_RANK: "one rank"}
UNKNOWN_CLASS = "unknown"
NOT_ATTRIBUTED = "that cannot be attributed"
_COUNTS = {**{f"num_spikes_{kind}": name for kind, name in CLASSES.items()}, UNKNOWN_CLASS: UNKNOWN_CLASS}
WHAT = {IN_COLLECTIVE: "calls", COMPUTE: "steps without exchange", HOST_WAIT: "steps"}
LOOK = (
    "Look there for other work, daemons, clocks, temperatures and memory errors, and at its cable and switch port; then measure again"
    " without it. Medians hardly feel spikes, means and high percentiles do."
)


def told_spikes(spikes: Sequence[Spike], num_iterations: int, hosts: Sequence[str | None]) -> str:
    """Return one record's spikes in words: `3 spikes in 60 iterations: 1 of all ranks, 2 of rank 1 on host n2`."""
    if not spikes:
        return f"no spikes in {plural(num_iterations, 'iteration')}"
    parts = []
    for (kind, who), num in sorted(Counter((s.kind, s.who) for s in spikes).items(), key=_order):
        on = f" on host {hosts[who]}" if kind == ONE_RANK and not is_unknown(hosts[who]) else ""
        names = {ALL_RANKS: "of all ranks", ONE_HOST: f"of host {who}", ONE_RANK: f"of rank {who}{on}"}
        parts.append(f"{num} {names.get(kind, NOT_ATTRIBUTED)}")
    return f"{plural(len(spikes), 'spike')} in {plural(num_iterations, 'iteration')}: {', '.join(parts)}"


def _order(counted: tuple[tuple, int]) -> tuple:
    (kind, who), num = counted
    return [*CLASSES, None].index(kind), -num, str(who)


def spike_groups(stragglers: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each shape, stack and quantity that was looked at: its counts, and the rank with most of one rank.

    rank, hosts: unknown where no rank has more than half of them.
    """
    looked = stragglers[stragglers["num_fenced"].notna()].sort_values(
        "num_spikes_of_rank", ascending=False, kind="stable"
    )
    first = looked.drop_duplicates(["nodes", "gpus_per_node", "stack", "device", "quantity"])
    known = first[list(_COUNTS)[:-1]].sum(axis=1)
    has_most = 2 * first["num_spikes_of_rank"] > first["num_spikes_one_rank"]
    return first.assign(
        unknown=first["num_spikes"] - known,
        rank=first["rank"].where(has_most),
        hosts=first["hosts"].where(has_most),
        share=first["num_spikes"] / first["num_fenced"],
        cost=first["spike_cost_iterations"] / first["num_fenced"],
    ).sort_values(["share", "quantity"], ascending=[False, True], kind="stable")


def spike_sentence(groups: pd.DataFrame) -> str:
    """Return what all groups have together; empty where nothing was looked at."""
    num_iterations = int(groups["num_fenced"].sum())
    if not num_iterations:
        return ""
    num = int(groups["num_spikes"].sum())
    if not num:
        return f"No spikes in {num_iterations:,} iterations."
    parts = _parts({column: int(groups[column].sum()) for column in _COUNTS})
    cost = three(100 * groups["spike_cost_iterations"].sum() / num_iterations)
    text = f"{num:,} {'spike' if num == 1 else 'spikes'} in {num_iterations:,} iterations ({percent(num / num_iterations)} %): {parts};"
    text += f" {'it makes' if num == 1 else 'together they make'} all of it {cost} % longer."
    named = [row for row in groups.itertuples() if _is_named(row)]
    if not named:
        return text
    top = max(named, key=lambda row: row.num_spikes_of_rank)
    return f"{text} Of one rank: {_most(top)} in {WHAT[top.quantity]} of {shape(top.nodes, top.gpus_per_node)}, {top.stack}."


def _parts(counts: dict[str, int]) -> str:
    """Return `6 of all ranks, 3 of one rank, 1 that cannot be attributed`. counts: by column of `_COUNTS`."""
    names = {column: NOT_ATTRIBUTED if name == UNKNOWN_CLASS else f"of {name}" for column, name in _COUNTS.items()}
    return ", ".join(f"{num:,} {names[column]}" for column, num in counts.items() if num)


def _is_named(row) -> bool:
    """Say whether a rank is worth a word: more than half of one rank's spikes may be chance, of which the table tells."""
    has_all = row.num_spikes_of_rank == row.num_spikes_one_rank > 1
    return has_all or (not is_unknown(row.has_most_spikes) and bool(row.has_most_spikes))


def _most(row) -> str:
    hosts = [] if is_unknown(row.hosts) else row.hosts.split(" ")
    on = f" on host {hosts[0]}" if len(hosts) == 1 else f" on {len(hosts)} hosts" if hosts else ""
    return f"rank {row.rank}{on} has {row.num_spikes_of_rank} of {row.num_spikes_one_rank}"


def spike_table(groups: pd.DataFrame) -> Table | None:
    """Return the groups that have spikes, those with the largest share of them first; None where they may be chance: they
    are few in all groups, and no rank has most of them."""
    found = groups[groups["num_spikes"] > 0]
    if not ((found["share"] > FINDING_RATIO) | found["has_most_spikes"].fillna(False).astype(bool)).any():
        return None
    rest = len(found) - MOST_ROWS
    caption = "Spikes: iterations far longer than the others of their measurement"
    caption += f" (the first {MOST_ROWS} of {len(found)})" if rest > 0 else ""
    columns = ("in", "iterations", "spikes", "spikes (%)", "extra time (%)", *_COUNTS.values(), "most of one rank")
    body = tuple(_row(row) for row in found.head(MOST_ROWS).itertuples())
    return Table(caption, columns, body, sources=("stragglers",))


def _row(row) -> tuple[str, ...]:
    return (
        f"{WHAT[row.quantity]}, {shape(row.nodes, row.gpus_per_node)}, {row.stack}",
        f"{row.num_fenced:,}",
        f"{row.num_spikes:,}",
        three(100 * row.share),
        three(100 * row.cost),
        *(f"{getattr(row, column):,}" for column in _COUNTS),
        UNKNOWN if is_unknown(row.rank) else _most(row),
    )


def costliest(groups: pd.DataFrame) -> pd.DataFrame:
    """Return the group that spikes cost most; no row where none costs enough to matter."""
    found = groups[(groups["share"] > FINDING_RATIO) & (groups["cost"] > FINDING_RATIO)]
    return found.sort_values("cost", ascending=False, kind="stable").head(1)


def spike_finding(groups: pd.DataFrame) -> str | None:
    """Return the sentence on the group that spikes cost most; None where none costs enough to matter."""
    most = next(costliest(groups).itertuples(), None)
    if most is None:
        return None
    parts = _parts({column: int(getattr(most, column)) for column in _COUNTS})
    named = f"; of one rank, {_most(most)}" if _is_named(most) else ""
    return (
        f"Spikes make {WHAT[most.quantity]} of {shape(most.nodes, most.gpus_per_node)}, stack {most.stack},"
        f" {percent(most.cost)} % longer: {most.num_spikes:,} in {most.num_fenced:,} iterations ({parts}{named})."
    )


def spike_advice(stragglers: pd.DataFrame, hosts: pd.DataFrame) -> list[Advice]:
    """Return the warning on the host, or for want of one the rank, that most spikes of one alone are to blame on."""
    for name, table, told in (("straggler_hosts", hosts, _host_told), ("stragglers", stragglers, _rank_told)):
        found = table[table["has_most_spikes"].fillna(False).astype(bool)]
        if len(found):
            column = "num_spikes_of_host" if table is hosts else "num_spikes_of_rank"
            most = found.sort_values(column, ascending=False, kind="stable").head(1)
            return [Advice(told(next(most.itertuples())), LOOK, (of_rows(name, most),))]
    return []


def _host_told(row) -> str:
    return (
        f"Host {row.host} by itself, or a rank on it, held up the others in {row.num_spikes_of_host} of the"
        f" {plural(row.num_spikes_of_any_host, 'spike')} that one host or rank made ({row.num_fenced:,} {WHAT[row.quantity]} looked at)."
    )


def _rank_told(row) -> str:
    return (
        f"One rank held up the others in {plural(row.num_spikes_one_rank, 'spike')}: {_most(row)}"
        f" ({row.num_fenced:,} {WHAT[row.quantity]} of {shape(row.nodes, row.gpus_per_node)}, {row.stack}, looked at)."
    )
