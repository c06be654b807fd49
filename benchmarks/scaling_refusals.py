"""How often a scaling model is rejected, and its prediction holds the truth: curves with known truth, seeded.

Each world size has separate launches, log-normal with a tail to the slow side, as in coverage.py. Goals: of curves that
follow Amdahl's law, with equal scatter at all sizes, at most 2 % are rejected for lack of fit (level of the test: 1 %);
in each group of one law, scatter and number of sizes, intervals hold the truth of 90 % of the curves with a prediction.

python benchmarks/scaling_refusals.py              8 curves per row, predictions at twice the largest size
python benchmarks/scaling_refusals.py 50 4         50 curves, at 4 times the largest size
"""

import itertools
import sys
from collections import defaultdict

import numpy as np
from common import ROOT

sys.path[:0] = [str(ROOT / "tests" / "unit"), str(ROOT / "workflow" / "scripts")]

from synthetic import make_campaign, train_cell  # noqa: E402
from typed import cell_row, scaling_table  # noqa: E402

from regatta.store.csv_files import MEASUREMENTS, make_table  # noqa: E402
from regatta.topics.fits import scaling  # noqa: E402

SEED = 1
NUM_CURVES = 8
MOST_REFUSED = 2  # %
LEAST_COVERAGE = 90  # %
BATCH = 8  # of train_cell
SHAPES = {1: (1, 1), 2: (1, 2), 4: (1, 4), 8: (2, 4), 16: (4, 4), 32: (8, 4), 64: (16, 4)}
NUM_SIZES = (3, 4, 5, 6)
NUM_LAUNCHES = (3, 5)
# Scatter of the launches by number of ranks, and of what all launches of one size have in common (their allocation).
NOISES = {
    "0.5 %": (lambda n: np.full(len(n), 0.005), 0.0),
    "1 %": (lambda n: np.full(len(n), 0.01), 0.0),
    "2 %": (lambda n: np.full(len(n), 0.02), 0.0),
    "0.5+ %": (lambda n: 0.005 * n**0.4, 0.0),  # four times as much at 32 ranks
    "0.2 & 0.5": (lambda n: np.full(len(n), 0.002), 0.005),
}
ALIKE = ("0.5 %", "1 %", "2 %")
# Seconds of a step at n ranks.
TRUTHS = {
    "Amdahl, 0.05": lambda n: 1 + 0.05 * (n - 1),
    "USL, 0.02, 0.002": lambda n: 1 + 0.02 * (n - 1) + 0.002 * n * (n - 1),
    "USL, 0.02, 0.004": lambda n: 1 + 0.02 * (n - 1) + 0.004 * n * (n - 1),
    "USL, 0.05, 0.0005": lambda n: 1 + 0.05 * (n - 1) + 0.0005 * n * (n - 1),
    "1 + 0.03 log2 n": lambda n: 1 + 0.03 * np.log2(n),
    "n^0.05": lambda n: n**0.05,
}
COLUMNS = ("sizes", "scatter", "launches", "Amdahl", "USL", "none", "lacks fit", "off", "predicted", "held")


def main() -> int:
    num_curves, scaling.MAX_EXTRAPOLATION = map(int, sys.argv[1:3] or (NUM_CURVES, 2))
    random, of_the_law, held = np.random.default_rng(SEED), [], defaultdict(list)
    print(f"Of {num_curves} curves, %: the model that is taken, or none, and those where Amdahl lacks fit; off: median")
    print(
        f"error of predictions at {scaling.MAX_EXTRAPOLATION} times the largest size, %; curves that have a prediction,"
    )
    print("and those of them whose interval holds the truth")
    print(f"{'truth':<18}" + "".join(f"{name:>11}" for name in COLUMNS))
    for name, truth in TRUTHS.items():
        for num_sizes in NUM_SIZES:
            sizes = tuple(2**i for i in range(num_sizes))
            for kind, (scatter, of_sizes) in NOISES.items():
                for num in NUM_LAUNCHES:
                    table = curves(random, num_curves, truth, sizes, scatter(np.array(sizes)), of_sizes, num)
                    shares, is_held = told(table, truth, scaling.MAX_EXTRAPOLATION * sizes[-1])
                    held[name, kind, num_sizes] += is_held
                    if name.startswith("Amdahl") and kind in ALIKE:
                        of_the_law.append(shares[3])
                    start = (f"{num_sizes}", kind, f"{num}")
                    told_row = "".join(f"{text:>11}" for text in (*start, *(f"{share:.0f}" for share in shares[:4])))
                    share = f"{100 * np.mean(is_held):.0f}" if is_held else "-"
                    print(f"{name:<18}{told_row}{shares[4]:>11.1f}{len(is_held):>11}{share:>11}", flush=True)
    print(
        f"\nHeld, % of curves with a prediction\n{'truth':<18}{'scatter':>11}" + "".join(f"{n:>14}" for n in NUM_SIZES)
    )
    for name, kind in itertools.product(TRUTHS, NOISES):
        cells = (held[name, kind, num] for num in NUM_SIZES)
        texts = (f"{100 * np.mean(cell):.0f} of {len(cell)}" if cell else "-" for cell in cells)
        print(f"{name:<18}{kind:>11}" + "".join(f"{text:>14}" for text in texts))
    least = 100 * min(np.mean(values) for values in held.values() if len(values) >= num_curves)
    lacking = np.mean(of_the_law)
    print(f"of Amdahl's curves that scatter alike {lacking:.1f} % lack fit (goal: at most {MOST_REFUSED} %)")
    print(f"intervals of predictions hold the truth in {least:.0f} % or more (goal: at least {LEAST_COVERAGE} %)")
    return int(lacking > MOST_REFUSED or least < LEAST_COVERAGE)


def curves(
    random: np.random.Generator, num_curves: int, truth, sizes: tuple, scatters: np.ndarray, of_sizes: float, num: int
):
    """Return the fitted table of curves that differ in their bucket size alone. of_sizes: scatter of the sizes."""
    cells, rows = [], []
    for bucket in range(1, num_curves + 1):
        noise = 0.8 * random.standard_normal((len(sizes), num)) + 0.6 * random.exponential(size=(len(sizes), num))
        steps = truth(np.array(sizes, float))[:, None] * np.exp(scatters[:, None] * (noise - 0.5))
        steps *= np.exp(of_sizes * random.standard_normal((len(sizes), 1)))
        for n, launches in zip(sizes, steps, strict=True):
            cells.append(train_cell("resnet50", *SHAPES[n], "ddp", bucket))
            same = cell_row(cells[-1]) | {"status": "ok"}
            rows += [same | {"repeat": i, "window_step_s": float(step)} for i, step in enumerate(launches)]
    measurements = make_table(rows, MEASUREMENTS)
    return scaling.scaling_models_table(scaling_table(make_campaign(cells), measurements), measurements)


def told(table, truth, beyond: int) -> tuple[tuple[float, ...], list[bool]]:
    """Return shares and error, in %, and for each curve with a prediction whether its interval holds the truth."""
    taken = [100 * float((table["scaling_model"] == model).fillna(False).mean()) for model in ("amdahl", "usl")]
    refused = 100 * float(table["scaling_model"].isna().mean())
    true = beyond * BATCH / float(truth(np.float64(beyond)))
    low, value, high = (table[f"extrapolated_{end}samples_per_s"].dropna() / true for end in ("low_", "", "high_"))
    is_named = table["refusal"].fillna("").str.contains("residuals of Amdahl|Amdahl has systematic residuals")
    is_sure = (table["amdahl_lack_of_fit_p"].lt(scaling.LACK_P) & table["scaling_model"].ne("amdahl")).fillna(False)
    lacks = 100 * float((is_named | is_sure).mean())
    off = 100 * float((value - 1).abs().median()) if len(value) else float("nan")
    return (*taken, refused, lacks, off), [bool(held) for held in (low <= 1) & (high >= 1)]


if __name__ == "__main__":
    sys.exit(main())
