"""Campaigns on the test cluster, and helpers with which a drill checks their results."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from slurm import CHECKOUT, Cluster, wait_until

SAMPLING = {"min_seconds": 0.02, "max_seconds": 0.1, "max_warmup_seconds": 0.05}
SITE = {
    "schema": 1,
    "name": "drill",
    "scheduler": "slurm",
    "num_nodes": 2,
    "gpus_per_node": 4,
    "cpus_per_rank": 1,
    "max_walltime_minutes": 10,
}
FOLDERS = ("config", "containers", "profiles", "workflow", "tests/workflow", "tests/cluster")
NUM_RECORDS = 8  # of fake_campaign: 4 cells x 2 launches
NUM_HELD = 2  # records when a launch is held in its third cell


@dataclass(frozen=True)
class Site:
    """A copy of the checkout on the cluster's shared file system, for one drill."""

    cluster: Cluster
    name: str
    processes: list[subprocess.Popen] = field(default_factory=list)  # started by popen()

    @property
    def host_folder(self) -> Path:
        return self.cluster.shared / self.name

    @property
    def folder(self) -> str:
        return f"/shared/{self.name}"

    def write(self, campaign: dict, **site: object) -> Path:
        """Write a campaign and its cluster file; returns the campaign's path on the host."""
        (self.host_folder / "config/clusters/drill.yaml").write_text(yaml.safe_dump(SITE | site))
        path = self.host_folder / "campaign.yaml"
        path.write_text(yaml.safe_dump(campaign, sort_keys=False))
        self.own()
        return path

    def own(self) -> None:
        subprocess.run(["chown", "-R", "--reference", str(self.cluster.shared), str(self.host_folder)], check=True)

    def line(self, *words: str, is_quick: bool = True) -> list[str]:
        head = [
            "env",
            "PYTHONPATH=workflow/plugins",
            self.cluster.python,
            "-m",
            "snakemake",
            "--profile",
            "profiles/slurm",
            "--latency-wait",
            "5",
        ]
        head += ["--seconds-between-status-checks", "1"] if is_quick else []
        return [*head, *words, "--configfile", "campaign.yaml"]

    def snakemake(self, *words: str, check: bool = True, timeout: float = 400) -> subprocess.CompletedProcess:
        return self.cluster.run(self.line(*words), cwd=self.folder, check=check, timeout=timeout)

    def popen(self, *words: str, path: str | None = None, is_quick: bool = True) -> subprocess.Popen:
        """Start Snakemake. is_quick: with a status query each second, instead of the pauses of users' runs."""
        output = (self.host_folder / "snakemake.out").open("a")
        line = [*(["env", path] if path else []), *self.line(*words, is_quick=is_quick)]
        self.processes.append(self.cluster.popen(line, cwd=self.folder, stdout=output, stderr=subprocess.STDOUT))
        return self.processes[-1]

    def end(self) -> None:
        """Print what a failed test leaves, and kill Snakemakes that would submit jobs during the next test."""
        state = self.cluster.run(["sh", "-c", "squeue --long; sinfo --long --Node"], check=False)
        print(f"{self.statuses()}\n{state.stdout}{state.stderr}{self.logs()}")
        for process in self.processes:
            process.kill()
            process.wait()
        self.cluster.run(["scancel", "--me"])

    @property
    def results(self) -> Path:
        return self.host_folder / "results" / "drill"

    def lines(self) -> list[dict]:
        found = []
        for path in sorted((self.results / "launches").glob("*.jsonl")):
            for text in path.read_text().splitlines():
                try:
                    found.append(json.loads(text) | {"file": path.name})
                except ValueError:
                    continue
        return found

    def records(self) -> list[dict]:
        return [line for line in self.lines() if line["kind"] == "record"]

    def statuses(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for record in self.records():
            counts[record["status"]] = counts.get(record["status"], 0) + 1
        return counts

    def slots(self) -> list[tuple[str, int]]:
        """Return cell and repeat of each record that is ok."""
        return sorted((record["cell"], record["repeat"]) for record in self.records() if record["status"] == "ok")

    def stops(self) -> list[str]:
        """Return why launches were stopped, by their last lines."""
        return [line["signal"] for line in self.lines() if line["kind"] == "stopped"]

    def jobs(self) -> list[dict]:
        """Return what was noted of jobs that ended before their batch was finished."""
        files = sorted(self.results.glob("batches/*/jobs.jsonl"))
        lines = [json.loads(line) for path in files for line in path.read_text().splitlines()]
        return [line for line in lines if line["kind"] not in ("started", "finished")]

    def logs(self) -> str:
        """Return the logs of all launches that did not end well."""
        failed = {record["file"].removesuffix(".jsonl") for record in self.records() if record["status"] != "ok"}
        found = [path for path in sorted(self.results.rglob("*.log")) if path.stem in failed]
        return "".join(f"\n== {path.name}\n{path.read_text(errors='replace')}" for path in found)

    def pass_preflight(self) -> None:
        """Freeze the campaign and run its preflight as its job does, without the three Snakemakes that this takes
        otherwise. A run of Snakemake then begins with the batches."""
        python = self.cluster.python
        freeze = f"{python} workflow/scripts/freeze.py --campaign campaign.yaml"
        preflight = f"{python} workflow/scripts/preflight.py --folder results/drill/preflight/preflight-*"
        salloc = ["salloc", "--quiet", "--nodes=2", "--ntasks-per-node=2"]
        self.cluster.run([*salloc, "sh", "-c", f"{freeze} && exec {preflight}"], cwd=self.folder)
        [result] = self.results.glob("preflight/*.json")
        assert all(stack["verdict"]["ok"] for stack in json.loads(result.read_text())["stacks"])

    def hold(self) -> dict[str, str]:
        """Have each launch wait in its third cell until release(); returns the stack's variables for it."""
        self.hold_file.touch()
        return {"FAKE_HOLD_FILE": f"{self.folder}/{self.hold_file.name}"}

    def release(self) -> None:
        self.hold_file.unlink()

    @property
    def hold_file(self) -> Path:
        return self.host_folder / "hold"

    def wait_until_held(self) -> list[tuple[str, int]]:
        """Wait until the batch's first launch is in its third cell; returns cell and repeat of the two before."""
        wait_until(lambda: len(self.records()) >= NUM_HELD, 240, "two records")
        return self.slots()

    def popen_behind_a_job(self) -> tuple[subprocess.Popen, str]:
        """Start Snakemake while a job has both nodes; returns both once the first job that it submits waits."""
        blocker = self.cluster.submit("--nodes=2")
        wait_until(lambda: self.cluster.squeue().get(blocker) == "RUNNING", 60, "the nodes taken")
        snakemake = self.popen("--retries", "0")
        wait_until(lambda: "PENDING" in self.cluster.squeue().values(), 90, "a job that waits")
        return snakemake, blocker

    def output(self) -> str:
        """Return what the Snakemakes that popen() started have printed."""
        return (self.host_folder / "snakemake.out").read_text()

    def report(self) -> str:
        return (self.results / "report.html").read_text()


UNTIL_MEASURED = ("--until", "measure")  # no report: Snakemake's own exit status


def submitted(output: str, rule: str = "measure") -> int:
    """Return how many jobs of a rule Snakemake has submitted, by what it printed."""
    lines = output.splitlines()
    return sum(": Slurm job " in line and f"/rule_{rule}/" in line for line in lines)


def report_says(site: Site, name: str, words: str) -> None:
    """Assert that the report of a campaign was built and says these words, and a table or problems.json beside it too.

    The page leaves out the host of a rank where no host has more failures than others.
    """
    results = site.host_folder / "results" / name
    page, without_host = (results / "report.html").read_text(), re.sub(r"^(rank \d+) on \w+", r"\1", words)
    assert without_host in " ".join(html.unescape(page).split())
    problems = (results / "problems.json").read_text().replace('\\"', '"')
    failures = (results / "tables" / "failures.csv").read_text().replace('""', '"')
    assert words in problems or words in failures


def change_srun(site: Site, words: dict[str, str]) -> str:
    """Put an srun before the real one that changes words of its command line; returns the PATH that has it."""
    cases = "".join(f"    {old}) word={new} ;;\n" for old, new in words.items())
    text = f"words=()\nfor word; do\n  case $word in\n{cases}  esac\n"
    return wrap_srun(site, text + '  words+=("$word")\ndone\nset -- "${words[@]}"\n')


def wrap_srun(site: Site, text: str) -> str:
    """Put an srun before the real one that runs some shell commands first; returns the PATH that has it."""
    tools = site.host_folder / "bin"
    tools.mkdir()
    (tools / "srun").write_text(f'#!/bin/bash\n{text}exec /usr/bin/srun "$@"\n')
    (tools / "srun").chmod(0o755)
    return f"PATH={site.folder}/bin:/usr/bin:/bin"


def make_site(cluster: Cluster, name: str) -> Site:
    """Copy what runs to the shared file system."""
    site = Site(cluster, name)
    shutil.rmtree(site.host_folder, ignore_errors=True)
    for folder in FOLDERS:
        shutil.copytree(CHECKOUT / folder, site.host_folder / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CHECKOUT / "Snakefile", site.host_folder)
    fake = site.host_folder / "tests/cluster/fake_ranks.py"
    fake.write_text(fake.read_text().replace("/usr/bin/env python3", cluster.python, 1))  # the nodes have no other
    site.own()
    return site


def fake_campaign(site: Site, env: dict | None = None, **changes: object) -> dict:
    """Return a campaign whose ranks are played by fake_ranks.py: 4 cells at 2 nodes x 2 ranks, two launches."""
    python = f"{site.folder}/tests/cluster/fake_ranks.py"
    return campaign({"fake": {"kind": "host", "python": python, "env": env or {}}}, **changes)


def held_campaign(site: Site, **changes: object) -> dict:
    """Return the same, held in the third cell of a launch until the site's release()."""
    limits = {"cell_seconds": 400, "launch_start_seconds": 240}  # it is held longer than a cell may take
    return fake_campaign(site, site.hold(), **({"limits": limits} | changes))


TRAIN_STEP = {
    "benchmark": "train_step",
    "parameters": {"model": ["lm_tiny"], "context_length": [16], "batch_size": [2], "strategy": ["ddp"]},
}


def script_entry(path: str) -> dict:
    """Return an entry for a copy of examples/script/train.py: 12 timed steps."""
    return {
        "benchmark": "script",
        "script": path,
        "arguments": ["--batch-size={batch}"],
        "parameters": {"batch": [4]},
        "samples_per_step": "{batch}",
        "steps": {"warmup": 3, "measure": 12},
    }


def campaign(stacks: dict, **changes: object) -> dict:
    return {
        "schema": 1,
        "name": "drill",
        "cluster": "drill",
        "device": "cpu",
        "backend": ["gloo"],
        "stacks": stacks,
        "shapes": [{"nodes": [2], "gpus_per_node": [2]}],
        "repeats": 2,
        "sampling": SAMPLING,
        "limits": {"cell_seconds": 120, "launch_start_seconds": 240},  # torch takes long to start on a busy machine
        "benchmarks": [
            {
                "benchmark": "collective",
                "parameters": {"operation": ["all_reduce"], "message_bytes": [1024, 4096, 16384, 65536]},
            }
        ],
    } | changes
