"""Command lines and environments: no value of a campaign ever passes through a shell."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from campaign_files import cells, collectives, small
from hypothesis import given
from hypothesis import strategies as st

from regatta.launch import RUN_LAUNCH, command_by_hand, launch_argv, launch_environment

HOST = {"name": "host", "kind": "host", "env": {}, "python": None}
HOSTILE = ["a b", "$(touch x)", "`y`", "'", '"', "a\nb", "; rm -rf ~", "", "\\", "*", "--flag", "ä", "\x1b[31m"]


def spec_of(folder, **stack) -> dict:
    spec = cells(folder, collectives(4096))[0].spec
    return spec | {"stack": HOST | stack}


def test_the_line_by_hand_repeats_the_cell(tmp_path):
    words = shlex.split(command_by_hand(spec_of(tmp_path)))
    assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node=2", "workflow/scripts/bench/collective.py"]
    options = dict(zip(words[4::2], words[5::2], strict=True))
    assert options == {
        "--device": "cpu",
        "--backend": "gloo",
        "--operation": "all_reduce",
        "--message-bytes": "4096",
        "--dtype": "fp32",
        "--min-seconds": "1.0",
        "--max-seconds": "10.0",
        "--target-precision": "0.01",
        "--min-samples": "10",
        "--max-samples": "100000",
        "--max-warmup-seconds": "5.0",
    }


def test_a_parameter_without_effect_is_not_in_the_line(tmp_path):
    found = {
        cell.spec["parameters"]["strategy"]: cell
        for cell in cells(tmp_path, small())
        if "none" in cell.id or "ddp-1-" in cell.id
    }
    assert "--bucket-cap-mb" not in command_by_hand(found["none"].spec)
    assert "--bucket-cap-mb 1 --gradient-as-bucket-view false" in command_by_hand(found["ddp"].spec)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_variable_survives_the_line_by_hand(tmp_path, value):
    words = shlex.split(command_by_hand(spec_of(tmp_path, env={"A": value, "B": "1"})))
    assert words[:4] == ["env", f"A={value}", "B=1", "torchrun"]


@pytest.mark.parametrize("python", ["/opt/my env/bin/python", "/opt/$(x)/python", "~/python"])
def test_a_hostile_path_survives_every_line(tmp_path, python):
    words = shlex.split(command_by_hand(spec_of(tmp_path, python=python)))
    assert words[:3] == [python, "-m", "torch.distributed.run"]
    assert launch_argv(HOST | {"python": python}, 2, Path("r.json"))[0] == python


def test_a_shell_runs_the_line_by_hand_with_every_word_whole(tmp_path):
    """The one real shell: `torchrun` is a program that prints its words and the variable."""
    program = tmp_path / "torchrun"
    program.write_text(f"#!{sys.executable}\nimport os, sys\nprint(repr((sys.argv[1:], os.environ['A'])))\n")
    program.chmod(0o755)
    value = "'\"; touch hacked; $(touch hacked) `touch hacked`\n"
    spec = spec_of(tmp_path, env={"A": value})
    done = subprocess.run(
        ["/bin/sh", "-c", command_by_hand(spec)],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    words = shlex.split(command_by_hand(spec))
    assert done.stdout == repr((words[3:], value)) + "\n"
    assert not (tmp_path / "hacked").exists()


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=20), max_size=3))
def test_the_line_by_hand_round_trips_whatever_the_variables(variables):
    spec = {
        "benchmark": "b",
        "device": "cpu",
        "backend": "gloo",
        "gpus_per_node": 1,
        "parameters": {"x": "y z"},
        "sampling": {},
    }
    words = shlex.split(command_by_hand(spec | {"stack": HOST | {"env": variables}}))
    expected = ["env", *(f"{key}={value}" for key, value in variables.items())] if variables else []
    assert words[: len(expected)] == expected
    assert words[-2:] == ["--x", "y z"]


def test_a_launch_starts_the_ranks_with_this_python_unless_the_stack_has_its_own():
    words = launch_argv(HOST, 4, Path("/r/request 1.json"))
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nnodes=1", "--nproc-per-node=4"]
    assert words == [*launcher, str(RUN_LAUNCH), "--request", "/r/request 1.json"]
    assert RUN_LAUNCH.is_file()


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_variable_reaches_the_process_untouched(value):
    environment = launch_environment(HOST | {"env": {"HOSTILE": value}})
    program = "import os, sys; sys.stdout.buffer.write(os.environb[b'HOSTILE'])"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True)
    assert done.stdout == value.encode()


def test_the_driver_s_python_variables_do_not_reach_the_ranks_but_the_stack_s_do(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/driver")
    monkeypatch.setenv("PYTHONHOME", "/driver")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment = launch_environment(HOST | {"env": {"PYTHONPATH": "/rank", "NCCL_DEBUG": "INFO"}})
    assert environment["PYTHONPATH"] == "/rank"
    assert "PYTHONHOME" not in environment
    assert environment["NCCL_DEBUG"] == "INFO"
    assert "OMP_NUM_THREADS" not in environment  # Snakemake's, for its job; not meant for the ranks
    assert environment["PYTHONUNBUFFERED"] == "1"


def test_threads_that_a_stack_fixes_reach_the_ranks_under_a_name_that_torchrun_does_not_set():
    stack = {"env": {"OMP_NUM_THREADS": "3"}}
    assert launch_environment(stack)["OMP_NUM_THREADS"] == "3"
    assert launch_environment(stack)["REGATTA_THREADS_PER_RANK"] == "3"
