"""Numbers of programs as recorded times, and back.

All statistics are of times: docs/decisions/0014-programs-as-times.md.
"""

from regatta.core.readers import Quantity
from regatta.core.units import ABBREVIATED, SIMULATED, find_unit

# The samples of a number of which more is better are the times of this much work, by its first SI unit, so that
# statistics of times apply. It depends on the unit alone: the times of two cells are comparable. Nanoseconds then
# resolve rates up to 10^18 flop/s to 0.1 %.
WORK = {"flop": 1e12, "B": 1e12, SIMULATED: 1e-12} | dict.fromkeys({*ABBREVIATED} - {"epoch"}, 1e6)
OTHER_WORK = 1e3
# Of a number of which less is better, a sample is the number times this.
SECONDS_OF = {
    "s/B": 1e12,
    "s/flop": 1e12,
    f"s/{SIMULATED}": 1e-12,
    "s/operation": 1e3,
    "B": 1e-6,
    "flop": 1e-12,
    "J": 1e-3,
}
MOST_ROUNDING = 0.01
NANOSECONDS, MOST_NS = 1e9, 10**18


def kind_of(quantity: Quantity) -> str:
    """Return what the numbers of comparable cells share: the SI unit, and the direction if that does not imply it."""
    unit = find_unit(quantity.unit)
    return unit.si if unit.is_time or unit.is_rate else f"{unit.si or 'no unit'}, {quantity.better}"


def work_of(quantity: Quantity) -> float | None:
    """Return the work whose time is a sample of a number of which more is better, in SI units; None of another."""
    unit = find_unit(quantity.unit)
    if unit.is_time or (not unit.is_rate and quantity.better == "smaller"):
        return None
    return WORK.get(next(iter(unit.powers), ""), OTHER_WORK)


def sample_ns(value: float, quantity: Quantity) -> int:
    """Return a number of an output, in SI units, as nanoseconds. Raises ValueError outside of 1 ns to 30 years."""
    if not value > 0:
        raise ValueError(f"{value:g} is not positive")
    work = work_of(quantity)
    seconds = value * _seconds_of(quantity) if work is None else work / value
    nanoseconds = NANOSECONDS * seconds  # may be infinite, which cannot be rounded
    if not 0.5 < nanoseconds < MOST_NS:
        raise ValueError(f"{value:g} is outside the recordable range; check the unit")
    if abs(round(nanoseconds) - nanoseconds) > MOST_ROUNDING * nanoseconds:
        reason = f"rounding {nanoseconds:.3g} ns to whole nanoseconds would change it by more than 1 %"
        raise ValueError(f"{value:g} is outside the recordable range: {reason}. Read the time of more calls")
    return round(nanoseconds)


def shown_value(seconds: float, quantity: Quantity) -> float:
    """Return a recorded time as the value in the unit of the campaign."""
    work, factor = work_of(quantity), find_unit(quantity.unit).factor
    return (seconds / _seconds_of(quantity) if work is None else work / seconds) / factor


def _seconds_of(quantity: Quantity) -> float:
    unit = find_unit(quantity.unit)
    return SECONDS_OF.get(unit.si, SECONDS_OF.get(next(iter(unit.powers), ""), 1.0))
