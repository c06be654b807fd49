"""The command that repeats a cell by hand: a shell changes nothing in it except the variables of binds."""

import itertools
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from campaign_files import HOSTILE, SLURM, cells, collectives, contained, small, stack
from hypothesis import given
from hypothesis import strategies as st

from regatta.launchers import command_by_hand

HOST = stack()


def spec_of(folder, **changes) -> dict:
    return cells(folder, collectives(4096))[0].spec | changes


def by_hand(folder, made: dict = HOST, **changes) -> str:
    spec = spec_of(folder, **changes)
    scheduler = "slurm" if "srun" in spec["stack"] else "none"
    return command_by_hand(spec, made, {"scheduler": scheduler, "gpu_request": made["gpu_request"]})


def test_the_line_by_hand_repeats_the_cell(tmp_path, wording):
    wording(by_hand(tmp_path))


def test_a_parameter_without_effect_is_not_in_the_line(tmp_path):
    found = {
        cell.spec["parameters"]["strategy"]: cell
        for cell in cells(tmp_path, small())
        if "none" in cell.id or "ddp-1-" in cell.id
    }
    assert "--bucket-cap-mb" not in found["none"].command
    words = found["ddp"].command.split()
    assert words[words.index("--bucket-cap-mb") :][:3] == ["--bucket-cap-mb", "1", "--gradient-as-bucket-view"]


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_variable_survives_the_line_by_hand(tmp_path, value):
    words = shlex.split(by_hand(tmp_path, stack(env={"A": value, "B": "1"})))
    assert words[:4] == ["env", f"A={value}", "B=1", "torchrun"]


@pytest.mark.parametrize("python", ["/opt/my env/bin/python", "/opt/$(x)/python", "/opt/$HOME/python", "~/python"])
def test_a_hostile_path_survives_the_line_by_hand(tmp_path, python):
    made = stack(python=python)
    assert shlex.split(by_hand(tmp_path, made))[:3] == [
        python,
        "workflow/scripts/bench/start_ranks.py",
        "--nproc-per-node=2",
    ]
    assert by_hand(tmp_path, made).startswith(shlex.quote(python))


@pytest.mark.parametrize(
    "value", ["'\"; touch hacked; $(touch hacked) `touch hacked`\n", "$HOME $(touch hacked) ${HOME}"]
)
def test_a_shell_runs_the_line_by_hand_with_every_word_whole(tmp_path, value):
    """The one real shell: `torchrun` is a program that prints its words and the variable."""
    print_words(tmp_path / "torchrun", "(sys.argv[1:], os.environ['A'])")
    line = by_hand(tmp_path, stack(env={"A": value}))
    assert in_shell(tmp_path, line) == repr((shlex.split(line)[3:], value)) + "\n"
    assert not (tmp_path / "hacked").exists()


def print_words(path: Path, what: str) -> None:
    path.write_text(f"#!{sys.executable}\nimport os, sys\nprint(repr({what}))\n")
    path.chmod(0o755)


def in_shell(folder: Path, line: str, **variables: str) -> str:
    """Run a line in a real shell that finds programs in this folder; return what it printed."""
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/me", **variables}
    command = ["/bin/sh", "-c", line]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


@given(st.dictionaries(st.from_regex(r"[A-Z_]{1,5}", fullmatch=True), st.text(max_size=20), max_size=3))
def test_the_line_by_hand_round_trips_regardless_of_the_variables(variables):
    spec = {
        "benchmark": "b",
        "device": "cpu",
        "backend": "gloo",
        "nodes": 1,
        "gpus_per_node": 1,
        "stack": {},
        "parameters": {"x": "y z"},
        "sampling": {},
    }
    line = command_by_hand(spec, HOST | {"env": variables}, {"scheduler": "none"})
    expected = ["env", *(f"{key}={value}" for key, value in variables.items())] if variables else []
    assert shlex.split(line)[: len(expected)] == expected
    assert line.startswith(" ".join(map(shlex.quote, expected)))  # nothing is left for a shell to replace
    assert shlex.split(line)[-2:] == ["--x", "y z"]


ON_SLURM = {"name": "a", "kind": "host", "python": None, "env": {}, "srun": ["--mpi=pmi2"]}


def test_on_slurm_the_line_by_hand_is_for_an_allocation_of_the_cell_s_shape(tmp_path):
    made = stack(cluster=SLURM, srun=["--mpi=pmi2"], env={"A": "1"})
    line = by_hand(tmp_path, made, stack=ON_SLURM, nodes=2, gpus_per_node=4)
    head = "env A=1 MASTER_PORT=29500 srun"
    options = "--nodes=2 --ntasks=8 --ntasks-per-node=4 --job-name=regatta --kill-on-bad-exit=1 --wait=60 --export=ALL --mpi=pmi2"
    assert line.startswith(f"{head} {options} python3 workflow/scripts/bench/collective.py ")


@pytest.mark.parametrize(
    ("request_by", "option"), [("gpus-per-node", ["--gpus-per-node=2"]), ("gres", ["--gres=gpu:2"]), ("none", [])]
)
def test_the_line_by_hand_asks_for_gpus_as_the_cluster_does(tmp_path, request_by, option):
    made = stack(cluster=SLURM | {"gpu_request": request_by})
    words = shlex.split(by_hand(tmp_path, made, stack=ON_SLURM, device="cuda"))
    assert [word for word in words if "gpu" in word] == option


def test_a_shell_puts_variables_into_binds_and_into_nothing_else(tmp_path):
    print_words(tmp_path / "apptainer", "sys.argv[1:]")
    binds = ["$TMPDIR", "${HOME}/x y:/data", "/cost$$5`touch hacked`", '$HOME"$(touch hacked)', "/plain$(touch hacked)"]
    made = contained(binds=binds, wrapper="/w/$HOME.sh", python="/opt/$HOME/python", env={"A": "$HOME", "B": "1"})
    line = by_hand(tmp_path, made)
    assert shlex.split(line)[:5] == ["env", "A=$HOME", "APPTAINERENV_B=1", "apptainer", "run"]
    words = eval(in_shell(tmp_path, line, TMPDIR="/tmp/job 7"))
    found = [word for before, word in itertools.pairwise(words) if before == "--bind"]
    assert found[:5] == [
        "/tmp/job 7",
        "/home/me/x y:/data",
        "/cost$5`touch hacked`",
        '/home/me"$(touch hacked)',
        "/plain$(touch hacked)",
    ]
    assert found[5] == str(tmp_path)  # the folder that the line is run in: Regatta's
    assert words[words.index("/images/a.sif") + 1 :][:2] == ["/w/$HOME.sh", "/opt/$HOME/python"]
    assert not (tmp_path / "hacked").exists()
