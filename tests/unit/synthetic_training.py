"""Cells and records of train_run and sync_batchnorm as in docs/contracts.md, with numbers set by the test."""

from synthetic import make_cell

MILLISECOND_NS = 10**6


def run_cell(strategy: str = "own", nodes: int = 1, gpus: int = 2, epochs: int = 2, **more) -> dict:
    """more: parameters (norm, batch_size, ...) and spec (stack, device, backend)."""
    parameters = {
        "model": "cifar_cnn",
        "data": "synthetic",
        "data_folder": None,
        "epochs": epochs,
        "batch_size": 32,
        "accumulation_steps": 2,
        "strategy": strategy,
        "norm": "batch",
        "seed": 1,
    }
    parameters |= {name: more.pop(name) for name in list(more) if name in parameters}
    return make_cell("train_run", nodes, gpus, parameters, **more)


def norm_cell(implementation: str, batch_size: int, hidden: int, nodes: int = 1, gpus: int = 2, **more) -> dict:
    parameters = {"implementation": implementation, "batch_size": batch_size, "hidden": hidden, "dtype": "fp32"}
    return make_cell("sync_batchnorm", nodes, gpus, parameters, **more)


def run_record(cell: dict, repeat: int, time_utc: str, **values) -> dict:
    """Return an ok record: on each rank r the epoch e takes 1000 e + 10 r ms, of which training 800 e.

    values: changes to the record's values.
    """
    epochs, ranks = cell["spec"]["parameters"]["epochs"], cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"]
    numbers = range(1, epochs + 1)
    learnt = {
        "data": cell["spec"]["parameters"]["data"],
        "steps_per_epoch": 15,
        "train_samples_per_epoch": 1920,
        "test_samples": 500,
        "data_bytes": 7_700_000,
        "train_loss": [5 - 0.5 * epoch for epoch in numbers],
        "test_loss": [5 - 0.4 * epoch for epoch in numbers],
        "accuracy": [0.1 * epoch / epochs for epoch in numbers],
        "accuracy_by_rank": [[0.1 * epoch / epochs + 0.01 * rank for rank in range(ranks)] for epoch in numbers],
    }
    memory = {
        "parameter_bytes": 3_303_952,
        "gradient_bytes": 3_303_952,
        "optimizer_bytes": 3_303_952,
        "algorithm_bytes": None,
        "peak_rss_bytes": [800_000_000 + rank for rank in range(ranks)],
        "peak_allocated_bytes": [170_099_200 - 512 * rank for rank in range(ranks)],
        "peak_reserved_bytes": None,
        "device_used_bytes": None,
    }
    return {
        **_head(cell, repeat, time_utc),
        "warmup": None,
        "sampling": {"num_iterations": epochs, "elapsed_ns": 10**9, "stop": "fixed", "half_width_ratio": None},
        "samples_ns": [[(1000 * e + 10 * rank) * MILLISECOND_NS for e in numbers] for rank in range(ranks)],
        "parts_ns": {
            "train": [[800 * e * MILLISECOND_NS for e in numbers] for _ in range(ranks)],
            "test": [[(200 * e + 10 * rank) * MILLISECOND_NS for e in numbers] for rank in range(ranks)],
        },
        "checks": {"loss_is_finite": True, "weights_agree": True},
        "values": learnt | values,
        "memory": memory,
    }


def norm_record(cell: dict, repeat: int, time_utc: str, both_us: int, **changes) -> dict:
    """Return an ok record whose iterations all take `both_us` microseconds, a quarter of it forward."""
    ranks = cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"]
    hidden, batch = (cell["spec"]["parameters"][name] for name in ("hidden", "batch_size"))
    rows = {share: [[int(both_us * 1000 * share)] * 12] * ranks for share in (1, 0.25, 0.75)}
    return {
        **_head(cell, repeat, time_utc),
        "warmup": {"num_iterations": 8, "elapsed_ns": 10**8, "first_iteration_ns": 10**6, "stop": "steady"},
        "sampling": {"num_iterations": 12, "elapsed_ns": 10**8, "stop": "precision", "half_width_ratio": 0.01},
        "samples_ns": rows[1],
        "parts_ns": {"forward": rows[0.25], "backward": rows[0.75]},
        "checks": {"output_is_right": True, "input_gradient_is_right": True},
        "values": {"largest_output_error": 8e-7, "largest_input_gradient_error": 4e-7},
        "memory": {
            "parameter_bytes": 8 * hidden,
            "gradient_bytes": 4 * batch * hidden + 8 * hidden,
            "saved_bytes": 4 * batch * hidden + 12 * hidden + 4,
            "peak_rss_bytes": [600_000_000] * ranks,
            "peak_allocated_bytes": [12 * batch * hidden + 512 * rank for rank in range(ranks)],
        },
    } | changes


def _head(cell: dict, repeat: int, time_utc: str) -> dict:
    return {
        "kind": "record",
        "cell": cell["id"],
        "spec": cell["spec"],
        "repeat": repeat,
        "command": cell["command"],
        "writer": "rank",
        "status": "ok",
        "phase": None,
        "cause": None,
        "time_utc": time_utc,
        "elapsed_ns": 10**9,
        "setup_ns": 310_000_000,
        "slowest_rank_samples_ns": None,
        "rank_quantiles_ns": None,
        "windows": None,
    }
