"""Programs run by hand: what they print, what they append, and which arguments they reject."""

import argparse
import functools
import json
import re
import shlex
import subprocess
import sys

import pytest
from bench_cells import BENCH, clean_environment, train_step_cell, train_step_parameters, version_of

pytestmark = pytest.mark.torch

STRATEGIES = ("none", "ddp", "naive", "flat", "overlap", "bucketed", "fsdp")
SHORT = (
    "--target-precision 0.2 --min-seconds 0.005 --max-seconds 0.02 --min-samples 6 --max-warmup-seconds 0.02".split()
)


@pytest.fixture
def run_alone(fork_server):
    """A function that runs a program as a single process, without a launcher."""
    return functools.partial(fork_server.run, None)


def rows_of(table: str) -> dict[str, str]:
    """Return label -> text of the rows that a program prints."""
    return dict(re.findall(r"^  (\S+(?: \S+)*) {2,}(.*)$", table, re.MULTILINE))


def as_options(spec: dict) -> list[str]:
    """Write a cell as the driver's command line does: --kebab-case options with JSON scalars, null left out."""
    values = {"device": spec["device"], "backend": spec["backend"], **spec["parameters"], **spec["sampling"]}
    options = []
    for key, value in values.items():
        if value is not None:
            options += ["--" + key.replace("_", "-"), value if isinstance(value, str) else json.dumps(value)]
    return options


def test_command_of_a_cell_gives_the_same_parameters_and_sampling(run_ranks, tmp_path):
    spec = train_step_cell("lm_tiny")["spec"]
    done = run_ranks(2, BENCH / "train_step.py", *as_options(spec), "--json", tmp_path / "record.jsonl")
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.jsonl").read_text())
    assert record["status"] == "ok"
    for key in ("benchmark", "version", "device", "backend", "nodes", "gpus_per_node", "parameters", "sampling"):
        assert json.dumps(record["spec"][key]) == json.dumps(spec[key]), key


def test_training_table_shows_throughput_and_checks(run_ranks):
    options = "--model squeezenet1_1 --image-size 32 --batch-size 2 --strategy ddp --bucket-cap-mb 1".split()
    done = run_ranks(2, BENCH / "train_step.py", *options, "--gradient-as-bucket-view", "true", *SHORT)
    assert done.returncode == 0, done.stderr
    for parameter in ("strategy ddp", "bucket_cap_mb 1", "gradient_as_bucket_view True"):
        assert parameter in done.stdout
    rows = rows_of(done.stdout)
    assert {"median", "pipelined step", "throughput", "parameters"} <= rows.keys()
    assert rows["loss_is_finite"] == rows["weights_agree"] == "yes"
    assert done.stdout.count(f"# train_step version {version_of('train_step')}") == 1


@pytest.mark.parametrize("strategy", ["bucketed", "fsdp"])
def test_a_language_model_is_trained_by_hand_with_its_exchange_measured(run_ranks, strategy):
    options = ["--model", "lm_tiny", "--context-length", "16", "--batch-size", "2", "--strategy", strategy]
    done = run_ranks(2, BENCH / "train_step.py", *options, *SHORT)
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    assert rows["status"] == "ok"
    assert len({"without sync", "sync alone", "exposed"} & rows.keys()) == (3 if strategy == "bucketed" else 0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_command_line_needs_nothing_but_the_strategy_and_its_model(strategy):
    """What has no effect is null, as in a campaign, and nothing of what is left out is refused."""
    pytest.importorskip("torch")
    import train_step

    parser = argparse.ArgumentParser()
    train_step.add_arguments(parser)
    for model in ("resnet18", "lm_tiny"):
        parameters = train_step.parameters_from(parser.parse_args(["--strategy", strategy, "--model", model]))
        sizes = {"image_size": 64} if model == "resnet18" else {"context_length": 128}
        assert parameters == train_step_parameters(model, strategy, batch_size=8, **sizes)


def test_collective_table_shows_bandwidths(run_ranks):
    done = run_ranks(2, BENCH / "collective.py", "--message-bytes", "65536", "--dtype", "bf16", *SHORT)
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    assert {"median", "algbw", "busbw", "pipelined call", "pipelined busbw", "max_rel_error"} <= rows.keys()
    assert rows["result_is_exact"] == "yes"


def test_a_barrier_below_torchrun_has_times_and_no_bandwidth(torchrun, tmp_path):
    command = [str(BENCH / "collective.py"), "--operation", "barrier", *SHORT, "--json", str(tmp_path / "record.jsonl")]
    done = torchrun(2, *command)
    assert done.returncode == 0, done.stderr
    rows = rows_of(done.stdout)
    assert rows["barrier_holds"] == "yes"
    assert "algbw" not in rows
    record = json.loads((tmp_path / "record.jsonl").read_text())
    assert record["spec"]["parameters"] == {
        "operation": "barrier",
        "message_bytes": None,
        "dtype": None,
        "algorithm": None,
    }
    assert shlex.split(record["command"]) == ["torchrun", "--standalone", "--nproc-per-node=2", *command]


@pytest.mark.parametrize("num_ranks", [3])
def test_sum_is_exact_for_a_number_of_ranks_that_is_no_power_of_two(run_ranks, num_ranks):
    done = run_ranks(num_ranks, BENCH / "collective.py", "--message-bytes", "1002", "--dtype", "bf16", *SHORT)
    assert done.returncode == 0, done.stderr
    assert rows_of(done.stdout)["result_is_exact"] == "yes"


def test_one_process_needs_no_launcher(run_alone, tmp_path):
    path = tmp_path / "record.jsonl"
    options = ["--model", "squeezenet1_1", "--image-size", "32", "--batch-size", "2"]
    done = run_alone(BENCH / "train_step.py", *options, *SHORT, "--json", str(path))
    assert done.returncode == 0, done.stderr
    record = json.loads(path.read_text())
    assert (record["spec"]["nodes"], record["spec"]["gpus_per_node"]) == (1, 1)
    assert record["spec"]["parameters"]["bucket_cap_mb"] is None
    assert record["command"].startswith("python ")
    assert "1 rank on" in done.stdout


@pytest.mark.parametrize(
    ("program", "arguments", "message"),
    [
        ("train_step.py", "--batch-size x", "argument --batch-size: invalid int value: 'x'"),
        ("train_step.py", "--batch-size 0", "batch_size = 0: must be at least 1."),
        ("train_step.py", "--model resnet19", "is not a torchvision classifier. Did you mean 'resnet1"),
        ("train_step.py", "--bucket-cap-mb 25", "bucket_cap_mb = 25 has no effect with strategy none. Remove it."),
        ("train_step.py", "--max-seconds 0", "--max-seconds = 0.0: must be a number above 0"),
        ("train_step.py", "--device cuda", "no GPU"),
        ("train_step.py", "--device rocm", "argument --device: rocm: write cuda"),
        ("collective.py", "--backend RCCL", "argument --backend: RCCL: write nccl"),
        ("collective.py", "", "operation all_reduce needs at least 2 ranks, but there is 1"),
        ("collective.py", "--message-bytes 4097", "message_bytes = 4097 is not a positive multiple of 4"),
        ("collective.py", "--operation gather", "invalid choice: 'gather'"),
        ("collective.py", "--algorithm bcube", "invalid choice: 'bcube'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(run_alone, program, arguments, message):
    if "cuda" in arguments and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is a GPU")
    done = run_alone(BENCH / program, *arguments.split())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith(f"{program}: error: ")
    assert message in last_line


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"},
            "2 ranks, but MASTER_ADDR is None and MASTER_PORT is None.",
        ),
        ({"SLURM_PROCID": "0"}, "SLURM_PROCID is set, but not SLURM_NTASKS, SLURM_LOCALID."),
    ],
)
def test_a_launcher_that_says_too_little_is_told_so_in_one_line(run_alone, variables, message):
    done = run_alone(BENCH / "train_step.py", **variables)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"train_step.py: error: {message}")


def test_a_torchvision_that_does_not_work_is_one_line(tmp_path, wording):
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    done = subprocess.run(  # a real process: the fork server has imported torchvision
        [sys.executable, BENCH / "train_step.py", "--model", "resnet18"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=clean_environment() | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "error:" in line]
    wording(re.sub(r"torch \d\S+:", "torch <version>:", line))


def test_threads_that_are_no_number_are_refused_and_no_rank_waits(run_ranks, wording):
    done = run_ranks(2, BENCH / "collective.py", "--message-bytes", "4096", *SHORT, REGATTA_THREADS_PER_RANK="4,2")
    assert done.returncode != 0
    [line] = [line for line in done.stderr.splitlines() if line.startswith("collective.py: error:")]
    wording(line)


@pytest.mark.parametrize("words", [["--strategy", "none"], ["--no-such-option"]])
def test_a_slow_first_rank_says_what_is_wrong_too(run_ranks, tmp_path, words):
    """Launchers kill all ranks when one fails, so the silent ones must not be first."""
    program = tmp_path / "train_step.py"
    program.write_text(
        "import os, runpy, sys, time\n"
        "time.sleep(1.5 * (os.environ['RANK'] == '0'))\n"
        f"sys.path[0] = {str(BENCH)!r}\n"
        f"runpy.run_path({str(BENCH / 'train_step.py')!r}, run_name='__main__')\n"
    )
    done = run_ranks(2, program, *words)
    assert done.returncode != 0
    assert len([line for line in done.stderr.splitlines() if line.startswith("train_step.py: error:")]) == 1


@pytest.mark.parametrize("program", ["train_step.py", "collective.py", "sync_batchnorm.py", "train_run.py"])
def test_help_has_a_torchrun_and_an_srun_line(run_alone, program):
    done = run_alone(BENCH / program, "--help")
    assert done.returncode == 0
    assert done.stdout.count("  torchrun --nproc-per-node=2 workflow/scripts/bench/") == 1
    assert done.stdout.count("  srun --nodes=2") == 1
