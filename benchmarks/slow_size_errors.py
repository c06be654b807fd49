"""How often one slow message size of a collective is reported, with none and with one of seven sizes slower."""

import numpy as np
from common import Figure, print_head, report

from regatta.tables import latency_model

LAUNCHES, NOISES, FACTORS, NUM_CURVES = (3, 5, 10), (0.02, 0.05, 0.1, 0.2), (1, 1.4, 1.8), 300
SIZES = np.array([4096.0 * 4**place for place in range(7)])
SLOW = 3  # place of the slower size


def main() -> None:
    latency_model.NUM_RESAMPLES = 9  # intervals of parameters do not matter here
    rng, found = np.random.default_rng(1), {}
    print(f"Sizes reported (%), {NUM_CURVES} curves each")
    print_head("noise", "launches", "none slower", "1.4 ×", "1.8 ×")
    for noise in NOISES:
        for launches in LAUNCHES:
            rates = [
                100 * np.mean([is_reported(rng, noise, launches, by) for _ in range(NUM_CURVES)]) for by in FACTORS
            ]
            print(f"| {100 * noise:g} % | {launches} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")
            found[noise, launches] = rates
    worst = max(rates[0] for rates in found.values())
    report(Figure("Healthy curves with a size called slow, noise up to 20 %, worst case", worst, "%", 1))


def is_reported(rng: np.random.Generator, noise: float, launches: int, factor: float) -> bool:
    """Return whether a size of a curve is called slow: the slower one, or any if none is (factor 1)."""
    times = (1e-4 + SIZES / 2e9) * np.exp(rng.normal(0, noise, (launches, len(SIZES))))
    times[:, SLOW] *= factor
    measured = {place: [{"repeat": n, "p50_s": of[place]} for n, of in enumerate(times)] for place in range(len(SIZES))}
    cells = [{"cell": place, "message_bytes": int(size)} for place, size in enumerate(SIZES)]
    cells = [cell | {"latency_s": float(np.exp(np.log(times[:, cell["cell"]]).mean()))} for cell in cells]
    size = latency_model.model_of(cells, {(place,): of for place, of in measured.items()}).get("slow_size_bytes")
    return size is not None if factor == 1 else size == SIZES[SLOW]


if __name__ == "__main__":
    main()
