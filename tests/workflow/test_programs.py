"""Programs that know nothing of Regatta, from the campaign file to tables and report, and the ways in which they fail."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from campaigns import (
    QUICK_REPORT,
    REAL_REPORT,
    ROOT,
    fake_campaign,
    frozen_batches,
    record_lines,
    script,
    snakemake,
    write_campaign,
)
from copied_tree import rows_of

from regatta.core.errors import UserError
from regatta.core.readers import READER
from regatta.run.supervise import supervise
from regatta.store.checksums import sealed_file
from regatta.store.history import digest_of
from regatta.store.jobs import NO_SPACE_LEFT

PROGRAM = """
import os, sys, time

rank, mode, n = int(os.environ["RANK"]), sys.argv[1], int(sys.argv[2])
if mode == "hang":
    time.sleep(60)
if mode == "picky" and n < 50:
    sys.exit(5)
if mode == "dies" and rank == 1:
    sys.exit(74)
if rank == 0:
    for step in range(4):
        print(f"step {step}: {1000 if step == 0 else n * (step + 1)} tokens/s")
    print({"silent": "done", "nan": "rate: nan", "dies": "PASSED"}.get(mode, f"rate: {n}.5 GB/s"))
    print("FAILED" if mode == "invalid" else "PASSED")
"""
RATE = {"rate": {"match": r"rate: (\S+)", "unit": "GB/s", "better": "larger"}}


@pytest.fixture
def campaign(tmp_path):
    """A function that returns a campaign of programs on two ranks. changes: of each entry."""
    (tmp_path / "run.py.in").write_text(PROGRAM)

    def make(*entries: dict, **changes) -> dict:
        common = {
            "benchmark": "program",
            "command": ["python3", "run.py", "fine", "{n}"],
            "files": {"run.py": str(tmp_path / "run.py.in")},
            "parameters": {"n": [50]},
            "read": RATE,
            "check": {"match": "PASSED", "reject": "FAILED"},
        }
        entries = [common | {"name": f"p{index}"} | entry for index, entry in enumerate(entries or ({},))]
        shapes = [{"nodes": [1], "gpus_per_node": [2]}]
        stacks = {"host": {"kind": "host"}}
        return fake_campaign(stacks=stacks, shapes=shapes, benchmarks=entries, **changes)

    return make


def test_a_program_runs_to_the_report(tmp_path, campaign):
    tokens = {"samples": r"(\d+) tokens/s", "unit": "tokens/s", "better": "larger", "drop": 1}
    seconds = {"match": r"rate: (\d+)\.", "unit": "ms", "better": "smaller"}
    entries = {"name": "copy", "parameters": {"n": [50, 100]}}, {"name": "train", "read": {"tps": tokens}}
    data = campaign(*entries, {"name": "slow", "read": {"wall": seconds}})
    path = write_campaign(tmp_path, data)
    done = snakemake(tmp_path, path, env=REAL_REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results" / "small"
    rows = {(row["program"], row["settings"]): row for row in rows_of(results / "cells.csv")}
    assert {key: (float(row["reported"]), row["unit"], row["num_launches"]) for key, row in rows.items()} == {
        ("copy", "n 50"): (50.5, "GB/s", "2"),
        ("copy", "n 100"): (100.5, "GB/s", "2"),
        ("train", "n 50"): (150.0, "tokens/s", "2"),  # the median of 100, 150 and 200
        ("slow", "n 50"): (50.0, "ms", "2"),
    }
    records = record_lines(results)
    samples = {record["spec"]["parameters"]["program"]: record["slowest_rank_samples_ns"] for record in records}
    assert samples["slow"] == [50_000_000]
    assert samples["train"] == [10**13, 6_666_666_666_667, 5 * 10**12]  # of a million tokens
    assert {record["writer"] for record in records} == {"driver"}
    (launch, *_) = [json.loads(line) for line in next((results / "launches").glob("*")).read_text().splitlines()]
    assert [entry["ranks"] for entry in launch["environment"]["hosts"]] == [[0, 1]]
    assert "GB/s" in (results / "report.html").read_text(encoding="utf-8")


PRINTED = """
import os

if os.environ["RANK"] == "0":
    print("call 0.0000081 s, mfu 31.4%, loss 2.345, peak 61.2 GiB, 2.50s/it, 41.87 ns/day, link 0.0125 GB/s, power 350.8 W")
"""
QUANTITIES = {  # name: pattern, unit, better, the number, its words in the headline
    "call": (r"call (\S+)", "s", "smaller", 8.1e-6, "8.10 \N{MICRO SIGN}s"),
    "mfu": (r"mfu ([\d.]+)", "%", "larger", 31.4, "31.4 %"),
    "loss": (r"loss ([\d.]+)", "", "smaller", 2.345, "2.35"),
    "peak": (r"peak ([\d.]+)", "GiB", "smaller", 61.2, "61.2 GiB"),
    "pace": (r"(?P<value>[\d.]+)(?P<unit>s/it)", "it/s", "larger", 0.4, "0.400 it/s"),
    "day": (r"([\d.]+) ns/day", "ns/day", "larger", 41.87, "41.9 ns/day"),
    "link": (r"link ([\d.]+)", "GB/s", "larger", 0.0125, "12.5 MB/s"),
    "power": (r"power ([\d.]+)", "W", "smaller", 350.8, "351 W"),
}


def test_numbers_of_any_unit_reach_the_report_in_it(tmp_path, campaign):
    read = {
        name: {"match": match, "unit": unit, "better": better} for name, (match, unit, better, *_) in QUANTITIES.items()
    }
    entry = {"command": ["python3", "-c", PRINTED], "files": {}, "parameters": {}, "check": {}, "read": read}
    done = snakemake(tmp_path, write_campaign(tmp_path, campaign(entry, repeats=1)), env=REAL_REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    results = tmp_path / "results" / "small"
    rows = {row["settings"]: row for row in rows_of(results / "cells.csv")}
    assert {name: (float(row["reported"]), row["unit"], row["better"]) for name, row in rows.items()} == {
        name: (pytest.approx(number, rel=1e-9), unit, better)
        for name, (_, unit, better, number, _) in QUANTITIES.items()
    }
    page = (results / "report.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    [headline] = [
        one["lead"] for one in json.loads((results / "answer.json").read_text())["lines"] if one["id"] == "programs"
    ]
    for name, (*_, words) in QUANTITIES.items():
        assert f"p0, {name}: {words} (1 launch)" in headline + re.sub("<[^>]+>", "", page), name


def test_a_program_inherits_no_locale_and_its_commas_are_thousands_only_in_that_of_c(tmp_path, campaign, monkeypatch):
    code = "import os; os.environ['RANK'] == '0' and print(*map(os.environ.get, ('LC_ALL', 'LANG')), 'rate: 1,210')"
    entry = {"command": ["python3", "-c", code], "files": {}, "parameters": {}, "check": {}}
    stacks = {"host": {"kind": "host"}, "german": {"kind": "host", "env": {"LANG": "de_DE.UTF-8"}}}
    data = campaign(entry, repeats=1) | {"stacks": stacks}
    (batch,) = frozen_batches(tmp_path, data)
    for name in ("LC_ALL", "LC_NUMERIC", "LANG"):
        monkeypatch.setenv(name, "fr_FR.UTF-8")
    script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    records = {record["spec"]["stack"]["name"]: record for record in record_lines(batch.parents[1])}
    assert records["host"]["slowest_rank_samples_ns"] == [round(1e12 / 1210)]
    assert records["german"]["status"] == "failed"
    logs = sorted(path.read_text() for path in (batch / "logs").glob("*.log"))
    assert [text.splitlines()[-1].split()[1:3] for text in logs] == [["C.UTF-8", "None"], ["None", "de_DE.UTF-8"]]


FAILURES = {
    "fails its check": ("invalid", "failed", "measure", "check.reject"),
    "prints no number": ("silent", "failed", "measure", "no line matches"),
    "prints NaN": ("nan", "failed", "measure", "not finite"),
    "dies on one rank": ("dies", "failed", None, "code 74"),
    "hangs": ("hang", "timeout", None, "cell_seconds"),
}


def test_a_program_that_gives_no_number_is_a_failed_cell_with_its_cause(tmp_path, campaign):
    entries = [{"name": mode, "command": ["python3", "run.py", mode, "{n}"]} for mode, *_ in FAILURES.values()]
    entries.append({"name": "absent", "command": ["no-such-program", "{n}"]})
    data = campaign(*entries, repeats=1, limits={"cell_seconds": 3, "launch_start_seconds": 30})
    (batch,) = frozen_batches(tmp_path, data)
    script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    records = {record["spec"]["parameters"]["program"]: record for record in record_lines(batch.parent.parent)}
    for mode, status, phase, words in FAILURES.values():
        assert (records[mode]["status"], records[mode]["phase"]) == (status, phase), mode
        assert words in records[mode]["cause"], mode
        assert records[mode]["slowest_rank_samples_ns"] is None
    assert records["absent"]["phase"] == "launch"
    assert records["absent"]["cause"].startswith("program not found: ")
    assert len(list((batch / "logs").glob("*.log"))) == len(records)


def test_an_edited_pattern_is_applied_to_the_kept_output(tmp_path, campaign, wording):
    """Records that are read again keep launch and time of the measurement, and nothing runs."""
    code = "import os, sys, time; os.environ['RANK'] == '0' and print('rate: ', time.time_ns(), 'half: 7')"
    entry = {"command": ["python3", "-c", code], "files": {}, "parameters": {}, "check": {}}
    path = write_campaign(tmp_path, campaign(entry | {"read": {"rate": RATE["rate"] | {"match": r"rate:\s(\d+)"}}}))
    assert snakemake(tmp_path, path).returncode != 0  # two spaces: the pattern finds nothing
    results = tmp_path / "results" / "small"
    before = {row["launch"]: row for row in rows_of(results / "measurements.csv")}
    launches = rows_of(results / "launches.csv")
    batches = {path.name for path in (results / "batches").iterdir()}
    time.sleep(1.1)  # times are in seconds
    good = entry | {"read": {"rate": RATE["rate"] | {"match": r"rate: +(\d+)", "unit": "B/s"}}}
    write_campaign(tmp_path, campaign(good))
    planned = snakemake(tmp_path, path, "plan")
    wording([line for line in planned.stdout.splitlines() if "nothing runs" in line])
    plan = json.loads((results / "plan.json").read_text())
    assert [plan["totals"][name] for name in ("outputs_read_again", "launches", "minutes", "gpu_hours")] == [2, 0, 0, 0]
    assert len(record_lines(results)) == 2  # a plan reads nothing
    done = snakemake(tmp_path, path)
    assert done.returncode == 0, done.stdout + done.stderr
    records = record_lines(results)
    assert sorted(record["status"] for record in records) == ["failed", "failed", "ok", "ok"]
    after = {row["launch"]: row for row in rows_of(results / "measurements.csv")}
    for name in ("time_utc", "repeat", "hosts", "elapsed_s"):
        assert {launch: row[name] for launch, row in after.items()} == {la: row[name] for la, row in before.items()}
    assert {row["status"] for row in after.values()} == {"ok"}
    assert [row | {"num_ok": "0", "num_failed": "1"} for row in launches] == launches
    assert [row | {"num_ok": "0"} for row in rows_of(results / "launches.csv")] == launches  # none was added
    assert {path.name for path in (results / "batches").iterdir()} == batches
    write_campaign(tmp_path, campaign(good | {"read": {"half": RATE["rate"] | {"match": r"half: (\d+)"}}}))
    assert snakemake(tmp_path, path).returncode == 0
    assert [r["slowest_rank_samples_ns"] for r in record_lines(results)].count([round(1e12 / 7)]) == 2
    assert "problem" not in snakemake(tmp_path, path).stderr  # the manifests list what was added


def test_outputs_that_an_earlier_reader_may_have_read_differently_are_read_again_once(tmp_path, campaign):
    """Those with a comma in a number, and those of several ranks. Other records keep the earlier reader."""
    code = "import os, sys; os.environ.get('RANK', '0') == '0' and print('rate:', sys.argv[1])"
    common = {"files": {}, "parameters": {}, "check": {}}
    entries = [
        {"name": "comma", "command": ["python3", "-c", code, "1,234 GB/s"], "ranks": "one"},
        {"name": "plain", "command": ["python3", "-c", code, "1234 GB/s"], "ranks": "one"},
        {"name": "ranks", "command": ["python3", "-c", code, "1234 GB/s"]},
    ]
    path = write_campaign(tmp_path, campaign(*(entry | common for entry in entries), repeats=2))
    assert snakemake(tmp_path, path).returncode == 0
    results = tmp_path / "results" / "small"
    before = rows_of(results / "measurements.csv")
    for launch in results.glob("launches/*.jsonl"):
        lines = [json.loads(line) for line in launch.read_text().splitlines()]
        kept = [{key: of for key, of in line.items() if key not in ("reader", "line", "checksum")} for line in lines]
        launch.write_bytes(sealed_file(kept, launch.stem))
    (manifest,) = results.glob("batches/*/manifest.json")
    content = json.loads(manifest.read_text())
    for entry in content["launches"]:
        entry["size_bytes"] = (results / "launches" / f"{entry['launch']}.jsonl").stat().st_size
        entry["records"] = [{key: of for key, of in one.items() if key != "reader"} for one in entry["records"]]
    older = json.dumps(content | {"digest": digest_of(content["launches"])})
    manifest.write_text(older)
    dry = snakemake(tmp_path, path, "plan")
    assert "4 outputs are" in dry.stdout
    assert snakemake(tmp_path, path).returncode == 0
    readers = Counter((r["spec"]["parameters"]["program"], r.get("reader")) for r in record_lines(results))
    assert readers == {
        ("comma", None): 2, ("comma", READER): 2, ("plain", None): 2, ("ranks", None): 2, ("ranks", READER): 2,
    }  # fmt: skip
    after = rows_of(results / "measurements.csv")
    assert [row | {"line": ""} for row in after] == [row | {"line": ""} for row in before]
    for text in (manifest.read_text(), older):  # older: as if the run was killed before it had written the manifest
        manifest.write_text(text)
        again = snakemake(tmp_path, path, "plan")
        assert "read again" not in again.stdout + again.stderr
        assert json.loads((results / "plan.json").read_text())["notes"] == []


OSU = """
import os, sys, time

if os.environ["RANK"] == "0":
    print("# OSU MPI Allreduce Latency Test v7.4\\n# Size  Avg Latency(us)")
    for power in range(2, 6):
        print(2**power, "%.2f" % (2**power + time.time_ns() % 1000 / 1000))
sys.exit(int(sys.argv[1]))
"""


def test_one_launch_measures_all_sizes_and_a_new_size_is_read_from_its_output(tmp_path, campaign):
    entry = {"command": ["python3", "-c", OSU, "0"], "files": {}, "parameters": {}, "check": {}, "read": "osu"}
    path = write_campaign(tmp_path, campaign(entry | {"sizes": [4, 16, 64]}))
    assert snakemake(tmp_path, path).returncode == 0  # although 64 is missing
    results = tmp_path / "results" / "small"
    records = record_lines(results)
    assert sorted((record["spec"]["program"]["parameters"]["size"], record["status"]) for record in records) == [
        *[("16", "ok")] * 2, *[("4", "ok")] * 2, *[("64", "failed")] * 2,
    ]  # fmt: skip
    logs = sorted(path.read_text() for path in results.glob("batches/*/logs/*.log"))
    assert len(set(logs)) == len(logs) == 2  # one launch for each repeat
    write_campaign(tmp_path, campaign(entry | {"sizes": [4, 16, "32B"]}))
    done = snakemake(tmp_path, path, env=REAL_REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len({path.read_text() for path in results.glob("batches/*/logs/*.log")}) == 2
    rows = {row["settings"]: row for row in rows_of(results / "cells.csv")}
    assert {name: (int(float(row["reported"])), row["unit"]) for name, row in rows.items()} == {
        "size 4": (4, "us"), "size 16": (16, "us"), "size 32B": (32, "us"),
    }  # fmt: skip


def test_one_launch_measures_all_quantities_and_a_new_one_is_read_from_its_output(tmp_path, campaign):
    last = {"match": r"step 3: (\d+)", "unit": "tokens/s", "better": "larger"}
    path = write_campaign(tmp_path, campaign({"read": RATE | {"tokens": last}}))
    assert snakemake(tmp_path, path).returncode == 0
    results = tmp_path / "results" / "small"
    logs = len({path.read_text() for path in results.glob("batches/*/logs/*.log")})
    assert (logs, len(record_lines(results))) == (1, 4)  # the same output of each of two repeats
    first = {"match": r"step 1: (\d+)", "unit": "tokens/s", "better": "larger"}
    write_campaign(tmp_path, campaign({"read": RATE | {"tokens": last, "first": first}}))
    done = snakemake(tmp_path, path, env=REAL_REPORT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["settings"]: (float(row["reported"]), row["unit"]) for row in rows_of(results / "cells.csv")}
    assert rows == {
        "n 50, rate": (50.5, "GB/s"), "n 50, tokens": (200, "tokens/s"), "n 50, first": (100, "tokens/s"),
    }  # fmt: skip
    assert "n 50, tokens" in (results / "report.html").read_text()


def test_values_for_which_a_program_fails_leave_the_others_and_an_absent_program_is_given_up(tmp_path, campaign):
    """As for scripts: an exit status of the program says nothing of its other values. That it is absent does."""
    failing = {"name": "picky", "command": ["python3", "run.py", "picky", "{n}"], "parameters": {"n": [1, 2, 3, 4]}}
    absent = {"name": "absent", "command": ["no-such-program", "{n}"], "parameters": {"n": [1, 2, 3, 4]}}
    (batch,) = frozen_batches(tmp_path, campaign(failing, absent, {}, repeats=1))
    script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    found = Counter(
        (record["spec"]["parameters"]["program"], record["status"], record["phase"])
        for record in record_lines(batch.parent.parent)
    )
    assert found == {
        ("picky", "failed", None): 4, ("p2", "ok", None): 1,
        ("absent", "failed", "launch"): 3, ("absent", "skipped", None): 1,
    }  # fmt: skip


def test_a_program_that_fails_is_started_once_for_all_sizes(tmp_path, campaign):
    entry = {"command": ["python3", "-c", OSU, "3"], "files": {}, "parameters": {}, "check": {}, "read": "osu"}
    (batch,) = frozen_batches(tmp_path, campaign(entry | {"sizes": [4, 8, 16, 32]}))
    script(tmp_path, "measure.py", "--batch", str(batch), check=False)
    records = record_lines(batch.parent.parent)
    assert [(record["status"], "code 3" in record["cause"]) for record in records] == [("failed", True)] * 8
    assert len(list((batch / "logs").glob("*.log"))) == 2


RANKS = """
import os, sys, time

rank, mode = int(os.environ["RANK"]), sys.argv[1]
for step in range(20):
    for text in ("step %d" % step, " took ", "%d.5 ms" % (step + 1), "" if rank or step < 19 else " (last)", chr(10)):
        if rank == 0 or mode == "both":
            os.write(1, text.encode())
        else:
            os.write(2, b"noise 3 " if text != chr(10) else b"more" + text.encode())
        time.sleep(0.0005)
os.write(1, b"no end")
"""
STEP = {"step": {"samples": r"took ([\d.]+) ms", "unit": "ms", "better": "smaller"}}


def test_lines_are_known_by_rank_and_a_quantity_of_several_ranks_fails_its_cell(tmp_path, campaign):
    """Ranks print in pieces at the same time. One that prints alone gives valid samples; try_output.py agrees."""
    entries = [{"name": mode, "command": ["python3", "-c", RANKS, mode, "{n}"]} for mode in ("alone", "both")]
    (batch,) = frozen_batches(tmp_path, campaign(*(of | {"read": STEP, "check": {}} for of in entries), repeats=1))
    script(tmp_path, "measure.py", "--batch", str(batch))
    records = {record["spec"]["parameters"]["program"]: record for record in record_lines(batch.parents[1])}
    assert records["alone"]["slowest_rank_samples_ns"] == [round(1e6 * (step + 1.5)) for step in range(20)]
    assert (records["both"]["status"], records["both"]["phase"]) == ("failed", "measure")
    assert "on 2 ranks:" in records["both"]["cause"]
    logs = {"took" in path.read_text() and "1: step" in path.read_text(): path for path in batch.glob("logs/*.log")}
    for is_both, path in logs.items():
        lines = path.read_text().splitlines()
        assert lines[0].startswith("regatta: ")
        assert {line[:3] for line in lines[1:]} == {"0: ", "1: "}
        assert sorted(line[3:] for line in lines if line.endswith("no end")) == ["no end", "no end"]
        name = "both" if is_both else "alone"
        words = ["try_output.py", str(tmp_path / "campaign.yaml"), str(path), "--benchmark", name]
        assert script(tmp_path, *words, check=False).returncode == (2 if is_both else 0)


def test_results_of_an_import_format_are_those_of_the_rank_that_prints_them(tmp_path, campaign):
    both = OSU.replace('os.environ["RANK"] == "0"', "True").replace("time.time_ns() % 1000 / 1000", "0")
    noise = OSU.replace("sys.exit", "print('rank', os.environ['RANK'], 'warns') or sys.exit")
    entries = [
        {"name": name, "command": ["python3", "-c", code, "0"]} for name, code in (("one", noise), ("both", both))
    ]
    common = {"files": {}, "parameters": {}, "check": {}, "read": "osu", "sizes": [4, 16]}
    (batch,) = frozen_batches(tmp_path, campaign(*(entry | common for entry in entries), repeats=1))
    script(tmp_path, "measure.py", "--batch", str(batch))
    found = {(r["spec"]["parameters"]["program"], r["status"]): r["cause"] for r in record_lines(batch.parents[1])}
    assert set(found) == {("one", "ok"), ("both", "failed")}
    assert "ranks: 0, 1" in found["both", "failed"]


def test_nodes_without_the_driver_refuse_programs(tmp_path, campaign):
    frozen_batches(tmp_path, campaign())
    program = ROOT / "workflow" / "scripts" / "bench" / "run_batches.py"
    line = [sys.executable, str(program), str(tmp_path / "results" / "small")]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "benchmark: program" in done.stderr


def test_words_reach_the_program_as_written(tmp_path, campaign):
    words = ["$(touch /tmp/never)", "a b", "'", '"', "; exit 1", "--", "-h", "{{n}}", "", "*"]
    code = "import os, sys; os.environ['RANK'] == '0' and print('rate: 1', sys.argv[1:])"
    data = campaign({"command": ["python3", "-c", code, *words, "{n}"], "files": {}}, repeats=1)
    (batch,) = frozen_batches(tmp_path, data)
    script(tmp_path, "measure.py", "--batch", str(batch))
    (log,) = (batch / "logs").glob("*.log")
    wanted = [*(word.replace("{{n}}", "{n}") for word in words), "50"]
    assert f"rate: 1 {wanted}" in log.read_text()


def test_an_output_file_and_one_process(tmp_path, campaign):
    code = "import sys; print('rate:', sys.argv[2], 'PASSED', file=open(sys.argv[1], 'a'))"
    data = campaign({"command": ["python3", "-c", code, "{output}", "1"], "ranks": "one"}, repeats=1)
    (batch,) = frozen_batches(tmp_path, data)
    script(tmp_path, "measure.py", "--batch", str(batch))
    (record,) = record_lines(batch.parent.parent)
    assert (record["status"], record["slowest_rank_samples_ns"]) == ("ok", [10**12])  # 1000 GB at 1 GB/s


def test_an_output_that_a_full_disk_may_have_cut_is_not_recorded(tmp_path, campaign, monkeypatch):
    """A shell ignores that its output cannot be written: the launch is repeated."""
    (batch,) = frozen_batches(tmp_path, campaign(repeats=1))
    free_bytes, git = iter([10**12, 0]), {"commit": None, "is_dirty": None}
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=next(free_bytes)))
    with pytest.raises(UserError, match=NO_SPACE_LEFT):
        supervise(batch, git, os.getppid())
    assert record_lines(batch.parents[1]) == []
    monkeypatch.undo()
    assert supervise(batch, git, os.getppid())["counts"] == {"ok": 1}


def test_a_run_needs_no_space_for_temporary_files(tmp_path, campaign):
    """As if $TMPDIR were full: nothing can be created in /proc."""
    path = write_campaign(tmp_path, campaign(repeats=1))
    done = snakemake(tmp_path, path, env=QUICK_REPORT | {"TMPDIR": "/proc"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [record["status"] for record in record_lines(tmp_path / "results" / "small")] == ["ok"]
