"""The plan as people read it: totals first, then batches, launch lines, and every cell with its reason."""

from regatta.core.text import rank_word
from regatta.launchers import launcher_of
from regatta.plan.plan import Plan, batch_prices, launch_lines, notes, totals
from regatta.run.preflight import preflight_json

SHOWN_ON_TERMINAL = 60  # cells; plan.txt has them all
ESTIMATE_FROM = {
    "history": "from the store's history",
    "limits": "from the campaign's limits: the store has no history of these cells",
    "history and limits": "from the store's history where it has some, else from the campaign's limits",
}


def plan_text(plan: Plan, max_cells: int | None = None) -> str:
    """Return the plan as text. max_cells: how many cells to list; None lists all."""
    gpu = rank_word(plan.campaign.data["device"])
    sections = [
        _totals(plan, gpu),
        "\n  ".join(missing_lines(plan)),
        _batches(plan, gpu),
        _jobs(plan),
        _lines(plan),
        _cells(plan, max_cells),
        _notes(plan),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def table(header: list[str], rows: list[list[object]]) -> str:
    """Return rows under a header, columns aligned; numbers to the right."""
    texts = [[str(value) for value in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *texts]) for i in range(len(header))]
    is_number = [all(isinstance(row[i], int | float) for row in rows) for i in range(len(header))]
    lines = [
        "  ".join(v.rjust(w) if n else v.ljust(w) for v, w, n in zip(row, widths, is_number, strict=True)).rstrip()
        for row in [header, *texts]
    ]
    return "\n".join(lines)


def _totals(plan: Plan, gpu: str) -> str:
    sums = totals(plan)
    lines = [
        f"campaign {plan.campaign.name}: {plan.campaign.file.path}, cluster {plan.campaign.cluster['name']}",
        f"cells: {sums['todo']} todo, {sums['done']} done, {sums['skipped']} skipped",
    ]
    if sums["batches"]:
        how = ESTIMATE_FROM[sums["estimate_from"]]
        lines.append(
            f"to run: {sums['measurements']} measurements in {sums['launches']} launches in {sums['batches']} batches;"
            f" about {sums['minutes']:.1f} minutes, {sums['gpu_hours']:.2f} {gpu} hours ({how};"
            f" at most {sums['at_most_minutes']:.0f} minutes, if every deadline were reached)"
        )
        if plan.has_preflight_to_run:
            preflight = preflight_json(plan.preflight, is_todo=True)
            shape = f"{preflight['nodes']}x{preflight['gpus_per_node']}"
            lines.append(
                f"before them: a preflight on {shape} of {', '.join(preflight['stacks'])}, one short launch each"
            )
    elif plan.cells:
        lines.append("to run: nothing")
    else:
        lines.append("to run: nothing. No cell of this campaign can run here; the reasons stand below")
    return "\n".join(lines)


def missing_lines(plan: Plan) -> list[str]:
    """Return what a run on this machine would refuse, under a heading; nothing where it would refuse nothing."""
    if not plan.campaign.missing:
        return []
    lines = ["this machine lacks files or programs; a run here is refused:"]
    lines += [missing.text for missing in plan.campaign.missing]
    if stacks := plan.campaign.provisional_stacks:
        lines.append(f"cell ids of {', '.join(stacks)} are provisional: they depend on files that are not here")
    return lines


def _batches(plan: Plan, gpu: str) -> str:
    rows = [
        [
            b["batch"],
            f"{b['nodes']}x{b['gpus_per_node']}",
            len(b["launches"]),
            sum(launch["num_cells"] for launch in b["launches"]),
            round(b["minutes"], 1),
            round(b["gpu_hours"], 2),
            b["estimate_from"],
        ]
        for b in batch_prices(plan)
    ]
    header = ["batch", "shape", "launches", "measurements", "minutes", f"{gpu} hours", "estimate from"]
    return table(header, rows) if rows else ""


def _jobs(plan: Plan) -> str:
    return "\n".join(f"jobs of {n}x{g} ask for: {words}" for (n, g), words in job_requests(plan).items())


def job_requests(plan: Plan) -> dict[tuple[int, int], str]:
    """Return for each shape what the scheduler is asked for, by its longest batch; nothing without a scheduler."""
    cluster, device = plan.campaign.cluster, plan.campaign.data["device"]
    launcher = launcher_of(cluster)
    if not launcher.submits:
        return {}
    minutes: dict[tuple[int, int], float] = {}
    for batch in batch_prices(plan):
        shape = batch["nodes"], batch["gpus_per_node"]
        minutes[shape] = max(batch["minutes"], minutes.get(shape, 0))
    return {shape: launcher.job_words(cluster, *shape, device, longest) for shape, longest in minutes.items()}


def _lines(plan: Plan) -> str:
    return "\n".join(
        f"stack {name} launches its largest shape with:\n  {line}" for name, line in launch_lines(plan).items()
    )


def _cells(plan: Plan, max_cells: int | None) -> str:
    rows = [
        [p.status, p.cell.id, len(p.repeats), p.reason] for p in sorted(plan.cells, key=lambda p: p.status != "todo")
    ]
    rows += [["skipped", cell.id, 0, reason] for cell, reason in plan.matrix.skipped]
    shown = rows if max_cells is None else rows[:max_cells]
    text = table(["status", "cell", "launches", "why"], shown) if shown else "no cells"
    return text + (f"\n... and {len(rows) - len(shown)} more in plan.txt" if len(shown) < len(rows) else "")


def _notes(plan: Plan) -> str:
    return "\n".join(f"note: {note}" for note in notes(plan))
