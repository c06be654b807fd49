"""Campaign files for the driver's tests: one small campaign, which each test changes in one place."""

import dataclasses
import uuid
from pathlib import Path

import pytest
import yaml

from regatta.campaign.expansion import CampaignMatrix, MatrixCell, expand
from regatta.campaign.load import Campaign, load_campaign
from regatta.campaign.stacks import complete_stack
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import UserError
from regatta.core.schemas import fill_defaults, load_schema
from regatta.plan.plan import Plan, make_plan
from regatta.store.checksums import sealed_file

# Line numbers in the tests count from here: `schema` is line 1.
TEXT = """\
schema: 1
name: small
cluster: tiny
device: cpu
backend: [gloo]
stacks:
  host: {kind: host}
shapes:
  - {nodes: [1], gpus_per_node: [1, 2]}
repeats: 3
benchmarks:
  - benchmark: train_step
    parameters:
      model: [resnet18]
      batch_size: [8]
      strategy: [none, ddp]
      bucket_cap_mb: [1, 25]
  - benchmark: collective
    parameters:
      operation: [all_reduce]
      message_bytes: [4KiB, 1MiB]
"""
CLUSTER = {"schema": 1, "name": "tiny", "scheduler": "none", "num_nodes": 1, "gpus_per_node": 0}
HOSTILE = ["a b", "$(touch x)", "`y`", "'", '"', "a\nb", "; rm -rf ~", "", "\\", "*", "--flag", "ä", "\x1b[31m"]
HOSTILE += ["$HOME", "${HOME}", "$HOME $(touch hacked)", "$$"]
SLURM = {"scheduler": "slurm", "num_nodes": 4, "gpus_per_node": 4}


def small(**changes) -> dict:
    """Return the small campaign as data, with top-level keys changed.

    Cells: on 1 rank none, ddp-1, ddp-25; on 2 ranks ddp-1, ddp-25, 4KiB, 1MiB: 7. Skipped: none on 2 ranks, both
    collectives on 1 rank: 3.
    """
    return yaml.safe_load(TEXT) | changes


def collectives(*sizes: int | str, **changes) -> dict:
    """Return a campaign of collectives on 2 ranks: one cell for each size and stack."""
    entry = {"benchmark": "collective", "parameters": {"operation": ["all_reduce"], "message_bytes": list(sizes)}}
    return small(shapes=[{"nodes": [1], "gpus_per_node": [2]}], benchmarks=[entry]) | changes


def write(folder: Path, data: dict | str, cluster: dict | None = None) -> Path:
    """Write a campaign, and clusters/tiny.yaml beside it; return the campaign's path."""
    (folder / "clusters").mkdir(parents=True, exist_ok=True)
    (folder / "clusters" / "tiny.yaml").write_text(
        yaml.safe_dump(CLUSTER | (cluster or {}), sort_keys=False), encoding="utf-8"
    )
    path = folder / "campaign.yaml"
    text = data if isinstance(data, str) else yaml.safe_dump(data, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def load(folder: Path, data: dict | str, cluster: dict | None = None) -> Campaign:
    return load_campaign(write(folder, data, cluster), folder / "clusters")


def matrix(folder: Path, data: dict, cluster: dict | None = None) -> CampaignMatrix:
    return expand(load(folder, data, cluster))


def cells(folder: Path, data: dict) -> list[MatrixCell]:
    return matrix(folder, data).cells


def plan(folder: Path, data: dict, **options) -> Plan:
    """Plan a campaign against folder/results. The cluster is config/clusters/local.yaml, as make_plan looks there."""
    return make_plan(write(folder, data | {"cluster": "local"}), folder / "results", **options)


def stack(kind: str = "host", cluster: dict | None = None, **changes) -> dict:
    """Return a stack as launches need it, with all defaults."""
    schema = load_schema("campaign")["properties"]["stacks"]["additionalProperties"]
    whole_cluster = fill_defaults(CLUSTER | (cluster or {}), load_schema("cluster"))
    return complete_stack(fill_defaults({"kind": kind, **changes}, schema), whole_cluster)


def contained(**changes) -> dict:
    """Return a stack with an image that need not be there: what its image is, is known when launches start."""
    own = {"kind": "contained", "image": "/images/a.sif", "image_id": "1"}
    return stack() | own | changes


def fake_sif(path: Path, number: int = 1) -> Path:
    """Write what Regatta reads of an image: its header, with this number as UUID."""
    header = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\x0001\x0002\0" + uuid.UUID(int=number).bytes
    path.write_bytes(header + b"the rest of the image")
    return path


def program(path: Path, text: str) -> Path:
    """Write a shell script that can be run."""
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path


def message(folder: Path, text: str, cluster: dict | None = None) -> str:
    """Return what load_campaign says of a campaign that it refuses; paths are as in `campaign.yaml`."""
    path = write(folder, text, cluster)
    with pytest.raises(UserError) as caught:
        load_campaign(path, folder / "clusters")
    return str(caught.value).replace(f"{folder}/", "")


def changed(old: str, new: str, text: str = TEXT) -> str:
    """Return the small campaign's text with one part replaced."""
    assert text.count(old) == 1, f"{old!r} must stand once in the text"
    return text.replace(old, new)


def pin_versions(monkeypatch: pytest.MonkeyPatch, version: int = 1) -> None:
    """Make all benchmarks this version for the matrix, so that a golden id outlives a change of method."""
    monkeypatch.setattr(
        "regatta.campaign.expansion.load_benchmark",
        lambda name: dataclasses.replace(load_benchmark(name), version=version),
    )


def whole_record(repeat: int, record: dict) -> dict:
    """Return a record that an analysis takes, with these fields: one sample on one rank where it is ok, else nothing."""
    is_ok = record["status"] == "ok"
    spec = {"benchmark": "collective", "version": 1, "cluster": "tiny", "device": "cpu", "backend": "gloo", "nodes": 1}
    spec |= {"gpus_per_node": 1, "stack": {"name": "host", "kind": "host"}, "parameters": {}, "sampling": {}}
    base = {"kind": "record", "cell": record["cell"], "spec": spec, "repeat": repeat, "command": "torchrun"}
    base |= {
        "writer": "rank",
        "status": record["status"],
        "phase": None,
        "cause": None,
        "time_utc": "2026-11-21T03:00:00Z",
        "elapsed_ns": None,
        "setup_ns": None,
    }
    base |= dict.fromkeys(("warmup", "sampling", "checks", "values", "memory", "windows", "rank_quantiles_ns"))
    return base | {"samples_ns": [[1000]] if is_ok else None, "slowest_rank_samples_ns": None, **record}


def write_launch(results: Path, launch: str, repeat: int, records: list[dict], **header) -> Path:
    """Write a launch file with these records, complete, as the ranks would. records: at least cell and status."""
    first = {"kind": "launch", "schema": 1, "launch": launch, "repeat": repeat, "stack": "host"}
    first |= {"time_utc": "2026-11-21T03:00:00Z", "environment": {"seconds_to_ready": 2.0}, **header}
    seconds = sum((record.get("elapsed_ns") or 0) for record in records)
    lines = [first]
    for record in records:
        lines.append({"kind": "start", "cell": record["cell"]})
        lines.append(whole_record(repeat, record))
    lines.append({"kind": "complete", "elapsed_ns": seconds + 1_000_000_000})
    path = results / "launches" / f"{launch}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sealed_file(lines, launch))
    return path
