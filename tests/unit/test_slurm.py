"""Slurm's commands, replaced by small programs: the queries, and how their answers are interpreted."""

import os
from pathlib import Path

import pytest
from campaign_files import SLURM, TEXT, load, message

from regatta.core.errors import UserError
from regatta.launchers import LAUNCHERS, Allocation, find_allocation
from regatta.launchers import slurm_queue as queue

FOLDER = Path("/home/me/regatta")
COLORS = ("blue", "green")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Return a function that puts a command on the PATH which prints a text."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(name: str, text: str, status: int = 0) -> None:
        (tmp_path / f"{name}.out").write_text(text)
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.calls\ncat {tmp_path}/{name}.out\nexit {status}\n')
        path.chmod(0o755)

    return put


QUEUE = """\
11|PENDING|regatta-mine-2x4|/home/me/regatta|rule_measure_wildcards_mine_n02g04-0123456789ab
12|RUNNING|rule_preflight_wildcards_mine_preflight-0123456789ab|/home/me/regatta|project|x
13|RUNNING|regatta-mine_too-2x4|/home/me/regatta|rule_measure_wildcards_mine_too_n02g04-0123456789ab
14|RUNNING|rule_measure_wildcards_mine_n02g04-0123456789ab|/home/me/another|(null)
15|RUNNING|bash|/home/me/regatta|(null)
16|RUNNING
"""


def test_live_jobs_are_those_of_this_campaign_in_this_folder(command):
    command("squeue", QUEUE)
    found = queue.live_jobs("mine", FOLDER)
    assert [(job.id, job.state, job.batch) for job in found] == [
        ("11", "PENDING", "n02g04-0123456789ab"),
        ("12", "RUNNING", "preflight-0123456789ab"),
    ]
    assert [job.id for job in queue.live_jobs("mine_too", FOLDER)] == ["13"]


def test_states_are_those_of_all_jobs_of_the_user_and_of_the_campaign_s_batches(command, monkeypatch):
    command("squeue", QUEUE)
    found = LAUNCHERS["slurm"].queue.states("mine", FOLDER)
    batches = {"n02g04-0123456789ab": "PENDING", "preflight-0123456789ab": "RUNNING"}
    jobs = {"11": "PENDING"} | dict.fromkeys(("12", "13", "14", "15", "16"), "RUNNING")
    assert found == batches | jobs
    assert LAUNCHERS["none"].queue.states("mine", FOLDER) == {}
    command("squeue", "", status=1)
    assert LAUNCHERS["slurm"].queue.states("mine", FOLDER) is None


@pytest.mark.parametrize(
    ("json_text", "text", "expected"),
    [
        ('{"jobs": [{"job_state": ["NODE_FAIL", "COMPLETING"]}]}', "", "NODE_FAIL"),
        ('{"jobs": [{"job_state": "TIMEOUT"}]}', "", "TIMEOUT"),
        ('{"jobs": [{"job_state": ["COMPLETING"]}]}', "", "COMPLETING"),
        (
            '{"jobs": [{"job_state": ["RUNNING"], "start_time": {"number": 5}, "preempt_time": {"number": 0}}]}',
            "",
            "RUNNING",
        ),
        (
            '{"jobs": [{"job_state": ["RUNNING"], "start_time": {"number": 5}, "preempt_time": {"number": 9}}]}',
            "",
            "PREEMPTED",
        ),
        ('{"jobs": [{"job_state": "RUNNING", "start_time": 9, "preempt_time": 5}]}', "", "RUNNING"),  # requeued since
        ("", "JobState=RUNNING Reason=None PreemptTime=2026-11-28T21:11:49", "PREEMPTED"),
        ("", "JobState=RUNNING Reason=None PreemptTime=None", "RUNNING"),
        ("no json", "JobState=COMPLETING Reason=TimeLimit Dependency=(null)", "TIMEOUT"),
        ("", "JobId=1 JobState=CANCELLED Reason=None", "CANCELLED"),
        ("", "", None),
    ],
)
def test_the_state_behind_completing(monkeypatch, json_text, text, expected):
    monkeypatch.setattr(queue, "ask", lambda line, seconds: json_text if "--json" in line else text)
    assert queue.job_state("1") == expected


def test_only_steps_with_ranks_are_signalled(command, tmp_path):
    command("squeue", "7.batch|n1|x\n7.extern|n1|x\n7.0|n1|regatta\n7.1|n1|of the user\n7.3|n1|regatta\n")
    command("scancel", "")
    queue.signal_steps("7", "USR1")
    assert (tmp_path / "scancel.calls").read_text() == "--signal=USR1 7.0 7.3\n"


def test_steps_are_ended_also_when_squeue_does_not_answer_at_once(monkeypatch):
    answers = iter([None, "7.batch|n1|x\n7.0|n1|regatta", "7.0|n1|regatta", "7.batch|n1|x"])
    monkeypatch.setattr(queue, "answer", lambda line, *_: next(answers) if line[0] == "squeue" else asked.append(line))
    monkeypatch.setattr(queue, "POLL_SECONDS", 0.0)
    asked = []
    queue.end_steps("7")
    assert asked == [["scancel", "--signal=TERM", "7.0"], ["scancel", "--signal=KILL", "7.0"]]


def test_whether_slurmctld_answers_is_what_scontrol_says(command):
    command("scontrol", "Slurmctld(primary) at login is UP")
    assert queue.is_answering()
    command("scontrol", "Slurmctld(primary) at login is DOWN", status=1)
    assert not queue.is_answering()


def test_ranks_meet_at_a_port_that_differs_from_launch_to_launch():
    ports = {int(queue.meeting_point()["MASTER_PORT"]) for _ in range(8)}
    assert len(ports) > 1
    assert all(1024 <= port < 65536 for port in ports)


def test_the_steps_that_measure_are_known_by_their_name(command, monkeypatch):
    command("squeue", "7.batch|n1|regatta\n7.0|n1|regatta\n7.1|n1|bash\n7.2|n1|regatta\n")
    monkeypatch.setenv("SLURM_STEP_ID", "2")  # this process itself runs in one
    assert queue.running_steps("7") == ["7.0"]
    command("squeue", "", status=1)
    assert queue.running_steps("7") is None


@pytest.mark.parametrize(
    ("num_nodes", "avoid", "expected"),
    [
        (1, [], ["n7"]),
        (2, [], ["n7", "n8"]),
        (2, ["n7"], ["n8", "n10"]),
        (2, ["n8", "n10"], ["n7", "n8"]),  # there are no others
        (3, ["n7"], []),  # all nodes of the job: nothing to choose
    ],
)
def test_a_step_is_pinned_to_the_first_nodes_of_a_larger_job_and_leaves_bad_ones_out(
    command, num_nodes, avoid, expected
):
    command("squeue", "n[7-8,10]")
    command("scontrol", "n7\nn8\nn10\n")
    assert Allocation(LAUNCHERS["slurm"], "7").step_hosts(num_nodes, avoid) == expected
    assert Allocation().step_hosts(num_nodes, avoid) == []


def test_all_commands_query_the_cluster_of_the_cluster_file(command, tmp_path, monkeypatch):
    """Some versions of Slurm then print a heading, in spite of --noheader."""
    for name in ("squeue", "sinfo", "scontrol", "scancel", "sbatch"):
        command(name, "CLUSTER: blue\n")
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text.replace("echo", 'echo "$SLURM_CLUSTERS"', 1))
    monkeypatch.setenv("SLURM_CLUSTERS", "green")
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    def asked(site) -> set[str]:
        for path in tmp_path.glob("*.calls"):
            path.unlink()
        load(tmp_path, TEXT.replace("{kind: host}", "{kind: host, python: /bin/ls}"), SLURM | site)
        launcher = LAUNCHERS["slurm"]
        launcher.queue.hosts("7")
        launcher.queue.is_answering()
        assert queue.submit(["sbatch"], "").returncode == 0
        launcher.jobs.most_nodes({"partition": None, "num_nodes": 4})
        queue.ask(["scancel", "7"])
        monkeypatch.delenv("SLURM_JOB_ID", raising=False)
        launcher.jobs.most_nodes({"partition": None, "num_nodes": 4})
        assert launcher.queue.states("mine", FOLDER) == {}
        return {word for path in tmp_path.glob("*.calls") for word in path.read_text().split() if word in COLORS}

    assert asked({"clusters": "blue"}) == {"blue"}
    assert len([*tmp_path.glob("*.calls")]) == 5
    assert asked({}) == {"green"}
    find_allocation({"name": "c", "scheduler": "none"})
    assert queue.environment()["SLURM_CLUSTERS"] == "green"


@pytest.mark.parametrize("name", ["all", "a,b", "a b", "", "--x"])
def test_a_cluster_file_names_one_cluster(folder, name):
    assert "clusters = " in message(folder, TEXT, SLURM | {"clusters": name})


def test_a_command_that_fails_or_is_not_there_says_nothing(command):
    command("squeue", "garbage", status=1)
    assert queue.ask(["squeue"]) == queue.ask(["no-such-command"]) == ""
    assert queue.live_jobs("mine", FOLDER) is None  # and not: there are none


def test_a_queue_that_does_not_answer_ends_in_words_and_not_in_a_second_submission(monkeypatch):
    monkeypatch.setattr(queue, "SECONDS_WITHOUT_ANSWER", 0)
    monkeypatch.setattr(queue, "WAIT_SECONDS", 0)
    monkeypatch.setattr(queue, "answer", lambda line, seconds=0: None)
    monkeypatch.setattr(queue.shutil, "which", lambda name: f"/usr/bin/{name}")
    with pytest.raises(UserError, match=r"^squeue does not"):
        queue.wait_for_live_jobs("mine", FOLDER)


def test_without_slurm_no_answer_is_awaited(monkeypatch):
    monkeypatch.setattr(queue.shutil, "which", lambda name: None)
    monkeypatch.setattr(queue.time, "sleep", lambda seconds: pytest.fail("it waits"))
    with pytest.raises(UserError, match="squeue is not"):
        queue.wait_for_live_jobs("mine", FOLDER)


def test_a_job_submitted_within_an_allocation_does_not_take_over_its_variables(monkeypatch, wording):
    monkeypatch.setenv("SLURM_CONF", "/etc/my slurm.conf")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    monkeypatch.setenv("SBATCH_PARTITION", "long")
    done = queue.submit(["sh"], "echo $SLURM_CONF, ${SLURM_NTASKS_PER_NODE-none}, $SBATCH_PARTITION")
    assert done.stdout == "/etc/my slurm.conf, none, long\n"
    assert queue.submit(["no-such-sbatch"], "").returncode == 1
    wording([queue.submit(["sh"], script).stderr for script in ("exit 3", "kill -9 $$")])


def test_containers_that_the_users_shell_names_do_not_reach_slurm(monkeypatch):
    """Pyxis would put the ranks of a host stack into this image."""
    for name in ("PYXIS_CONTAINER_IMAGE", "ENROOT_MOUNT_HOME", "EDF_PATH", "SBATCH_UENV", "SBATCH_PARTITION"):
        monkeypatch.setenv(name, "x")
    assert queue.submit(["sh"], "env | grep -E '^(PYXIS|ENROOT|EDF|SBATCH)_'").stdout == "SBATCH_PARTITION=x\n"


def test_states_and_reasons_are_those_of_squeue(monkeypatch):
    monkeypatch.setattr(queue, "answer", lambda line: "7|PENDING|PartitionConfig\n8|COMPLETED|None\nnoise")
    assert queue.states_and_reasons() == {"7": ("PENDING", "PartitionConfig"), "8": ("COMPLETED", "None")}
    monkeypatch.setattr(queue, "answer", lambda line: None)
    assert queue.states_and_reasons() is None


def test_ranks_of_a_slurm_cluster_are_started_only_in_a_job(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert find_allocation({"name": "c", "scheduler": "none"}).job is None
    with pytest.raises(UserError, match="profiles/slurm"):
        find_allocation({"name": "c", "scheduler": "slurm"})
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert find_allocation({"name": "c", "scheduler": "slurm"}).job == "7"


@pytest.mark.parametrize(
    ("job", "shapes", "expected"),
    [
        ({"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_CPUS_PER_NODE": "8(x2)"}, [(2, 4), (1, 1)], None),
        ({"SLURM_JOB_NUM_NODES": "2"}, [(4, 1)], "shape 4x1 needs 4 nodes; this allocation has 2"),
        (
            {"SLURM_JOB_NUM_NODES": "3", "SLURM_JOB_CPUS_PER_NODE": "16(x2),4"},
            [(1, 4)],
            "shape 1x4 needs 4 x 2 cores on a node; this allocation has 4",
        ),
        ({}, [(64, 8)], None),  # a site whose Slurm does not say
    ],
)
def test_an_allocation_that_is_too_small_is_told_before_anything_starts(monkeypatch, job, shapes, expected):
    for name in ("SLURM_JOB_NUM_NODES", "SLURM_JOB_CPUS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in job.items():
        monkeypatch.setenv(name, value)
    assert queue.does_not_fit(shapes, 2) == expected


def test_filters_of_the_users_shell_do_not_hide_jobs(monkeypatch, tmp_path):
    """SQUEUE_PARTITION made a second run submit again what still ran."""
    monkeypatch.setenv("SQUEUE_PARTITION", "short")
    monkeypatch.setenv("SINFO_PARTITION", "short")
    assert queue.answer(["sh", "-c", "echo ${SQUEUE_PARTITION-none} ${SINFO_PARTITION-none}"]) == "none none"


def test_names_that_are_not_utf8_are_read():
    assert queue.answer(["printf", "m\\374ller"]) == "m\N{REPLACEMENT CHARACTER}ller"
