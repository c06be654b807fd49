"""Status and efficiency of all cells: workloads and stacks down, shapes across.

A benchmark without a known number shows how many of its measurements are ok.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable

from regatta.core.names import CellName, campaign_names
from regatta.core.text import is_unknown, natural, plural, shape, status_text, three
from regatta.report.findings import percent_number
from regatta.report.matrix import Group, Matrix, Row, Square
from regatta.report.page import BAD_MARK, MARKS, shown_status
from regatta.report.panels import Section
from regatta.topics.base import ReportData, Topic
from regatta.topics.communication import message_size

WITHIN_SQUARE = ("bucket_cap_mb", "message_bytes")  # ordered axes: a square shows the best bucket, the largest message
MOST_ROWS_OPEN = 40  # of more rows, each subject is folded
NO_RECORD = ("not_measured", "not_started")

Value = tuple[str, float | None, str]  # text, level on the color scale, and what the number is


def section(data: ReportData) -> Section | None:
    if not data.campaign["cells"] and not data.campaign["skipped"]:
        return None
    matrix = status_matrix(data)
    return Section("matrix", "Status and efficiency", template="matrix.html.j2", content={"matrix": matrix})


def status_matrix(data: ReportData) -> Matrix:
    """Return a square for each workload, stack and shape of the campaign, also of skipped cells."""
    campaign, names = data.campaign, campaign_names(data.campaign)
    specs = {cell["id"]: cell["spec"] for cell in [*campaign["cells"], *campaign["skipped"]]}
    shapes = sorted({_shape(spec) for spec in specs.values()}, key=lambda place: (place[0] * place[1], place))
    places: dict[tuple, dict[tuple, list[str]]] = defaultdict(lambda: defaultdict(list))
    for cell, spec in specs.items():
        places[spec["benchmark"], names[cell].parts["subject"], _row_name(names[cell])][_shape(spec)].append(cell)
    make = _squares(data, names)
    groups: dict[tuple, list[Row]] = defaultdict(list)
    for (benchmark, subject, row), by_shape in places.items():
        squares = tuple(make(benchmark, by_shape[place]) if place in by_shape else None for place in shapes)
        groups[benchmark, subject].append(Row(row, squares))
    is_folded = sum(map(len, groups.values())) > MOST_ROWS_OPEN
    caption = f"Nodes × {'processes' if data.device == 'cpu' else 'GPUs'} per node"
    return Matrix(
        caption,
        tuple(shape(*place) for place in shapes),
        tuple(
            Group(subject, tuple(sorted(rows, key=lambda row: natural(row.name))), _summary(rows))
            for (_, subject), rows in groups.items()
        ),
        is_folded,
    )


def _shape(spec: dict) -> tuple[int, int]:
    return spec["nodes"], spec["gpus_per_node"]


def _row_name(name: CellName) -> str:
    """Return what distinguishes a row within its subject: settings that are not ordered, and the stack."""
    name = name.without("subject", "shape", *WITHIN_SQUARE)
    return name.say(*name.parts, always=())


def _summary(rows: list[Row]) -> str:
    """Return the range of a folded group's colors, and how many of its squares have failures."""
    squares = [square for row in rows for square in row.squares if square is not None]
    levels = [square.level for square in squares if square.level is not None]
    texts = [f"{percent_number(min(levels))}\N{EN DASH}{percent_number(max(levels))} %"] if levels else []
    bad = sum(square.state in ("failed", "partial") for square in squares)
    return ", ".join([*texts, *([f"failures in {bad} of {len(squares)}"] if bad else [])])


def _squares(data: ReportData, names: dict[str, CellName]) -> Callable[[str, list[str]], Square]:
    """Return a function from a benchmark and cells to their square."""
    statuses: dict[str, Counter] = defaultdict(Counter)
    for cell, status in zip(data.measurements["cell"], shown_status(data.measurements), strict=True):
        statuses[cell][status] += 1
    values = {"train_step": _training(data), "collective": _collective(data)}

    def square(benchmark: str, cells: list[str]) -> Square:
        counts = sum((statuses[cell] for cell in cells), Counter())
        bad = Counter({status: num for status, num in counts.items() if status not in ("ok", "skipped")})
        value = values[benchmark](cells) if benchmark in values else None
        text, level, what = value or (f"{counts['ok']}/{counts['ok'] + bad.total()}", None, "ok measurements")
        note = f"{names[cells[0]].parts['subject']}: {what}"
        listed = ", ".join(f"{num} {status_text(status)}" for status, num in bad.most_common())
        if not counts["ok"]:
            if not bad:
                return Square(MARKS["skipped"], None, "skipped", tuple(cells), "skipped")
            is_missing = set(bad) <= set(NO_RECORD)
            mark, state = (MARKS["not_measured"], "missing") if is_missing else (BAD_MARK, "failed")
            return Square(mark, None, state, tuple(cells), f"{names[cells[0]].parts['subject']}: {listed}")
        if bad:
            note += f"; {bad.total()} of {plural(counts.total(), 'measurement')} not ok: {listed}"
        return Square(text, level, "partial" if bad else "", tuple(cells), note)

    return square


def _training(data: ReportData) -> Callable[[list[str]], Value | None]:
    """Return the efficiency of the best cell, else its throughput."""
    rows = {row.cell: row for row in data.tables["scaling"].itertuples() if not is_unknown(row.step_s)}

    def value(cells: Iterable[str]) -> Value | None:
        found = [rows[cell] for cell in cells if cell in rows]
        known = [row for row in found if not is_unknown(row.efficiency_ratio)]
        compared = [row for row in known if row.cell != row.baseline] or known
        if compared:
            best = max(compared, key=lambda row: row.efficiency_ratio)
            ratio = float(best.efficiency_ratio)
            return f"{100 * ratio:.0f}", ratio, f"efficiency {percent_number(ratio)} % of {data.names[best.cell]}"
        if not found:
            return None
        best = max(found, key=lambda row: row.throughput_samples_per_s)
        rate = three(best.throughput_samples_per_s)
        return rate, None, f"{rate} samples/s of {data.names[best.cell]}, without a baseline"

    return value


def _collective(data: ReportData) -> Callable[[list[str]], Value | None]:
    """Return the bus bandwidth of the largest measured message, else the latency."""
    rows = {row.cell: row for row in data.tables["collectives"].itertuples() if not is_unknown(row.latency_s)}

    def value(cells: Iterable[str]) -> Value | None:
        found = [rows[cell] for cell in cells if cell in rows]
        known = [row for row in found if not is_unknown(row.busbw_gb_per_s)]
        if known:
            largest = max(known, key=lambda row: row.message_bytes)
            rate = three(largest.busbw_gb_per_s)
            return f"{rate} GB/s", None, f"bus bandwidth {rate} GB/s with {message_size(largest.message_bytes)}"
        if not found:
            return None
        time = three(1e6 * min(row.latency_s for row in found))
        return f"{time} µs", None, f"{time} µs per call"

    return value


TOPIC = Topic("matrix", "Status and efficiency", section=section)
