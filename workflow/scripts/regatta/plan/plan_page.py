"""Write the plan: plan.json, plan.txt (also for the terminal), and plan.html, one page without scripts or assets."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path

from regatta.core.names import CellName
from regatta.core.text import (
    any_of,
    device_words,
    long_duration,
    natural,
    nodes_text,
    plural,
    rank_time,
    rank_word,
    shape,
    three,
)
from regatta.launchers import launcher_of
from regatta.model.frozen import names_by_id
from regatta.plan.batches import Launch
from regatta.plan.plan import CellPlan, Plan, launch_lines, notes, plan_json, totals
from regatta.plan.prices import ESTIMATE_FROM, BatchPrice, charged_gpus
from regatta.report.matrix import (
    Matrix,
    Square,
    by_workload_and_shape,
    shape_columns,
    shapes_caption,
)
from regatta.run.kept_outputs import read_again_text
from regatta.store.launch_files import write_json, write_text

SHOWN_ON_TERMINAL = 60  # cells; plan.txt has them all


# plan.txt: totals first, then batches, launch lines, and every cell with its reason.


def plan_text(plan: Plan, max_cells: int | None = None) -> str:
    """Return the plan as text. max_cells: how many cells to list; None lists all."""
    sections = [
        _totals(plan),
        "\n  ".join(missing_lines(plan)),
        _batches(plan),
        "\n".join(f"jobs of {n}x{g}{kind} request: {words}" for (n, g, kind), words in job_requests(plan).items()),
        "\n".join(f"stack {name}, launch of its largest shape:\n  {line}" for name, line in launch_lines(plan).items()),
        _cells(plan, max_cells),
        "\n".join(f"note: {note}" for note in notes(plan)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def table(header: list[str], rows: list[list[object]]) -> str:
    """Return rows under a header, columns aligned; numbers to the right."""
    columns = []
    for head, *values in zip(header, *rows, strict=True):
        texts = [head, *map(str, values)]
        align = str.rjust if all(isinstance(value, int | float) for value in values) else str.ljust
        width = max(map(len, texts))
        columns.append([align(text, width) for text in texts])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _totals(plan: Plan) -> str:
    sums = totals(plan)
    lines = [
        f"campaign {plan.campaign.name}: {plan.campaign.file.path}, cluster {nodes_text(plan.campaign.cluster)}",
        f"cells: {sums['todo']} todo, {sums['done']} done, {sums['skipped']} skipped",
    ]
    if sums["batches"]:
        price = rank_time(sums["gpu_hours"], plan.campaign.data["device"])
        lines.append(
            f"to run: {plural(sums['measurements'], 'measurement')} in {plural(sums['launches'], 'launch', 'launches')}"
            f" in {plural(sums['batches'], 'batch', 'batches')};"
            f" about {long_duration(sums['minutes'] / 60)}, {price}, estimated {ESTIMATE_FROM[sums['estimate_from']]}."
            f" Upper bound: {long_duration(sums['at_most_minutes'] / 60)}."
        )
        for of in plan.preflight_prices:
            size, stacks = f"{of.preflight.nodes}x{of.preflight.gpus_per_node}", ", ".join(of.preflight.stacks)
            cost = f"about {long_duration(of.minutes / 60)}, included above"
            lines.append(f"first: a preflight on {size}, one short launch per stack ({stacks}); {cost}")
    if sums["outputs_read_again"]:
        lines.append(read_again_text(sums["outputs_read_again"]) + ("" if sums["batches"] else "; nothing runs"))
    elif not sums["batches"]:
        lines.append("to run: nothing" + ("" if plan.cells else ". No cell can run here; reasons below"))
    return "\n".join(lines)


def missing_lines(plan: Plan) -> list[str]:
    """Return why a run on this machine would be rejected, under a heading; empty if it would not be."""
    if not plan.campaign.missing:
        return []
    lines = ["cannot run on this machine; missing files or programs:"]
    lines += [missing.text for missing in plan.campaign.missing]
    if stacks := plan.campaign.provisional_stacks:
        lines.append(f"cell ids of {', '.join(stacks)} are provisional: they depend on files that are not here")
    return lines


def _batches(plan: Plan) -> str:
    rows, gpu_hours = [], device_words(plan.campaign.data["device"])["hours"]
    for price in plan.batch_prices:
        batch, cost = price.batch, [long_duration(price.minutes / 60), three(price.gpu_hours)]
        size = "{}x{}".format(*batch.shape)
        rows.append([batch.id, size, len(batch.launches), price.num_cells, *cost, price.estimate_from])
    header = ["batch", "shape", "launches", "measurements", "time", gpu_hours, "estimate from"]
    return table(header, rows) if rows else ""


def job_requests(plan: Plan) -> dict[tuple[int, int, str], str]:
    """Return for each shape and node type, as text, the request of its longest batch; nothing without a scheduler."""
    launcher = launcher_of(plan.campaign.cluster)
    if not launcher.submits:
        return {}
    found = {}
    for price in sorted(
        plan.batch_prices, key=lambda price: price.reserved_minutes
    ):  # of a shape, the last is the longest
        batch = price.batch
        kind = f" ({batch.cluster['node_type']})" if "node_type" in batch.cluster else ""
        options = launcher.jobs.options(batch.geometry, price.reserved_minutes, [plan.blamed])
        found[*batch.shape, kind] = shlex.join(options)
    return dict(sorted(found.items()))


def _cells(plan: Plan, max_cells: int | None) -> str:
    cells = plan.cells + plan.skipped
    names = names_by_id(planned.cell for planned in cells)
    rows = [
        [c.status, names[c.cell.id].full, len(c.repeats), c.reason, c.cell.id]
        for c in sorted(cells, key=lambda c: c.state != "todo")
    ]
    shown = rows if max_cells is None else rows[:max_cells]
    text = table(["status", "cell", "launches", "why", "id"], shown) if shown else "no cells"
    return text + (f"\n... and {len(rows) - len(shown)} more in plan.txt" if len(shown) < len(rows) else "")


# The cells on plan.html: the matrix as a picture, and the reasons, grouped and counted.

# State of a cell: mark and label. plan.json calls both `done` and `not_ok` done.
STATES = {
    "todo": ("\N{WHITE CIRCLE}", "to do"),
    "done": ("\N{CHECK MARK}", "done"),
    "not_ok": ("\N{BALLOT X}", "done, not ok"),
    "skipped": ("\N{EN DASH}", "skipped"),
}
# Kind of reason, up to a colon, and its meaning.
KINDS = {
    "retry requested": "previously not ok; the plan was made with --forcerun measure",
    "previously failed": "for a reason unrelated to the cell, such as a failed node",
    "launches missing": "the store has records of some launches",
    "changed": "one field differs from a cell of the previous plan",
    "new": "no record in the store",
    "not ok": "the store has a record of each launch; --forcerun measure retries those that are not ok",
    "read again": "the kept output of a launch is read; nothing runs",
    "not read": "the output of the program was not read; edit read or check, and try it (make try)",
}


def state_counts(cells: Iterable[CellPlan]) -> list[tuple[str, int]]:
    """Return (state, number of cells) for each state that occurs."""
    numbers = Counter(cell.state for cell in cells)
    return [(state, numbers[state]) for state in STATES if numbers[state]]


def workload_hours(cells: list[CellPlan], names: dict[str, CellName]) -> list[dict]:
    """Return the ranks x hours of each workload's planned launches, without their starts, in the campaign's order."""
    groups = _grouped(cells, lambda cell: names[cell.cell.id].parts["subject"])
    return [{"name": name, "gpu_hours": sum(map(_rank_hours, members))} for name, members in groups.items()]


def _rank_hours(cell: CellPlan) -> float:
    of = cell.cell
    return cell.seconds * len(cell.repeats) * charged_gpus(of.cluster, of.device, *of.shape) / 3600


def state_matrix(cells: list[CellPlan], names: dict[str, CellName], device: str) -> Matrix:
    """Return a square for each workload, stack and shape: cells by state, and the price of what is to run."""
    by_id, squares = {cell.cell.id: cell for cell in cells}, []
    for place, ids in by_workload_and_shape([planned.cell for planned in cells], names).items():
        members = [by_id[cell] for cell in ids]
        states = dict(state_counts(members))
        text = " ".join(f"{STATES[state][0]} {num:,}" for state, num in states.items())
        kind = f"{next(iter(states))}{' partial' if 'not_ok' in states and len(states) > 1 else ''}"
        squares.append(Square(*place, "\n".join([text, *_price(members, device)]), kind, ids))

    def summary(of: Collection[Square]) -> str:
        members = [by_id[cell] for square in of for cell in square.cells]
        counts = [f"{STATES[state][0]} {num:,} {STATES[state][1]}" for state, num in state_counts(members)]
        return ", ".join([*counts, *_price(members, device)])

    columns = shape_columns(planned.cell.shape for planned in cells)
    return Matrix(shapes_caption(device), columns, tuple(squares), kind="plan", most_dense=0, summary=summary)


def _price(cells: list[CellPlan], device: str) -> list[str]:
    """Return time and ranks x time of the planned launches, without their starts; nothing if none is planned."""
    hours = sum(cell.seconds * len(cell.repeats) for cell in cells) / 3600
    return [long_duration(hours), rank_time(sum(map(_rank_hours, cells)), device)] if hours else []


def reason_groups(cells: list[CellPlan], names: dict[str, CellName]) -> list[tuple[str, list[dict]]]:
    """Return for each state its reasons, the most common first: kind, what it means, number, and parts.

    A part is (text, number, names) of the cells with one reason and the same repeats left. Its text is empty if it
    would only repeat the kind. A group has at most MAX_LISTED_CELLS names.
    """

    def key(cell: CellPlan) -> tuple[str, str]:
        return cell.state, cell.kind or re.sub(r"\d+", "0", cell.reason)

    found: dict[str, list[dict]] = {state: [] for state in STATES}
    for (state, kind), members in _grouped(cells, key).items():
        parts = _grouped(members, lambda cell: (cell.reason, cell.repeats))
        kind = _shared([reason for reason, _ in parts]) if state in ("done", "skipped") else kind
        listed, left = [], MAX_LISTED_CELLS
        for part in sorted(parts, key=lambda part: (natural(part[0]), part[1])):
            ids = sorted((names[cell.cell.id].full for cell in parts[part]), key=natural)[:left]
            left -= len(ids)
            if ids:
                listed.append((_part_text(kind, *part), len(parts[part]), ids))
        group = {"kind": kind, "meaning": KINDS.get(kind.partition(":")[0]), "num": len(members), "parts": listed}
        found[state].append(group | {"unlisted": len(members) - (MAX_LISTED_CELLS - left)})
    return [(state, sorted(gs, key=lambda g: (-g["num"], natural(g["kind"])))) for state, gs in found.items() if gs]


def _grouped(items: Iterable, key: Callable) -> dict[object, list]:
    """Return the items by their key, both in order of appearance."""
    groups: dict[object, list] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _shared(reasons: list[str]) -> str:
    """Return the text shared by reasons that differ in numbers alone, with all values of each number that differs."""
    columns = zip(*(re.split(r"(\d+)", reason) for reason in reasons), strict=True)
    return "".join(_alternatives(sorted(set(texts), key=lambda text: (len(text), text))) for texts in columns)


def _alternatives(texts: list[str]) -> str:
    """Return `2`, `2 or 12`, `2, 4 or 12`, or the ends of many."""
    if len(texts) > MAX_LISTED_VALUES:
        return f"{texts[0]} to {texts[-1]}"
    return any_of(texts)


def _part_text(kind: str, reason: str, repeats: tuple[int, ...]) -> str:
    texts = [] if reason == kind else [reason]
    if repeats:
        texts.append(f"{'launch' if len(repeats) == 1 else 'launches'} {_numbers(repeats)}")
    return "; ".join(texts)


def _numbers(repeats: Iterable[int]) -> str:
    return ", ".join(str(repeat + 1) for repeat in repeats)


# plan.html.

TEMPLATES = Path(__file__).resolve().parents[3] / "report"
MAX_LISTED_LAUNCHES = 8  # limit per repeat; more are counted by stack
MAX_LISTED_VALUES = 6  # limit per number of a reason; of more, the smallest and the largest are named
MAX_LISTED_CELLS = 1_000  # limit per group of reasons; plan.txt has them all
MAX_OPEN_BATCHES = 12  # more are folded


def write_plan(plan: Plan) -> None:
    """Write plan.json, plan.txt and plan.html."""
    write_json(plan.results / "plan.json", plan_json(plan))
    write_text(plan.results / "plan.txt", plan_text(plan))
    write_text(plan.results / "plan.html", render(plan))


def render(plan: Plan) -> str:
    """Return the plan as a page. The same campaign and the same store give the same bytes."""
    import jinja2  # imported here, because a plan as text does not need it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "shape": lambda nodes_and_gpus: shape(*nodes_and_gpus),
        "minutes": lambda minutes: long_duration(minutes / 60),
        "hours": three,
        "turns": turns,
        "rank_time": lambda hours: rank_time(hours, plan.campaign.data["device"]),
    }
    return environment.get_template("plan.html.j2").render(_context(plan))


def _context(plan: Plan) -> dict:
    cells, saved = plan.cells + plan.skipped, plan_json(plan)
    names = names_by_id(planned.cell for planned in cells)
    return {
        "style": (TEMPLATES / "style.css").read_text(encoding="utf-8"),
        "plan": saved,
        "totals": saved["totals"],
        "campaign": plan.campaign.data,
        "cluster": nodes_text(plan.campaign.cluster),
        "text": plan.campaign.file.text,
        "gpu": rank_word(plan.campaign.data["device"]),
        "gpu_hours": device_words(plan.campaign.data["device"])["hours"],
        "estimate": ESTIMATE_FROM.get(saved["totals"]["estimate_from"]),
        "launcher": launcher_of(plan.campaign.cluster),
        "states": STATES,
        "counts": state_counts(cells),
        "shape_bars": shape_bars(plan.batch_prices),
        "workload_bars": _bars(workload_hours(cells, names), "gpu_hours"),
        "matrix": state_matrix(cells, names, plan.campaign.data["device"]),
        "reasons": reason_groups(cells, names),
        "prices": plan.batch_prices,
        "read_again": read_again_text(len(plan.kept)) if plan.kept else None,
        "max_open_batches": MAX_OPEN_BATCHES,
        "jobs": job_requests(plan),
        "missing": missing_lines(plan)[1:],
    }


def shape_bars(prices: list[BatchPrice]) -> list[dict]:
    """Return for each shape the sums of its batches, and the lengths of its bars in percent."""
    rows = []
    for key, members in sorted(_grouped(prices, lambda price: price.batch.shape).items()):
        sums = {name: sum(getattr(price, name) for price in members) for name in ("minutes", "gpu_hours")}
        num_launches = sum(len(price.batch.launches) for price in members)
        rows.append({"shape": key, "batches": len(members), "launches": num_launches} | sums)
    return _bars(_bars(rows, "minutes"), "gpu_hours")


def _bars(rows: list[dict], field: str) -> list[dict]:
    """Return rows with `<field>_percent`, of the largest value."""
    largest = max((row[field] for row in rows), default=0.0) or 1.0
    return [row | {f"{field}_percent": f"{100 * row[field] / largest:.1f}"} for row in rows]


def turns(launches: Iterable[Launch]) -> list[tuple[str, str]]:
    """Return (launches, their stacks in turn with their cells), such as `1, 3` and `a (3 cells), b (3 cells)`."""
    by_repeat = _grouped(launches, lambda launch: launch.repeat)
    by_text = _grouped(by_repeat, lambda repeat: _turn(by_repeat[repeat]))
    return [(_numbers(repeats), text) for text, repeats in by_text.items()]


def _turn(launches: list[Launch]) -> str:
    """Return the launches of one repeat in their order, or their number by stack if there are many."""
    if len(launches) > MAX_LISTED_LAUNCHES:
        numbers = Counter(launch.stack for launch in launches)
        return ", ".join(f"{stack} ({num:,} launches)" for stack, num in numbers.items())
    return ", ".join(f"{launch.stack} ({plural(len(launch.cells), 'cell')})" for launch in launches)
