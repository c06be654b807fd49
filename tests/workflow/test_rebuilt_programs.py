"""A program that is rebuilt between and during runs of a campaign, from the command to the store and comparisons."""

import json
import os

from campaigns import (
    QUICK_REPORT,
    fake_campaign,
    frozen_batches,
    lines,
    record_lines,
    script,
    snakemake,
    write_campaign,
)

READ = {"time": {"match": r"time: (\S+)", "unit": "ms", "better": "smaller"}}


def build(path, milliseconds: float):
    """Write a program that prints this time. It replaces an earlier one, as compilers do."""
    new = path.with_name(f".{path.name}")
    new.write_text(f"#!/bin/sh\necho time: {milliseconds}\n")
    new.chmod(0o755)
    new.replace(path)
    return path


def campaign(*command: object, **entry) -> dict:
    entry = {
        "benchmark": "program",
        "name": "prog",
        "command": [*map(str, command)],
        "read": READ,
        "ranks": "one",
    } | entry
    shapes, stacks = [{"nodes": [1], "gpus_per_node": [1]}], {"host": {"kind": "host"}}
    return fake_campaign(stacks=stacks, shapes=shapes, benchmarks=[entry], repeats=1)


def measure(folder, data: dict) -> None:
    for batch in frozen_batches(folder, data):
        script(folder, "measure.py", "--batch", str(batch))


def planned(folder, data: dict) -> dict:
    script(folder, "plan.py", "--campaign", str(write_campaign(folder, data)))
    return json.loads((folder / "results" / "small" / "plan.json").read_text())


def reasons(plan: dict) -> list[tuple[str, str]]:
    return [(cell["status"], cell["reason"]) for cell in plan["cells"]]


def times_ms(folder) -> list[float]:
    records = record_lines(folder / "results" / "small")
    return sorted(ns / 1e6 for record in records for ns in record["slowest_rank_samples_ns"])


def test_a_recompiled_program_is_measured_again_and_its_earlier_build_is_kept(tmp_path):
    prog = build(tmp_path / "prog", 5)
    data = campaign(prog)
    measure(tmp_path, data)
    assert reasons(planned(tmp_path, data)) == [("done", "1 ok")]
    build(prog, 7)
    assert reasons(planned(tmp_path, data)) == [("todo", f"changed: {prog}")]
    measure(tmp_path, data)
    assert times_ms(tmp_path) == [5, 7]
    build(prog, 5)
    assert reasons(planned(tmp_path, data)) == [("done", "1 ok")]


def test_a_wrapper_names_what_it_starts(tmp_path):
    prog = build(tmp_path / "prog", 5)
    data = campaign("sh", "-c", 'exec "$0"', prog, depends=[str(prog)])
    measure(tmp_path, data)
    build(prog, 7)
    measure(tmp_path, data)
    assert times_ms(tmp_path) == [5, 7]


def test_a_program_that_is_rebuilt_while_its_batch_waits_is_not_measured_under_the_id_of_another(tmp_path):
    prog = build(tmp_path / "prog", 5)
    data = campaign(prog)
    (batch,) = frozen_batches(tmp_path, data)
    build(prog, 7)
    done = script(tmp_path, "measure.py", "--batch", str(batch))
    assert str(prog) in done.stderr
    held = json.loads((batch / "manifest.json").read_text())["held"]
    assert [(stack, cause.split()[0]) for stack, cause in held.items()] == [("host", str(prog))]
    assert record_lines(tmp_path / "results" / "small") == []
    assert reasons(planned(tmp_path, data)) == [("todo", f"changed: {prog}")]


def test_a_program_found_on_the_path_is_recorded_and_its_change_is_noted(tmp_path, monkeypatch):
    prog = build(tmp_path / "bin-prog", 5).rename(tmp_path / "some-prog")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    data = campaign("some-prog")
    measure(tmp_path, data)
    (launch,) = (line for line in lines(tmp_path / "results" / "small") if line["kind"] == "launch")
    (noted,) = launch["environment"]["programs"]
    assert (noted["path"], noted["size_bytes"], noted["ranks"]) == (str(prog), prog.stat().st_size, [0])
    assert noted["time_utc"][:4] >= "2024"
    assert not [note for note in planned(tmp_path, data)["notes"] if "some-prog" in note]
    build(prog, 7.25)
    plan = planned(tmp_path, data)
    assert reasons(plan) == [("done", "1 ok")]
    assert len([note for note in plan["notes"] if str(prog) in note]) == 1


def test_a_pattern_is_applied_to_the_kept_output_of_the_same_program_alone(tmp_path):
    prog = build(tmp_path / "prog", 5)
    measure(tmp_path, campaign(prog))
    build(prog, 7)
    again = READ["time"] | {"match": r"time: +(\S+)"}
    measure(tmp_path, campaign(prog, read={"time": again}))
    assert times_ms(tmp_path) == [5, 7]  # not read from the output of the earlier program
    path = write_campaign(tmp_path, campaign(prog, read={"time": again | {"match": r"time:\s(\S+)"}}))
    assert snakemake(tmp_path, path).returncode == 0
    assert times_ms(tmp_path) == [5, 7, 7]  # read from the output of this one
    assert len(list((tmp_path / "results" / "small").glob("batches/*/outputs/*"))) == 2


def test_builds_of_a_program_are_compared_by_what_they_measure(tmp_path):
    prog = build(tmp_path / "prog", 5)
    for name, milliseconds in (("small", 5), ("other", 10)):
        build(prog, milliseconds)
        done = snakemake(tmp_path, write_campaign(tmp_path, campaign(prog) | {"name": name}), env=QUICK_REPORT)
        assert done.returncode == 0, done.stdout + done.stderr
    done = script(tmp_path, "compare.py", "results/small", "results/other", "--csv", "pairs.csv")
    assert "SHA-256" in done.stdout
    (row,) = (tmp_path / "pairs.csv").read_text().splitlines()[1:]
    assert ",2," in row
