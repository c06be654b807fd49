"""Operations and tokens per second of a training step, and model FLOPs utilization (MFU): docs/metrics.md."""

from collections.abc import Mapping

import pandas as pd

from regatta.model.frozen import Cell, FrozenCampaign

TFLOP = 10**12
UTILIZATION_COLUMNS = ("flops_per_sample", "gpu", "allow_tf32_matmul", "allow_tf32_cudnn")  # in measurements.csv


def utilization(campaign: FrozenCampaign, cell: Cell, launches: Mapping, step_s: float | None) -> dict:
    """Return operations and tokens per second and MFU of one cell. launches: columns of measurements.csv.

    What launches do not agree on is unknown.
    """
    context_length, batch = cell.parameters.get("context_length"), cell.parameters["batch_size"]
    row = {}
    if context_length is not None and step_s is not None:
        row["throughput_tokens_per_s"] = cell.world_size * batch * context_length / step_s
    flops_per_sample = _agreed(launches, "flops_per_sample")
    if flops_per_sample is None or step_s is None:
        return row
    reached = int(flops_per_sample) * batch / step_s / TFLOP
    row |= {"flops_per_sample": int(flops_per_sample), "compute_per_gpu_tflop_per_s": reached}
    if peak := peak_of(campaign, cell, launches):
        row |= {"peak_dtype": peak["dtype"], "peak_tflop_per_s": peak["tflop_per_s"]}
        row |= {"mfu_ratio": reached / peak["tflop_per_s"]}
    return row


def peak_of(campaign: FrozenCampaign, cell: Cell, launches: Mapping) -> dict | None:
    """Return the entry of the cluster file's `peaks` that MFU is relative to, or None if it is unknown.

    It is the peak for the fastest math mode that torch allows, so that MFU is never overstated: with fp32 that of tf32,
    where the file has one for the GPU and the ranks' settings allow it.
    """
    gpu = _agreed(launches, "gpu")
    peaks = {peak["dtype"]: peak for peak in campaign.cluster.get("peaks") or [] if peak["device"] == gpu}
    dtype, is_classifier = cell.parameters["dtype"], cell.parameters.get("image_size") is not None
    if dtype != "fp32" or "tf32" not in peaks:
        return peaks.get(dtype)
    # Settings of matrix products and of cuDNN: every classifier has convolutions.
    settings = ("allow_tf32_matmul", "allow_tf32_cudnn") if is_classifier else ("allow_tf32_matmul",)
    is_allowed = [_agreed(launches, setting) for setting in settings]
    return None if None in is_allowed else peaks.get("tf32" if any(is_allowed) else "fp32")


def _agreed(launches: Mapping, column: str) -> object | None:
    """Return the one value that all launches have, or None."""
    values = list(dict.fromkeys(launches[column]))
    return None if len(values) != 1 or pd.isna(values[0]) else values[0]
