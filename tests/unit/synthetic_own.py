"""A synthetic campaign of a user's training script and program, on one and two ranks, with two stacks."""

from pathlib import Path

from synthetic import Machine, edit_records, make_campaign, make_cell, write_results


def script_cell(batch: int, gpus: int, nodes: int = 1, samples: int | None = -1, script="train.py", **more) -> dict:
    """samples: those per step, by default the batch; None: not given."""
    samples = batch if samples == -1 else samples
    parameters = {"script": script, "settings": f"batch {batch}", "samples_per_step": samples, "tokens_per_step": None}
    return make_cell("script", nodes, gpus, parameters, **more)


def program_cell(n: int, gpus: int, nodes: int = 1, program="sum", read: dict | None = None, **more) -> dict:
    read = read or {"rate": {"match": r"rate: (\S+)", "unit": "GB/s", "better": "larger"}}
    ((name, quantity),) = read.items()
    unit = {"GB/s": "B/s", "ms": "s"}[quantity["unit"]]
    parameters = {"program": program, "settings": f"n {n}", "reported_quantity": f"{name} ({unit})"}
    cell = make_cell("program", nodes, gpus, parameters, **more)
    cell["spec"]["program"] = {
        "command": [program],
        "ranks": "gpu",
        "files": {},
        "parameters": {},
        "read": read,
        "check": {},
    }
    return cell


class OwnMachine(Machine):
    """A step takes 10 ms for each sample of a batch, two ranks 25 % longer; a program 10 s for its work."""

    def seconds(self, spec: dict) -> float:
        slowdown = self.slowdown.get(spec["stack"]["name"], 1.0) * (1.25 if spec["gpus_per_node"] > 1 else 1)
        if spec["benchmark"] == "program":
            return 10.0 * slowdown
        return 0.01 * int(spec["parameters"]["settings"].split()[1]) * slowdown


MACHINE = OwnMachine({}, {}, 1, 0, 1, 0.002, {"new": 1.1})


def write_own(folder: Path, **changes) -> Path:
    """Write a campaign of train.py with two batch sizes and of sum, in which the stack `new` is 10 % slower."""
    cells = [
        cell
        for stack in ("old", "new")
        for gpus in (1, 2)
        for cell in (*(script_cell(batch, gpus, stack=stack) for batch in (8, 16)), program_cell(5, gpus, stack=stack))
    ]
    for cell in cells:
        cell["spec"]["stack"]["env"] = {"SLOW": "1"} if cell["spec"]["stack"]["name"] == "new" else {}
    baseline = {"nodes": 1, "gpus_per_node": 1}
    campaign = make_campaign(cells, name="own", description="", baseline=baseline, repeats=5) | changes
    return write_results(folder, campaign, MACHINE)


class StepMachine(Machine):
    def seconds(self, spec: dict) -> float:
        return 0.01 * spec["parameters"]["size"]


OF_STEP = {  # a benchmark outside Regatta's tree
    "version": 1,
    "file": "my_step.py",
    "axes": {"size": {"type": "integer"}, "mode": {"type": "string", "choices": ["fast", "exact"]}},
    "results": {
        "rate_gb_per_s": {"label": "Rate", "better": "larger"},
        "work_bytes": {"label": "Workspace"},
        "depth": {"label": "Depth", "unit": "m"},
    },
}


def write_custom(folder: Path) -> Path:
    """Write a campaign of my_step, whose iterations take 10 ms for each of its size, and its results by launch."""
    shapes = [(size, mode, gpus) for size in (1, 2) for mode in ("fast", "exact") for gpus in (1, 2)]
    cells = [make_cell("my_step", 1, gpus, {"size": size, "mode": mode}) for size, mode, gpus in shapes]
    campaign = make_campaign(cells, name="custom", repeats=3, benchmarks={"my_step": OF_STEP})
    for record in edit_records(write_results(folder, campaign, StepMachine({}, {}, 1, 0, 1, 0.002, {}))):
        size, repeat = record["spec"]["parameters"]["size"], record["repeat"]
        record["values"] = {"rate_gb_per_s": size * (1 + repeat / 10), "work_bytes": size << 20, "depth": -1.0 * repeat}
    return folder
