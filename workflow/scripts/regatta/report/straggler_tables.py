"""What is said of stragglers: the sentence, and the ranks that were last in most measurements of a launch."""

import math

import pandas as pd

from regatta.analysis.stragglers import MOST_OF_RECORDS
from regatta.numbers import UNKNOWN, duration, is_unknown, percent, plural, shape, three
from regatta.report.panels import Table
from regatta.store.waits import COMPUTE, HOST_WAIT, IN_COLLECTIVE
from regatta.verdicts import FALSE_DISCOVERIES

MOST_ROWS = 20
# What the last rank does, and in what.
DOES = {IN_COLLECTIVE: "comes last", COMPUTE: "computes longest", HOST_WAIT: "waits least"}
OF_WHAT = {IN_COLLECTIVE: "calls", COMPUTE: "steps", HOST_WAIT: "steps"}
NOTHING = "No measurement on two ranks or more says for whom the others waited."


def outcome(stragglers: pd.DataFrame, waits: pd.DataFrame) -> str:
    """Return the sentence where nobody is persistent: what was looked at, and whether so few launches could tell."""
    if stragglers.empty:
        return NOTHING
    num_launches, of_rank_0 = waits["launch"].nunique(), waits[waits["rank"] == 0]
    is_suspect = waits["num_suspect"] > MOST_OF_RECORDS * waits["num_records"]
    num_suspect = waits.loc[is_suspect, "launch"].nunique()
    looked = (
        f"{plural(int(of_rank_0['num_records'].sum()), 'measurement')} in {plural(num_launches, 'launch', 'launches')}"
    )
    where = f"in {plural(num_suspect, 'launch', 'launches')}" if num_suspect else "in no launch"
    text = f"No rank and no host is persistently last: of {looked} looked at, {where} is one rank last in more than half of its"
    text += " measurements."
    short = stragglers[[_needed(row, len(stragglers)) > row.num_launches for row in stragglers.itertuples()]]
    if len(short) < len(stragglers):
        return text
    least = min(short.itertuples(), key=lambda row: _needed(row, len(stragglers)))
    return (
        f"{text} So few could not tell: of {least.world_size} ranks, the same one has to be last in"
        f" {_needed(least, len(stragglers))} launches to be beyond chance; there were {least.num_launches} of that shape and stack."
    )


def _needed(row, num_rows: int) -> int:
    """Return in how many launches a rank has to be the suspect, in all of them, to be beyond chance by itself."""
    return math.ceil(math.log(num_rows / FALSE_DISCOVERIES) / math.log(row.world_size) + 1e-9)


def told_rank(row) -> str:
    """Return the sentence on a rank of `stragglers`."""
    hosts = [] if is_unknown(row.hosts) else row.hosts.split(" ")
    where = f" on host {hosts[0]}" if len(hosts) == 1 else f" (on {len(hosts)} hosts)" if hosts else ""
    return (
        f"Rank {row.rank}{where} {DOES[row.quantity]} in {_share(row)} of {OF_WHAT[row.quantity]},"
        f" persistently in {row.num_suspect_launches} of {plural(row.num_launches, 'launch', 'launches')}"
        f" ({shape(row.nodes, row.gpus_per_node)}, {row.stack}): {_lag(row)}."
    )


def told_host(row) -> str:
    """Return the sentence on a host of `straggler_hosts`."""
    return (
        f"Host {row.host} has the rank that {DOES[row.quantity]} in {row.num_suspect_launches} of"
        f" {plural(row.num_launches, 'launch', 'launches')}, where chance would make {three(row.num_expected_launches)}:"
        f" {_lag(row, 'other hosts')}.{'' if is_unknown(row.ranks) else f' Suspect by themselves, in so many measurements: ranks {row.ranks}.'}"
    )


def rank_tables(stragglers: pd.DataFrame, hosts: pd.DataFrame) -> tuple[Table, ...]:
    """Return the ranks, and the hosts where there are several, that were the suspect of a launch."""
    found = []
    for table, name in ((stragglers, _rank_name), (hosts, lambda row: row.host)):
        suspect = table[table["num_suspect_launches"] > 0].sort_values(["p_adjusted", "lag_ratio"], ascending=[True, False], kind="stable")  # fmt: skip
        if suspect.empty:
            continue
        noun = "host" if "host" in table else "rank"
        rest = len(suspect) - MOST_ROWS
        caption = f"{noun.capitalize()}s that were last in most measurements of a launch"
        caption += f" (the first {MOST_ROWS} of {len(suspect)})" if rest > 0 else ""
        columns = (noun, "what", "launches", "of iterations (%)", "lag (ms)", "lag (%)", "corrected p", "last")
        body = tuple(_row(row, name) for row in suspect.head(MOST_ROWS).itertuples())
        found.append(Table(caption, columns, body, sources=("straggler_hosts" if noun == "host" else "stragglers",)))
    return tuple(found)


def _row(row, name) -> tuple[str, ...]:
    return (
        name(row),
        row.quantity.replace("_", " "),
        f"{row.num_suspect_launches}/{row.num_launches}",
        percent(row.num_last / row.num_iterations),
        UNKNOWN if is_unknown(row.lag_s) else three(1e3 * row.lag_s),
        percent(row.lag_ratio),
        f"{row.p_adjusted:.1e}" if row.p_adjusted < 0.001 else three(row.p_adjusted),
        "persistently" if row.is_persistent else "not beyond chance",
    )


def _rank_name(row) -> str:
    hosts = UNKNOWN if is_unknown(row.hosts) else row.hosts.replace(" ", ", ")
    return f"rank {row.rank} on {hosts}, {shape(row.nodes, row.gpus_per_node)}, {row.stack}"


def _share(row) -> str:
    return f"{100 * row.num_last / row.num_iterations:.0f} %"


def _lag(row, others: str = "others") -> str:
    return f"{duration(row.lag_s)} after the median of the {others}, {percent(row.lag_ratio)} % of the iteration"
