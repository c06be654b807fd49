"""A user's training script under two gloo ranks: what is timed, how it ends, and what is refused."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from bench_cells import BENCH, SHORT_SAMPLING, make_cell
from test_bench_launch import check_schema

from regatta.core.benchmarks import load_benchmark, undeclared

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LAUNCH = Path(__file__).with_name("script_launch.py")
STEPS = {"warmup": 3, "measure": 12}
TRAIN = """
import os, sys, time
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    optimizer.zero_grad()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()


"""
ALONE = TRAIN.replace("model = nn.parallel.DistributedDataParallel(nn.Linear(4, 2))", "model = nn.Linear(4, 2)")


def script_cell(path: Path, steps: dict | None = STEPS, **changes: object) -> dict:
    parameters = {"script": path.name, "settings": None, "samples_per_step": None, "tokens_per_step": None}
    files = {str(path): hashlib.sha256(path.read_bytes()).hexdigest()}
    script = {"path": str(path), "arguments": [], "parameters": {}, "steps": steps, "files": files} | changes
    return make_cell("script", parameters, script=script)


@pytest.fixture
def launch(tmp_path, write_request, launch_lines, run_ranks):
    """A function that runs a script as a cell, and returns the process, its record (or None) and the first error."""

    def run(text: str, num_ranks: int = 2, grace: float = 3, start=run_ranks, **changes: object) -> SimpleNamespace:
        folder = tmp_path / "code"
        folder.mkdir(exist_ok=True)
        path = folder / "train.py"
        path.write_text(text)
        cell = script_cell(path, **changes)
        cell["spec"]["gpus_per_node"] = num_ranks
        request = write_request([cell], gpus_per_node=num_ranks)
        done = start(num_ranks, LAUNCH, "--request", request, GRACE_SECONDS=str(grace))
        lines = launch_lines() if (tmp_path / "launch.jsonl").exists() else []
        errors = [json.loads(error.read_text()) for error in (tmp_path / "errors").glob("rank-*.json")]
        errors.sort(key=lambda error: error["time_ns"])
        record = next((line for line in lines if line["kind"] == "record"), None)
        cause = errors[0]["cause"] if errors else None
        return SimpleNamespace(done=done, lines=lines, record=record, cause=cause, folder=folder)

    return run


def test_the_time_between_steps_is_measured_and_the_script_ended(launch, torchrun):
    """In new Python processes, unlike the others."""
    found = launch(TRAIN + "while True:\n    time.sleep(0.02)\n    step()\n", start=torchrun)
    assert found.done.returncode == 0, found.done.stderr
    record = found.record
    assert record["status"] == "ok"
    assert [len(row) for row in record["samples_ns"]] == [12, 12]
    assert all(20e6 < ns < 2e9 for row in record["samples_ns"] for ns in row)
    assert record["warmup"]["num_iterations"] == 3
    assert record["windows"]["steps_per_window"] == 2
    assert record["windows"]["elapsed_ns"][1][0] == sum(record["samples_ns"][1][:2])
    assert found.lines[-1]["kind"] == "complete"
    check_schema(found.lines)


def test_the_sampling_rules_end_all_ranks_at_the_same_step(launch):
    found = launch(TRAIN + "while True:\n    time.sleep(0.01 * (1 + rank))\n    step()\n", steps=None)
    assert found.done.returncode == 0, found.done.stderr
    lengths = {len(row) for row in found.record["samples_ns"]}
    assert len(lengths) == 1
    assert lengths.pop() >= SHORT_SAMPLING["min_samples"]
    assert found.record["sampling"]["stop"] == "max_seconds"
    check_schema(found.lines)


ACCUMULATION = """
second = torch.optim.Adam(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    for _ in range(3):
        time.sleep(0.01)
        model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    second.step()
"""


IN_BACKWARD = """
each = [torch.optim.SGD([p], lr=0.1) for p in model.parameters()]
while True:
    time.sleep(0.01)
    model(torch.ones(3, 4)).sum().backward()
    for one in reversed(each):
        one.step()
"""
REPLACED = """
small = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
for number in range(10_000):
    small.step()
    if number == 8:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    time.sleep(0.01)
    if number != 7:  # as skipped by a gradient scaler
        step()
"""


@pytest.mark.parametrize("text", [IN_BACKWARD, REPLACED])
def test_larger_optimizers_that_step_as_often_as_the_first_do_no_harm(launch, text):
    found = launch(TRAIN + text)
    assert [len(row) for row in found.record["samples_ns"]] == [12, 12]


def test_several_optimizers_and_gradient_accumulation_count_as_one_step(launch):
    found = launch(TRAIN + ACCUMULATION)
    assert [len(row) for row in found.record["samples_ns"]] == [12, 12]
    assert min(map(min, found.record["samples_ns"])) > 30e6


WORKERS = """
class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        open(f"worker-{os.getpid()}", "w").close()
        return torch.ones(4)

if __name__ == "__main__":
    loader = torch.utils.data.DataLoader(Data(), batch_size=3, num_workers=2, multiprocessing_context="METHOD")
    try:
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
            torch.save(model.state_dict(), f"checkpoint-{rank}.pt")
    except Exception:
        pass
    finally:
        dist.destroy_process_group()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_checkpoints_and_cleanup_end_with_the_script(launch, method):
    text = TRAIN.replace("dist.get_rank()", 'int(os.environ["RANK"])')
    for line in ("dist.init", "model =", "optimizer ="):  # not in spawned workers, which import the script
        text = text.replace(f"\n{line}", f'\nif __name__ == "__main__":\n    {line}')
    found = launch(text + WORKERS.replace("METHOD", method), grace=60)
    assert found.done.returncode == 0, found.done.stderr
    assert found.record["status"] == "ok"
    assert {path.name for path in found.folder.glob("checkpoint-*")} == {"checkpoint-0.pt", "checkpoint-1.pt"}
    workers = [int(path.name.partition("-")[2]) for path in found.folder.glob("worker-*")]
    assert len(workers) >= 2
    assert not [pid for pid in workers if is_running(pid)]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


ONE_RANK = """
if rank == 0:
    while True:
        step()
time.sleep(100)
"""
FORK = """
if os.fork() == 0:
    for _ in range(20):
        step()
    os._exit(0)
os.wait()
time.sleep(100)
"""
OTHER_OPTIMIZER = """
class Optimizer:
    def step(self):
        pass

for _ in range(20):
    Optimizer().step()
"""
FIRST_OF_ANOTHER = """
head = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
for number in range(10_000):
    for _ in range(3 if number % 5 == 0 else 0):
        head.step()
    time.sleep(0.01)
    step()
"""
FAULTS = {
    "ends early": (TRAIN + "for _ in range(5):\n    step()\n", "returned after 5 optimizer steps; 15 are needed"),
    "never steps": (TRAIN + "print('nothing')\n", "without a step of a torch.optim.Optimizer"),
    "other optimizer": (TRAIN + OTHER_OPTIMIZER, "without a step of a torch.optim.Optimizer"),
    "exits": (TRAIN + "step()\nsys.exit(3)\n", "called sys.exit(3) after 1 optimizer steps"),
    "raises": (TRAIN + "step()\nraise ValueError('no data')\n", "ValueError: no data"),
    "bare except": (TRAIN + "while True:\n    try:\n        step()\n    except:\n        pass\n", "bare `except:`"),
    "bare except, waits": (
        TRAIN + "try:\n    while True:\n        step()\nexcept:\n    time.sleep(100)\n",
        "did not end within 3 s",
    ),
    "bare except, returns": (TRAIN + "try:\n    while True:\n        step()\nexcept:\n    pass\n", "caught the end"),
    "one rank steps": (ALONE + ONE_RANK, "rank 1 did not end after step 15"),
    "clock of an evaluation": (TRAIN + FIRST_OF_ANOTHER, "larger optimizers step unevenly"),
    "forks": (ALONE + FORK, "a process that the script forked"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_script_that_cannot_be_measured_names_the_reason(launch, fault):
    text, cause = FAULTS[fault]
    found = launch(text)
    assert found.done.returncode != 0
    assert found.record is None
    assert cause in found.cause, found.done.stderr


def test_ranks_without_a_process_group_are_misplaced(launch):
    text = ALONE.replace('dist.init_process_group("gloo")\nrank = dist.get_rank()', "rank = 0")
    found = launch(text + "while True:\n    step()\n")
    assert found.record["status"] == "placement"
    assert found.record["samples_ns"] is None
    check_schema(found.lines)
    assert launch(text + "while True:\n    step()\n", num_ranks=1).lines[-2]["status"] == "ok"


def test_a_script_has_its_arguments_folder_and_the_variables_of_torchrun(launch):
    text = "import harness_of_user\nimport json, os, sys\nfrom pathlib import Path\n"
    text += "Path(f\"seen-{os.environ['RANK']}\").write_text(json.dumps([sys.argv, os.getcwd(), dict(os.environ)]))\n"
    found = launch("", arguments=["--x", "a b;$(touch y)"])  # makes the folder
    (found.folder / "harness_of_user.py").write_text("import workloads\n")
    (found.folder / "workloads.py").write_text("OF_USER = True\n")
    found = launch(text + TRAIN + "while True:\n    step()\n", arguments=["--x", "a b;$(touch y)"])
    argv, folder, variables = json.loads((found.folder / "seen-1").read_text())
    assert argv == [str(found.folder / "train.py"), "--x", "a b;$(touch y)"]
    assert folder == str(found.folder)
    assert (variables["RANK"], variables["LOCAL_RANK"], variables["WORLD_SIZE"]) == ("1", "1", "2")
    assert (variables["LOCAL_WORLD_SIZE"], variables["GROUP_RANK"], variables["GROUP_WORLD_SIZE"]) == ("2", "0", "1")
    assert variables["TORCHELASTIC_RUN_ID"]
    modules = {Path(path).name for path in found.lines[-2]["modules"]}
    assert modules - {"fork_server.py"} == {"harness_of_user.py", "workloads.py"}


def test_settings_of_ddp_reach_the_call_and_steps_without_synchronization_follow(launch):
    text = (
        TRAIN.replace("Parallel(nn", "Parallel(module=nn")
        + "os.write(1, f'BUCKET {model.bucket_bytes_cap}\\n'.encode())\nwhile True:\n    time.sleep(0.01)\n    step()\n"
    )
    found = launch(text, ddp={"bucket_cap_mb": 3}, exposed=True)
    assert found.done.returncode == 0, found.done.stderr
    assert f"BUCKET {3 * 2**20}" in found.done.stdout
    assert undeclared(found.record, load_benchmark("script")) == []
    assert [len(row) for row in found.record["samples_ns"]] == [12, 12]
    assert {name: [len(row) for row in rows] for name, rows in found.record["parts_ns"].items()} == {
        "step": [20, 20],
        "no_sync": [20, 20],
    }
    check_schema(found.lines)


def test_synchronization_is_off_in_every_other_step_after_the_timed_ones(launch):
    line = "f'SYNC {rank} {int(model.require_backward_grad_sync)}\\n'"  # in one write: both ranks write to one pipe
    text = TRAIN + f"while True:\n    os.write(1, {line}.encode())\n    step()\n"
    found = launch(text, exposed=True)
    seen = [line.split()[2] for line in found.done.stdout.splitlines() if line.startswith("SYNC 0")]
    assert "".join(seen) == "1" * 15 + "10" * 21


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRAIN.replace("nn.Linear(4, 2))", "nn.Linear(4, 2), bucket_cap_mb=25)"), "the script sets bucket_cap_mb = 25"),
        (ALONE, "makes no DistributedDataParallel"),
    ],
)
def test_settings_of_ddp_without_effect_are_refused(launch, text, cause):
    found = launch(text + "while True:\n    step()\n", ddp={"bucket_cap_mb": 3})
    assert cause in found.cause


SETS_IT_ITSELF = """
while True:
    optimizer.zero_grad()
    for micro in range(2):
        model.require_backward_grad_sync = micro == 1
        model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""
NO_SYNC = """
while True:
    optimizer.zero_grad()
    with model.no_sync():
        model(torch.ones(3, 4)).sum().backward()
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
"""


def test_a_script_that_switches_synchronization_itself_has_no_exposed_communication(launch):
    """It would undo the switch, and both kinds of steps would synchronize; a context that restores it is no harm."""
    found = launch(TRAIN + SETS_IT_ITSELF, exposed=True)
    assert (found.record, "require_backward_grad_sync" in (found.cause or "")) == (None, True)
    assert launch(TRAIN + SETS_IT_ITSELF).lines[-2]["status"] == "ok"
    assert len(launch(TRAIN + NO_SYNC, exposed=True).lines[-2]["parts_ns"]["no_sync"][0]) == 20


def test_an_edited_script_is_not_measured(launch):
    found = launch(TRAIN, files={str(Path(__file__)): "0" * 64})
    assert "was edited after the cells were planned" in found.cause


CHECKS = BENCH.parents[2] / "tests" / "gpu" / "script_checks"
SMALL = ["--width=64", "--batch-size=4"]
OF_LIBRARIES = {
    "plain_ddp.py": (None, ["--layers=2"]),
    "fsdp2.py": (None, ["--layers=2", "--context-length=16", "--accumulation-steps=2"]),
    "with_accelerate.py": ("accelerate", ["--cpu"]),
    "with_lightning.py": ("lightning", []),
    "with_trainer.py": ("transformers", ["--context-length=16"]),
    "with_deepspeed.py": ("deepspeed", []),
}


@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_scripts_of_libraries_are_started_from_outside(launch, name):
    library, words = OF_LIBRARIES[name]
    if library:
        pytest.importorskip(library)
    text = (CHECKS / name).read_text()
    found = launch(text, arguments=SMALL + words, grace=60)
    assert found.done.returncode == 0, found.done.stderr
    assert found.record["status"] == "ok"
    assert [len(row) for row in found.record["samples_ns"]] == [12, 12]
