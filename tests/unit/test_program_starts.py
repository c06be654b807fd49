"""How the plan starts programs: the step of srun and its cores, templates, and `$NAME` that no shell reads."""

import re
import shlex
import subprocess

import pytest
import yaml
from campaign_files import SLURM, TEXT, load, matrix, message, small

TWO_NODES = {"num_nodes": 2}
READ = {"rate": {"match": "rate: (.*)", "unit": "GB/s", "better": "larger"}}


def campaign(command: list[str], env: dict | None = None, srun: list[str] | None = None, **entry) -> dict:
    entry = {"benchmark": "program", "name": "p", "command": command, "read": READ} | entry
    stack = {"kind": "host", "env": env or {}} | ({"srun": srun} if srun else {})
    shapes = [{"nodes": [2], "gpus_per_node": [4]}]
    return small(stacks={"host": stack}, shapes=shapes, benchmarks=[entry])


def line(folder, cluster: dict, data: dict) -> list[str]:
    """Return the words of the line that repeats the only cell by hand, from srun."""
    (cell,) = matrix(folder, data, SLURM | TWO_NODES | cluster).cells
    words = shlex.split(cell.command)
    return words[words.index("srun") :]


STARTER, NOT_STARTER = ["--overlap", "--mpi=none"], []


@pytest.mark.parametrize(
    ("ranks", "cluster", "srun", "expected"),
    [
        ("gpu", {"cpus_per_rank": 16}, [], ["--cpus-per-task=16"]),
        ("one", {"cpus_per_rank": 16}, [], [*STARTER, "--cpus-per-task=64"]),
        ("node", {"cpus_per_rank": 16}, [], [*STARTER, "--cpus-per-task=64"]),
        (1, {"cpus_per_rank": 16}, [], ["--cpus-per-task=64"]),
        (2, {"cpus_per_rank": 16}, [], ["--cpus-per-task=32"]),
        (3, {"cpus_per_rank": 16}, [], ["--cpus-per-task=21"]),
        (8, {"cpus_per_rank": 1}, [], ["--cpus-per-task=1"]),
        ("one", {}, [], STARTER),
        (2, {}, [], NOT_STARTER),
        ("one", {"cpus_per_rank": 16}, ["--cpus-per-task=8"], [*STARTER, "--cpus-per-task=8"]),
        ("one", {"cpus_per_rank": 16}, ["-c8"], [*STARTER, "-c8"]),
        ("one", {"cpus_per_rank": 16}, ["--cpus-per-gpu=8"], [*STARTER, "--cpus-per-gpu=8"]),
        ("one", {"cpus_per_rank": 16, "srun": ["-c8"]}, [], [*STARTER, "-c8"]),
        ("gpu", {"cpus_per_rank": 16, "srun": ["-c8"]}, [], ["-c8", "--cpus-per-task=16"]),
        (
            *("one", {"cpus_per_rank": 16, "srun": ["--cpu-bind=cores"]}, ["--mpi=pmix"]),
            ["--overlap", "--cpu-bind=cores", "--cpus-per-task=64", "--mpi=pmix"],
        ),
        ("node", {"srun": ["--mpi=pmi2"]}, [], ["--overlap", "--mpi=pmi2"]),
    ],
)
def test_a_process_that_starts_ranks_gets_their_cores_and_shares_them(tmp_path, ranks, cluster, srun, expected):
    words = line(tmp_path, cluster, campaign(["x"], ranks=ranks, srun=srun))
    options = [word for word in words[words.index("--export=ALL") + 1 : words.index("sh")] if word != "--label"]
    assert options == expected
    assert words[words.index("sh") + 2 :] == ["-", ".", "2x4" if ranks in ("one", "node") else "-", "-", "x"]


def test_on_one_machine_a_program_that_starts_ranks_is_started_as_it_is(tmp_path):
    data = campaign(["x", "{first_host}:{port}"], ranks="one", env={"A": "{first_host}i"})
    (cell,) = matrix(tmp_path, data, TWO_NODES).cells
    assert shlex.split(cell.command) == ["env", "A=127.0.0.1i", "x", "127.0.0.1:29500"]


def test_by_hand_a_shell_finds_the_first_node(tmp_path):
    entry = ["x", "--at={first_host}:{port}", "{first_host}", "$(touch hacked)"]
    data = campaign(entry, ranks="node", env={"A": "{first_host}i"})
    (cell,) = matrix(tmp_path, data, SLURM).cells
    for name, text in {"scontrol": "echo 'n 7'; echo n8", "srun": 'printf "%s|" "$MASTER_ADDR" "$A" "$@"'}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(["sh", "-c", cell.command], env=environment, capture_output=True, text=True, check=True)
    words = done.stdout.split("|")
    assert [*words[:2], *words[-4:-1]] == ["n 7", "n 7i", "--at=n 7:29500", "n 7", "$(touch hacked)"]


WORDS = {
    "the first node": (["x", "$MASTER_ADDR"], "{first_host}"),
    "in braces": (["x", "${MASTER_PORT}"], "{port}"),
    "in two braces": (["x", "${{MASTER_PORT}}"], "{port}"),
    "in an option": (["x", "--at=$MASTER_ADDR:$MASTER_PORT"], "{first_host}"),
    "in an address": (["x", "tcp://${MASTER_ADDR}:29500"], "{first_host}"),
    "ranks": (["x", "-n", "$SLURM_NTASKS"], "{world_size}"),
    "nodes": (["x", "--nnodes=$SLURM_NNODES"], "{nodes}"),
    "ranks of a node": (["x", "$SLURM_GPUS_ON_NODE"], "{gpus_per_node}"),
    "the number of the node": (["x", "--node-rank=$NODE_RANK"], "sh, -c"),
    "another of Slurm": (["x", "$SLURM_JOB_ID"], "sh, -c"),
    "of the shell": (["x", "$HOME"], "sh, -c"),
    "a script of a shell": (["sh", "x.sh", "$MASTER_ADDR"], "{first_host}"),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_variable_in_a_command_that_no_shell_reads_is_an_error_with_its_template(tmp_path, wording, case):
    command, instead = WORDS[case]
    text = message(tmp_path, with_text(campaign(command)), TWO_NODES)
    assert instead in text
    wording(text)


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", 'x "$MASTER_ADDR"', "$MASTER_ADDR"],
        ["/bin/bash", "-euo", "pipefail", "-lc", "$HOME"],
        ["env", "A=1", "bash", "-c", "$MASTER_ADDR"],
        ["awk", "$MASTER_ADDR"],
        ["/usr/bin/perl", "-e", "$HOME"],
        ["x", "costs $MASTER_ADDR dollars", "$unknown", "$1", "a$HOME", "$"],
    ],
)
def test_a_variable_of_a_shell_awk_or_perl_is_its_own(tmp_path, command):
    (cell,) = matrix(tmp_path, campaign(command), TWO_NODES).cells
    assert shlex.split(cell.command)[-len(command) :] == command


def test_two_dollars_are_a_literal_one(tmp_path):
    command = ["x", "$$MASTER_ADDR", "--at=$${{MASTER_PORT}}", "$$", "$$unknown", "a$$HOME"]
    (cell,) = matrix(tmp_path, campaign(command, env={"A": "/x:$$PATH", "B": "$$b"}), TWO_NODES).cells
    words = ["$MASTER_ADDR", "--at=${MASTER_PORT}", "$$", "$$unknown", "a$$HOME"]
    assert shlex.split(cell.command)[-5:] == words
    assert shlex.split(cell.command)[:3] == ["env", "A=/x:$PATH", "B=$$b"]


ENV = {
    "a path": ({"LD_LIBRARY_PATH": "/opt/lib:$LD_LIBRARY_PATH"}, "prologue"),
    "a folder": ({"CACHE": "$HOME/cache"}, "prologue"),
    "the first node": ({"MASTER_ADDR": "${MASTER_ADDR}"}, "{first_host}"),
    "an address": ({"STORE": "tcp://$MASTER_ADDR:$MASTER_PORT"}, "{first_host}"),
    "a template of commands": ({"NUM_NODES": "a:{nodes}"}, "[env, 'NUM_NODES={nodes}', PROGRAM]"),
    "a rank": ({"RANK": 0}, "Remove it"),
    "a number of ranks": ({"WORLD_SIZE": 8}, "Remove it"),
    "a local rank": ({"LOCAL_RANK": 0}, "Remove it"),
    "a number of local ranks": ({"LOCAL_WORLD_SIZE": 4}, "Remove it"),
}


@pytest.mark.parametrize("place", ["stack", "cluster"])
@pytest.mark.parametrize("case", ENV)
def test_a_variable_that_a_launch_sets_or_that_stays_literal_is_refused(tmp_path, wording, place, case):
    env, instead = ENV[case]
    of_cluster = {"env": env} if place == "cluster" else {}
    text = message(tmp_path, with_text(campaign(["x"], env if place == "stack" else {})), TWO_NODES | of_cluster)
    assert instead in text
    assert re.search(rf"{'tiny' if of_cluster else 'campaign'}\.yaml:\d+: ", text)
    wording(text)


@pytest.mark.parametrize("value", ["$unknown", "cost $HOME", "a$HOME", "$1", "{first_host}i", '{"port": {port}}'])
def test_other_values_of_a_variable_are_kept(tmp_path, value):
    assert load(tmp_path, campaign(["x"], {"A": value}), TWO_NODES).data["stacks"]["host"]["env"] == {"A": value}


def test_ids_keep_the_template(tmp_path):
    (cell,) = matrix(
        tmp_path, campaign(["x", "{first_host}:{port}"], env={"MASTER_ADDR": "{first_host}i"}), TWO_NODES
    ).cells
    assert cell.spec["program"]["command"] == ["x", "{first_host}:{port}"]
    assert cell.spec["stack"]["env"] == {"MASTER_ADDR": "{first_host}i"}


def with_text(data: dict) -> str:
    """Return a campaign as text, whose lines an error names."""
    given = {key: data[key] for key in ("stacks", "shapes", "benchmarks")}
    return TEXT.partition("stacks:")[0] + "repeats: 3\n" + yaml.safe_dump(given, sort_keys=False)
