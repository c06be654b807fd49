"""Seeded mutations of campaign and cluster files: each loads, or is refused with file and line, in bounded time."""

import random
import re
import signal
from pathlib import Path

import pytest
import yaml
from campaign_files import CLUSTER, SLURM, TEXT, write

from regatta.campaign.load import load_campaign
from regatta.campaign.matrix import expand
from regatta.core.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
NUM_FILES, SEED, MOST_SECONDS = 840, 20261123, 10
SCALARS = [
    "", "~", "null", "true", "no", "-1", "0", "0777", "-0o7", "0x1F", "1e3", "1e400", "-.inf", ".nan", "1:30", "1_000",
    "9" * 40, "9" * 5000, "0." + "9" * 400, "2001-01-01", "2001-01-01 25:61:61", "[]", "{}", "[[]]", "[1, 1]", "{a: 1}",
    "a" * 300, "../../etc/passwd", "/dev/zero", "..", ".", "a/b", "-rf", "--help", "*", "!", "!!int \"\"", "!!float x",
    "!!timestamp no", "!!bool x", "!!binary x", "!!null x", "!!set {a}", "!!omap [a: 1]", "!!str 1", "!foo bar",
    "!!python/object/apply:os.system [touch hacked]", "!!seq {a: 1}", "!!map [a]", '"\\0"', '"a\\nb"', '"\\ud800"',
    '"\\u2028"', '"\\e[31m"', "$(touch hacked)", "`touch hacked`", "${HOME}", "$", "'", "&a [*a]", "*nowhere", "? a",
    "<<: 1", "|\n    a\n    b", ">-\n   x", "%", "@", "a: b: c", "{a: [}", "\t", "\x00", "\x07", "\ufeff", "é" * 40,
    "[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000, str(list(range(2000))), "[1, 2, 4, 8, 16, 32, 64, 128, 256]",
]  # fmt: skip
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9)
)


def texts() -> list[str]:
    """Return the campaign and cluster files to mutate: short ones for tests, and those that are shipped."""
    cluster = yaml.safe_dump(CLUSTER | SLURM | {"partition": "gpu", "srun": ["--mpi=none"], "env": {"A": "1"}})
    shipped = sorted((ROOT / "config").rglob("*.yaml"))
    return [TEXT, cluster, *(path.read_text() for path in shipped)]


def mutated(text: str, rng: random.Random) -> str:
    """Return a text with one to three edits: of a value, a key, a line, an indentation or a character."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        place = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0 | 1 | 2:
                lines[place] = re.sub(r":( .*)?$", lambda _: ": " + rng.choice(SCALARS), lines[place], count=1)
            case 3:
                lines[place] = re.sub(r"[\w.]+(?=[\]},]|$)", lambda _: rng.choice(SCALARS), lines[place], count=1)
            case 4:
                lines.insert(place, lines[rng.randrange(len(lines))])
            case 5:
                del lines[place]
            case 6:
                lines[place] = rng.choice(("  ", "\t", "- ", "")) + lines[place].lstrip()
            case 7:
                letter = rng.randrange(len(lines[place]) + 1)
                lines[place] = (
                    lines[place][:letter] + rng.choice("\x00\x1b:{}[]&*!|>'\"%@`#é\u2028-?,") + lines[place][letter:]
                )
        text = "\n".join(lines)
    return text if rng.random() > 0.02 else BOMB + text


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
