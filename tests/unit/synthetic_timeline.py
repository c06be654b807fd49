"""A campaign with times: jobs on several hosts, idle time, failures, a killed job, and a second run a week later.

By hand: `python tests/unit/synthetic_timeline.py OUT` writes the results folder OUT.
"""

import json
import random
import sys
import time
from pathlib import Path

from synthetic import collective_cell, make_campaign, make_failure, make_header, make_record

START = 1_795_230_065  # 2026-11-21T03:01:05Z
WEEK = 7 * 86400
CLUSTER = {"schema": 1, "name": "gh200", "scheduler": "slurm", "num_nodes": 64, "gpus_per_node": 4}
SIZES = (4096, 65536, 1048576)


def utc(seconds: float) -> str:
    """Return a time of the campaign: seconds since its first job started."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(START + seconds))


def timed_cells(nodes: int, stack: str, sizes=SIZES) -> list[dict]:
    more = {"stack": stack, "device": "cuda", "backend": "nccl", "cluster": "gh200"}
    return [collective_cell(size, nodes, 4, **more) for size in sizes]


def write_launch(folder: Path, name: str, cells: list[dict], start: int, hosts: list[str], **options) -> None:
    """Write a launch that takes 40 s: 10 s until its first cell, then 8 s of each of 3 cells, of which 5 are measured.

    num_failed: its last cells fail. repeat: of the launch. is_requested: the request has a time. import_s: None if the
    launch did not record it.
    """
    num_failed, repeat = options.get("num_failed", 0), options.get("repeat", 0)
    import_s = options.get("import_s", 4.5)
    header = make_header(
        {"name": "nights"}, name, repeat, cells, utc(start + 8), seconds_to_ready=6.0, import_s=import_s
    )
    for place, host in zip(header["environment"]["hosts"], hosts, strict=True):
        place["host"] = host
    lines = [header]
    for number, cell in enumerate(cells, start=1):
        at = utc(start + 10 + 8 * number)
        if number > len(cells) - num_failed:
            record = make_failure(cell, repeat, "failed", "measure", f"rank 3 on {hosts[-1]} was killed by SIGSEGV", at)
        else:
            record = make_record(cell, repeat, 1e-4, 0.01, random.Random(number), at)
            record["warmup"]["elapsed_ns"], record["sampling"]["elapsed_ns"] = int(2e9), int(4e9)
            record["windows"] = {"steps_per_window": 5, "elapsed_ns": [[200_000_000] * 5] * len(record["samples_ns"])}
        lines += [{"kind": "start", "cell": cell["id"], "time_utc": at}, record | {"elapsed_ns": int(8e9)}]
    lines.append({"kind": "complete", "time_utc": utc(start + 40), "elapsed_ns": int(33e9)})
    path = folder / "launches" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if options.get("is_requested", True):
        request = folder / "batches" / name.rsplit("-", 2)[0] / "launches" / f"{name}.json"
        request.parent.mkdir(parents=True, exist_ok=True)
        request.write_text(json.dumps({"time_utc": utc(start)}), encoding="utf-8")


def write_job(folder: Path, batch: str, job: str | None, start: int | None, end: int | None, **options) -> None:
    """Append the lines of a job to a batch's jobs.jsonl. options: kind and cause of its end."""
    known = {"job": job, "hosts": [], "cause": options.get("cause", "")}
    kinds = {"started": start, options.get("kind", "finished"): end}
    lines = [{"kind": kind, **known, "time_utc": utc(at)} for kind, at in kinds.items() if at is not None]
    path = folder / "batches" / batch / "jobs.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def write_nights(folder: Path) -> Path:
    """Write the results folder: three batches of one night, one of them in two jobs, and a batch a week later."""
    cells = [cell for nodes in (1, 2, 4) for stack in ("contained", "bound") for cell in timed_cells(nodes, stack)]
    again = [cell for stack in ("contained", "bound") for cell in timed_cells(2, stack, (16384, 262144, 4194304))]
    description = "Collectives on up to four nodes, measured in two runs."
    campaign = make_campaign(
        cells + again, name="nights", description=description, cluster=CLUSTER, device="cuda", repeats=3
    )
    folder.mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    plan = (("n01g04-0000000000aa", 1, 0, ["n1"]), ("n02g04-0000000000bb", 2, 20, ["n2", "n3"]))
    for number, (batch, nodes, begin, hosts) in enumerate(plan):
        write_job(folder, batch, str(4711 + number), begin, begin + 6 * 45 + 10)
        for index in range(6):
            stack = ("contained", "bound")[index % 2]
            options = {"repeat": index // 2, "num_failed": 1 if stack == "bound" and nodes == 2 else 0}
            name = f"{batch}-l{index:03d}-a00"
            write_launch(folder, name, timed_cells(nodes, stack), begin + 5 + 45 * index, hosts, **options)
    batch = "n04g04-0000000000cc"
    write_job(folder, batch, "4713", 400, None)
    for index in range(2):
        options = {"repeat": 0, "num_failed": 3 * index}
        cells_of = timed_cells(4, ("contained", "bound")[index])
        write_launch(
            folder, f"{batch}-l{index:03d}-a00", cells_of, 405 + 45 * index, ["n1", "n2", "n3", "n4"], **options
        )
    lost = "end not recorded: Slurm reports NODE_FAIL"
    write_job(folder, batch, "4713", None, 1000, kind="stopped", cause=lost)
    write_job(folder, batch, "4719", 1000, 1000 + 360)
    for index in range(2, 6):
        cells_of, hosts = timed_cells(4, ("contained", "bound")[index % 2]), ["n5", "n6", "n7", "n8"]
        write_launch(folder, f"{batch}-l{index:03d}-a00", cells_of, 1005 + 90 * (index - 2), hosts, repeat=index // 2)
    batch = "n02g04-0000000000dd"
    write_job(folder, batch, "4811", WEEK, WEEK + 300)
    for index in range(6):
        stack = ("contained", "bound")[index % 2]
        cells_of = timed_cells(2, stack, (16384, 262144, 4194304))
        write_launch(
            folder, f"{batch}-l{index:03d}-a00", cells_of, WEEK + 5 + 45 * index, ["n2", "n4"], repeat=index // 2
        )
    return folder


if __name__ == "__main__":
    write_nights(Path(sys.argv[1]))
