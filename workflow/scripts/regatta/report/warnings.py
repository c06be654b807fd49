"""Warnings of the report: a closed list, each says what was found, with numbers, and what to do about it."""

from dataclasses import dataclass

import pandas as pd

from regatta.core.names import name_of, names_by_cell
from regatta.core.statistics import DRIFT_P, MIN_LAUNCHES_INTERVAL
from regatta.core.text import percent, plural, shape, three
from regatta.report.sources import HEADERS, Trace, of_cells, of_rows
from regatta.store.history import after_now_text
from regatta.topics.comparison.environment import NEW_EACH_LAUNCH, VERSIONS

# Warnings about the samples within launches: that they drift, resemble their neighbours, or lie far out. All are kept.

INDEPENDENT_RATIO = 0.1  # effective samples below this share of a launch's samples are worth a word
OUTLIER_RATIO = 0.05  # so are more outliers than this share; of an exponential tail it is 1 %
MIN_OUTLIERS = 3  # fewer say nothing of a launch: of 23 samples, two are 9 %
CHANCE = 0.01  # that chance alone finds so many drifting measurements


@dataclass(frozen=True)
class Advice:
    """What was found, what to do about it, and the rows that it was found in, the one that is told first."""

    found: str
    advice: str
    traces: tuple[Trace, ...]


def of_measurements(found: pd.DataFrame, first: object) -> Trace:
    """Return the rows of measurements.csv, that of the index `first` before the others."""
    return of_rows("measurements", pd.concat([found.loc[[first]], found.drop(first)]))


def drifting(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Times that rise or fall within launches, where more do than chance explains."""
    from scipy.stats import binomtest  # half a second, which a report without such columns need not spend

    tested = ok[ok["has_drift"].notna()]
    found = tested[tested["has_drift"].astype(bool)]
    # What has no drift is flagged with a chance of DRIFT_P, or less: a change too small to matter is never flagged.
    if found.empty or binomtest(len(found), len(tested), DRIFT_P, alternative="greater").pvalue > CHANCE:
        return None
    most = found.loc[found["drift_ratio"].abs().idxmax()]
    rises = int((found["drift_ratio"] > 0).sum())
    return Advice(
        f"Times rose or fell within the launch in {plural(len(found), 'measurement')} of {len(tested)} (about"
        f" {_about(DRIFT_P * len(tested))} expected by chance; {rises} rose, {len(found) - rises} fell); most, by {percent(float(most['drift_ratio']))} % from first to last sample, in {name_of(most['cell'], names)},"
        f" repeat {most['repeat']}.",
        "Rising: look at temperatures and clocks, and for work that grows. Falling: raise max_warmup_seconds. The median is then one of"
        " a time that changes, and depends on how long was sampled.",
        traces=(of_measurements(found, most.name),),
    )


def _about(expected: float) -> str:
    """Return an expected number of measurements with two figures: 0.03, 8.2, 123."""
    return f"{expected:.0f}" if expected >= 9.5 else f"{expected:.2g}"


def few_independent(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """Samples that resemble their neighbours are worth fewer, so that an interval within the launch is too narrow."""
    ratio = (ok["effective_samples"] / ok["num_iterations"]).dropna()
    few = ratio[ratio < INDEPENDENT_RATIO]
    if few.empty:
        return None
    least = ok.loc[few.idxmin()]
    return Advice(
        f"Samples resemble their neighbours in {plural(len(few), 'measurement')} of {len(ratio)}: they are worth fewer than"
        f" {100 * INDEPENDENT_RATIO:g} % as many independent ones; least in {name_of(least['cell'], names)}, repeat"
        f" {least['repeat']}: {three(float(least['effective_samples']))} of {least['num_iterations']}.",
        "Intervals within such a launch (p50_low_s, the precision that ends sampling) are too narrow; those over launches are not"
        " touched. More launches (repeats) help, longer sampling little.",
        traces=(of_measurements(ok.loc[few.index], few.idxmin()),),
    )


def outlying(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    counted = ok[ok["num_outliers"].notna()]
    total, num_samples = int(counted["num_outliers"].sum()), int(counted["num_iterations"].sum())
    ratio = (counted["num_outliers"] / counted["num_iterations"]).dropna()
    many = ratio[(ratio > OUTLIER_RATIO) & (counted["num_outliers"] >= MIN_OUTLIERS)]
    if many.empty:
        return None
    most = counted.loc[many.idxmax()]
    return Advice(
        f"Outliers are more than {100 * OUTLIER_RATIO:g} % of the samples in {plural(len(many), 'measurement')} of {len(ratio)}; most in"
        f" {name_of(most['cell'], names)}, repeat {most['repeat']}: {most['num_outliers']} of {most['num_iterations']}. In all"
        f" measurements {total} of {num_samples} samples, {percent(total / num_samples)} %.",
        "They are kept in all numbers; medians hardly feel them, means and high percentiles do. Look for other work on the machine.",
        traces=(of_measurements(counted.loc[many.index], many.idxmax()),),
    )


SLOW_FIRST_RATIO = 10  # a first iteration this many times the median is worth a word
DISAGREEMENT_RATIO = 0.05  # range of launches over their median


def warnings(
    campaign: dict, measurements: pd.DataFrame, headers: list[dict], problems: dict, tables: dict[str, pd.DataFrame]
) -> list[Advice]:
    """Return those warnings of the list that apply, in a fixed order. headers: of the launches behind the measurements;
    tables: of launch ranges and training runs."""
    names = names_by_cell(campaign)
    ok = measurements[measurements["status"] == "ok"]
    candidates = [
        shared_hosts(ok),
        _oversubscribed(headers),
        _uneven_threads(campaign, headers),
        _mixed_versions(headers),
        _mixed_machines(headers),
        _dirty(headers),
        _corrupt(problems),
        _after_now(problems),
        _fewer_launches(campaign, measurements),
        _other_losses(tables["training_runs"], names),
        disagreement(tables["launch_ranges"], names),
        _imprecise(campaign, ok, tables["launch_ranges"]),
        drifting(ok, names),
        few_independent(ok, names),
        outlying(ok, names),
        _slow_first(ok, names),
        _few_launches(campaign),
    ]
    return [warning for warning in candidates if warning is not None]


def environments(headers: list[dict]) -> list[dict]:
    return [header["environment"] for header in headers if header.get("environment")]


def threads_by_shape(campaign: dict, headers: list[dict]) -> dict[tuple[int, int], set[int]]:
    """Return the threads of a rank for each (nodes, ranks per node) of a CPU campaign. On GPUs they decide nothing: empty."""
    threads: dict[tuple[int, int], set[int]] = {}
    for header in headers if campaign["device"] == "cpu" else ():
        number = (header.get("environment") or {}).get("threads_per_rank")
        if number is not None:
            threads.setdefault((header["nodes"], header["gpus_per_node"]), set()).add(number)
    return threads


def shared_hosts(ok: pd.DataFrame) -> Advice | None:
    """Launches that ran beside others of Regatta on the same host: each slows the other, and no status says so."""
    shared = ok[(ok["other_ranks"] > 0).fillna(False)]
    if shared.empty:
        return None
    most = shared["other_ranks"].idxmax()
    return Advice(
        f"{plural(len(shared), 'measurement')} of {len(ok)} shared a host with ranks of another launch (at most"
        f" {shared.loc[most, 'other_ranks']} of them).",
        "These times are not comparable with others. Run one campaign at a time on a node, give its jobs whole nodes"
        " (exclusive: true in the cluster file), and measure the affected cells again under a new campaign name.",
        traces=(of_measurements(shared, most),),
    )


def _oversubscribed(headers: list[dict]) -> Advice | None:
    worst = None
    for environment in environments(headers):
        threads = environment.get("threads_per_rank") or 1
        for host in environment["hosts"]:
            cores, num = host.get("num_cores"), len(host["ranks"])
            if cores and num * threads > cores and (worst is None or num * threads / cores > worst[0]):
                worst = (num * threads / cores, host["host"], num, threads, cores)
    if worst is None:
        return None
    _, host, num, threads, cores = worst
    return Advice(
        f"More threads than cores: on {host} {plural(num, 'rank')} of {plural(threads, 'thread')} shared {plural(cores, 'core')}.",
        "Ranks then wait for a core, not for each other. Lower gpus_per_node, or measure on a machine with more cores.",
        traces=(HEADERS,),
    )


def _uneven_threads(campaign: dict, headers: list[dict]) -> Advice | None:
    """On CPUs a rank that shares its host with more ranks has fewer cores: the baseline is then a faster "GPU"."""
    threads = threads_by_shape(campaign, headers)
    if len(set().union(*threads.values())) < 2:
        return None
    told = ", ".join(
        f"{'/'.join(map(str, sorted(nums)))} in {shape(*place)}" for place, nums in sorted(threads.items())
    )
    return Advice(
        f"Ranks had different numbers of threads: {told}.",
        "The ranks of a host share its cores, so efficiency includes the loss of cores, not only the cost of communication. Read"
        " the shapes as ways to use these hosts, not as growth.",
        traces=(HEADERS,),
    )


def _mixed_versions(headers: list[dict]) -> Advice | None:
    mixed = []
    for stack in sorted({header["stack"] for header in headers}):
        own = [header for header in headers if header["stack"] == stack]
        for name in VERSIONS:
            values = sorted({str(e[name]) for e in environments(own) if e.get(name) is not None})
            if len(values) > 1:
                mixed.append(f"{name} of stack {stack}: {', '.join(values)}")
    commits = sorted(
        {str((h.get("git") or {}).get("commit"))[:12] for h in headers if (h.get("git") or {}).get("commit")}
    )
    if len(commits) > 1:
        mixed.append(f"commit: {', '.join(commits)}")
    if not mixed:
        return None
    return Advice(
        f"Launches of one stack ran with different versions ({'; '.join(mixed)}).",
        "Differences between their cells may be differences between versions. Measure again with one of them, under a new name.",
        traces=(HEADERS,),
    )


def _machine(environment: dict) -> dict[str, str]:
    """Return what of a launch's machine and settings can move its numbers, each as one text."""
    hosts = environment["hosts"]
    variables = {k: v for k, v in (environment.get("variables") or {}).items() if not k.startswith(NEW_EACH_LAUNCH)}
    facts = {
        "hosts": sorted(host["host"] for host in hosts),
        "cpu": sorted({str(host.get("cpu_model")) for host in hosts}),
        "cores": sorted(str(host.get("num_cores")) for host in hosts),
        "gpus": sorted(str(gpu.get("name")) for gpu in environment.get("gpus") or []),
        "threads per rank": [str(environment.get("threads_per_rank"))],
        "settings": [f"{k}={v}" for k, v in sorted((environment.get("settings") or {}).items())],
        "variables": [f"{k}={v}" for k, v in sorted(variables.items())],
    }
    return {name: " ".join(values) for name, values in facts.items()}


def _mixed_machines(headers: list[dict]) -> Advice | None:
    """Launches of one stack and shape are pooled: they must have run on one machine, set up alike."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for header in headers:
        if header.get("environment"):
            key = (header["stack"], shape(header["nodes"], header["gpus_per_node"]))
            groups.setdefault(key, []).append(_machine(header["environment"]))
    mixed = []
    for (stack, size), machines in sorted(groups.items()):
        for name in machines[0]:
            values = sorted({machine[name] for machine in machines})
            if len(values) > 1:
                mixed.append(f"{name} of stack {stack}, {size}: {' | '.join(value or 'none' for value in values)}")
    if not mixed:
        return None
    return Advice(
        f"Launches that are pooled ran on different machines or settings ({'; '.join(mixed)}).",
        "Their spread is then between machines too. Give each machine a cluster file and a campaign of its own, and set in the"
        " stack's env what the ranks depend on.",
        traces=(HEADERS,),
    )


def _dirty(headers: list[dict]) -> Advice | None:
    num = sum(bool((header.get("git") or {}).get("is_dirty")) for header in headers)
    if num == 0:
        return None
    return Advice(
        f"{num} of {plural(len(headers), 'launch', 'launches')} ran from a working tree with uncommitted changes.",
        "The commit does not tell what was run. Commit first if the numbers are to be shown to others.",
        traces=(HEADERS,),
    )


def _corrupt(problems: dict) -> Advice | None:
    num_torn, num_invalid = len(problems["corrupt"]), len(problems["invalid"])
    if num_torn + num_invalid == 0:
        return None
    found = [(num_torn, "torn or corrupt line"), (num_invalid, "line against its schema")]
    told = " and ".join(plural(num, noun, noun.replace("line", "lines")) for num, noun in found if num)
    return Advice(
        f"The store has {told}.",
        "They are listed under Methods. A torn last line is what a kill or a full disk leaves; look at the disk if there are more.",
        traces=(Trace("problems.json", what="corrupt, invalid"),),
    )


def _after_now(problems: dict) -> Advice | None:
    ahead = sorted((launch["time_utc"], launch["launch"]) for launch in problems.get("after_now", []))
    if not ahead:
        return None
    return Advice(
        f"{after_now_text(len(ahead), *ahead[-1])}.",
        "Synchronize the clocks of all machines. Record order does not depend on them: a retry supersedes older records.",
        traces=(Trace("problems.json", what="after_now"),),
    )


def _fewer_launches(campaign: dict, measurements: pd.DataFrame) -> Advice | None:
    planned = measurements[measurements["repeat"].notna()]
    num_ok = (planned["status"] == "ok").groupby(planned["cell"]).sum()
    num_short = int((num_ok < planned.groupby("cell").size()).sum())
    if num_short == 0:
        return None
    return Advice(
        f"{num_short} of {plural(len(num_ok), 'cell')} have fewer valid launches than planned.",
        "Run the same command again for what was not measured. After mending the causes under Failures, add --forcerun measure to"
        " try again what failed.",
        traces=(of_rows("failures", planned[planned["status"] != "ok"]),),
    )


def _other_losses(training_runs: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """On a CPU a training repeats to the last digit. On a GPU it does not, and nothing follows from that."""
    on_cpu = training_runs[(training_runs["device"] == "cpu") & training_runs["has_same_losses"].notna()]
    other = on_cpu[~on_cpu["has_same_losses"].astype(bool)]
    if other.empty:
        return None
    return Advice(
        f"Launches of the same training on CPUs ended with different losses: {plural(len(other), 'cell')} of {len(on_cpu)}, such"
        f" as {name_of(other['cell'].iloc[0], names)}.",
        "The same seed on the same ranks gives the same losses to the last digit, with the same torch, kind of processor and number"
        " of threads. If these are the same here (Provenance), a strategy or an operator does not compute the same each time.",
        traces=(of_cells("training_runs", other["cell"]),),
    )


def disagreement(launch_ranges: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    """How far launches of one cell lie apart: it decides which differences between cells can be believed."""
    ratio = launch_ranges.set_index("cell")["range_ratio"].dropna()
    large = ratio[ratio > DISAGREEMENT_RATIO].sort_values(ascending=False, kind="stable")
    if large.empty:
        return None
    return Advice(
        f"The launches of {plural(len(large), 'cell')} of {len(ratio)} differ by more than {100 * DISAGREEMENT_RATIO:g} % of their median;"
        f" most, by {percent(float(large.iloc[0]))} %, those of {name_of(large.index[0], names)}.",
        "Look for other work on the machine, clocks and placement; more launches (repeats) narrow the median, longer sampling does not.",
        traces=(of_cells("launch_ranges", large.index),),
    )


def _imprecise(campaign: dict, ok: pd.DataFrame, launch_ranges: pd.DataFrame) -> Advice | None:
    """Which is larger decides what helps: the interval within a launch, or how far launches lie apart."""
    missed = ok[ok["stop"].isin(["max_seconds", "max_samples"])]
    if missed.empty:
        return None
    limits = [f"{limit} in {num}" for limit, num in sorted(missed["stop"].value_counts().items())]
    missed = missed.sort_values("half_width_ratio", ascending=False, kind="stable")
    ranges = launch_ranges[launch_ranges["cell"].isin(missed["cell"]) & launch_ranges["range_ratio"].notna()]
    typical, apart = missed["half_width_ratio"].median(), ranges["range_ratio"].median()
    advice = f"Raise {' and '.join(sorted(missed['stop'].unique()))} under sampling, or accept the precision."
    reached = ""
    if not pd.isna(typical):
        widest = float(missed["half_width_ratio"].max())
        reached = f"; reached were ±{percent(float(typical))} % in the median and ±{percent(widest)} % at worst"
    if not pd.isna(typical) and not pd.isna(apart):
        reached += f", and launches of these cells lie {percent(float(apart))} % apart in the median"
        if apart > 2 * typical:  # the whole width of an interval
            advice = "Launches lie further apart than an interval is wide: more launches (repeats) help, longer sampling does not."
    return Advice(
        f"{plural(len(missed), 'measurement')} of {len(ok)} in {plural(missed['cell'].nunique(), 'cell')} ended before the precision"
        f" that was asked for{_asked(campaign, missed)} (by {', '.join(limits)}){reached}.",
        advice,
        traces=(of_rows("measurements", missed), *([of_cells("launch_ranges", ranges["cell"])] if len(ranges) else [])),
    )


def _asked(campaign: dict, missed: pd.DataFrame) -> str:
    """Return the precision that these cells were to be measured with: `, ±1.0 %`. Empty of imported cells."""
    cells = set(missed["cell"])
    rules = [cell["spec"].get("sampling") for cell in campaign["cells"] if cell["id"] in cells]
    asked = sorted({rule["target_precision"] for rule in rules if rule})
    return f", {' or '.join(f'±{percent(ratio)} %' for ratio in asked)}" if asked else ""


def _slow_first(ok: pd.DataFrame, names: dict[str, str]) -> Advice | None:
    ratio = (ok["first_iteration_s"] / ok["p50_s"]).dropna()
    slow = ratio[ratio > SLOW_FIRST_RATIO]
    if slow.empty:
        return None
    return Advice(
        f"The first iteration took more than {SLOW_FIRST_RATIO} times the median in {plural(len(slow), 'measurement')} of {len(ratio)}"
        f" (at most {three(float(slow.max()))} times, {name_of(ok.loc[slow.idxmax(), 'cell'], names)}).",
        "It is warm-up and in none of the numbers. A job that restarts often pays it each time.",
        traces=(of_measurements(ok.loc[slow.index], slow.idxmax()),),
    )


def _few_launches(campaign: dict) -> Advice | None:
    if campaign["repeats"] >= MIN_LAUNCHES_INTERVAL or campaign.get("imported"):
        return None
    return Advice(
        f"{plural(campaign['repeats'], 'launch', 'launches')} per cell: the report shows points and their range, not confidence intervals over launches.",
        f"Set repeats to {MIN_LAUNCHES_INTERVAL} or more for 95 % intervals; only the missing launches are run.",
        traces=(Trace(campaign["source"], what="repeats"),),
    )
