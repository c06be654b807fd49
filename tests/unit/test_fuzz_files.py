"""Seeded mutations of campaign and cluster files: each loads, or is refused with file and line, in bounded time."""

import os
import random
import re
import signal
from pathlib import Path

import pytest
import yaml
from campaign_files import CLUSTER, SLURM, TEXT, write

from mutations import SEED, mutated
from regatta.campaign.expansion import expand
from regatta.campaign.load import load_campaign
from regatta.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
NUM_FILES, MOST_SECONDS = 840 if "REGATTA_THOROUGH" in os.environ else 300, 10


def texts() -> list[str]:
    """Return the campaign and cluster files to mutate: short ones for tests, and those that are shipped."""
    cluster = yaml.safe_dump(CLUSTER | SLURM | {"partition": "gpu", "srun": ["--mpi=none"], "env": {"A": "1"}})
    shipped = sorted((ROOT / "config").rglob("*.yaml"))
    return [TEXT, cluster, *(path.read_text() for path in shipped)]


def outcome(path: Path, clusters: Path) -> str:
    """Load and expand a campaign. Return the message of its refusal, or an empty string."""
    try:
        expand(load_campaign(path, clusters, may_lack_files=True))
    except UserError as error:
        return str(error)
    return ""


@pytest.fixture
def time_limit():
    def too_long(*_: object) -> None:
        raise TimeoutError(f"more than {MOST_SECONDS} s")

    before = signal.signal(signal.SIGALRM, too_long)
    yield lambda: signal.alarm(MOST_SECONDS)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_mutated_files_load_or_are_refused_with_file_and_line(tmp_path, monkeypatch, time_limit):
    monkeypatch.chdir(tmp_path)
    rng, wrong, refused = random.Random(SEED), [], 0
    sources = texts()
    write(tmp_path, TEXT)
    names = {path.stem for path in (ROOT / "config" / "clusters").glob("*.yaml")}
    for name in names:
        (tmp_path / "clusters" / f"{name}.yaml").write_text((ROOT / "config" / "clusters" / f"{name}.yaml").read_text())
    before = sorted(tmp_path.rglob("*"))
    for number in range(NUM_FILES):
        text = mutated(rng.choice(sources), rng)
        is_cluster = "num_nodes:" in text
        path = tmp_path / "clusters" / "tiny.yaml" if is_cluster else tmp_path / "campaign.yaml"
        text = re.sub(r"^name: (\S+)", "name: tiny", text, count=1, flags=re.M) if is_cluster else text
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        if is_cluster:
            (tmp_path / "campaign.yaml").write_text(TEXT)
        time_limit()
        try:
            message = outcome(tmp_path / "campaign.yaml", tmp_path / "clusters")
        except Exception as error:
            wrong.append((number, repr(error)[:200], text))
        else:
            refused += bool(message)
            if any(
                not re.match(rf"({re.escape(str(tmp_path))}\S*\.yaml(:\d+)?: |\.\.\. and \d+ more)", line)
                for line in message.splitlines()
            ):
                wrong.append((number, message[:400], ""))
        if is_cluster:
            write(tmp_path, TEXT)
    assert sorted(tmp_path.rglob("*")) == before
    assert refused > NUM_FILES / 3
    assert wrong == []
