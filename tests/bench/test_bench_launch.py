"""Launches of two gloo ranks: the resulting store and error files."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
from bench_cells import BENCH, all_reduce_cell, make_cell, train_step_cell, version_of
from forked_programs import ForkedProgram

pytestmark = pytest.mark.torch

RUN_LAUNCH = BENCH / "run_launch.py"
FAULT_LAUNCH = Path(__file__).with_name("fault_launch.py")
SCHEMA = BENCH.parents[1] / "schemas" / "record.yaml"


def fault_cell(fault: str) -> dict:
    return make_cell("fault", {"fault": fault})


def kinds(lines: list[dict]) -> list[str]:
    return [line["kind"] for line in lines]


def records_of(lines: list[dict]) -> list[dict]:
    return [line for line in lines if line["kind"] == "record"]


def check_schema(lines: list[dict]) -> None:
    """Hold the lines against the schema that the driver uses, where its libraries are installed."""
    yaml = pytest.importorskip("yaml")
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(yaml.safe_load(SCHEMA.read_text()))
    for line in lines:
        errors = [error for kind in validator.iter_errors(line) for error in [*kind.context, kind]]
        assert not errors, (line["kind"], [error.message[:300] for error in errors][:5])


def keys_in_contract(kind: str) -> set[str]:
    """Return the keys of the example of this kind of line in docs/contracts.md."""
    text = (BENCH.parents[2] / "docs" / "contracts.md").read_text()
    section = text[text.index("## Record" if kind == "record" else "## Launch file") :]
    example, _ = json.JSONDecoder().raw_decode(section[section.index(f'{{"kind": "{kind}"') :])
    return set(example)


@pytest.fixture
def whole_launch(run_ranks, write_request, launch_lines):
    """One launch of three cells, read back."""
    cells = [train_step_cell(), all_reduce_cell(4096), all_reduce_cell(1 << 20)]
    done = run_ranks(2, RUN_LAUNCH, "--request", write_request(cells), ROCR_VISIBLE_DEVICES="2,3")
    assert done.returncode == 0, done.stderr
    return launch_lines()


def test_launch_measures_every_cell_in_its_order(whole_launch):
    lines = whole_launch
    assert kinds(lines) == ["launch", *["start", "record"] * 3, "complete"]
    assert [record["cell"] for record in records_of(lines)] == lines[0]["order"]
    assert [record["status"] for record in records_of(lines)] == ["ok"] * 3
    check_schema(lines)
    assert set(lines[0]) == keys_in_contract("launch")
    assert lines[0]["generation"] == 3
    step, small, _ = records_of(lines)
    assert set(step) == keys_in_contract("record")
    check_step(step)
    check_collective(small)
    check_host_load(small)
    check_environment(lines[0]["environment"])


def check_host_load(record: dict) -> None:
    """Two ranks that keep their cores busy: their CPU time is within that of the machine, give or take ticks."""
    [host], gpus = record["host_load"]["hosts"], record["host_load"]["gpus"]
    assert (host["rank"], gpus) == (0, [])
    assert host["num_cores"] == len(os.sched_getaffinity(0))
    assert 0 < host["elapsed_ns"] <= record["elapsed_ns"] + 10**9
    assert 0 < host["ranks_cpu_ns"] <= 1.2 * host["busy_ns"] + 10**8
    assert host["busy_ns"] <= 1.1 * host["num_cores"] * host["elapsed_ns"] + 10**8
    assert {name for name, value in host.items() if value is None} == host["unknown"].keys()


def check_step(record: dict) -> None:
    num_iterations = record["sampling"]["num_iterations"]
    assert [len(samples) for samples in record["samples_ns"]] == [num_iterations] * 2
    assert num_iterations >= 6
    assert record["warmup"]["num_iterations"] >= 3
    windows = record["windows"]
    assert windows["steps_per_window"] >= 2
    assert len(windows["elapsed_ns"]) == 2
    assert 1 <= len(windows["elapsed_ns"][0]) <= 5  # one of two steps, if these take all of their time
    assert record["checks"] == {"loss_is_finite": True, "weights_agree": True}
    assert record["values"]["first_loss"] == pytest.approx(6.9, abs=0.5)  # ln 1000
    assert record["memory"]["parameter_bytes"] == record["memory"]["gradient_bytes"] == 2_542_856 * 4
    assert len(record["memory"]["peak_rss_bytes"]) == 2
    assert 0 < record["setup_ns"] < record["elapsed_ns"]


def check_collective(record: dict) -> None:
    checks = ("result_is_exact", "ranks_are_bitwise_equal", "pipelined_result_is_exact")
    assert record["checks"] == dict.fromkeys(checks, True)
    assert record["windows"]["steps_per_window"] >= 2
    assert record["memory"]["parameter_bytes"] is None
    assert record["memory"]["algorithm_bytes"] is None


def check_environment(environment: dict) -> None:
    (host,) = environment["hosts"]
    assert host["ranks"] == [0, 1]
    assert host["devices"] == ["cpu", "cpu"]
    assert host["num_cores"] == len(os.sched_getaffinity(0))
    assert environment["threads_per_rank"] == max(1, host["num_cores"] // 2)
    assert any(Path(path).name.startswith("libtorch_cpu") for path in environment["libraries"])
    assert 0 < environment["import_s"] <= environment["seconds_to_ready"]
    assert environment["cuda"] is None
    assert "PATH" not in environment["variables"]
    assert environment["variables"]["ROCR_VISIBLE_DEVICES"] == "2,3"


def write_launcher(tmp_path: Path, change: str) -> Path:
    """Write a run_launch of its own that changes something first."""
    path = tmp_path / "launcher.py"
    path.write_text(f"import sys\nsys.path.insert(0, {str(BENCH)!r})\n{change}\nimport run_launch\nrun_launch.main()\n")
    return path


def test_training_without_synchronisation_is_found_out(run_ranks, write_request, launch_lines, tmp_path):
    program = write_launcher(
        tmp_path,
        "import train_step; from algorithms import strategies; "
        "train_step.apply_strategy = lambda model, *_: strategies.Strategy(model)",
    )
    done = run_ranks(2, program, "--request", write_request([train_step_cell()]))
    assert done.returncode == 0, done.stderr
    (record,) = records_of(launch_lines())
    assert record["checks"] == {"loss_is_finite": True, "weights_agree": False}
    assert (record["status"], record["phase"]) == ("failed", "check")


def test_bf16_and_gradients_as_views_of_buckets_train_as_well(run_ranks, write_request, launch_lines):
    cell = train_step_cell()
    changes = {"dtype": "bf16", "gradient_as_bucket_view": True, "bucket_cap_mb": 1}
    cell["spec"]["parameters"] = cell["spec"]["parameters"] | changes
    assert run_ranks(2, BENCH / "run_launch.py", "--request", write_request([cell])).returncode == 0
    (record,) = records_of(launch_lines())
    assert record["status"] == "ok"
    assert record["checks"] == {"loss_is_finite": True, "weights_agree": True}
    assert record["windows"]["steps_per_window"] >= 2


def test_very_many_samples_are_kept_as_maxima_and_quantiles(run_ranks, write_request, launch_lines, tmp_path):
    cell = all_reduce_cell(4)
    cell["spec"]["sampling"] = cell["spec"]["sampling"] | {
        "min_seconds": 0,
        "max_seconds": 60,
        "min_samples": 33,
        "max_samples": 33,
    }
    program = write_launcher(tmp_path, "from harness import measure; measure.MAX_SAMPLES_IN_RECORD = 65")
    assert run_ranks(2, program, "--request", write_request([cell])).returncode == 0
    (record,) = records_of(launch_lines())
    assert record["samples_ns"] is None
    assert len(record["slowest_rank_samples_ns"]) == 33
    assert record["sampling"]["stop"] == "max_samples"
    quantiles = record["rank_quantiles_ns"]
    assert len(quantiles["ranks"]) == 2
    assert all(len(rank) == len(quantiles["probabilities"]) == 7 for rank in quantiles["ranks"])
    assert all(rank == sorted(rank) for rank in quantiles["ranks"])
    assert max(rank[-1] for rank in quantiles["ranks"]) == max(record["slowest_rank_samples_ns"])


@pytest.mark.parametrize(
    ("fault", "phase", "status", "cause"),
    [
        ("raise in setup", "setup", "failed", "ValueError: this model cannot be built"),
        ("raise in iteration", "warmup", "failed", "RuntimeError: something broke"),
        ("out of memory", "warmup", "out_of_memory", "MemoryError: 8 EiB wanted"),
    ],
)
def test_exception_ends_the_launch_with_an_error_file(
    run_ranks, write_request, launch_lines, tmp_path, fault, phase, status, cause, wording
):
    cells = [all_reduce_cell(), fault_cell(fault), all_reduce_cell(8192)]
    done = run_ranks(2, FAULT_LAUNCH, "--request", write_request(cells))
    assert done.returncode != 0
    assert kinds(launch_lines()) == ["launch", "start", "record", "start"]
    reports = [json.loads(path.read_text()) for path in (tmp_path / "errors").glob("rank-*.json")]
    first = min(reports, key=lambda report: report["time_ns"])
    assert set(first) == {"rank", "host", "cell", "phase", "status", "cause", "traceback", "time_ns"}
    assert (first["rank"], first["cell"]) == (1, f"fault-{fault}")
    assert (first["phase"], first["status"], first["cause"]) == (phase, status, cause)
    wording.lines(done.stderr, "regatta: rank 1")


def test_a_cell_has_started_before_any_rank_can_fail_in_it(run_ranks, write_request, launch_lines, tmp_path):
    """Rank 1 fails at once, and rank 0 is slow to write: else the driver would take it for a failure to start."""
    change = """
import time

import run_launch

describe = run_launch.first_line

def slow_first_line(*arguments):
    time.sleep(1.5 if arguments[2].rank == 0 else 0)
    return describe(*arguments)

def find_benchmark(spec):
    raise ImportError(spec["benchmark"])

run_launch.first_line, run_launch.find_benchmark = slow_first_line, find_benchmark
"""
    launcher = write_launcher(tmp_path, change)
    done = run_ranks(2, launcher, "--request", write_request([all_reduce_cell(4096), all_reduce_cell(8192)]))
    assert done.returncode != 0
    lines = launch_lines()
    assert kinds(lines) == ["launch", "start"]
    assert lines[1]["cell"] == lines[0]["order"][0]


@pytest.mark.parametrize(("fault", "has_samples"), [("wrong result", True), ("wrong from the start", False)])
def test_failed_check_on_one_rank_is_a_record_and_the_launch_goes_on(
    run_ranks, write_request, launch_lines, fault, has_samples, wording
):
    done = run_ranks(2, FAULT_LAUNCH, "--request", write_request([fault_cell(fault), all_reduce_cell()]))
    assert done.returncode == 0, done.stderr
    lines = launch_lines()
    check_schema(lines)
    failed, after = records_of(lines)
    assert (failed["status"], failed["phase"], failed["checks"]) == ("failed", "check", {"is_right": False})
    wording(failed["cause"])
    assert (failed["samples_ns"] is not None) == has_samples
    assert after["status"] == "ok"


def test_unknown_benchmark_and_other_version_are_records(run_ranks, write_request, launch_lines, wording):
    cells = [make_cell("sailing", {"boat": "optimist"}), all_reduce_cell(), all_reduce_cell(8192)]
    cells[1]["spec"]["version"] = 7
    done = run_ranks(2, RUN_LAUNCH, "--request", write_request(cells))
    assert done.returncode == 0, done.stderr
    check_schema(launch_lines())
    unknown, other_version, good = records_of(launch_lines())
    assert (unknown["status"], unknown["phase"]) == ("failed", "setup")
    wording(unknown["cause"])
    found = version_of("collective")
    assert other_version["cause"].startswith(f"benchmark collective: version {found} found, 7 expected.")
    wording(other_version["cause"])
    assert good["status"] == "ok"


def test_wrong_placement_is_the_record_of_every_cell(run_ranks, write_request, launch_lines, tmp_path, wording):
    cells = [all_reduce_cell(), train_step_cell()]
    done = run_ranks(2, RUN_LAUNCH, "--request", write_request(cells, nodes=2, gpus_per_node=1))
    assert done.returncode == 0, done.stderr
    lines = launch_lines()
    check_schema(lines)
    assert kinds(lines) == ["launch", *["start", "record"] * 2, "complete"]
    for record in records_of(lines):
        assert (record["status"], record["phase"]) == ("placement", "placement")
        wording(record["cause"])
        assert record["samples_ns"] is None
    assert not (tmp_path / "errors").exists()


def test_fewer_ranks_than_asked_are_a_placement_record(run_ranks, write_request, launch_lines, wording):
    assert run_ranks(1, RUN_LAUNCH, "--request", write_request([all_reduce_cell()])).returncode == 0
    (record,) = records_of(launch_lines())
    wording(record["cause"])


def test_ranks_on_two_hosts_are_accepted(run_ranks, write_request, launch_lines):
    request = write_request([all_reduce_cell()], nodes=2, gpus_per_node=1)
    done = run_ranks(2, FAULT_LAUNCH, "--request", request, FAKE_HOSTS="n1,n2")
    assert done.returncode == 0, done.stderr
    lines = launch_lines()
    assert [host["host"] for host in lines[0]["environment"]["hosts"]] == ["n1", "n2"]
    assert records_of(lines)[0]["status"] == "ok"


def test_number_of_threads_can_be_fixed(run_ranks, write_request, launch_lines):
    request = write_request([all_reduce_cell()])
    assert run_ranks(2, RUN_LAUNCH, "--request", request, REGATTA_THREADS_PER_RANK="3").returncode == 0
    assert launch_lines()[0]["environment"]["threads_per_rank"] == 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_ends_the_launch_with_one_line_and_code_74(run_ranks, write_request, wording):
    done = run_ranks(2, RUN_LAUNCH, "--request", write_request([all_reduce_cell()], store_file="/dev/full"))
    assert done.returncode == 74
    said = [line for line in done.stderr.splitlines() if line.startswith("regatta:")]
    wording(said[0])


@pytest.fixture
def start_as_srun_does(fork_server, free_port):
    """A function that starts two ranks as tasks of srun: rank 0 hosts the store. What is left of them is killed."""
    started = []

    def start(request: Path, ranks: tuple[str, ...] = ("0", "1")) -> list[ForkedProgram]:
        variables = {"SLURM_NTASKS": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
        for rank in ranks:
            environment = variables | {"SLURM_PROCID": rank, "SLURM_LOCALID": rank}
            started.append(fork_server.spawn(None, (FAULT_LAUNCH, "--request", request), environment))
        return started

    yield start
    for rank in started:
        rank.kill()


def test_ranks_find_each_other_under_srun(write_request, launch_lines, start_as_srun_does):
    ranks = start_as_srun_does(write_request([all_reduce_cell(), train_step_cell()]))
    assert [rank.wait(120) for rank in ranks] == [0, 0], [rank.stderr() for rank in ranks]
    assert kinds(launch_lines()) == ["launch", *["start", "record"] * 2, "complete"]


def test_hung_rank_shows_its_stacks_on_sigusr1(write_request, start_as_srun_does, tmp_path):
    ranks = start_as_srun_does(write_request([fault_cell("hang")]))
    deadline = time.monotonic() + 120
    store = tmp_path / "launch.jsonl"
    while time.monotonic() < deadline and not (store.exists() and '"start"' in store.read_text()):
        time.sleep(0.02)
    while time.monotonic() < deadline and "in iterate" not in ranks[1].stderr():
        ranks[1].send_signal(signal.SIGUSR1)  # again and again: the start line comes before the first iteration
        time.sleep(0.05)
    assert ranks[1].is_running()
    assert "fault_launch.py" in ranks[1].stderr()
    assert "in iterate" in ranks[1].stderr()


def test_missing_rank_is_named(write_request, launch_lines, start_as_srun_does, wording):
    [first] = start_as_srun_does(write_request([all_reduce_cell()], start_timeout_seconds=2), ranks=("0",))
    assert first.wait(120) == 0
    (record,) = records_of(launch_lines())
    assert record["status"] == "placement"
    wording(record["cause"])
