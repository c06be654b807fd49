"""Launches of a user's program: the driver prepares them, notes the start of their ranks, and records what they print.

Each rank writes a file when it starts (bench/program.sh). The launch file gets its first lines once all ranks have one,
and the record when the program has ended. Output and files of a launch are kept in batches/*/outputs/<launch>/.
"""

import contextlib
import json
import shutil
from collections import Counter
from pathlib import Path

from regatta.campaign.programs import (
    OUTPUT,
    command_of,
    file_text,
    geometry_of,
    quantity_of,
    sample_ns,
    values_of,
    writes_output,
)
from regatta.core.errors import UserError
from regatta.core.readers import parse_reader, read_quantities
from regatta.core.text import one_line, plural
from regatta.launchers.base import Geometry
from regatta.run.causes import MAX_CAUSE, Cause
from regatta.run.record_lines import first_line, record_line
from regatta.store.launch_files import append_launch_line, read_launch_file, utc_now, write_text

READING = "measure"  # phase of a record whose program has exited with 0, if its output gives no number


def is_program(request: dict) -> bool:
    return "program" in request["cells"][0]["spec"]


def folder_of(batch: Path, launch: str) -> Path:
    """Return the folder in which the program of a launch runs, and which is kept."""
    return (batch / "outputs" / launch).resolve()


def prepare(spec: dict, cluster: dict, folder: Path, error_dir: Path) -> tuple[Geometry, list[str]]:
    """Write the files of a launch. Return where its processes start, and the arguments of program.sh."""
    output = str(folder / OUTPUT)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in spec["program"]["files"].items():
        write_text(folder / name, file_text(content, values_of(spec, output)))
    return geometry_of(spec, cluster), [str(error_dir), str(folder), *command_of(spec, output)]


def note_start(request: dict, is_over: bool) -> None:
    """Write the first lines of a launch file if all ranks have started.

    is_over: the launch has ended. Then one rank is enough: if it fails, the launcher ends the others early.
    """
    hosts = _started_hosts(request)
    if len(hosts) >= geometry_of(request["cells"][0]["spec"], {}).num_ranks or (is_over and hosts):
        _begin(request, hosts)


def _started_hosts(request: dict) -> dict[int, str]:
    """Return the host of each rank that has started, as it says itself."""
    found = {}
    for path in Path(request["error_dir"]).glob("started-*"):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        found[int(path.name.removeprefix("started-"))] = one_line(lines[0], 200) if lines else "unknown"
    return dict(sorted(found.items()))


def _begin(request: dict, hosts: dict[int, str]) -> None:
    path, cell = Path(request["store_file"]), request["cells"][0]["id"]
    by_host = [{"host": host, "ranks": [r for r, on in hosts.items() if on == host]} for host in {*hosts.values()}]
    unknown = {"python": None, "torch": None, "libraries": [], "variables": {}, "settings": {}}
    environment = {"hosts": sorted(by_host, key=lambda entry: entry["ranks"]), **unknown} if hosts else None
    append_launch_line(path, first_line(request, environment))
    append_launch_line(path, {"kind": "start", "cell": cell, "time_utc": utc_now()})


def record_output(request: dict, log: Path, elapsed_ns: int | None) -> None:
    """Write the record of a program that has exited with 0, and complete the launch file."""
    cell, path, hosts = request["cells"][0], Path(request["store_file"]), _started_hosts(request)
    if not path.exists():
        _begin(request, hosts)
    record = {}
    problem = _placement_problem(cell["spec"], hosts)
    status, phase = "placement", "placement"
    if not problem:
        output = folder_of(log.parent.parent, request["launch"]) / OUTPUT
        samples_ns, problem = _read(cell["spec"], output if writes_output(cell["spec"]) else log)
        status, phase = ("failed", READING) if problem else ("ok", None)
        record = _measured(cell["spec"], samples_ns, elapsed_ns) if samples_ns else {}
    cause = Cause(status, phase, one_line(problem, MAX_CAUSE) if problem else None)
    append_launch_line(path, record_line(request, cell["id"], cause, elapsed_ns) | record)
    append_launch_line(path, {"kind": "complete", "time_utc": utc_now(), "elapsed_ns": elapsed_ns})


# Cells that differ from measured ones in `read` and `check` alone are read from the output that was kept.


def launches_of_programs(results: Path) -> dict[tuple[str, int], list[Path]]:
    """Return the requests of all launches of programs, the oldest first, by what they ran and their repeat."""
    found: dict[tuple[str, int], list[Path]] = {}
    for path in sorted(results.glob("batches/*/launches/*.json"), key=lambda path: path.stat().st_mtime):
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            request = _request(path)
            if is_program(request):
                found.setdefault((_without_reader(request["cells"][0]["spec"]), request["repeat"]), []).append(path)
    return found


def _without_reader(spec: dict) -> str:
    program = {key: value for key, value in spec["program"].items() if key not in ("read", "check")}
    return json.dumps(spec | {"program": program}, sort_keys=True)


def find_kept(known: dict[tuple[str, int], list[Path]], cell: str, spec: dict, repeat: int) -> Path | None:
    """Return the request of a launch that ran the program of a new cell to its end, None if there is none.

    None also if the cell was started or read before: then it is repeated because it failed. known: see above.
    """
    paths = known.get((_without_reader(spec), repeat), [])
    if any(_request(path)["cells"][0]["id"] == cell for path in paths):
        return None
    ended = [path for path in paths if _ended_record(path) and _log(path).exists()]
    return ended[-1] if ended else None


def _request(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _ended_record(request: Path) -> dict | None:
    """Return the record of a program that exited with 0 on the planned ranks, whether or not its output was valid."""
    results = request.parents[3]
    for _, line in read_launch_file(results / "launches" / f"{request.stem}.jsonl").lines:
        if line["kind"] == "record" and (line["status"] == "ok" or line.get("phase") == READING):
            return line
    return None


def _log(request: Path) -> Path:
    return request.parent.parent / "logs" / f"{request.stem}.log"


def read_kept(request: dict, path: Path, kept: Path) -> None:
    """Write the launch file of a request from the output of an earlier launch. path, kept: of the two requests."""
    record, spec = _ended_record(kept), request["cells"][0]["spec"]
    _log(path).parent.mkdir(exist_ok=True)
    shutil.copyfile(_log(kept), _log(path))
    output = folder_of(kept.parent.parent, kept.stem) / OUTPUT
    if writes_output(spec) and output.exists():
        shutil.copyfile(output, folder_of(path.parent.parent, path.stem) / OUTPUT)
    for started in (kept.parent.parent / "errors" / kept.stem).glob("started-*"):
        shutil.copy(started, request["error_dir"])
    record_output(request, _log(path), record["elapsed_ns"])


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


def _read(spec: dict, output: Path) -> tuple[list[int], str]:
    """Return the samples of a cell in its output, and what is wrong with it or an empty text."""
    name, quantity = quantity_of(spec)
    try:
        found = read_quantities(output, parse_reader(spec["program"]["read"], spec["program"]["check"]))
        if found.problems:
            return [], "; ".join(found.problems)
        numbers = found.samples[name] if quantity.samples else [found.values[name]]
        return [sample_ns(number, quantity) for number in numbers], ""
    except (UserError, ValueError) as error:
        return [], f"read.{name}: {error}"


def _measured(spec: dict, samples_ns: list[int], elapsed_ns: int | None) -> dict:
    """Return what a record has beside that of a failed cell. The samples are of the launch, not of one rank."""
    num_dropped = quantity_of(spec)[1].drop
    return {
        "slowest_rank_samples_ns": samples_ns,
        "warmup": {"num_iterations": num_dropped, "elapsed_ns": None, "first_iteration_ns": None, "stop": None},
        "sampling": {
            "num_iterations": len(samples_ns),
            "elapsed_ns": elapsed_ns,
            "stop": "fixed",
            "half_width_ratio": None,
        },
        "checks": {"output_is_valid": True} if spec["program"]["check"] else {},
    }
