"""Assemble plan.html: what plan.json and plan.txt say, as one page without scripts or foreign assets.

Only the scripts that write a plan for people import this module: it loads jinja2, which Snakemake need not wait for.
"""

from collections import Counter
from pathlib import Path

import jinja2

from regatta.cell_words import rank_word
from regatta.planning.plan import Plan, plan_json
from regatta.planning.plan_text import ESTIMATE_FROM, job_requests
from regatta.report.plan_cells import STATES, planned_cells, reason_groups, state_counts, words_of, workload_rows
from regatta.store.launch_files import write_text

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MAX_LISTED_LAUNCHES = 8  # of one repeat; more are counted by stack
MAX_OPEN_BATCHES = 12  # more are folded


def write_page(plan: Plan) -> None:
    write_text(plan.results / "plan.html", render(plan))


def render(plan: Plan) -> str:
    """Return the plan as a page. The same campaign and the same store give the same bytes."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip
    environment.filters |= {"shape": _shape, "minutes": _minutes, "hours": _hours}
    return environment.get_template("plan.html.j2").render(_context(plan))


def _context(plan: Plan) -> dict:
    cells, saved = planned_cells(plan), plan_json(plan)
    words = words_of(cells)
    gpu = rank_word(plan.campaign.data["device"])
    rows = workload_rows(cells, words)
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "plan": saved,
        "totals": saved["totals"],
        "campaign": plan.campaign.data,
        "cluster": plan.campaign.cluster["name"],
        "text": plan.campaign.file.text,
        "gpu": gpu,
        "estimate": ESTIMATE_FROM.get(saved["totals"]["estimate_from"]),
        "is_slurm": plan.campaign.cluster["scheduler"] == "slurm",
        "states": STATES,
        "counts": state_counts(cells),
        "shape_bars": shape_bars(saved["batches"]),
        "workload_bars": _bars([{"name": row["name"], "gpu_hours": row["gpu_hours"]} for row in rows], "gpu_hours"),
        "shapes": sorted({cell.cell.shape for cell in cells}),
        "rows": rows,
        "reasons": reason_groups(cells, words),
        "batches": [batch | {"turns": turns(batch["launches"])} for batch in saved["batches"]],
        "max_open_batches": MAX_OPEN_BATCHES,
        "jobs": job_requests(plan),
    }


def shape_bars(batches: list[dict]) -> list[dict]:
    """Return for each shape the sums of its batches, and how long the bars of its minutes and hours are in percent."""
    sums: dict[tuple[int, int], dict] = {}
    for batch in batches:
        shape = batch["nodes"], batch["gpus_per_node"]
        own = sums.setdefault(shape, {"shape": shape, "batches": 0, "launches": 0, "minutes": 0.0, "gpu_hours": 0.0})
        own["batches"] += 1
        own["launches"] += len(batch["launches"])
        own["minutes"] += batch["minutes"]
        own["gpu_hours"] += batch["gpu_hours"]
    return _bars(_bars([sums[shape] for shape in sorted(sums)], "minutes"), "gpu_hours")


def _bars(rows: list[dict], field: str) -> list[dict]:
    """Return rows with `<field>_percent`, of the largest value."""
    largest = max((row[field] for row in rows), default=0.0) or 1.0
    return [row | {f"{field}_percent": f"{100 * row[field] / largest:.1f}"} for row in rows]


def turns(launches: list[dict]) -> list[tuple[str, str]]:
    """Return (repeats, their stacks in turn with their cells), such as `0, 2` and `a (3 cells), b (3 cells)`."""
    by_repeat: dict[int, list[dict]] = {}
    for launch in launches:
        by_repeat.setdefault(launch["repeat"], []).append(launch)
    repeats: dict[str, list[int]] = {}
    for repeat, own in by_repeat.items():
        repeats.setdefault(_turn(own), []).append(repeat)
    return [(", ".join(map(str, found)), text) for text, found in repeats.items()]


def _turn(launches: list[dict]) -> str:
    """Return the launches of one repeat in their order, or their number by stack where there are many."""
    if len(launches) <= MAX_LISTED_LAUNCHES:
        return ", ".join(f"{launch['stack']} ({_plural(launch['num_cells'], 'cell')})" for launch in launches)
    numbers = Counter(launch["stack"] for launch in launches)
    return ", ".join(f"{stack} ({num:,} launches)" for stack, num in numbers.items())


def _plural(num: int, noun: str) -> str:
    return f"{num:,} {noun}{'' if num == 1 else 's'}"


def _shape(shape: tuple[int, int]) -> str:
    return "{}\N{MULTIPLICATION SIGN}{}".format(*shape)


def _minutes(minutes: float) -> str:
    return f"{minutes:,.1f}"


def _hours(hours: float) -> str:
    return f"{hours:,.2f}" if hours >= 1 else f"{hours:.3f}"
