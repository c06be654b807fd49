"""Every table of the synthetic campaigns, to six digits, as the scripts write it.

tests/golden/tables/<campaign>/ has what collect.py, analyse.py, compare.py and export_results.py wrote before the code was
split by topic. A change here means that published numbers change: CHANGELOG names the column, and the files are
rewritten by REGATTA_WRITE_GOLDEN=1 pytest tests/unit/test_frozen_tables.py. A table without rows has no file.
"""

import importlib
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from published_columns import without_new_columns
from synthetic import CLUSTER, LAPTOP, cluster_campaign, laptop_campaign, write_laptop, write_results
from synthetic_failures import write_failing
from synthetic_sweep import FAULTS, SLOWDOWNS, sweep_campaign, write_sweep
from synthetic_training import norm_cell, norm_record, run_cell, run_record
from synthetic_waits import write_waits
from test_training_runs import write_store

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
TABLES = GOLDEN / "tables"
TIME = "2026-11-21T23:00:00Z"
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.])")


def run(program: str, *arguments: object) -> None:
    """Call the main function of workflow/scripts/<program>.py as its command line would."""
    argv, sys.argv = sys.argv, [f"{program}.py", *map(str, arguments)]
    try:
        importlib.import_module(program).main()
    except SystemExit as end:
        if end.code not in (0, 1):  # compare.py: 1 where a cell got slower
            raise
    finally:
        sys.argv = argv


def write_small_cluster(folder: Path) -> Path:
    """Write the cluster campaign without its largest shapes and middle sizes, which would add only bytes."""
    campaign = cluster_campaign(repeats=3)
    campaign["cells"] = [cell for cell in campaign["cells"] if cell["spec"]["nodes"] < 8 and is_small(cell["spec"])]
    return write_results(folder, campaign, CLUSTER)


def is_small(spec: dict) -> bool:
    return spec["parameters"].get("message_bytes", 1024) in (1024, 65536, 1048576)


def write_trainings(folder: Path) -> Path:
    runs = [run_cell("none", gpus=1), run_cell("ddp"), run_cell("own")]
    norms = [norm_cell(implementation, size, 64) for implementation in ("torch", "own") for size in (8, 32)]
    records = [run_record(cell, repeat, TIME) for cell in runs for repeat in range(3)]
    records += [norm_record(cell, repeat, TIME, 400 + 50 * repeat) for cell in norms for repeat in range(3)]
    write_store(folder, [*runs, *norms], records)
    return folder


def import_published(folder: Path) -> Path:
    """Import published outputs of three benchmarks."""
    names = ("ddp-2x4.json", "nccl-13-columns.txt", "nccl-per-iteration.json", "suite-4gpu.json")
    files = [GOLDEN / "formats" / name for name in names]
    run("import_results", *files, "--campaign", folder.name, "--results", folder.parent, "--gpus-per-node", 4)
    return folder


def write_small_sweep(folder: Path, over: str) -> Path:
    """Write a sweep of few nodes, among them a slow and a failed one, and for pairs a slow link."""
    names = ["n1", "n3", "n5", "n7", "n9", "n17"]
    return write_sweep(folder, sweep_campaign(names, over, messages=(2**28,)), SLOWDOWNS, FAULTS)


CAMPAIGNS = {
    "laptop": write_laptop,
    "cluster": write_small_cluster,
    "failures": write_failing,
    "slow-rank": lambda folder: write_waits(folder, (2, 4), {5: 0.1}),
    "slow-host": lambda folder: write_waits(folder, (4, 2), {2: 0.1, 3: 0.1}),
    "trainings": write_trainings,
    "imported": import_published,
    "sweep": lambda folder: write_small_sweep(folder, "nodes"),
    "sweep-pairs": lambda folder: write_small_sweep(folder, "pairs"),
}


def write_tables(name: str, folder: Path) -> dict[str, str]:
    """Write a campaign and all that is computed of it into `folder`. Returns file name -> text."""
    CAMPAIGNS[name](folder)
    (campaign,) = folder.glob("campaign.*.json")
    run("collect", "--campaign", campaign, "--launches", folder / "launches", "--out", folder / "measurements.csv")
    run(
        "analyse", "--campaign", campaign, "--measurements", folder / "measurements.csv", "--out-dir", folder / "tables"
    )
    if name == "laptop":
        run("export_results", folder, "--format", "csv", "--out", folder / "tables" / "exported.csv")
        slower = write_laptop_again(folder.with_name("slower"))
        run("compare", folder, slower, "--csv", folder / "tables" / "compared.csv")
    files = [*folder.glob("*.csv"), *folder.glob("problems.json"), *folder.glob("tables/*")]
    return {path.name: stable(path.read_text(encoding="utf-8"), folder.parent) for path in sorted(files)}


def has_rows(file: str, text: str) -> bool:
    return not file.endswith(".csv") or text.count("\n") > 1


def stable(text: str, scratch: Path) -> str:
    """Return a text without the temporary folder, and without today's time, which an import writes down."""
    return re.sub(r"20[0-9-]{8}T[0-9:]{8}Z", lambda time: min(time[0], TIME), text.replace(f"{scratch}/", ""))


def write_laptop_again(folder: Path) -> Path:
    """Write the laptop's campaign once more, with other scatter and a slower step."""
    machine = replace(LAPTOP, step_s={name: 1.2 * seconds for name, seconds in LAPTOP.step_s.items()})
    write_results(folder, laptop_campaign(), machine, seed=2)
    (campaign,) = folder.glob("campaign.*.json")
    run("collect", "--campaign", campaign, "--launches", folder / "launches", "--out", folder / "measurements.csv")
    return folder


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_tables_are_what_they_were(name, tmp_path, capsys):
    texts = write_tables(name, tmp_path / name)
    golden = TABLES / name
    if os.environ.get("REGATTA_WRITE_GOLDEN"):
        golden.mkdir(parents=True, exist_ok=True)
        for path in golden.iterdir():
            path.unlink()
        for file, text in texts.items():
            if has_rows(file, text):
                (golden / file).write_text(without_new_columns(text), encoding="utf-8")
    frozen = {path.name: path.read_text(encoding="utf-8") for path in golden.iterdir()}
    assert set(frozen) <= set(texts)
    known = {path.name for path in TABLES.rglob("*.*")} - set(frozen)  # a new topic adds tables
    assert not [file for file in known & set(texts) if has_rows(file, texts[file])]
    for file, expected in frozen.items():
        text = without_new_columns(texts[file])
        if file == "exported.csv":  # one row for each number: their order is that of the topics
            text, expected = (sorted(rows.splitlines()) for rows in (text, expected))
        assert NUMBER.split(str(text)) == NUMBER.split(str(expected)), file
        numbers, frozen_numbers = ([float(number) for number in NUMBER.findall(str(of))] for of in (text, expected))
        assert numbers == pytest.approx(frozen_numbers, rel=1e-6), file  # the eighth digit of a fit: by processor
