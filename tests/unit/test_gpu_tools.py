"""The programs of tests/gpu: stages with limits, checks, the runner without pytest, the interval of a ratio. No torch."""

import errno
import json
import math
import subprocess
import sys
import time
from pathlib import Path

import pytest

from regatta.plan.plan import make_plan, plan_json

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tests" / "gpu"
SLEEP = ["-c", "import time; time.sleep(60)"]


@pytest.fixture
def tools(monkeypatch):
    """A function that imports a program of tests/gpu."""
    monkeypatch.syspath_prepend(str(TOOLS))

    def load(name: str):
        module = __import__(name)
        assert Path(module.__file__).parent == TOOLS
        return module

    return load


def test_a_stage_is_passed_failed_timed_out_or_not_run(tools, tmp_path, wording, monkeypatch):
    first_run = tools("first_run")
    monkeypatch.setattr(first_run, "MIN_SECONDS", 0.5)
    stages = [
        first_run.Stage("good", ["-c", "print('fine')"], 20),
        first_run.Stage("bad", ["-c", "raise SystemExit(3)"], 20),
        first_run.Stage("slow", SLEEP, 1),
        first_run.Stage("late", SLEEP, 20),
    ]
    for stage, left_s in zip(stages, (60, 60, 60, 0.4), strict=True):
        first_run.run(stage, tmp_path, time.monotonic() + left_s)
    wording([stage.outcome for stage in stages])
    assert 1 <= stages[2].seconds < 3
    assert stages[3].seconds == 0
    assert (tmp_path / "good.log").read_text() == "fine\n"


@pytest.mark.parametrize(
    ("found", "is_run"), [("2.28.9", False), ("2.9.6", False), ("2.30.4", True), ("3.0.1", True), (None, True)]
)
def test_a_layout_that_this_nccl_lacks_is_not_run(tools, tmp_path, found, is_run, wording):
    """None: a rehearsal without NCCL."""
    first_run = tools("first_run")
    (tmp_path / "environment.json").write_text(json.dumps({"nccl": found}))
    stage = first_run.Stage("shared", ["-c", ""], 20, needs_nccl="2.30")
    first_run.run(stage, tmp_path, time.monotonic() + 60)
    assert (stage.outcome == "passed") is is_run
    wording(stage.outcome)


def test_layouts_come_last_and_separate_the_two_ways_to_share_a_gpu(tools, tmp_path):
    first_run, layouts = tools("first_run"), tools("layouts")
    results = results_with(tmp_path / "r")
    names = [stage.name for stage in first_run.make_stages("cuda", results)]
    assert names[-4:] == ["campaign, resumed", "2-ranks", "2-nodes", "4-ranks"]
    assert list(first_run.LAYOUTS) == list(layouts.LAYOUTS)
    for layout in layouts.LAYOUTS.values():
        assert ("NCCL_MULTI_RANK_GPU_ENABLE" in layout.env) == (
            layout.nodes == 1
        )  # layout_rank.py sets NCCL_HOSTID else
        assert int(layout.env["NCCL_MAX_CTAS"]) <= 4


@pytest.mark.parametrize(
    ("layout", "outcome"),
    [
        (None, "unknown"),
        ({"problems": []}, "ok"),
        ({"problems": ["hang: ok; expected timeout"]}, "fail"),
        ({}, "fail"),  # it ended before it had judged
    ],
)
def test_a_layout_is_ok_only_if_all_was_as_expected(tools, layout, outcome):
    seen = None if layout is None else {"records": [], "preflight": None, **layout}
    assert tools("checks").check_layout({"layouts": {"2-ranks": seen}}, "2-ranks")[1] == outcome


@pytest.mark.parametrize(
    ("transports", "is_wrong"), [(["NET/Socket"], False), (["NET/Socket", "P2P/CUMEM"], True), ([], True)]
)
def test_emulated_nodes_must_talk_over_the_network(tools, tmp_path, transports, is_wrong):
    layouts = tools("layouts")
    layout = layouts.LAYOUTS["2-nodes"]
    batch = layouts.make_batch("2-nodes", layout, "cuda", tmp_path)
    note = layout.note("cuda")
    records = [
        {"cell": cell, "status": "ok", "cause": None, "checks": None, "note": note} for cell in batch.content["cells"]
    ]
    seen = {"placement": [], "backends": {"nccl": "ok"}, "transports": transports}
    found = {"records": records, "preflight": seen, "num_left": 0, "note": note}
    assert bool(layouts.problems(layout, "cuda", batch, found)) is is_wrong


def results_with(folder: Path, *records: dict) -> Path:
    """Return a results folder whose store has these records."""
    for name in ("first-run", "launches"):
        (folder / name).mkdir(parents=True)
    lines = [{"kind": "launch", "stack": "host", "environment": {}}]
    lines += [{"kind": "record", "cell": f"c{number}", "repeat": 0} | record for number, record in enumerate(records)]
    (folder / "launches" / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


OK = {"status": "ok", "spec": {"benchmark": "sync_batchnorm", "parameters": {}}}
NOT_RUN = "not run: out of time"


@pytest.mark.parametrize(
    ("outcomes", "records", "has_passed"),
    [
        ({}, [OK], True),
        ({}, [], False),
        ({}, [{"status": "failed"}], False),
        ({"preflight": "failed"}, [OK], False),
        ({"preflight": "timed out"}, [OK], False),
        ({"preflight": NOT_RUN}, [OK], False),
        ({"comparison": "timed out"}, [OK], False),
        ({"tests": NOT_RUN}, [OK], False),
        ({"campaign": "failed"}, [OK], False),
        ({"campaign": "timed out"}, [OK], True),
        ({"campaign, resumed": NOT_RUN}, [OK], True),
        ({"campaign": "timed out", "campaign, resumed": "timed out"}, [OK], False),
        ({"campaign": "timed out", "campaign, resumed": NOT_RUN}, [OK], False),
        ({"2-ranks": "failed"}, [OK], False),
        ({"2-nodes": "timed out"}, [OK], False),
        ({"2-ranks": "not run: needs NCCL 2.30, found 2.28.9", "4-ranks": NOT_RUN}, [OK], True),
    ],
)
def test_a_run_passes_only_if_every_stage_did_and_something_was_measured(
    tools, tmp_path, outcomes, records, has_passed
):
    first_run, results = tools("first_run"), results_with(tmp_path / "r", *records)
    stages = first_run.make_stages("cpu", results)
    for stage in stages:
        stage.outcome = outcomes.get(stage.name, "passed")
    assert first_run.summarize(stages, results, "cpu", 1.0)["passed"] is has_passed


def test_records_and_lines_of_an_unexpected_form_do_not_end_the_run(tools, tmp_path):
    first_run = tools("first_run")
    results = results_with(tmp_path / "r", OK, {}, {"status": "ok", "spec": None}, step_record() | {"windows": None})
    with (results / "launches" / "a.jsonl").open("a") as store:
        store.write('3\n{"kind": "record", "status": "ok"}\n{}\n{"kind": "rec')
    found = first_run.summarize(first_run.make_stages("cuda", results), results, "cuda", 1.0)
    assert found["records"]["ok"] == 3
    assert [record["cell"] for record in found["records"]["failed"]] == ["c1"]
    assert not found["passed"]
    outcomes = {check["name"]: check["outcome"] for check in found["checks"]}
    assert outcomes["FLOP/s are plausible"] == "unknown"
    [pipelined] = [name for name in outcomes if "pipelined" in name]
    assert outcomes[pipelined] == "unknown"
    first_run.write(found, tmp_path, results)
    assert (tmp_path / "results.tar.gz").exists()


def test_a_check_that_cannot_read_a_record_is_unknown_and_says_why(tools, tmp_path):
    checks = tools("checks")
    found = {"preflight": None, "tests": [], "comparison": {"ratio": 1.0}}
    done = {
        check["name"]: check for check in checks.run_all(found, [step_record() | {"memory": None}], tmp_path, "cuda")
    }
    assert done["check_memory"]["outcome"] == done["check_comparison"]["outcome"] == "unknown"
    assert done["check_comparison"]["found"] == "KeyError: 'low'"
    [versions] = [check for name, check in done.items() if "cuDNN" in name]
    assert versions["outcome"] == "ok"


def test_a_process_that_cannot_be_killed_does_not_stop_the_run(tools, monkeypatch):
    first_run = tools("first_run")
    waits, signals = [], []

    class Uninterruptible:
        pid = 4711

        def terminate(self) -> None:
            signals.append("TERM")

        def wait(self, timeout: float | None = None) -> int:
            waits.append(timeout)
            raise subprocess.TimeoutExpired("stage", timeout or math.inf)

    monkeypatch.setattr(first_run.os, "killpg", lambda pid, number: signals.append((pid, number)))
    first_run.end_session(Uninterruptible())
    assert signals == ["TERM", (4711, 9)]
    assert waits == [first_run.STOP_SECONDS] * 2
    assert sum(waits) < first_run.RESERVE_SECONDS


def test_a_relative_folder_is_one_of_the_caller(tmp_path):
    (tmp_path / "results" / "cpu-first-gpu-run").mkdir(parents=True)
    (tmp_path / "results" / "cpu-first-gpu-run" / "plan.json").write_text("{}")
    line = [str(TOOLS / "first_run.sh"), "--device", "cpu", "--results", "results", "--minutes", "0.01", "out"]
    environment = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.tar.gz", "summary.json", "summary.txt"}
    assert not (ROOT / "out").exists()


@pytest.mark.parametrize(("at", "known"), [("nvidia_smi_facts", {"python"}), ("torch_facts", {"python", "nvidia_smi"})])
def test_a_description_that_is_ended_keeps_the_facts_before(tools, tmp_path, monkeypatch, at, known):
    node, path = tools("describe_node"), tmp_path / "environment.json"

    def is_killed() -> dict:
        raise SystemExit(1)

    monkeypatch.setattr(node, at, is_killed)
    monkeypatch.setattr(sys, "argv", ["describe_node.py", "--json", str(path)])
    with pytest.raises(SystemExit):
        node.main()
    assert {"python", "nvidia_smi", "torch"} & json.loads(path.read_text()).keys() == known


COMPILE_SECONDS, LAUNCH_SECONDS, TRAIN_RUN_SECONDS = 30, 10, 30


def test_the_campaign_of_the_first_run_fits_into_its_stage(tools, tmp_path):
    """The plan prices a train_run at its limit; on a GPU its two epochs take seconds."""
    plan = plan_json(make_plan(ROOT / "config" / "campaigns" / "first-gpu-run.yaml", tmp_path / "results"))
    cells = [cell for cell in plan["cells"] if cell["status"] == "todo"]
    num_repeats = plan["totals"]["measurements"] / len(cells)
    seconds = LAUNCH_SECONDS * plan["totals"]["launches"] + COMPILE_SECONDS * num_repeats
    for cell in cells:
        is_sampled = cell["estimate_from"] == "limits"
        seconds += num_repeats * (cell["seconds_per_launch"] if is_sampled else TRAIN_RUN_SECONDS)
    (tmp_path / "first-run").mkdir()
    limits = {stage.name: stage.limit_s for stage in tools("first_run").make_stages("cuda", tmp_path)}
    assert limits["environment"] + sum(limits[name] for name in tools("layouts").LAYOUTS) <= 8 * 60
    assert (len(cells), num_repeats) == (19, 1)
    assert seconds < 0.9 * limits["campaign"]


def test_a_stage_out_of_time_leaves_no_process(tools, tmp_path):
    first_run = tools("first_run")
    code = "import os, signal, subprocess, sys; signal.signal(15, signal.SIG_IGN);"
    code += f" print(subprocess.Popen([sys.executable, *{SLEEP!r}]).pid, flush=True); os.wait()"
    first_run.STOP_SECONDS = 0.5
    first_run.run(first_run.Stage("deaf", ["-c", code], 5), tmp_path, time.monotonic() + 30)
    child = int((tmp_path / "deaf.log").read_text())
    end = time.monotonic() + 10  # on a busy machine the kernel takes a moment
    while is_alive(child) and time.monotonic() < end:
        time.sleep(0.1)
    assert not is_alive(child)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_full_disk_is_named_and_leaves_no_half_archive(tools, tmp_path, monkeypatch):
    first_run, folder = tools("first_run"), tmp_path / "out"
    folder.mkdir()
    results = results_with(tmp_path / "results", OK)
    found = first_run.summarize(first_run.make_stages("cpu", results), results, "cpu", 1.0)
    assert first_run.write(found, folder, results) is None

    class Full:
        def __init__(self, path, mode):
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(first_run.tarfile, "open", Full)
    assert first_run.write(found, folder, results).errno == errno.ENOSPC
    assert sorted(path.name for path in folder.iterdir()) == ["results.tar.gz", "summary.json", "summary.txt"]


def test_logs_of_an_earlier_run_are_kept_apart(tools, tmp_path):
    first_run = tools("first_run")
    for text in ("first", "second", "third"):
        first_run.keep_earlier_logs(tmp_path / "first-run")
        (tmp_path / "first-run").mkdir()
        (tmp_path / "first-run" / "tests.json").write_text(text)
    found = {path.parent.name: path.read_text() for path in tmp_path.glob("*/tests.json")}
    assert found == {"first-run-1": "first", "first-run-2": "second", "first-run": "third"}


def test_without_a_frozen_campaign_nothing_runs(tmp_path):
    line = [str(TOOLS / "first_run.sh"), str(tmp_path / "out"), "--results", str(tmp_path)]
    done = subprocess.run(line, env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert not (tmp_path / "out").exists()


def test_the_interval_of_a_ratio_is_a_t_interval_of_its_logarithm(tools):
    low, ratio, high = tools("plain_train").ratio_interval([1.0, 1.0, 1.0], [math.e**0.1, math.e**0.2, math.e**0.3])
    half = 4.303 * 0.1 / math.sqrt(3)  # standard deviation 0.1, 2 degrees of freedom
    assert [math.log(x) for x in (low, ratio, high)] == pytest.approx([0.2 - half, 0.2, 0.2 + half])


GPU = {"name": "H", "uuid": "GPU-1", "capability": "9.0", "memory_bytes": 8}
VERSIONS = {"driver": "580", "cuda": "13.0", "nccl": "2.29", "cudnn": "92000"}
LIBRARIES = ["/x/libnccl.so.2", "/x/libcudart.so.13", "/x/libcudnn.so.9"]


def step_record(model="lm_small", stack="host", step_ms=10.0, memory=(1, 2, 3), settings=(False, True), **parameters):
    """Return the record of a train_step on one GPU whose blocking step takes 1 ms longer."""
    defaults = {"dtype": "bf16", "strategy": "none", "compile": False, "channels_last": None, "image_size": None}
    keys = ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes")
    tf32 = dict(zip(("allow_tf32_matmul", "allow_tf32_cudnn"), settings, strict=True))
    return {
        "cell": f"{model}-{stack}",
        "status": "ok",
        "stack": stack,
        "spec": {"benchmark": "train_step", "parameters": {"model": model, "batch_size": 16} | defaults | parameters},
        "samples_ns": [[int((step_ms + 1) * 1e6)] * 5],
        "windows": {"steps_per_window": 2, "elapsed_ns": [[int(2 * step_ms * 1e6)] * 3]},
        "values": {"flops_per_sample": 125 * 10**9},
        "memory": {key: [value] for key, value in zip(keys, memory, strict=True)},
        "environment": {
            "gpus": [GPU],
            "driver": "580",
            "cuda": "13.0",
            "nccl": "2.29",
            "cudnn": "92000",
            "libraries": LIBRARIES,
            "settings": tf32,
        },
    }


def counters(**changes) -> dict:
    """Return the entry of a GPU in a record's host_load. ECC counters are unknown, as on GPUs without ECC."""
    known = {"sm_clock_min_mhz": 1200, "sm_clock_max_mhz": 1980, "temperature_c": 60, "power_limit_w": 700.0}
    unknown = {"corrected_ecc_errors": "NVML error 3: not supported"}
    return {"rank": 0, **known, "throttle_reasons": [], "corrected_ecc_errors": None, "unknown": unknown} | changes


@pytest.fixture
def outcomes(tools, tmp_path):
    """A function that returns the outcomes of checks on records by name."""
    peaks = [{"device": "H", "dtype": dtype, "tflop_per_s": rate} for dtype, rate in (("bf16", 1000), ("fp32", 100))]
    batch = {"launches": [], "cluster": {"peaks": peaks}}
    (tmp_path / "batches" / "b").mkdir(parents=True)
    (tmp_path / "batches" / "b" / "batch.json").write_text(json.dumps(batch))
    found = {"preflight": None, "tests": [], "comparison": None}

    def run(*records: dict, device: str = "cuda", **changes) -> dict[str, str]:
        done = tools("checks").run_all(found | changes, list(records), tmp_path, device)
        return {check["name"]: check["outcome"] for check in done}

    return run


def test_checks_without_records_are_unknown_and_none_fails(outcomes):
    assert set(outcomes().values()) == {"unknown"}
    assert set(outcomes(device="cpu").values()) == {"unknown"}


def test_good_records_pass(outcomes, wording):
    found = outcomes(
        step_record(step_ms=10),
        step_record(step_ms=30, dtype="fp32"),
        step_record(step_ms=20, dtype="fp32", stack="tf32", settings=(True, True)),
        step_record(step_ms=9, compile=True),
        step_record(step_ms=10, batch_size=64),
        step_record(step_ms=11, batch_size=64, strategy="ddp"),
        comparison={"ratio": 1.01, "low": 1.0, "high": 1.02},
        tests=[{"test": "t", "outcome": "passed"}, {"test": "u", "outcome": "skipped"}],
        preflight={"placement": [], "backends": {"nccl": "ok"}},
    )
    assert "fail" not in found.values()
    wording(found)


def test_counters_that_a_gpu_may_lack_are_listed_only(tools, tmp_path, wording):
    checks = tools("checks")
    _, outcome, text = checks.check_counters([step_record() | {"host_load": {"gpus": [counters()]}}])
    assert outcome == "ok"
    wording(json.loads(text)["unknown"])


def test_one_noisy_cell_does_not_fail_the_comparison_with_blocking_steps(outcomes):
    name = "A pipelined step takes no longer than a blocking one"
    noisy = step_record(step_ms=10) | {"samples_ns": [[9_000_000]]}
    assert outcomes(noisy, step_record(step_ms=10), step_record(step_ms=10))[name] == "ok"
    assert outcomes(noisy, noisy, step_record(step_ms=10))[name] == "fail"


def test_tests_that_were_all_skipped_show_nothing(outcomes):
    assert outcomes(tests=[{"test": "t", "outcome": "skipped"}])["Tests"] == "unknown"


@pytest.mark.parametrize(
    ("name", "records", "changes"),
    [
        ("Every measured cell is ok", [{"status": "failed", "spec": {"benchmark": "collective"}}], {}),
        ("All backends pass the preflight", [], {"preflight": {"placement": [], "backends": {"nccl": "DistBackendError"}}}),
        ("Tests", [], {"tests": [{"test": "t", "outcome": "failed"}]}),
        ("train_step time matches a plain loop", [], {"comparison": {"ratio": 1.2, "low": 1.1, "high": 1.3}}),
        ("Allocated <= reserved <= used memory", [step_record(memory=(3, 2, 4))], {}),
        ("Allocated <= reserved <= used memory", [step_record(memory=(1, 2, None))], {}),
        ("TF32 settings match the stacks", [step_record(stack="no_tf32", settings=(False, True))], {}),
        # 16 samples of 0.125 TFLOP in 10 ms are 200 TFLOP/s: twice the peak of fp32, below 1 % of bf16's in 300 ms.
        ("FLOP/s are plausible", [step_record(dtype="fp32", settings=(False, False))], {}),
        ("FLOP/s are plausible", [step_record(step_ms=300)], {}),
        ("bf16 is faster than fp32 (lm_small)", [step_record(step_ms=10), step_record(step_ms=9, dtype="fp32")], {}),
        ("ddp on one GPU costs at most half a step (lm_small, bf16)",
         [step_record(step_ms=10, batch_size=64), step_record(step_ms=16, batch_size=64, strategy="ddp")], {}),
        ("A pipelined step takes no longer than a blocking one",
         [step_record() | {"samples_ns": [[9_000_000]]}], {}),
        ("Counters of the GPU are recorded", [step_record() | {"host_load": {"gpus": []}}], {}),
        ("Counters of the GPU are recorded", [step_record() | {"host_load": {"gpus": [counters(sm_clock_max_mhz=None)]}}], {}),
        ("Counters of the GPU are recorded", [step_record() | {"host_load": {"gpus": [counters(power_limit_w=None)]}}], {}),
        ("GPU, driver, CUDA, NCCL and cuDNN are named",
         [step_record() | {"environment": step_record()["environment"] | {"driver": None}}], {}),
    ],
)  # fmt: skip
def test_a_bad_record_fails_its_check(outcomes, name, records, changes):
    assert outcomes(*records, **changes)[name] == "fail"


def test_the_runner_without_pytest_runs_marked_tests_with_fixtures_and_cases(tmp_path):
    (tmp_path / "tests" / "bench").mkdir(parents=True)
    (tmp_path / "tests" / "gpu").mkdir()
    runner = tmp_path / "tests" / "gpu" / "run_tests.py"
    runner.write_text((TOOLS / "run_tests.py").read_text())
    (tmp_path / "tests" / "bench" / "conftest.py").write_text(
        "import pytest\n"
        "@pytest.fixture(scope='module')\n"
        "def log(tmp_path_factory):\n    found = []\n    yield found\n    assert found == ['made', 'closed'] * 2\n"
    )
    (tmp_path / "tests" / "bench" / "test_x.py").write_text(
        "import time, pytest\n"
        "@pytest.fixture\n"
        "def thing(log):\n    log.append('made')\n    yield 7\n    log.append('closed')\n"
        "@pytest.mark.gpu\n"
        "@pytest.mark.parametrize(('a', 'b'), [(1, 2), (3, 4)])\n"
        "def test_cases(thing, a, b):\n    assert thing == 7 and b == a + 1\n"
        "@pytest.mark.gpu\n"
        "def test_wrong():\n    assert 1 == 2\n"
        "@pytest.mark.gpu\n"
        "def test_slow():\n    time.sleep(60)\n"
        "@pytest.mark.gpu\n"
        "@pytest.mark.skipif(True, reason='no GPU')\n"
        "def test_skipped():\n    assert False\n"
        "@pytest.mark.gpu\n"
        "def test_raises():\n    with pytest.raises(ValueError, match='x'):\n        raise ValueError('x')\n"
        "def test_unmarked():\n    assert False\n"
    )
    (tmp_path / "tests" / "bench" / "test_y.py").write_text("import absent  # mark.gpu\n")
    line = [sys.executable, "-S", str(runner), "--json", str(tmp_path / "out.json"), "--test-seconds", "1"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    found = {outcome["test"].split("::")[-1]: outcome for outcome in json.loads((tmp_path / "out.json").read_text())}
    assert {name: outcome["outcome"] for name, outcome in found.items()} == {
        "test_cases[1-2]": "passed",
        "test_cases[3-4]": "passed",
        "test_wrong": "failed",
        "test_slow": "failed",
        "test_skipped": "skipped",
        "test_raises": "passed",
        "test_y.py": "failed",
    }
    assert found["test_skipped"]["reason"] == "no GPU"
