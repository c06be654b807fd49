"""Launches of a user's program: the driver prepares them, notes the start of their ranks, and records what they print.

Each rank writes a file when it starts (bench/program.sh). The launch file gets its first lines once all ranks have one,
and the record when the program has ended. Output and files of a launch are kept in batches/*/outputs/<launch>/.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from regatta.campaign.program_entries import (
    OUTPUT,
    READING,
    command_of,
    geometry_of,
    is_unverified,
    num_ranks,
    quantity_of,
    size_of,
    values_of,
    writes_output,
)
from regatta.core.errors import UserError
from regatta.core.printed_numbers import THOUSANDS
from regatta.core.readers import (
    READER,
    FormatResult,
    find_result,
    ignored_sizes,
    parse_reader,
    read_quantities,
    read_results,
)
from regatta.core.recorded_times import sample_ns
from regatta.core.text import one_line, plural, utc_text, with_values
from regatta.launchers import PROGRAM
from regatta.launchers.base import Launcher
from regatta.model.launches import Cause, LaunchRequest, utc_now
from regatta.run.causes import MAX_CAUSE
from regatta.runtimes.plugins import PLUGINS
from regatta.store.launch_files import append_launch_line, write_text

C_LOCALE = re.compile(r"^locale (?:C|POSIX|C\.[\w-]+)$", re.MULTILINE | re.ASCII)  # as program.sh writes it
NOT_VERIFIED = "number of ranks not verified"  # note of a record


def folder_of(batch: Path, launch: str) -> Path:
    """Return the folder in which the program of a launch runs, and which is kept."""
    return (batch / "outputs" / launch).resolve()


def prepare(spec: dict, folder: Path, meeting: Mapping[str, str]) -> list[str]:
    """Write the files of a launch. Return the command of one of its processes. meeting: values of templates."""
    output = str(folder / OUTPUT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in spec["program"]["files"].items():
        write_text(folder / name, with_values(content, values_of(spec, output)))
    return command_of(spec, meeting, output)


def begin_log(request: LaunchRequest, log: Path, launcher: Launcher) -> None:
    """Write the first line of a launch's log, which tells readers that its lines begin with their ranks."""
    line = [*itertools.takewhile(lambda word: word != str(PROGRAM), request.argv)]
    if "--label" in line or "-l" in line:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(launcher.ranks.first_log_line + b"\n")


def note_start(request: LaunchRequest, is_over: bool) -> None:
    """Write the first lines of a launch file if all ranks have started.

    is_over: the launch has ended. Then one rank is enough: if it fails, the launcher ends the others early.
    """
    hosts = _started_hosts(request)
    if len(hosts) >= geometry_of(request.cells[0].spec, {}).num_ranks or (is_over and hosts):
        _begin(request, hosts)


def _started_hosts(request: LaunchRequest) -> dict[int, str]:
    """Return the host of each rank that has started, as it says itself."""
    found = {}
    for path in Path(request.error_dir).glob("started-*"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found[int(path.name.removeprefix("started-"))] = one_line(lines[0], 200) if lines else "unknown"
    return dict(sorted(found.items()))


def _started_files(request: LaunchRequest) -> list[dict]:
    """Return the files that the ranks run, with size and time if they are known: one, unless hosts have others."""
    found: dict[tuple, list[int]] = {}
    for rank in _started_hosts(request):
        text = (Path(request.error_dir) / f"started-{rank}").read_text(encoding="utf-8", errors="replace")
        path, facts = [*text.splitlines(), "", "", ""][1:3]
        size, _, seconds = facts.partition(" ") if re.fullmatch(r"\d{1,18} \d{1,11}", facts) else ("", "", "")
        found.setdefault((path, int(size) if size else None, int(seconds) if seconds else None), []).append(rank)
    return [
        {"path": path, "size_bytes": size, "time_utc": None if seconds is None else utc_text(seconds), "ranks": ranks}
        for (path, size, seconds), ranks in found.items()
        if path
    ]


def _begin(request: LaunchRequest, hosts: dict[int, str]) -> None:
    by_host = [{"host": host, "ranks": [r for r, on in hosts.items() if on == host]} for host in {*hosts.values()}]
    unknown = {"python": None, "torch": None, "libraries": [], "variables": {}, "settings": {}}
    environment = {"hosts": sorted(by_host, key=lambda entry: entry["ranks"]), **unknown} if hosts else None
    if hosts:
        environment["programs"] = _started_files(request)
    append_launch_line(Path(request.store_file), request.first_line(environment))
    _note_cell(request, request.cells[0].id)


def _note_cell(request: LaunchRequest, cell: str) -> None:
    append_launch_line(Path(request.store_file), {"kind": "start", "cell": cell, "time_utc": utc_now()})


def record_output(request: LaunchRequest, log: Path, elapsed_ns: int | None) -> None:
    """Write the records of a program that has exited with 0, and complete the launch file."""
    path, hosts, spec = Path(request.store_file), _started_hosts(request), request.cells[0].spec
    if not path.exists():
        _begin(request, hosts)
    output = folder_of(log.parent.parent, request.launch) / OUTPUT if writes_output(spec) else log
    for number, record in enumerate(read_records(request, output, elapsed_ns, _placement_problem(spec, hosts))):
        if number:
            _note_cell(request, record["cell"])
        append_launch_line(path, record)
    append_launch_line(path, {"kind": "complete", "time_utc": utc_now(), "elapsed_ns": elapsed_ns})


def read_records(
    request: LaunchRequest, output: Path, elapsed_ns: int | None, misplaced: str = ""
) -> Iterator[dict[str, object]]:
    """Yield the records of the cells of a launch, from its output.

    misplaced: why its ranks are not those of the cells.
    """
    specs = [cell.spec for cell in request.cells]
    found = [(NOTHING, misplaced)] * len(specs) if misplaced else _read(specs, output, _comma(request))
    share_ns = elapsed_ns and elapsed_ns // len(specs)
    for cell, (numbers, problem) in zip(request.cells, found, strict=True):
        status, phase = ("placement", "placement") if misplaced else ("failed", READING) if problem else ("ok", None)
        cause = Cause(status, phase, one_line(problem, MAX_CAUSE) if problem else None)
        record = _measured(cell.spec, numbers, share_ns) if numbers.samples_ns else {}
        record |= {"note": NOT_VERIFIED} if numbers.samples_ns and is_unverified(cell.spec) else {}
        yield request.record_line(cell.id, cause, share_ns) | record | {"reader": READER}


def _placement_problem(spec: dict, hosts: dict[int, str]) -> str:
    """Return why the ranks that started are not those of the cell, or an empty text."""
    place, per_host = geometry_of(spec, {}), Counter(hosts.values())
    wanted, nodes, ranks_per_node = place.num_ranks, place.nodes, place.num_local_ranks
    remedy = "Check the launcher's node and task counts."
    if [*hosts] != [*range(wanted)]:
        return f"{plural(len(hosts), 'rank')} of {wanted} started. {remedy}"
    if len(per_host) != nodes or {*per_host.values()} != {ranks_per_node}:
        places = ", ".join(f"{num} on {host}" for host, num in per_host.items())
        return f"ranks: {places}; the shape needs {ranks_per_node} on each of {plural(nodes, 'node')}. {remedy}"
    return ""


class Numbers(NamedTuple):
    """The numbers of a cell in an output. The samples are of the launch, not of one rank."""

    samples_ns: list[int]
    bus_factor: float | None = None


NOTHING = Numbers([])


def _comma(request: LaunchRequest) -> str:
    """Return what a comma separates in an output: thousands if all ranks wrote numbers as C does, else it is unknown.

    Ranks of earlier versions did not say so.
    """
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in Path(request.error_dir).glob("started-*")]
    return THOUSANDS if texts and all(C_LOCALE.search(text) for text in texts) else ""


def _read(specs: list[dict], output: Path, comma: str) -> list[tuple[Numbers, str]]:
    """Return the numbers of each cell in the output of their launch, and what is wrong with it or an empty text."""
    name = specs[0]["program"]["read"]
    if not isinstance(name, str):
        return [_read_quantity(spec, output, comma) for spec in specs]
    try:
        reader = parse_reader(name, specs[0]["program"]["check"])
        if problems := read_quantities(output, reader, [num_ranks(specs[0])]).problems:
            return [(NOTHING, "; ".join(problems))] * len(specs)
        results = read_results(output, name, *shape_of_run(specs[0]), PLUGINS)
    except UserError as error:
        return [(NOTHING, f"read: {name}: {error}")] * len(specs)
    if others := ignored_sizes(results, [size_of(spec) for spec in specs]):
        program = specs[0]["parameters"]["program"]
        print(f"{utc_now()} {program}: message sizes without a cell are ignored: {others}", flush=True)
    return [_read_result(results, spec, name) for spec in specs]


def _read_quantity(spec: dict, output: Path, comma: str) -> tuple[Numbers, str]:
    """Return the numbers of a cell by its pattern, and what is wrong or an empty text. comma: what it separates."""
    name, quantity = quantity_of(spec)
    try:
        reader = parse_reader(spec["program"]["read"], spec["program"]["check"])
        found = read_quantities(output, reader, [num_ranks(spec)], comma)
        if found.problems:
            return NOTHING, "; ".join(found.problems)
        numbers = found.samples[name] if quantity.samples else [found.values[name]]
        return Numbers([sample_ns(number, quantity) for number in numbers]), ""
    except (UserError, ValueError) as error:
        return NOTHING, f"read.{name}: {error}"


def shape_of_run(spec: dict) -> tuple[tuple[int, int], int]:
    """Return nodes and GPUs per node of a cell, and its processes per node; of `one`, those that it starts."""
    gpus = spec["gpus_per_node"]
    is_one = spec["program"]["ranks"] == "one"
    return (spec["nodes"], gpus), gpus if is_one else geometry_of(spec, {}).num_local_ranks


def _read_result(results: list[FormatResult], spec: dict, name: str) -> tuple[Numbers, str]:
    """Return the numbers of a cell among the results of an import format, and what is wrong or an empty text."""
    try:
        found = find_result(results, size_of(spec))
        return Numbers([sample_ns(time, quantity_of(spec)[1]) for time in found.samples], found.bus_factor), ""
    except ValueError as error:
        return NOTHING, f"read: {name}: {error}"


def _measured(spec: dict, numbers: Numbers, elapsed_ns: int | None) -> dict:
    """Return what a record has beside that of a failed cell."""
    num_dropped, num = quantity_of(spec)[1].drop, len(numbers.samples_ns)
    return {
        "slowest_rank_samples_ns": numbers.samples_ns,
        "values": None if numbers.bus_factor is None else {"bus_factor": numbers.bus_factor},
        "warmup": {"num_iterations": num_dropped, "elapsed_ns": None, "first_iteration_ns": None, "stop": None},
        "sampling": {"num_iterations": num, "elapsed_ns": elapsed_ns, "stop": "fixed", "half_width_ratio": None},
        "checks": {"output_is_valid": True} if spec["program"]["check"] else {},
    }
