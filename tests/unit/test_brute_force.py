"""Claims of the report on random small campaigns, each computed again from measurements.csv with plain loops.

Nothing here uses the product's statistics. Intervals from three launches and the settings that may be the best are those
of the tables, which test_moderation.py computes again.
"""

import csv
import io
import math
import random
import re
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from synthetic import collective_cell, lines_of, make_campaign, train_cell
from typed import cell_row, typed

from regatta.store.csv_files import COLLECTED, make_table, to_csv
from regatta.tables.times import hosts_by_launch
from regatta.topics import (
    buckets,
    catalog,
    communication,
    failures,
    gradient_communication,
    stability,
    timeline,
    training_runs,
)
from regatta.topics.base import ReportData, invalid_cells
from regatta.topics.comparison import comparison_section as comparison
from regatta.topics.scaling import scaling_section as scaling
from regatta.topics.scaling.scaling_findings import efficiency_findings

SEEDS = range(30)
CHECKED = (
    scaling,
    buckets,
    comparison,
    communication,
    failures,
    gradient_communication,
    timeline,
    training_runs,
)
CHECKED = (*(module.TOPIC for module in CHECKED), stability.PRECISION)
SHAPES = [(1, 2), (1, 4), (2, 4), (4, 4)]
MARGIN = 0.05
CAUSES = (
    "rank {rank} on {host}: RuntimeError: NCCL error {number}",
    "rank {rank} on {host}: OutOfMemoryError: tried to allocate {number} bytes",
    "no record after {number} s",
)


def random_campaign(rng):
    """Return a frozen campaign: one or two models, stacks, buckets and shapes, with or without all-reduces."""
    stacks = ["first", "second"][: rng.choice([1, 2, 2])]
    shapes = sorted(rng.sample(SHAPES, rng.randint(1, 3)))
    buckets = sorted(rng.sample([1, 5, 25, 100], rng.randint(1, 3)))
    has_baseline = rng.random() < 0.85
    cells = []
    for stack in stacks:
        for model in ["resnet18", "resnet50"][: rng.randint(1, 2)]:
            cells += [train_cell(model, 1, 1, "none", stack=stack)] if has_baseline else []
            for shape in ((1, 1), *(s for s in shapes if rng.random() < 0.9)):
                cells += [train_cell(model, *shape, "ddp", bucket, stack=stack) for bucket in buckets]
        for operation in rng.sample(["all_reduce", "all_gather", "broadcast"], rng.randint(0, 2)):
            cells += [collective_cell(4096 * 8**i, *shapes[-1], operation, stack=stack) for i in range(3)]
    for cell in cells:
        cell["spec"]["stack"]["binds"] = [cell["spec"]["stack"]["name"]]  # else A/A
    return make_campaign(cells, repeats=rng.choice([1, 2, 3, 4, 5, 5]))


def random_launches(rng, campaign):
    """Return (rows of measurements, rows of launches): a launch for each shape, stack and repeat, in random order."""
    noise, failing = rng.choice([0.0005, 0.01, 0.1, 0.5]), rng.choice([0, 0, 0.1, 0.4])
    slowdown = rng.choice([1, 1.02, 1.15, 0.9])  # of the second stack
    shares, is_recorded = rng.random() < 0.5, rng.random() < 0.9
    hosts = [f"n{i}" for i in range(rng.randint(1, 3))]
    groups = defaultdict(list)
    for cell in campaign["cells"]:
        spec = cell["spec"]
        groups[spec["nodes"], spec["gpus_per_node"], spec["stack"]["name"]].append(cell)
    keys = [(*key, repeat) for key in groups for repeat in range(campaign["repeats"])]
    minutes = rng.sample(range(10, 10 + len(keys)), len(keys)) if rng.random() < 0.5 else range(10, 10 + len(keys))
    rows, launches = [], []
    for (nodes, gpus, stack, repeat), minute in zip(keys, minutes, strict=True):
        batch = f"n{nodes:02d}g{gpus:02d}-{'shared' if shares else stack}"
        launch = f"{batch}-l{2 * repeat + (stack == 'second'):03d}-a00"
        start = f"2026-11-21T{minute // 60:02d}:{minute % 60:02d}:00Z" if is_recorded else None
        launches.append({"batch": batch, "launch": launch, "stack": stack, "nodes": nodes, "start_utc": start})
        launches[-1] |= {"gpus_per_node": gpus, "hosts": ", ".join(hosts), "num_ok": 1, "num_failed": 0}
        launches[-1] |= dict.fromkeys(("cells_s", "warmup_s", "measuring_s"), 1.0)
        for cell in groups[nodes, gpus, stack]:
            rows.append(
                cell_row(cell) | {"repeat": repeat} | random_record(rng, cell["spec"], noise, failing, hosts, slowdown)
            )
            rows[-1] |= {"launch": launch} if rows[-1]["status"] != "not_measured" else {}
    return rows, launches


def random_record(rng, spec, noise, failing, hosts, slowdown):
    if rng.random() < failing:
        status = rng.choice(["failed", "failed", "timeout", "not_measured"])
        words = {"rank": rng.randint(0, 9), "host": rng.choice(hosts), "number": rng.randint(1, 999)}
        cause = None if status == "not_measured" else rng.choice(CAUSES).format(**words)
        return {"status": status, "phase": None if cause is None else "measure", "cause": cause}
    slowdown = slowdown if spec["stack"]["name"] == "second" else 1
    parameters, ranks = spec["parameters"], spec["nodes"] * spec["gpus_per_node"]
    if spec["benchmark"] == "collective":
        return {
            "status": "ok",
            "p50_s": slowdown * (1e-5 + parameters["message_bytes"] / 1e9) * rng.uniform(1, 1 + noise),
        }
    step = slowdown * (1 + 0.03 * ranks + 0.05 / (parameters["bucket_cap_mb"] or 10)) * rng.uniform(1, 1 + noise)
    parts = {"whole_step_s": step, "no_sync_s": step * rng.uniform(0.7, 1), "communication_s": 0.3 * step}
    return {"status": "ok", "p50_s": 1.02 * step, "window_step_s": step} | (parts if ranks > 1 else {})


def case_of(campaign, measurements, launches, **collected):
    """Return what is claimed on a campaign, and the rows of its measurements.csv and launches.csv as text.

    collected: rows of other tables that are read from the store.
    """
    rows = collected | {"measurements": measurements, "launches": launches}
    tables = {name: make_table(rows.get(name, []), columns) for name, columns in COLLECTED.items()}
    problems, topics = {"corrupt": [], "invalid": []}, tuple(catalog.TOPICS)
    frozen = typed(campaign)
    data = ReportData(frozen, catalog._OnDemand(frozen, tables), [], problems, Path("launches"), topics=topics)
    found = defaultdict(list)
    for topic in CHECKED:
        for finding in topic.findings(data):
            assert topic.stated(finding).text
            found[finding.kind].append(finding)
    rows = list(csv.DictReader(io.StringIO(to_csv(tables["measurements"]))))
    starts = {row["launch"]: row["start_utc"] for row in csv.DictReader(io.StringIO(to_csv(tables["launches"])))}
    lines = lines_of(data)
    for line in list(lines.values()):  # those that became part of another
        lines |= {
            other: SimpleNamespace(values=line.values[other]) for other in ("bucket", "failed") if other in line.values
        }
    return SimpleNamespace(
        data=data, campaign=campaign, found=found, lines=lines, rows=rows, starts=starts, repeats=campaign["repeats"]
    )


@pytest.fixture(scope="module", params=SEEDS)
def case(request):
    rng = random.Random(request.param)
    campaign = random_campaign(rng)
    return case_of(campaign, *random_launches(rng, campaign))


# The second computation: plain lists of numbers.


def median(values):
    values, half = sorted(values), len(values) // 2
    return values[half] if len(values) % 2 else (values[half - 1] + values[half]) / 2


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def primary_of(case):
    """Return cell -> repeat -> seconds: steps in windows; single calls, as no collective here has windows."""
    return times_of(case, "p50_s", "collective") | times_of(case, "window_step_s", "train_step")


def times_of(case, column, benchmark=None):
    """Return cell -> repeat -> number of its ok launches."""
    found = {}
    for row in case.rows:
        if row["status"] == "ok" and row[column] and benchmark in (None, row["benchmark"]):
            found.setdefault(row["cell"], {})[int(row["repeat"])] = float(row[column])
    return found


def specs_of(case):
    """Return the first row of each cell, planned or not."""
    found = {}
    for row in case.rows:
        found.setdefault(row["cell"], row | {"ranks": int(row["nodes"]) * int(row["gpus_per_node"])})
    return found


def by_bucket(case):
    """Return (model, stack, nodes, ranks) -> bucket -> seconds per step, whether it may be the best, and its cost
    if a sentence may name it."""
    specs, found = specs_of(case), defaultdict(dict)
    table = case.data.tables["settings"].set_index("cell")
    settings = {row.Index: row for row in table[table["axis"] == "bucket_cap_mb"].itertuples()}
    for cell, times in times_of(case, "window_step_s").items():
        spec = specs[cell]
        if spec["bucket_cap_mb"]:
            key, row = (spec["model"], spec["stack"], spec["nodes"], spec["ranks"]), settings.get(cell)
            known = row is not None and not pd.isna(row.may_be_best)
            is_apart = known and not row.may_be_best and row.p_adjusted <= 0.01
            seconds = geometric_mean(times.values())
            near, cost = bool(row.may_be_best) if known else None, row.cost_ratio if is_apart else None
            found[key][float(spec["bucket_cap_mb"])] = seconds, near, cost
    return {key: sizes for key, sizes in found.items() if len(sizes) > 1}


def test_the_bucket_sizes_of_the_answer(case):
    groups = {key: sizes for key, sizes in by_bucket(case).items() if key[3] > 1}
    if not groups:
        assert "bucket" not in case.lines
        return
    largest = max(ranks for *_, ranks in groups)
    groups = [sizes for (*_, ranks), sizes in groups.items() if ranks == largest]
    tested = [sizes for sizes in groups if any(best is not None for _, best, _ in sizes.values())]
    counts = Counter(size for sizes in tested for size, (*_, cost) in sizes.items() if not cost)
    if not tested:
        counts = Counter(min(sizes, key=lambda size: sizes[size][0]) for sizes in groups)
    num = len(tested or groups)
    values = case.lines["bucket"].values
    assert values["bucket_cap_mb"] == sorted(size for size in counts if counts[size] == max(counts.values()))
    assert (values["num_best"], values["num"], values["world_size"]) == (max(counts.values()), num, largest)


def paired(case, times, cell, reference):
    """Return the launches of two cells: those that shared a batch and repeat if they are more than half, else all."""
    batch = {(row["cell"], int(row["repeat"])): row["launch"].rsplit("-", 2)[0] for row in case.rows if row["launch"]}
    a, b = times[cell], times[reference]
    shared = [r for r in a if r in b and batch[cell, r] == batch[reference, r]]
    is_paired = 2 * len(shared) > max(len(a), len(b))
    return ([a[r] for r in shared], [b[r] for r in shared]) if is_paired else (list(a.values()), list(b.values()))


def ends_of_ratio(case, cell, own, reference):
    """Return the range of an efficiency over pairs of launches, or from three launches the interval of the table."""
    num = min(len(own), len(reference))
    row = case.data.cells_of("train_step").set_index("cell").loc[cell]
    if num >= 3:
        assert row["efficiency_interval"] == "interval"
        low, high = row["efficiency_low_ratio"], row["efficiency_high_ratio"]
        assert math.sqrt(low * high) == pytest.approx(row["efficiency_ratio"], rel=1e-6)
        return low, high
    if num < 2:
        return None, None
    ends = row["efficiency_low_ratio"], row["efficiency_high_ratio"]
    every = [b / a for a in own for b in reference]
    assert min(every) * (1 - 1e-6) <= ends[0] <= ends[1] <= max(every) * (1 + 1e-6)
    return ends


def efficiencies(case):
    """Return (model, stack) -> (ranks, efficiency, its smallest and largest value, step time) of the fastest cell."""
    specs, steps = specs_of(case), times_of(case, "window_step_s")
    base = {(s["model"], s["stack"]): cell for cell, s in specs.items() if s["strategy"] == "none"}
    found = {}
    for key, baseline in base.items():
        known = [c for c, s in specs.items() if (s["model"], s["stack"]) == key and c in steps and c != baseline]
        if not known or baseline not in steps:
            continue
        ranks = max(specs[cell]["ranks"] for cell in known)
        known = [cell for cell in known if specs[cell]["ranks"] == ranks]
        best = min(known, key=lambda cell: geometric_mean(steps[cell].values()))
        own, reference = paired(case, steps, best, baseline)
        ratio = geometric_mean(reference) / geometric_mean(own)
        found[key] = ranks, ratio, *ends_of_ratio(case, best, own, reference)
    return found


def test_the_efficiency_at_the_largest_shape(case):
    found = efficiencies(case)
    line = case.lines.get("scaling")
    if not found:
        assert line is None or "lowest_ratio" not in line.values
        return
    largest = max(ranks for ranks, *_ in found.values())
    at_largest = [(ratio, low, high) for ranks, ratio, low, high in found.values() if ranks == largest]
    certain = [row for row in at_largest if row[1] is None or row[2] - row[1] <= 0.2 * row[0]]
    assert (line.values["world_size"], line.values["num_workloads"]) == (largest, len(at_largest))
    # An end has a range or interval; more than 110 % says that the baseline was slow.
    ends = sorted(row for row in certain if row[1] is not None and row[0] <= 1.1)
    num_suspect = sum(row[0] > 1.1 for row in at_largest)
    assert line.values["num_uncertain"] == len(at_largest) - len(ends) - num_suspect
    if ends:
        for name, row in (("lowest", ends[0]), ("highest", ends[-1])):
            values = [line.values[f"{name}{end}_ratio"] for end in ("", "_low", "_high")]
            assert values[0] == pytest.approx(row[0], rel=1e-6)
            # No interval counts the selection of an end.
            assert values[1:] == ([None, None] if len(ends) > 1 else pytest.approx(row[1:], rel=1e-6))
    else:
        assert line.lead.endswith(("uncertain", "undecided", "too noisy"))
    specs = specs_of(case)
    for finding in (of for of in efficiency_findings(case.data) if of.kind != "baseline_suspect"):
        cell = finding.cells[0]
        ranks, ratio, low, high = found[specs[cell]["model"], specs[cell]["stack"]]
        assert finding.values["efficiency"].estimate == pytest.approx(ratio, rel=1e-6)
        assert specs[cell]["ranks"] == ranks
        assert finding.values["efficiency"].low == (None if low is None else pytest.approx(low, rel=1e-6))
        assert finding.values["efficiency"].high == (None if high is None else pytest.approx(high, rel=1e-6))


def test_workloads_without_a_result_at_the_largest_shape_are_named(case):
    found, planned = efficiencies(case), defaultdict(int)
    if not found:
        return
    largest, specs = max(ranks for ranks, *_ in found.values()), specs_of(case)
    has_baseline = {(s["model"], s["stack"]) for s in specs.values() if s["strategy"] == "none"}
    for spec in specs.values():
        key = spec["model"], spec["stack"]
        if spec["strategy"] == "ddp" and key in has_baseline:
            planned[key] = max(planned[key], spec["ranks"])
    missing = {key: n for key, n in planned.items() if n >= largest and found.get(key, (0,))[0] < n}
    shown = case.lines["scaling"].values["without_result"]
    assert {(specs[cell]["model"], specs[cell]["stack"]): n for cell, n in shown.items()} == missing


def compared_pairs(case):
    """Return (ratio, low, high, launches, is paired, cell, reference) of each pair of cells with launches on both sides."""
    specs, times = specs_of(case), primary_of(case)
    batch = {(row["cell"], int(row["repeat"])): row["launch"].rsplit("-", 2)[0] for row in case.rows if row["launch"]}
    fields = ("benchmark", "model", "strategy", "bucket_cap_mb", "operation", "message_bytes", "nodes", "gpus_per_node")
    by_key = {(spec["stack"], *(spec[name] for name in fields)): cell for cell, spec in specs.items()}
    found = []
    for (stack, *key), cell in by_key.items():
        reference = by_key.get(("first", *key))
        if stack == "first" or reference not in times or cell not in times:
            continue
        a, b = times[reference], times[cell]
        shared = [r for r in a if r in b and batch[reference, r] == batch[cell, r]]
        if 2 * len(shared) > max(len(a), len(b)):
            ratios = [b[r] / a[r] for r in shared]
            ends = (min(ratios), max(ratios)) if len(ratios) == 2 else (None, None)
            found.append((geometric_mean(ratios), *ends, len(shared), True, cell, reference))
        else:
            ratio = geometric_mean(b.values()) / geometric_mean(a.values())
            num = min(len(a), len(b))
            ends = (min(b.values()) / max(a.values()), max(b.values()) / min(a.values())) if num == 2 else (None, None)
            found.append((ratio, *ends, num, False, cell, reference))
    return [with_interval(case, pair) for pair in found]


def with_interval(case, pair):
    """Return a pair with the interval of the table, from three launches; test_moderation.py computes intervals again."""
    table = case.data.tables["comparisons"].set_index("cell")
    ratio, low, high, num, is_paired, cell, reference = pair
    row = table.loc[cell]
    assert row["time_ratio"] == pytest.approx(ratio, rel=1e-6)
    if num >= 3:
        assert row["interval"] == "interval"
        low, high = row["time_low_ratio"], row["time_high_ratio"]
        assert math.sqrt(low * high) == pytest.approx(ratio, rel=1e-6)
    elif num == 2:
        assert (row["time_low_ratio"], row["time_high_ratio"]) == pytest.approx((low, high), rel=1e-6)
    return ratio, low, high, num, is_paired, cell, reference


def test_the_comparison_of_stacks(case):
    pairs = compared_pairs(case)
    if not pairs:
        assert "comparison" not in case.lines
        return
    values = case.lines["comparison"].values
    assert values["num"] == len(pairs)
    assert values["num_undecidable"] == sum(num < 3 for _, _, _, num, *_ in pairs)
    specs = specs_of(case)
    for part in values["parts"]:
        ratios = [ratio for ratio, *_, cell, _ in pairs if specs[cell]["benchmark"] in part["benchmarks"]]
        assert (part["num"], part["median_ratio"]) == (len(ratios), pytest.approx(median(ratios), rel=1e-6))
        if direction := part["direction"]:
            most = max(ratios) if direction["is_slower"] else min(ratios)
            assert (direction["num"] > len(ratios) / 2, direction["most_ratio"]) == (
                True,
                pytest.approx(most, rel=1e-6),
            )
    slower, faster, equivalent = 0, 0, 0
    for _, low, high, num, *_ in pairs:
        if low is not None and num >= 3:
            slower, faster = slower + (low > 1), faster + (high < 1)
            equivalent += low >= 1 / (1 + MARGIN) and high <= 1 + MARGIN and num >= 3
    assert values["by_verdict"]["equivalent"] == equivalent
    assert values["num_significant"]["slower"] <= slower  # and p is small
    assert values["num_significant"]["faster"] <= faster
    if "largest_ratio" in values:
        verdicts = case.data.tables["comparisons"].set_index("cell")["verdict"]
        decided = [pair[0] for pair in pairs if verdicts[pair[5]] in ("slower", "faster")]
        assert values["largest_ratio"] == pytest.approx(max(decided, key=lambda r: max(r, 1 / r)), rel=1e-6)
        assert abs(values["largest_ratio"] - 1) > MARGIN / (1 + MARGIN)


def test_pairs_that_were_not_interleaved(case):
    starts, found = defaultdict(list), set()
    for row in case.rows:
        if row["status"] == "ok" and case.starts[row["launch"]]:
            starts[row["cell"]].append(case.starts[row["launch"]])
    for *_, cell, reference in compared_pairs(case):
        one, other = starts[cell], starts[reference]
        if len(one) > 1 < len(other) and (max(one) < min(other) or max(other) < min(one)):
            found.add(cell)
    assert set(comparison.in_blocks(case.data)["cell"]) == found


def test_what_failed_and_what_the_failures_share(case):
    bad = [row for row in case.rows if row["status"] != "ok"]
    failed = [row for row in bad if row["status"] != "not_measured"]
    values = case.lines["failed"].values
    assert (values["num_failed"], values["num_not_measured"]) == (len(failed), len(bad) - len(failed))
    assert values["num_planned"] == len(case.rows)
    if not failed:
        return
    groups = defaultdict(list)
    for row in failed:
        cause = re.sub(r"\d+", "0", re.sub(r"^rank \d+ on \w+: ", "", row["cause"]))
        groups[row["status"], cause].append(row)
    most = max(map(len, groups.values()))
    assert values["num_of_cause"] == most
    largest = [rows for rows in groups.values() if len(rows) == most]
    if len(largest) == 1 and "failed" in lines_of(case.data):
        shown = re.search(r", on (\w+)", case.lines["failed"].text)
        if shown:  # most failures with this cause ran there, and others ran elsewhere
            hosts = hosts_by_launch(case.data.tables["launches"])
            here = [shown[1] in hosts.get(row["launch"], "").split(", ") for row in largest[0]]
            assert all(here)
            assert {row["launch"] for row in case.rows if shown[1] not in hosts.get(row["launch"], shown[1])}


def test_cells_that_vary_between_launches(case):
    steps, times = times_of(case, "window_step_s"), times_of(case, "p50_s")
    ranges = {}
    for cell in times:
        values = list(steps.get(cell, times[cell]).values())
        if len(values) > 1:
            ranges[cell] = (max(values) - min(values)) / median(values)
    varying = {cell for cell, ratio in ranges.items() if ratio > 0.05}
    if times:
        values = case.lines["confidence"].values
        assert (values["num_varying"], values["num_cells"]) == (len(varying), len(ranges))
        in_blocks = case.lines["comparison"].values["num_in_blocks"] if "comparison" in case.lines else 0
        is_good = ranges and len(varying) <= 0.2 * len(ranges) and case.repeats >= 3 and not in_blocks
        is_low = 2 * len(ranges) < len(times) or len(varying) > 0.5 * len(ranges)
        assert values["word"] == ("low" if is_low else "good" if is_good else "fair")
    noisy = [one for kind in ("noisy_machine", "variation", "some_variation") for one in case.found[kind]]
    assert {cell for finding in noisy for cell in finding.cells} == varying
    for finding in noisy:
        assert finding.values["worst_ratio"].estimate == pytest.approx(max(ranges.values()), rel=1e-6)


def test_the_highest_bus_bandwidth(case):
    specs, factors = specs_of(case), {"all_reduce": 2, "all_gather": 1}
    known = defaultdict(dict)
    for cell, times in times_of(case, "p50_s", "collective").items():
        spec = specs[cell]
        n, operation = spec["ranks"], spec["operation"]
        factor = factors[operation] * (n - 1) / n if operation in factors else 1
        rate = factor * int(spec["message_bytes"]) / geometric_mean(times.values()) / 1e9
        known[operation, spec["stack"]][cell] = rate
    invalid = invalid_cells(case.data)

    def best(rates: dict) -> float:
        return max([rate for cell, rate in rates.items() if cell not in invalid] or rates.values())

    expected = {key: best(cells) for key, cells in known.items()}
    found = {(specs[f.cells[0]]["operation"], specs[f.cells[0]]["stack"]): f for f in case.found["bandwidth"]}
    assert set(found) <= set(expected)
    for key, finding in found.items():
        assert finding.values["busbw_gb_per_s"].estimate == pytest.approx(expected[key], rel=1e-6)
    line = case.lines.get("communication")
    assert (line is not None) == bool(expected)
    if line:
        operation = "all_reduce" if any(key[0] == "all_reduce" for key in expected) else min(expected)[0]
        of_all_stacks = {
            cell: rate for key, cells in known.items() if key[0] == operation for cell, rate in cells.items()
        }
        assert line.values["busbw_gb_per_s"] == pytest.approx(best(of_all_stacks), rel=1e-6)


def test_the_largest_share_of_exposed_communication(case):
    shares = defaultdict(list)
    for row in case.rows:
        if row["status"] == "ok" and row["whole_step_s"]:
            shares[row["cell"]].append(
                (float(row["whole_step_s"]) - float(row["no_sync_s"])) / float(row["whole_step_s"])
            )
    found = [finding.values["share_ratio"].estimate for finding in case.found["exposed"]]
    assert found == ([pytest.approx(max(sum(of) / len(of) for of in shares.values()), rel=1e-6)] if shares else [])
