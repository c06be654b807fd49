"""What the processes of a program find when they start: a free port, the variables of their rank or none, templates."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import REAL_REPORT, ROOT, fake_campaign, frozen_batches, record_lines, script, snakemake, write_campaign

PROGRAM = ROOT / "workflow" / "scripts" / "bench" / "program.sh"
NOT_VERIFIED = "number of ranks not verified"
RATE = {"rate": {"match": r"rate: (\d+)", "unit": "GB/s", "better": "larger"}}
STEPS = {"step": {"samples": r"took ([\d.]+) ms", "unit": "ms", "better": "smaller"}}
TRAIN = """
import time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1000)
for step in range(3):
    begin = time.perf_counter()
    dist.all_reduce(x)
    if dist.get_rank() == 0:
        print(f"ranks {dist.get_world_size()} took {1e3 * (time.perf_counter() - begin):.6f} ms", flush=True)
dist.destroy_process_group()
"""
# A server that binds the port plainly, as most do, on rank 0; the others connect to it.
SERVER = """
import os, socket, time

place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.socket() as server:
        server.bind(place)
        server.listen()
        print("rate:", 1 + server.accept()[0].recv(1)[0])
else:
    for _ in range(100):
        try:
            socket.create_connection(place).send(b"\\6")
            break
        except OSError:
            time.sleep(0.05)
"""
# It starts its ranks itself, unless it takes itself for one of them.
SPAWN = """
import os, sys

of_rank = [n for n in os.environ if n in ("RANK", "LOCAL_RANK", "SLURM_PROCID") or n.startswith(("PMI", "OMPI_COMM"))]
print("ranks", 1 if of_rank else sys.argv[1], "rate: 7")
"""


def programs(*entries: dict, num_ranks: int = 2, **changes) -> dict:
    common = {"benchmark": "program", "read": RATE}
    entries = [common | {"name": f"p{index}"} | entry for index, entry in enumerate(entries)]
    shapes = [{"nodes": [1], "gpus_per_node": [num_ranks]}]
    changes = {"stacks": {"host": {"kind": "host"}}, "repeats": 1} | changes
    return fake_campaign(shapes=shapes, benchmarks=entries, **changes)


def measured(folder: Path, campaign: dict) -> list[dict]:
    """Return the records of the only batch of a campaign."""
    (batch,) = frozen_batches(folder, campaign)
    script(folder, "measure.py", "--batch", str(batch), check=False)
    return record_lines(batch.parents[1])


def log_of(folder: Path) -> str:
    (log,) = folder.glob("results/small/batches/*/logs/*.log")
    return log.read_text()


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code.replace("{", "{{").replace("}", "}}"), *words]


@pytest.mark.torch
@pytest.mark.parametrize("num_ranks", [1, 2])
def test_a_plain_program_of_torch_distributed_meets_on_the_port_that_it_gets(tmp_path, num_ranks):
    entry = {"command": python(TRAIN), "read": STEPS, "check": {"ranks": r"ranks (\d+)"}}
    (record,) = measured(tmp_path, programs(entry, num_ranks=num_ranks, limits={"cell_seconds": 100}))
    assert (record["status"], record["cause"], record["sampling"]["num_iterations"]) == ("ok", None, 3)


def test_a_server_that_binds_plainly_gets_the_port(tmp_path):
    (record,) = measured(tmp_path, programs({"command": python(SERVER)}))
    assert (record["status"], record["slowest_rank_samples_ns"]) == ("ok", [round(1e12 / 7)])


def test_the_port_is_not_one_that_the_kernel_gives_to_connections(tmp_path):
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    measured(tmp_path, programs({"command": ["sh", "-c", "echo port $MASTER_PORT, rate: 1"]}, num_ranks=1))
    port = int(log_of(tmp_path).split("port ")[1].split(",")[0])
    assert not low <= port <= high


@pytest.mark.parametrize("ranks", ["one", "node"])
def test_a_program_that_starts_its_ranks_itself_finds_no_variables_of_a_rank(tmp_path, ranks, monkeypatch):
    for name in ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "GROUP_RANK"):
        monkeypatch.setenv(name, "0")
    check = {"ranks": r"ranks (\d+)"}
    (record,) = measured(tmp_path, programs({"command": python(SPAWN, "{world_size}"), "ranks": ranks, "check": check}))
    assert (record["status"], record["cause"]) == ("ok", None)
    assert "note" not in record


@pytest.mark.parametrize("text", ["ranks 1", "ranks 3", "ranks 2\nranks 1", "ranks x", ""])
def test_a_program_that_states_another_number_of_ranks_fails(tmp_path, text):
    entry = {"command": ["printf", "rate: 7\n" + text], "ranks": "one", "check": {"ranks": r"ranks (\S+)"}}
    (record,) = measured(tmp_path, programs(entry))
    assert (record["status"], record["phase"], record["slowest_rank_samples_ns"]) == ("failed", "measure", None)
    assert "check.ranks" in record["cause"]


def test_a_number_of_processes_per_node_is_their_number_of_ranks(tmp_path):
    code = "[ $RANK != 0 ] || echo rate: 7; echo ranks $WORLD_SIZE"
    entry = {"command": ["sh", "-c", code], "ranks": 3, "check": {"ranks": r"ranks (\d+)"}}
    (record,) = measured(tmp_path, programs(entry))
    assert (record["status"], record["cause"]) == ("ok", None)


def test_a_number_of_ranks_that_nothing_shows_is_noted_and_marked(tmp_path):
    entries = [
        {"name": "unknown", "command": ["echo", "rate: 7"], "ranks": "one"},
        {"name": "known", "command": ["echo", "rate: 7, ranks 2"], "ranks": "one", "check": {"ranks": r"ranks (\d+)"}},
        {"name": "ranks", "command": ["sh", "-c", "[ $RANK != 0 ] || echo rate: 7"]},
    ]
    path = write_campaign(tmp_path, programs(*entries))
    assert snakemake(tmp_path, path, env=REAL_REPORT).returncode == 0
    results = tmp_path / "results" / "small"
    notes = {record["spec"]["parameters"]["program"]: record.get("note") for record in record_lines(results)}
    assert notes == {"unknown": NOT_VERIFIED, "known": None, "ranks": None}
    page, marked = (results / "report.html").read_text(encoding="utf-8"), NOT_VERIFIED.capitalize()
    assert f"{marked}: 1 cell" in page
    rows = re.findall(r'<th scope="row">([^<]*?) *<a class="badge" href="#warnings" title="([^"]*)"', page)
    assert rows == [("1×2", marked)]  # in a table of each program


def test_templates_of_a_launch_have_the_values_of_its_variables(tmp_path):
    (tmp_path / "x.in").write_text("{first_host} {port} {n}")
    entry = {
        "command": ["sh", "-c", 'cat x; echo " $1 $MASTER_ADDR:$MASTER_PORT $A rate: 7"', "-", "{first_host}:{port}"],
        "files": {"x": str(tmp_path / "x.in")},
        "parameters": {"n": [3]},
    }
    data = programs(entry, num_ranks=1, stacks={"host": {"kind": "host", "env": {"A": "{first_host}:{port}"}}})
    (record,) = measured(tmp_path, data)
    *file, of_command, of_variables, of_env, _, _ = log_of(tmp_path).split()
    assert (record["status"], file) == ("ok", ["{first_host}", "{port}", "3"])
    places = [of_command, of_variables, of_env]
    assert len({*places}) == 1
    assert places[0].startswith("127.0.0.1:")
    assert record["spec"]["program"]["command"][-1] == "{first_host}:{port}"


def test_a_parameter_named_port_wins_over_the_template(tmp_path):
    entry = {"command": ["echo", "rate: {port}"], "parameters": {"port": [5]}}
    (record,) = measured(tmp_path, programs(entry, num_ranks=1))
    assert record["slowest_rank_samples_ns"] == [2 * 10**11]


def test_a_meeting_point_of_the_stack_is_honored(tmp_path):
    code = "import os; print('rate: 7', os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'])"
    env = {"MASTER_ADDR": "localhost", "MASTER_PORT": "23456"}
    entry = {"command": python(code, "{port}")}
    measured(tmp_path, programs(entry, num_ranks=1, stacks={"host": {"kind": "host", "env": env}}))
    assert log_of(tmp_path).split()[2:] == ["localhost", "23456"]


# program.sh alone, with the variables of a step of srun.

STEP = {"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_NODEID": "1", "SLURM_NTASKS": "8", "SLURM_NPROCS": "8"}
STEP |= {"SLURM_NNODES": "2", "SLURM_JOB_ID": "7", "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NODELIST": "n2"}
STEP |= {"SLURM_TASKS_PER_NODE": "4(x2)"}
OF_RANK = {"PMI_RANK": "5", "PMI2_X": "a\nPMI_B=3 a-b=2 *", "PMIX_RANK": "5", "LOCAL_RANK": "1", "LOCAL_SCRATCH": "/l"}


def environment_of(starts: str, **given: str) -> dict[str, str]:
    """Return the environment of a program that program.sh starts."""
    line = ["sh", str(PROGRAM), "-", "/", starts, "-", "env", "-0"]
    done = subprocess.run(line, env={"PATH": os.environ["PATH"]} | given, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = dict(entry.split("=", 1) for entry in done.stdout.split("\0") if entry)
    return {name: value for name, value in found.items() if name not in ("PATH", "PWD", "OLDPWD", "SHLVL", "_")}


def test_a_rank_of_srun_has_the_variables_of_torchrun():
    more = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "NODE_RANK": "1"}
    assert environment_of("-", **STEP, PMI_RANK="5") == STEP | {"PMI_RANK": "5"} | more


def test_a_starter_under_srun_keeps_what_mpirun_and_torchrun_need():
    job = {"SLURM_JOB_ID": "7", "SLURM_NODEID": "1", "NODE_RANK": "1", "LOCAL_SCRATCH": "/l"}
    nodes = {"SLURM_NNODES": "2", "SLURM_NODELIST": "n[1-2]", "SLURM_JOB_NODELIST": "n2"}
    by_hand = environment_of("2x4", **STEP, **OF_RANK)
    assert by_hand == job | nodes | {"SLURM_TASKS_PER_NODE": "4(x2)"}
    nodes = {"SLURM_NNODES": "3", "SLURM_JOB_NUM_NODES": "3", "SLURM_TASKS_PER_NODE": "4(x3)"}
    nodes |= {"SLURM_NODELIST": "n1,n3,n4", "SLURM_JOB_NODELIST": "n1,n3,n4"}
    assert environment_of("3x4:n1,n3,n4", **STEP, **OF_RANK) == job | nodes


def test_a_store_with_variables_that_are_refused_today_still_opens(tmp_path):
    """Stacks of earlier versions could have a rank's variables."""
    path = write_campaign(tmp_path, programs({"command": ["echo", "rate: 7"]}, num_ranks=1))
    assert snakemake(tmp_path, path).returncode == 0
    results = tmp_path / "results" / "small"
    for file in (
        *results.glob("launches/*.jsonl"),
        *results.glob("campaign.*.json"),
        *results.glob("batches/*/*.json"),
    ):
        if file.suffix == ".json":
            file.write_text(file.read_text().replace('"env": {}', '"env": {"RANK": "0"}'))
    (frozen,) = results.glob("campaign.*.json")
    assert json.loads(frozen.read_text())["cells"][0]["spec"]["stack"]["env"] == {"RANK": "0"}
    script(tmp_path, "rebuild_report.py", str(results))
