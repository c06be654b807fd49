#!/usr/bin/env python3
"""Substitute for the commands of Slurm in tests: their names are links to this file, in a folder of PATH.

A job runs at once on this machine, as one node or several. FAKE_SLURM is a folder with a file for each job: the options
of its sbatch, and its exit status.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

COMMANDS = ("sbatch", "squeue", "srun", "scontrol", "scancel")


def sbatch(words: list[str]) -> None:
    folder = Path(os.environ["FAKE_SLURM"])
    options = [word for word in words if word.startswith("-")]
    scripts = [word for word in words if not word.startswith("-")]
    job = str(1 + len(list(folder.glob("*.json"))))
    script = folder / f"{job}.sh"
    script.write_text(Path(scripts[0]).read_text() if scripts else sys.stdin.read())
    (folder / f"{job}.json").write_text(json.dumps(options))
    nodes = next((int(option.partition("=")[2]) for option in options if option.startswith("--nodes=")), 1)
    variables = {"SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": ",".join(f"n{number + 1}" for number in range(nodes))}
    line = (
        f"sh {script} >{folder}/{job}.log 2>&1; echo $? >{folder}/{job}.part; mv {folder}/{job}.part {folder}/{job}.rc"
    )
    environment = os.environ | variables
    subprocess.Popen(["sh", "-c", line], env=environment, start_new_session=True, stdin=subprocess.DEVNULL)
    print(job)


def squeue(words: list[str]) -> None:
    folder = Path(os.environ["FAKE_SLURM"])
    form = next(word.partition("=")[2] for word in words if word.startswith("--format="))
    if "--steps" in words:
        return
    for file in sorted(folder.glob("*.json")):
        end = file.with_suffix(".rc")
        state = "RUNNING" if not end.exists() else "COMPLETED" if end.read_text().strip() == "0" else "FAILED"
        options = dict(option.partition("=")[::2] for option in json.loads(file.read_text()))
        nodes = ",".join(f"n{number + 1}" for number in range(int(options.get("--nodes", 1))))
        values = {"%i": file.stem, "%T": state, "%r": "None", "%N": nodes, "%j": options.get("--job-name", "")}
        values |= {"%k": options.get("--comment", ""), "%Z": options.get("--chdir", "")}
        wanted = [word.partition("=")[2] for word in words if word.startswith("--jobs=")]
        if not wanted or file.stem in wanted:
            print("|".join(values[part] for part in form.split("|")))


def srun(words: list[str]) -> None:
    num = next(int(word.partition("=")[2]) for word in words if word.startswith("--ntasks="))
    while words[0].startswith("-"):
        words = words[1:]
    ranks = [subprocess.Popen(words, env=os.environ | {"SLURM_PROCID": str(rank)}) for rank in range(num)]
    sys.exit(max(rank.wait() for rank in ranks))


def scontrol(words: list[str]) -> None:
    if words[:2] == ["show", "hostnames"]:
        print("\n".join(words[2].split(",")))
    sys.exit(words[0] not in ("show", "ping") or "job" in words)


def scancel(words: list[str]) -> None:
    sys.exit(0)


def install(folder: Path) -> dict[str, str]:
    """Link the commands into a folder, and return the variables of a process that is to find them."""
    (folder / "bin").mkdir()
    (folder / "jobs").mkdir()
    for name in COMMANDS:
        (folder / "bin" / name).symlink_to(Path(__file__).resolve())
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    return {"PATH": path, "FAKE_SLURM": str(folder / "jobs")}


def requests(folder: Path) -> list[list[str]]:
    """Return the options of each job's sbatch, in the order of submission."""
    files = sorted((folder / "jobs").glob("*.json"), key=lambda file: int(file.stem))
    return [json.loads(file.read_text()) for file in files]


if __name__ == "__main__":
    globals()[Path(sys.argv[0]).name](sys.argv[1:])
