"""Forecast which cells a gate will leave undecided, from the noise of the baseline campaign."""

from dataclasses import dataclass, replace

import numpy as np

from regatta.compare.campaigns import read_campaign
from regatta.compare.gate_rules import NO_JOBS, allocation_variation_of, has_jobs, threshold_text
from regatta.core.errors import UserError
from regatta.core.moderation import MIN_LAUNCHES
from regatta.core.text import plural
from regatta.core.verdicts import Compared, contrasts_of
from regatta.plan.plan import Plan, freeze_campaign
from regatta.tables.counterparts import match_key
from regatta.tables.primary_times import Times, sides_of, times_by_cell

RECOMMENDED = 5  # allocations (decision 7)


@dataclass(frozen=True)
class Forecast:
    """Expected numbers of cells if nothing changes. likely: undecided with an estimate beyond the threshold."""

    undecided: float
    likely: float


def forecast(pairs: list[Compared], num_launches: int, allocations: int, thresholds: list[float]) -> Forecast:
    """Return how many cells a gate would leave undecided. pairs: of each cell with itself, at least MIN_LAUNCHES each.

    num_launches, allocations: of the campaign to be measured, which is assumed to be as noisy as the baseline.
    """
    from scipy.special import stdtr

    contrasts = contrasts_of(pairs)
    units = [min(allocations, num_launches) if pair.is_by_allocation else num_launches for pair in pairs]
    contrasts = replace(contrasts, num_test=np.array(units))
    error, limit = np.sqrt(contrasts.squared_error()), np.log1p(thresholds)
    ends = ((end - limit) / error for end in (contrasts.half_width, 0.0))  # of the shift, which is t times the error
    return Forecast(*(float(stdtr(contrasts.freedom, end).sum()) for end in ends))


def gate_forecast(plan: Plan) -> list[str]:
    """Return notes on the gate of a planned campaign; none without a baseline campaign."""
    gate, repeats, allocations = (plan.campaign.data[key] for key in ("gate", "repeats", "allocations"))
    if (name := gate["baseline_campaign"]) in (None, plan.campaign.name):
        return []
    try:
        base = read_campaign(plan.results.parent / name)
    except UserError as error:
        return [f"gate: {error}"]
    campaign, times = freeze_campaign(plan), times_by_cell(base.measurements)
    known = {match_key(cell): cell for cell in base.campaign.cells}
    both = [(known.get(match_key(cell)), cell) for cell in campaign.cells]
    pairs = [
        _with_itself(times[old.id], cell.benchmark, allocations)
        for old, cell in both
        if old and old.version == cell.version and old.id in times
    ]
    if not pairs:
        return [f"gate: no planned cell is in '{name}'"]
    variation = allocation_variation_of(gate["allocation_variation"], campaign, base.campaign)
    tested = [pair for pair in pairs if min(pair.num, repeats) >= MIN_LAUNCHES]
    thresholds = [pair.margin_with(gate["margin"], variation) for pair in pairs]
    texts = [f"gate against '{name}': {threshold_text(gate['margin'], variation, thresholds)}"]
    if tested:
        limits = [pair.margin_with(gate["margin"], variation) for pair in tested]
        found = forecast(tested, repeats, allocations, limits)
        texts.append(
            f"about {found.undecided:.0f} of {plural(len(tested), 'cell')} would be undecided at the baseline's noise"
            f" if nothing changed, about {found.likely:.0f} with an estimate beyond the threshold"
        )
        if found.undecided >= 1:
            more = f", and `allocations: {RECOMMENDED}` in both campaigns," if has_jobs(campaign, base.campaign) else ""
            texts.append(f"more launches{more} settle more cells")
    if num := len(pairs) - len(tested):
        texts.append(f"{plural(num, 'cell')} only screened (fewer than {MIN_LAUNCHES} launches on one side)")
    if gate["allocation_variation"] is None and not has_jobs(campaign, base.campaign):
        texts.append(NO_JOBS)
    return ["; ".join(texts)]


def _with_itself(times: Times, benchmark: str, allocations: int) -> Compared:
    """Return the launches of a cell of the baseline, compared with as many that are equal, in planned allocations."""
    pair = sides_of(times, times, benchmark, is_same_campaign=False)
    num = len(pair.test)
    planned = tuple(str(i * min(allocations, num) // num) for i in range(num))
    return replace(pair, allocations=(pair.allocations[0], planned if pair.allocations[0] else ()))
