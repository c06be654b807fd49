"""One read-only installation serves several users: each has results where the command is started."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from campaigns import QUICK_REPORT, ROOT, SCRIPTS, fake_campaign, record_lines
from copied_tree import NOT_COPIED

ALICE, BOB = 54_321, 54_322
SITE = {"schema": 1, "name": "site", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root on Linux"),
]


@pytest.fixture
def place():
    """A folder that every user may enter, with the read-only installation of another user."""
    folder = Path("/var/tmp") / f"regatta-two-users-{os.getpid()}"
    installation = folder / "regatta"
    shutil.copytree(ROOT, installation, ignore=shutil.ignore_patterns(*NOT_COPIED, "examples", "docs"))
    subprocess.run(["git", "init", "--quiet", str(installation)], check=True)
    os.chown(installation / ".git", BOB, BOB)
    subprocess.run(["chmod", "-R", "a+rX,a-w", str(installation)], check=True)
    yield folder
    subprocess.run(["chmod", "-R", "u+w", str(folder)], check=True)
    shutil.rmtree(folder)


def as_user(user: int) -> list[str]:
    """Return the words before a command of a user. A Python in root's home is mounted where the user may enter."""
    line = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs"]
    if not sys.base_prefix.startswith("/root/"):
        return line
    mounts = (
        'mount --bind "$0" /mnt && mount -t tmpfs -o mode=755 none /root && mkdir -p "$0" && mount --move /mnt "$0"'
    )
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", f'{mounts} && exec "$@"', sys.base_prefix, *line]


def start(place: Path, user: int, **changes) -> subprocess.Popen:
    home = place / str(user)
    home.mkdir()
    fake = place / "regatta" / "tests" / "workflow" / "fake_launch.py"
    stacks = {"host": {"kind": "host", "python": str(fake), "env": {"FAKE_CELL_SECONDS": "0.4"}}}
    campaign = fake_campaign(cluster="./site.yaml", stacks=stacks, repeats=1, **changes)
    (home / "site.yaml").write_text(yaml.safe_dump(SITE))
    (home / "campaign.yaml").write_text(yaml.safe_dump(campaign))
    os.chown(home, user, user)
    script = place / "regatta" / SCRIPTS.relative_to(ROOT) / "run_campaign.py"
    python = shutil.which("python3", path=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    line = [*as_user(user), python, str(script), "campaign.yaml", "--profile", "profiles/local"]
    environment = (
        os.environ | QUICK_REPORT | {"HOME": str(home), "LOGNAME": f"user{user}", "PYTHONDONTWRITEBYTECODE": "1"}
    )
    environment.pop("XDG_CACHE_HOME", None)
    return subprocess.Popen(
        line, cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_two_users_measure_in_turns_with_one_installation_that_they_cannot_write(place):
    if subprocess.run([*as_user(ALICE), sys.executable, "-c", "import snakemake, pandas"]).returncode:
        pytest.skip("needs an environment that other users can read")
    runs = {user: start(place, user) for user in (ALICE, BOB)}
    outputs = {user: process.communicate(timeout=240)[0] for user, process in runs.items()}
    spans = []
    for user, process in runs.items():
        assert process.returncode == 0, outputs[user]
        results = place / str(user) / "results" / "small"
        assert len(record_lines(results)) == 7
        assert {path.stat().st_uid for path in results.rglob("*")} == {user}
        run = json.loads((results / "run.json").read_text())
        assert run["start"][1:] == [str(place / "regatta" / "workflow/scripts/run_campaign.py"), *run["start"][2:]]
        for file in results.glob("launches/*.jsonl"):
            times = [json.loads(line)["time_utc"] for line in file.read_text().splitlines() if "time_utc" in line]
            spans.append((min(times), max(times), user))
    assert any(re.search(r" \(process \d+\)$", text, re.MULTILINE) for text in outputs.values())  # who is waited for
    ordered = sorted(spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(ordered))
    assert {user for *_, user in ordered} == {ALICE, BOB}
    assert not any((place / "regatta" / name).exists() for name in ("results", ".snakemake"))
