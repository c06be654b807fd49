"""The stages of first_run.sh, in the order of their value, each with its limit. Standard library only.

Every stage is a separate process with a log in the results folder. After each one, summary and archive are written anew,
so that what was found survives external termination. Exit status: 0 if the run passed, 1 if not, 2 for a user
error. It passed if every stage passed, at least one record is ok, and no check failed. A campaign that timed out counts as
passed if its resumption passed. Checks may be unknown. Layouts of several ranks on one GPU (layouts.py) come last, and
need not run: their records are in no campaign.
"""

import argparse
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import checks
import layouts

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "workflow" / "scripts" / "bench"
HERE = Path(__file__).resolve().parent
RESULTS = {"cuda": "first-gpu-run", "cpu": "cpu-first-gpu-run"}
LOGS = "first-run"  # folder of logs in the results folder
STOP_SECONDS = 8.0  # run_batches.py ends its ranks within 5 s
MIN_SECONDS = 5.0  # a stage with less time is not started
RESERVE_SECONDS = 20.0  # to stop the last stage, and for the last summary
NOT_RUN = "not run: out of time"
LAYOUTS = {"2-ranks": 80, "2-nodes": 70, "4-ranks": 60}  # limits in seconds, in the order of their value
REHEARSAL_FACTOR = 4  # of these limits, on a CPU whose cores the ranks share
COMPLETE = (("passed", "passed"), ("timed out", "passed"), ("passed", NOT_RUN))  # outcomes of the campaign, and resumed

REHEARSED_TESTS = (
    "test_events_of_a_gpu_are_in_milliseconds_of_the_stream",  # skipped on a CPU
    "test_input_in_bf16_is_normalised_in_fp32",
    "test_one_rank_has_nothing_to_exchange_and_no_parts",
)
SMALL_COMPARISON = "--model resnet18 --image-size 32 --batch-size 2 --dtype fp32 --pairs 2 --seconds 0.1".split()


@dataclass
class Stage:
    """command: its words after the interpreter. limit_s: at most; None: all time that is left. outcome: passed, failed,
    timed out, or not run, and why. needs_nccl: a version."""

    name: str
    command: list[str]
    limit_s: float | None
    outcome: str = NOT_RUN
    seconds: float = 0.0
    variables: dict[str, str] = field(default_factory=dict)
    needs_nccl: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", type=Path, nargs="?", default=os.environ.get("OUT") or "first-run", help="output folder"
    )
    parser.add_argument("--device", choices=tuple(RESULTS), default="cuda", help="cpu: dry run without a GPU")
    parser.add_argument("--minutes", type=float, default=8, help="limit of all stages together (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of all results")
    only = "leave out the layouts of several ranks, or run only these, which needs no frozen campaign"
    parser.add_argument("--only", choices=("campaign", "layouts"), help=only)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes - RESERVE_SECONDS
    results = options.results / RESULTS[options.device]
    if options.only != "layouts" and not (results / "plan.json").exists():
        campaign = "config/campaigns/" + ("cpu/" if options.device == "cpu" else "") + "first-gpu-run.yaml"
        remedy = f"Run `python workflow/scripts/freeze.py --campaign {campaign}` on the machine with Regatta's driver"
        print(f"{results}: not frozen. {remedy}, and copy the folder here.", file=sys.stderr)
        sys.exit(2)
    keep_earlier_logs(results / LOGS)
    (results / LOGS).mkdir(parents=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    stages = make_stages(options.device, results)
    if options.only:
        is_layout = options.only == "layouts"
        stages = [stage for stage in stages if stage.name == "environment" or (stage.name in LAYOUTS) == is_layout]
    begin = time.monotonic()
    for stage in stages:
        run(stage, results / LOGS, end)
        found = summarize(stages, results, options.device, time.monotonic() - begin)
        unwritten = write(found, options.folder, results)
    print(checks.text_of(found), end="")
    if unwritten:
        print(f"{options.folder}: summary or archive not written: {unwritten}. Copy {results}.", file=sys.stderr)
    sys.exit(0 if found["passed"] and not unwritten else 1)


def keep_earlier_logs(logs: Path) -> None:
    """Rename the logs of an earlier run, so that none of its files is taken for one of this run."""
    if logs.exists():
        number = next(number for number in itertools.count(1) if not logs.with_name(f"{LOGS}-{number}").exists())
        logs.rename(logs.with_name(f"{LOGS}-{number}"))


def make_stages(device: str, results: Path) -> list[Stage]:
    """Return the stages. The campaign is resumed at the end with the time that is left."""
    logs, is_gpu = results / LOGS, device == "cuda"
    campaign = [str(BENCH / "run_batches.py"), str(results)]
    tests = [str(HERE / "run_tests.py"), "--json", str(logs / "tests.json")]
    tests += [] if is_gpu else [word for name in REHEARSED_TESTS for word in ("--name", name)]
    comparison = [str(HERE / "plain_train.py"), "--device", device, "--json", str(logs / "comparison.json")]
    comparison += [] if is_gpu else SMALL_COMPARISON
    return [
        Stage("environment", [str(HERE / "describe_node.py"), "--json", str(logs / "environment.json")], 90),
        Stage("preflight", preflight_command(device, logs), 60, variables={"NCCL_DEBUG": "INFO"}),
        Stage("campaign", campaign, 200),
        Stage("comparison", comparison, 100),
        Stage("tests", tests, 220),
        Stage("campaign, resumed", campaign, None),
        *(layout_stage(name, device, logs) for name in LAYOUTS),
    ]


def layout_stage(name: str, device: str, logs: Path) -> Stage:
    command = [str(HERE / "layouts.py"), name, "--device", device, "--folder", str(logs / "layouts" / name)]
    limit_s = LAYOUTS[name] * (1 if device == "cuda" else REHEARSAL_FACTOR)
    return Stage(name, command, limit_s, needs_nccl=layouts.LAYOUTS[name].needs)


def preflight_command(device: str, logs: Path) -> list[str]:
    """Write the request of a preflight with one rank; return its command."""
    request = {"schema": 1, "stack": "host", "launch": "host-00", "nodes": 1, "gpus_per_node": 1, "device": device}
    request |= {"backends": ["nccl", "gloo"] if device == "cuda" else ["gloo"], "start_timeout_seconds": 30}
    request |= {"out_file": str(logs / "preflight.json"), "error_dir": str(logs / "errors"), "argv": []}
    request |= {"image": None, "image_id": None}
    path = logs / "preflight.request.json"
    path.write_text(json.dumps(request))
    starter = [str(BENCH / "start_ranks.py"), "--nproc-per-node=1"]
    return [*starter, str(BENCH / "preflight.py"), "--request", str(path)]


def run(stage: Stage, logs: Path, end: float) -> None:
    """Run a stage within its limit and the time that is left, and set its outcome."""
    limit_s = min(end - time.monotonic(), stage.limit_s or float("inf"))
    if limit_s < MIN_SECONDS:
        return
    version = (read_json(logs / "environment.json") or {}).get("nccl")
    if version and stage.needs_nccl and numbers(version) < numbers(stage.needs_nccl):
        stage.outcome = f"not run: needs NCCL {stage.needs_nccl}, found {version}"
        return
    begin = time.monotonic()
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **stage.variables}
    with (logs / f"{stage.name.replace(', ', '-')}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *stage.command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            stage.outcome = "passed" if process.wait(limit_s) == 0 else "failed"
        except subprocess.TimeoutExpired:
            stage.outcome = "timed out"
            end_session(process)
    stage.seconds = round(time.monotonic() - begin, 1)


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:2]]


def end_session(process: subprocess.Popen) -> None:
    """End a stage: SIGTERM to its program, which ends its ranks; then SIGKILL to all of its session.

    A process in an uninterruptible call of the driver survives that. The next stages run nevertheless.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_SECONDS)


def summarize(stages: list[Stage], results: Path, device: str, seconds: float) -> dict:
    """Return the content of summary.json."""
    logs = results / LOGS
    found = {
        "device": device,
        "seconds": round(seconds, 1),
        "stages": [{key: getattr(stage, key) for key in ("name", "limit_s", "outcome", "seconds")} for stage in stages],
        "environment": read_json(logs / "environment.json"),
        "preflight": checks.preflight_facts(read_json(logs / "preflight.json")),
        "comparison": read_json(logs / "comparison.json"),
        "tests": read_json(logs / "tests.json") or [],
        "layouts": {name: read_json(logs / "layouts" / name / "layout.json") for name in LAYOUTS},
    }
    records = checks.read_records(results)
    found["records"] = {"ok": sum(record.get("status") == "ok" for record in records)}
    found["records"]["failed"] = [
        {key: record.get(key) for key in ("cell", "status", "phase", "cause")}
        for record in records
        if record.get("status") != "ok"
    ]
    found["checks"] = checks.run_all(found, records, results, device)
    is_good = all(check["outcome"] != "fail" for check in found["checks"])
    has_records = found["records"]["ok"] > 0 or all(stage.name != "campaign" for stage in stages)
    found["passed"] = have_passed(stages) and has_records and is_good
    return found


def have_passed(stages: list[Stage]) -> bool:
    """Return whether every stage passed; of the campaign and its resumption, the one that completed it. A layout that was
    not run is no failure."""
    may_lack = {stage.name for stage in stages if stage.name in LAYOUTS and stage.outcome.startswith("not run")}
    outcomes = {stage.name: stage.outcome for stage in stages if stage.name not in may_lack}
    campaign = (outcomes.pop("campaign", "passed"), outcomes.pop("campaign, resumed", "passed"))
    return campaign in COMPLETE and set(outcomes.values()) == {"passed"}


def read_json(path: Path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def write(found: dict, folder: Path, results: Path) -> OSError | None:
    """Write summary.json, summary.txt, and the archive of the results folder. Returns what prevented it."""
    draft = folder / ".results.tar.gz"
    try:
        (folder / "summary.json").write_text(json.dumps(found, indent=1) + "\n")
        (folder / "summary.txt").write_text(checks.text_of(found))
        with tarfile.open(draft, "w:gz") as packed:
            packed.add(results, arcname=results.name)
        draft.replace(folder / "results.tar.gz")
    except OSError as error:  # a full disk, for example
        with contextlib.suppress(OSError):
            draft.unlink()
        return error
    return None


if __name__ == "__main__":
    main()
