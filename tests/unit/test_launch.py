"""Command lines and environments: no value of a campaign ever passes through a shell."""

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from campaign_files import HOSTILE, SLURM, contained, stack
from hypothesis import given
from hypothesis import strategies as st

from regatta import launchers
from regatta.core.errors import UserError
from regatta.core.files import ROOT
from regatta.launchers import LAUNCHERS, RUN_LAUNCH, launch_argv
from regatta.launchers.base import Geometry
from regatta.launchers.local import START_RANKS

ALL_RANKS_END = ["--job-name=regatta", "--kill-on-bad-exit=1", "--wait=60", "--export=ALL"]
HOST = stack()


def one_machine(gpus_per_node: int = 2, device: str = "cpu") -> Geometry:
    return Geometry({"scheduler": "none", "gpu_request": "gpus-per-node"}, 1, gpus_per_node, device)


def on_slurm(nodes: int, gpus_per_node: int, device: str = "cpu", gpu_request: str = "gpus-per-node") -> Geometry:
    return Geometry({"scheduler": "slurm", "gpu_request": gpu_request}, nodes, gpus_per_node, device)


def launch_environment(
    stack: dict, extra: dict | None = None, uses_slurm: bool = True, meeting: dict | None = None
) -> dict[str, str]:
    return launchers.launch_environment(LAUNCHERS["slurm" if uses_slurm else "none"], stack, extra, meeting=meeting)


def test_a_launch_starts_the_ranks_with_this_python_unless_the_stack_has_its_own():
    words = launch_argv(one_machine(4), HOST, [str(RUN_LAUNCH), "--request", "/r/request 1.json"])
    program = [str(RUN_LAUNCH), "--request", "/r/request 1.json"]
    assert words == [sys.executable, str(START_RANKS), "--nproc-per-node=4", *program]
    assert RUN_LAUNCH.is_file()
    assert START_RANKS.is_file()


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 1), (1, 4), (3, 1), (2, 4), (16, 8)])
def test_srun_starts_one_task_for_each_rank_and_is_told_everything(nodes, gpus):
    words = launch_argv(on_slurm(nodes, gpus), stack(cluster=SLURM), ["x.py", "--y"])
    shape = [f"--nodes={nodes}", f"--ntasks={nodes * gpus}", f"--ntasks-per-node={gpus}"]
    assert words == ["srun", *shape, *ALL_RANKS_END, sys.executable, "x.py", "--y"]


@pytest.mark.parametrize(
    ("request_by", "option"), [("gpus-per-node", ["--gpus-per-node=4"]), ("gres", ["--gres=gpu:4"]), ("none", [])]
)
def test_gpus_are_asked_for_as_the_cluster_wants_it_and_only_where_they_are_used(request_by, option):
    def gpu_options(device: str) -> list[str]:
        words = launch_argv(on_slurm(2, 4, device, request_by), stack(cluster=SLURM), ["x.py"])
        return [word for word in words if "gpu" in word]

    assert gpu_options("cuda") == option
    assert gpu_options("cpu") == []


def test_options_of_cluster_and_stack_come_last_before_the_program():
    cluster = SLURM | {"srun": ["--cpu-bind=socket"], "cpus_per_rank": 72}
    words = launch_argv(on_slurm(1, 2), stack(cluster=cluster, srun=["--mpi=pmix_v4", "--x=*:block"]), ["x.py"])
    options = ["--cpu-bind=socket", "--cpus-per-task=72", "--mpi=pmix_v4", "--x=*:block"]
    assert words[4:] == [*ALL_RANKS_END, *options, sys.executable, "x.py"]


def test_a_step_is_pinned_to_the_nodes_that_it_is_given_and_to_none_otherwise():
    words = launch_argv(replace(on_slurm(2, 1), hosts=["n2", "n4"]), stack(cluster=SLURM), ["x.py"])
    assert words[1:5] == ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--nodelist=n2,n4"]
    assert not any("nodelist" in word for word in launch_argv(on_slurm(2, 1), stack(cluster=SLURM), ["x.py"]))


@pytest.mark.parametrize(("seconds", "minutes"), [(1, 1), (60, 1), (60.5, 2), (3600, 60)])
def test_a_step_ends_by_itself_should_the_supervisor_be_gone(seconds, minutes):
    words = launch_argv(on_slurm(1, 1), stack(cluster=SLURM), ["x.py"], limit_seconds=seconds)
    assert f"--time={minutes}" in words
    assert not any(word.startswith("--time") for word in launch_argv(one_machine(), HOST, ["x.py"], limit_seconds=9))


def test_in_an_image_srun_starts_the_runtime_and_start_ranks_runs_inside():
    made = contained(python="/opt/conda/bin/python")
    inside = ["apptainer", "run", "--bind", str(ROOT), "/images/a.sif", "/opt/conda/bin/python"]
    assert launch_argv(on_slurm(2, 1), made, ["x.py"])[8:] == [*inside, "x.py"]
    assert launch_argv(one_machine(), made, ["x.py"]) == [*inside, str(START_RANKS), "--nproc-per-node=2", "x.py"]


def test_what_stands_between_srun_and_python_is_in_the_order_that_the_runtime_wants():
    made = contained(
        runtime="singularity",
        runtime_options=["--ipc", "--no-home"],
        binds=["/usr:/host/usr:ro", "/data"],
        wrapper="/tools/wrapper.sh",
    )
    words = launch_argv(on_slurm(1, 1, "cuda"), made, ["x.py"], folders=(Path("/regatta"),))
    assert words[words.index("singularity") :] == [
        *["singularity", "run", "--nv", "--ipc", "--no-home"],
        *["--bind", "/usr:/host/usr:ro", "--bind", "/data", "--bind", "/regatta", "--bind", "/tools/wrapper.sh"],
        *["/images/a.sif", "/tools/wrapper.sh", "python3", "x.py"],
    ]


def bound(made: dict, folders: tuple[str, ...], variables: dict | None = None) -> list[str]:
    words = launch_argv(one_machine(), made, ["x.py"], folders=tuple(map(Path, folders)), variables=variables)
    return [word for before, word in itertools.pairwise(words) if before == "--bind"]


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        (("/regatta", "/regatta/results/x"), ["/regatta"]),
        (("/regatta", "/scratch/results/x"), ["/regatta", "/scratch/results/x"]),
        (("/regatta", "/regatta"), ["/regatta"]),
        (("/regatta", "/regatta2"), ["/regatta", "/regatta2"]),
        (("/with,comma", "/with:colon", "/with\\backslash"), [r"/with\,comma", r"/with\:colon", "/with\\backslash"]),
    ],
)
def test_the_folders_of_the_ranks_are_bound_once_each(folders, expected):
    assert bound(contained(), folders) == expected


def test_a_wrapper_is_bound_unless_its_folder_is():
    assert bound(contained(wrapper="/regatta/containers/w.sh"), ("/regatta",)) == ["/regatta"]
    assert bound(contained(wrapper="/tools/w.sh"), ("/regatta",)) == ["/regatta", "/tools/w.sh"]


def test_variables_in_binds_are_those_of_the_job():
    made = contained(binds=["$TMPDIR", "${HOME}/data:/data:ro", "/cost$$5"])
    assert bound(made, (), {"TMPDIR": "/tmp/7", "HOME": "/home/me"}) == ["/tmp/7", "/home/me/data:/data:ro", "/cost$5"]
    assert bound(made, ()) == made["binds"]


def test_a_variable_with_a_comma_or_a_colon_is_one_path_to_the_runtime():
    assert bound(contained(binds=["$TMPDIR:/t"]), (), {"TMPDIR": "/a,b:c"}) == [r"/a\,b\:c:/t"]


def test_a_variable_that_the_job_lacks_is_named():
    with pytest.raises(UserError, match=r"binds: \$SCRATCH/x "):
        bound(contained(binds=["$SCRATCH/x"]), (), {})


@given(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1))
def test_no_word_of_a_launch_is_changed_on_its_way(value):
    made = contained(python=value, runtime_options=[value], wrapper=f"/{value}", env={"A": value})
    words = launch_argv(on_slurm(1, 1), made | {"srun": [value]}, [value], folders=())
    assert words.count(value) == 4  # srun's option, the runtime's option, python, the program
    assert words[-3] == f"/{value}"
    assert launch_environment(made)["A"] == value


# ---- The environment of the ranks


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_variable_reaches_the_process_untouched(value):
    environment = launch_environment(stack(env={"HOSTILE": value}))
    read = "import os, sys; sys.stdout.buffer.write(os.environb[b'HOSTILE'])"
    done = subprocess.run([sys.executable, "-c", read], env=environment, capture_output=True, check=True)
    assert done.stdout == value.encode()


def test_the_driver_s_python_variables_do_not_reach_the_ranks_but_the_stack_s_do(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/driver")
    monkeypatch.setenv("PYTHONHOME", "/driver")
    monkeypatch.setenv("REGATTA_THREADS_PER_RANK", "7")
    monkeypatch.setenv("NCCL_DEBUG", "WARN")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    environment = launch_environment(stack(env={"PYTHONPATH": "/rank", "NCCL_DEBUG": "INFO"}))
    assert environment["PYTHONPATH"] == "/rank"
    assert "PYTHONHOME" not in environment
    assert "REGATTA_THREADS_PER_RANK" not in environment
    assert environment["NCCL_DEBUG"] == "INFO"
    assert "OMP_NUM_THREADS" not in environment  # Snakemake's, for its job; not meant for the ranks
    assert environment["PYTHONUNBUFFERED"] == "1"


def test_of_a_job_s_variables_only_those_that_say_which_job_it_is_reach_srun(monkeypatch):
    kept = {"SLURM_JOB_ID": "7", "SLURM_JOBID": "7", "SLURM_CONF": "/etc/s.conf", "SLURM_CLUSTER_NAME": "alps"}
    options = ["SLURM_NTASKS", "SLURM_MEM_PER_CPU", "SLURM_CPUS_PER_TASK", "SLURM_DISTRIBUTION", "SLURM_MPI_TYPE"]
    options += ["SRUN_CPUS_PER_TASK", "SBATCH_EXPORT", "SLURM_GPUS_PER_NODE", "SLURM_JOB_NODELIST"]
    for name, value in [*kept.items(), *((name, "1") for name in options)]:
        monkeypatch.setenv(name, value)
    environment = launch_environment(HOST)
    found = {key: value for key, value in environment.items() if key.startswith(("SLURM_", "SRUN_", "SBATCH_"))}
    assert found == kept


def test_where_the_ranks_meet_is_for_the_stack_to_say_and_not_for_the_shell(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "of-the-shell")
    environment = launch_environment(stack(env={"A": "2"}), {"MASTER_PORT": "12345"})
    assert (environment["MASTER_PORT"], environment["A"]) == ("12345", "2")
    assert "MASTER_ADDR" not in environment  # ranks take it from their step
    own = stack(env={"MASTER_ADDR": "{first_host}i", "MASTER_PORT": "1", "A": "{x}"})
    environment = launch_environment(own, {"MASTER_PORT": "2"}, meeting={"first_host": "n1", "port": "1"})
    names = ("MASTER_ADDR", "REGATTA_MASTER_ADDR", "MASTER_PORT", "A")
    assert [environment[name] for name in names] == ["n1i", "n1i", "1", "{x}"]


def test_on_one_machine_no_interface_of_the_shell_is_opened_but_a_stack_s_is(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth0")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    assert launch_environment(stack())["NCCL_SOCKET_IFNAME"] == "eth0"  # under srun it is the site's choice
    environment = launch_environment(stack(env={"NCCL_SOCKET_IFNAME": "ib0"}), uses_slurm=False)
    assert environment["NCCL_SOCKET_IFNAME"] == "ib0"
    assert "GLOO_SOCKET_IFNAME" not in environment


def test_threads_that_a_stack_fixes_reach_the_ranks_under_a_name_that_their_launcher_does_not_set():
    made = stack(env={"OMP_NUM_THREADS": "3"})
    assert launch_environment(made)["OMP_NUM_THREADS"] == "3"
    assert launch_environment(made)["REGATTA_THREADS_PER_RANK"] == "3"


def test_an_image_s_own_value_does_not_win_over_the_campaign_s():
    """Apptainer's rule: a variable from outside does not replace one that the image sets, unless it is called so."""
    made = contained(env={"NCCL_NET": "AWS Libfabric", "NCCL_PROTO": "^LL128", "OMP_NUM_THREADS": "3"})
    environment = launch_environment(made, {"MASTER_PORT": "9"})
    found = {key: value for key, value in environment.items() if key.startswith("APPTAINERENV_")}
    assert found == {
        "APPTAINERENV_PYTHONNOUSERSITE": "1",
        "APPTAINERENV_NCCL_NET": "AWS Libfabric",
        "APPTAINERENV_NCCL_PROTO": "^LL128",
        "APPTAINERENV_OMP_NUM_THREADS": "3",
        "APPTAINERENV_REGATTA_THREADS_PER_RANK": "3",
        "APPTAINERENV_MASTER_PORT": "9",
        "APPTAINERENV_PYTHONUNBUFFERED": "1",
    }
    assert {key: environment[key] for key in made["env"]} == made["env"]
    singularity = launch_environment(made | {"runtime": "singularity"})
    assert singularity["SINGULARITYENV_NCCL_PROTO"] == "^LL128"
    assert not any(
        key.startswith(("APPTAINERENV_", "SINGULARITYENV_")) for key in launch_environment(stack(env={"A": "1"}))
    )


@pytest.mark.parametrize(
    "value", [word for word in HOSTILE if word not in ("a b", "", "--flag")] + ["~", "#", "!!", "&", "a=b|c"]
)
def test_a_value_that_a_shell_would_read_otherwise_goes_into_an_image_by_its_plain_name_alone(value):
    environment = launch_environment(contained(env={"A": value}))
    assert environment["A"] == value
    assert "APPTAINERENV_A" not in environment


@pytest.mark.parametrize(
    "name", ["PATH", "LD_LIBRARY_PATH", "APPTAINER_BIND", "APPTAINERENV_B", "SINGULARITY_CACHEDIR"]
)
def test_what_is_the_runtime_s_own_business_keeps_its_name(name):
    environment = launch_environment(contained(env={name: "/x"}))
    assert environment[name] == "/x"
    assert f"APPTAINERENV_{name}" not in environment


def test_what_a_users_shell_gives_to_every_image_does_not_reach_the_ranks(monkeypatch):
    """It would change the number, and no cell's id knows of it; what the stack itself sets is in the id."""
    names = ("APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "APPTAINERENV_A", "SINGULARITYENV_A")
    names += ("PYXIS_CONTAINER_IMAGE", "ENROOT_REMAP_ROOT", "EDF_PATH")
    for name in (*names, "APPTAINER_ENV_FILE", "APPTAINER_MOUNT", "APPTAINER_CLEANENV", "SINGULARITY_CONTAINLIBS"):
        monkeypatch.setenv(name, "/from/the/shell")
    monkeypatch.setenv("APPTAINER_CACHEDIR", "/cache")
    environment = launch_environment(stack(env={"APPTAINER_BIND": "/of/the/stack"}))
    assert "/from/the/shell" not in environment.values()
    assert environment["APPTAINER_BIND"] == "/of/the/stack"
    assert environment["APPTAINER_CACHEDIR"] == "/cache"
