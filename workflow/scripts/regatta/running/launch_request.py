"""What the supervisor asks of the ranks of one launch (docs/contracts.md, Launch request)."""

import os
from pathlib import Path

from regatta.campaign.launch_lines import ROOT, RUN_LAUNCH, Geometry, launch_argv

SCHEMA = 1


def launch_request(
    batch: dict, index: int, cells: list[str], path: Path, store_file: Path, git: dict, hosts: list[str]
) -> dict:
    """Return the request for planned launch `index` of a batch: to measure `cells`, in this order.

    path: where the request will lie, `batches/<batch>/launches/<launch>.json`; the launch bears its name. Paths are absolute.
    hosts: the nodes that its step is pinned to, if any.
    """
    planned = batch["launches"][index]
    launch, folder = path.stem, path.parent.parent
    geometry = Geometry(batch["cluster"], batch["nodes"], batch["gpus_per_node"], batch["device"])
    argv = launch_argv(
        geometry,
        batch["stacks"][planned["stack"]],
        [str(RUN_LAUNCH), "--request", str(path)],
        variables=os.environ,
        folders=(ROOT, store_file.parent.parent),
        limit_seconds=_limit_seconds(batch, cells),
        hosts=hosts,
    )
    return {
        "schema": SCHEMA,
        "campaign": batch["campaign"],
        "batch": folder.name,
        "launch": launch,
        "generation": batch.get("generation", 1),
        "repeat": planned["repeat"],
        "stack": planned["stack"],
        "nodes": batch["nodes"],
        "gpus_per_node": batch["gpus_per_node"],
        "device": batch["device"],
        # Half, so that ranks that miss one of them can say so before the whole launch is late.
        "start_timeout_seconds": batch["launch_start_seconds"] / 2,
        "store_file": str(store_file),
        "error_dir": str(folder / "errors" / launch),
        "argv": argv,
        "git": git,
        "cells": [{"id": cell, **{key: batch["cells"][cell][key] for key in ("spec", "command")}} for cell in cells],
    }


def _limit_seconds(batch: dict, cells: list[str]) -> float:
    """Return by when a launch is over whatever happens: each cell and each start between them at its deadline."""
    return sum(batch["cells"][cell]["limit_seconds"] + batch["launch_start_seconds"] for cell in cells) + 60
