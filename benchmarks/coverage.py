"""Error rates of intervals and verdicts, by simulation with known truth. No cluster, no clock, seeded.

    python benchmarks/coverage.py             quick, for `make bench`: under a minute
    python benchmarks/coverage.py --full      the tables of docs/decisions/0007-intervals-and-verdicts.md

Launches are log-normal with a tail to the slow side: scatter x (0.8 normal + 0.6 exponential). Cells differ in their
scatter (standard deviation of the logarithm 0.5). A share of the variance can be common to all cells of a launch.
Paired: an allocation effect per repeat is common to both stacks. The code is that of the report and the gate.
"""

import math
import sys
from dataclasses import dataclass

import numpy as np
from common import is_full, print_head, print_missed
from scipy.stats import norm

from regatta.compare.gate_rules import ALLOCATION_VARIATION
from regatta.core import correlation, moderation
from regatta.core.moderation import Contrasts
from regatta.core.verdicts import Compared, compare_all
from regatta.tables.estimates import over_launches, scale_of

SEED = 1
SCATTER, NUM_CELLS, NUM_BASELINES, MARGIN = 0.02, 50, 5, 0.05
LAUNCHES = (3, 5, 10)
CHUNK = 50  # campaigns at once, so that arrays stay in the cache
PAIRINGS = (True, False)
FALSE_CAMPAIGNS = {0.0: (2.5, 2.5, 2.5), 0.6: (3.5, 3, 3), 0.9: (4, 3, 3)}  # greatest, %, by share and launches
GATE_LAUNCHES, GATE_SCATTERS, GATE_EFFECTS = (1, 2, 3, 5, 6, 10), (0.02, 0.10, 0.20), (0.10, 0.15, 0.20)
QUICK, FULL = 50, 10_000  # campaigns per entry


@dataclass(frozen=True)
class Setup:
    """One simulated kind of campaign. slower: how many cells take `effect` longer. extra: added to the logarithms."""

    num_cells: int = NUM_CELLS
    slower: int = 0
    effect: float = 0.10
    scatter: tuple[float, float] = (SCATTER, SCATTER)  # of base and test
    share: float = 0.0
    spread: float = 0.5  # standard deviation of log scatter over cells
    is_paired: bool = False
    kind: str = "launches"


@dataclass(frozen=True)
class Found:
    """Rates in percent. false_campaigns: with any wrong finding. held: intervals that hold the truth. correlated:
    campaigns whose intervals are widened, because successive launches are found to be correlated."""

    found: float
    slower: float
    false_campaigns: float
    false_findings: float
    held: float
    correlated: float


def tailed(random: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return launches of mean 0 and variance 1: 0.8 normal + 0.6 exponential."""
    return 0.8 * random.standard_normal(shape) + 0.6 * (random.exponential(size=shape) - 1)


def levels(setup: Setup) -> np.ndarray:
    """Return log times of cells: from 1 ms to 1 s, or collectives of 20 us and steps of 300 ms."""
    if setup.kind == "mixed":
        return np.repeat(np.log([20e-6, 0.3]), (setup.num_cells + 1) // 2)[: setup.num_cells]
    return np.linspace(np.log(1e-3), 0, setup.num_cells)


def simulated(random: np.random.Generator, setup: Setup, num: int, scatter: float, launches: int):
    """Return log times of (campaigns, cells, launches) without effects, of mean 0, and the scatter of each cell."""
    shape = (num, setup.num_cells, launches)
    of_cells = scatter * np.exp(setup.spread * random.standard_normal((*shape[:2], 1)))
    if setup.kind == "mixed":
        of_cells = of_cells * np.where(levels(setup) < -5, 5, 0.5)[:, None]
    common, alone = tailed(random, (num, 1, launches)), tailed(random, shape)
    if setup.kind == "autocorrelated":  # lag-1 correlation 0.3 between the launches of a cell
        for i in range(1, launches):
            alone[..., i] = 0.3 * alone[..., i - 1] + (1 - 0.3**2) ** 0.5 * alone[..., i]
    logs = of_cells * (setup.share**0.5 * common + (1 - setup.share) ** 0.5 * alone)
    if setup.kind == "heavy tails":
        logs += np.log(1.1) * ((random.random(shape) < 0.05) - 0.05)
    if setup.kind == "bimodal":  # every tenth cell has a second mode, 10 % slower, in half of its launches
        logs[:, ::10] += np.log(1.1) * ((random.random(logs[:, ::10].shape) < 0.5) - 0.5)
    if setup.kind == "equal medians":
        logs -= of_cells * MEDIAN
    return logs, of_cells[..., 0]


MEDIAN = float(np.median(tailed(np.random.default_rng(0), (1_000_000,))))  # of launches of mean 0
HARD = {
    "heavy tails": (SCATTER, SCATTER),
    "equal means": (SCATTER, 4 * SCATTER),
    "equal medians": (SCATTER, 4 * SCATTER),
}
REPORTED = {
    "scatter 20 %": Setup(scatter=(0.2, 0.2)),
    "autocorrelated launches": Setup(kind="autocorrelated"),
    "5 of 50 cells bimodal": Setup(kind="bimodal"),
    "25 collectives (scatter 10 %), 25 steps (1 %), collectives 5 % slower": Setup(
        kind="mixed", slower=25, effect=0.05
    ),
    "all cells slower by the margin": Setup(slower=50, effect=MARGIN),
}


def compared(random: np.random.Generator, setup: Setup, num: int, launches: int) -> tuple[Contrasts, np.ndarray]:
    """Return the contrasts of simulated campaigns, and the true differences of their log times."""
    base, test = (simulated(random, setup, num, scatter, launches)[0] for scatter in setup.scatter)
    if setup.is_paired:
        allocation = SCATTER * tailed(random, (num, 1, launches))
        base, test = base + allocation, test + allocation
    truth = np.where(np.arange(setup.num_cells) < setup.slower, np.log1p(setup.effect), 0)
    level, groups = levels(setup)[:, None], np.full(setup.num_cells, "benchmark")
    if setup.kind == "mixed":
        groups = np.where(level[:, 0] < -5, "collective", "train_step")
    base, test = base + level, test + level + truth[:, None]
    if setup.is_paired:
        return moderation.paired_contrasts(test - base, base, groups), truth
    return moderation.unpaired_contrasts(base, test, groups), truth


def rates(setup: Setup, num: int, launches: int) -> Found:
    """Return the rates over so many campaigns."""
    random, parts = np.random.default_rng(SEED), []
    for begin in range(0, num, CHUNK):
        contrasts, truth = compared(random, setup, min(CHUNK, num - begin), launches)
        adjusted = moderation.adjust_for_number(contrasts.p_value)
        words = moderation.words(contrasts, adjusted, np.log1p(MARGIN))
        is_found, is_held = (
            adjusted <= moderation.FALSE_DISCOVERIES,
            np.abs(contrasts.shift - truth) <= contrasts.half_width,
        )
        is_right = is_found & (np.sign(contrasts.shift) == np.sign(truth))
        parts.append((is_found, is_right, words == "slower", is_held, contrasts.correlation > 0))
    is_found, is_right, is_slower, is_held, is_correlated = (np.concatenate(part) for part in zip(*parts, strict=True))
    is_wrong, those = is_found & ~is_right, slice(setup.slower) if setup.slower else slice(0, 0)
    shares = [part[:, those].mean() if setup.slower else np.nan for part in (is_right, is_slower)]
    shares += [is_wrong.any(-1).mean(), is_wrong.sum() / max(is_found.sum(), 1), is_held.mean()]
    shares.append(is_correlated.mean())
    return Found(*(100 * float(share) for share in shares))


def with_known_scatter(setup: Setup, num: int, launches: int) -> float:
    """Return the share of slower cells, in percent, that a test with each cell's true scatter finds: the maximum."""
    random, found = np.random.default_rng(SEED), []
    for _ in range(0, num, CHUNK):
        sides = [simulated(random, setup, CHUNK, scatter, launches) for scatter in setup.scatter]
        shift = np.log1p(setup.effect) + np.subtract(*(logs.mean(-1) for logs, _ in reversed(sides)))
        error = (sum(scatter**2 for _, scatter in sides) / launches) ** 0.5
        adjusted = moderation.adjust_for_number(2 * norm.sf(np.abs(shift) / error))
        found.append((adjusted <= moderation.FALSE_DISCOVERIES) & (shift > 0))
    return 100 * float(np.concatenate(found).mean())


def coverage(share: float, num: int, launches: int, kind: str = "launches") -> tuple[float, float]:
    """Return the share of cells' intervals that hold the truth in percent: of all, and of the most variable tenth."""
    random, held = np.random.default_rng(SEED), []
    setup = Setup(share=share, kind=kind)
    for _ in range(0, num, CHUNK):
        logs, scatters = simulated(random, setup, CHUNK, SCATTER, launches)
        found = moderation.mean_intervals(logs + levels(setup)[:, None], np.full(NUM_CELLS, "benchmark"))
        is_held = np.abs(found.shift - levels(setup)) <= found.half_width
        held.append((is_held, scatters >= np.quantile(scatters, 0.9, axis=-1, keepdims=True)))
    is_held, is_variable = (np.concatenate(part) for part in zip(*held, strict=True))
    return 100 * float(is_held.mean()), 100 * float(is_held[is_variable].mean())


def result_coverage(num: int, launches: int) -> list[float]:
    """Return the share of intervals of users' results that hold the truth in percent: of 16 cells, and of the last.

    Results have arithmetic means. That of the last cell is 8 times those of the others.
    """
    random, truth, held = np.random.default_rng(SEED), np.repeat([1.0, 8.0], [15, 1]), []
    for logs in simulated(random, Setup(num_cells=len(truth)), num, SCATTER, launches)[0]:
        values, names = truth[:, None] * (1 + logs), np.full(len(truth), "benchmark")
        found = over_launches(values, names, names, scale_of(values))
        held.append((found.low <= truth) & (truth <= found.high))
    return [100 * float(np.mean(part)) for part in (held, np.array(held)[:, -1])]


def efficiency_coverage(share: float, num: int, launches: int) -> float:
    """Return the share of efficiencies' intervals that hold the truth, in percent.

    45 cells of one shape, each with one of 5 baselines of another: launches are not paired, and baselines are shared.
    """
    random, held = np.random.default_rng(SEED), []
    setups = Setup(num_cells=NUM_BASELINES, share=share), Setup(num_cells=NUM_CELLS - NUM_BASELINES, share=share)
    for _ in range(0, num, CHUNK):
        base, cells = (
            simulated(random, setup, CHUNK, SCATTER, launches)[0] + levels(setup)[:, None] for setup in setups
        )
        of_cells = np.arange(cells.shape[1]) % NUM_BASELINES
        truth = levels(setups[0])[of_cells] - levels(setups[1])
        found = moderation.unpaired_contrasts(cells, base[:, of_cells], np.full(len(of_cells), ""))
        held.append(np.abs(found.shift - truth) <= found.half_width)
    return 100 * float(np.concatenate(held).mean())


def settled_share(num: int, launches: int) -> tuple[float, float]:
    """Return which share of open rows gets a number of launches still needed, and which share of those it settles."""
    random, answered, settled = np.random.default_rng(SEED), [], []
    setup, total = Setup(), launches + moderation.MOST_LAUNCHES
    effects = np.log1p(np.linspace(-0.15, 0.15, NUM_CELLS))[:, None]
    groups, margin = np.full(NUM_CELLS, "benchmark"), np.log1p(MARGIN)
    for _ in range(num):
        base, test = (simulated(random, setup, 1, SCATTER, total)[0][0] + levels(setup)[:, None] for _ in range(2))
        test = test + random.permutation(effects)
        contrasts = moderation.unpaired_contrasts(base[:, :launches], test[:, :launches], groups)
        adjusted = moderation.adjust_for_number(contrasts.p_value)
        is_open = moderation.words(contrasts, adjusted, margin) == "inconclusive"
        needed = moderation.launches_needed(contrasts, adjusted, margin)
        answered += np.isfinite(needed[is_open]).tolist()
        rows = np.flatnonzero(is_open & np.isfinite(needed))
        for row in random.permutation(rows)[:3]:
            until = launches + int(needed[row])
            later = moderation.unpaired_contrasts(base[:, :until], test[:, :until], groups)
            words = moderation.words(later, moderation.adjust_for_number(later.p_value), margin)
            settled.append(words[row] != "inconclusive")
    return 100 * float(np.mean(answered)), 100 * float(np.mean(settled))


def per_pairing(setup: Setup, num: int, launches: int, names: tuple[str, ...]) -> list[float]:
    """Return rates, paired and unpaired."""
    found = [rates(Setup(**vars(setup) | {"is_paired": is_paired}), num, launches) for is_paired in PAIRINGS]
    return [getattr(one, name) for name in names for one in found]


class Table:
    """A table in Markdown. missed: the rows that miss a goal by more than 3 standard errors of a rate of campaigns."""

    def __init__(self, title: str, num: int):
        print(f"\n{title}\n")
        print_head("", *(f"{launches} launches" for launches in LAUNCHES))
        self.num, self.missed = num, []

    def row(self, name: str, values: list[list[float]], goals: list[list[float]] | None = None, sign: int = 1) -> None:
        """Print the values of each column. sign: 1 if goals are least values, -1 if they are greatest values."""
        print(
            f"| {name} | {' | '.join(' / '.join(f'{value:.1f}' for value in column) for column in values)} |",
            flush=True,
        )
        for column, wanted in zip(values, goals or [], strict=bool(goals)):
            for value, goal in zip(column, wanted, strict=True):
                slack = 300 * (max(goal, 1) / 100 * (1 - min(goal, 99) / 100) / self.num) ** 0.5
                if sign * (value - goal) < -slack:
                    self.missed.append(f"{name}: {value:.1f}, goal {goal:g}")


def goals(num: int) -> list[str]:
    """Print the table of goals; return what misses them."""
    table = Table("Percent, paired / unpaired. 50 cells, scatter 2 %, margin 5 %", num)

    def both(setup: Setup, *names: str, count: int = num) -> list[list[float]]:
        return [per_pairing(setup, count, launches, names) for launches in LAUNCHES]

    ten = both(Setup(slower=10), "found", "slower", "false_findings")
    table.row("10 of 50 cells 10 % slower: found", [v[:2] for v in ten], [[60, 70], [88, 90], [97, 97]])
    table.row("the same: verdict slower", [v[2:4] for v in ten], [[52, 62], [80, 80], [93, 93]])
    table.row("the same: false among all findings", [v[4:] for v in ten], [[1.5] * 2] * 3, -1)
    table.row("1 of 50 cells 10 % slower: found", both(Setup(slower=1), "found"), [[20, 43], [68, 74], [94, 94]])
    shared = both(Setup(slower=10, share=0.6), "found")
    table.row("10 of 50, share 0.6: found", shared, [[32, 48], [75, 88], [93, 96]])
    for scatter, least in ((0.02, 98), (0.05, 85)):
        all_slower = Setup(num_cells=10, slower=10, effect=0.3, scatter=(scatter, scatter))
        wanted = [[least] * 2, [97] * 2, [99] * 2]
        table.row(f"10 cells, all 30 % slower, scatter {100 * scatter:g} %: found", both(all_slower, "found"), wanted)
        most = [[with_known_scatter(all_slower, num, launches)] for launches in LAUNCHES]
        table.row("the same, if each cell's scatter were known (unpaired)", most)
    for share, limits in FALSE_CAMPAIGNS.items():
        row = both(Setup(share=share), "false_campaigns")
        table.row(f"campaigns with a false finding, share {share:g}", row, [[limit] * 2 for limit in limits], -1)
    four = both(Setup(num_cells=4), "false_campaigns", count=2 * num)
    table.row("campaigns of 4 cells with a false finding", four, [[3.5] * 2] * 3, -1)
    for share in (0.0, 0.6):
        covered = [coverage(share, num, launches) for launches in LAUNCHES]
        table.row(f"coverage of cells' 95 % intervals, share {share:g}", [[v[0]] for v in covered], [[93]] * 3)
        table.row("the same, most variable tenth", [[v[1]] for v in covered], [[80], [87], [90]])
        covered = [[efficiency_coverage(share, num, launches)] for launches in LAUNCHES]
        table.row(f"coverage of efficiencies, share {share:g}", covered, [[93]] * 3)
    results = [result_coverage(num, launches) for launches in LAUNCHES]
    table.row("coverage of users' results: all, and one of 16 that is 8 times the others", results, [[93, 92]] * 3)
    return table.missed


def hard_cases(num: int) -> list[str]:
    """Print tables of heavy tails and unequal scatter, and of what is only reported; return what misses its goal."""
    table = Table("Percent, paired / unpaired: campaigns with a false finding, and coverage of ratios", num)
    for kind, scatter in HARD.items():
        setup = Setup(kind=kind, scatter=scatter)
        values = [per_pairing(setup, num, launches, ("false_campaigns", "held")) for launches in LAUNCHES]
        table.row(f"{kind}, scatter {scatter}: false campaigns", [v[:2] for v in values], [[2.5] * 2] * 3, -1)
        table.row("the same: coverage", [v[2:] for v in values], [[93] * 2] * 3)
    kept, correlation.CORRELATION_Z = correlation.CORRELATION_Z, math.inf
    values = [
        per_pairing(REPORTED["autocorrelated launches"], num, launches, ("false_campaigns", "held"))
        for launches in LAUNCHES
    ]
    correlation.CORRELATION_Z = kept
    table.row("autocorrelated launches, intervals not widened: false campaigns", [v[:2] for v in values])
    table.row("the same: coverage", [v[2:] for v in values])
    for share in FALSE_CAMPAIGNS:
        values = [per_pairing(Setup(share=share), num, launches, ("correlated",)) for launches in LAUNCHES]
        table.row(f"independent launches, share {share:g}: widened by chance", values)
    values = [per_pairing(REPORTED["autocorrelated launches"], num, launches, ("correlated",)) for launches in LAUNCHES]
    table.row("autocorrelated launches: widened", values)
    covered = [[coverage(0, num, n, "heavy tails")[0]] for n in LAUNCHES]
    table.row("heavy tails: coverage of cells", covered, [[93]] * 3)
    for name, setup in REPORTED.items():
        values = [per_pairing(setup, num, launches, ("false_campaigns", "held", "slower")) for launches in LAUNCHES]
        table.row(f"{name}: false campaigns", [v[:2] for v in values])
        table.row("the same: coverage", [v[2:4] for v in values])
        if setup.slower:
            table.row("the same: verdict slower", [v[4:] for v in values])
    values = [settled_share(max(num // 10, 5), launches) for launches in LAUNCHES]
    table.row("open rows with launches needed / settled by as many", [list(v) for v in values])
    return table.missed


def gate(num: int, variation: float) -> None:
    """Print how often a gate of cells that did not change fails, and which share of slower cells it finds."""
    print(
        f"\nGate of {NUM_CELLS} cells, margin 5 %, allocation_variation {100 * variation:g} %; below"
        f" {moderation.MIN_LAUNCHES} launches cells are screened\n"
    )
    columns = [f"false failures, scatter {100 * scatter:g} %" for scatter in GATE_SCATTERS]
    columns += [f"found, 10 cells {100 * effect:g} % slower" for effect in GATE_EFFECTS]
    print_head("launches", *columns)
    for launches in GATE_LAUNCHES:
        setups = [Setup(scatter=(scatter, scatter)) for scatter in GATE_SCATTERS]
        shares = [np.mean([any(gate) for gate in gates(setup, num, launches, variation)]) for setup in setups]
        setups = [Setup(slower=10, effect=effect) for effect in GATE_EFFECTS]
        shares += [
            np.mean([gate[:10] for gate in gates(setup, max(num // 4, 10), launches, variation)]) for setup in setups
        ]
        print(f"| {launches} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |", flush=True)


def gates(setup: Setup, num: int, launches: int, variation: float) -> list[list[bool]]:
    """Return which cells each of so many gates calls slower."""
    random, found = np.random.default_rng(SEED), []
    slower = np.where(np.arange(NUM_CELLS) < setup.slower, np.log1p(setup.effect), 0)[:, None]
    for _ in range(num):
        sides = [
            simulated(random, setup, 1, scatter, launches)[0][0] + levels(setup)[:, None] for scatter in setup.scatter
        ]
        before, now = np.exp([sides[0], sides[1] + slower]).tolist()
        pairs = [Compared(*launches, False, "benchmark") for launches in zip(before, now, strict=True)]
        found.append([verdict.word == "slower" for verdict in compare_all(pairs, MARGIN, variation)])
    return found


def main() -> int:
    num = FULL if is_full(__doc__, f"{FULL:,} campaigns per entry instead of {QUICK}") else QUICK
    missed = [*goals(num), *hard_cases(num)]
    for variation in (0.0, ALLOCATION_VARIATION):
        gate(max(num // 5, 20), variation)
    print(f"\n{num:,} campaigns per entry.")
    return print_missed(missed)


if __name__ == "__main__":
    sys.exit(main())
