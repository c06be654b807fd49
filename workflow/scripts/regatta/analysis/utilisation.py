"""Operations and tokens of training steps per second, and the share of a GPU's peak that is reached (MFU).

Model FLOPs utilisation: operations of the model, not of the hardware, per second, over the peak that the cluster file
states with its source. Source: Chowdhery et al. 2022, PaLM, appendix B, arXiv:2204.02311. Definitions: docs/metrics.md.
"""

import pandas as pd

TFLOP = 10**12
COLUMNS = ("flops_per_sample", "gpu", "allow_tf32_matmul", "allow_tf32_cudnn")  # of measurements.csv


def utilisation(campaign: dict, spec: dict, launches: pd.DataFrame, step_s: float | None) -> dict:
    """Return the columns of one cell. launches: rows of measurements.csv; what they do not agree on is unknown."""
    parameters = spec["parameters"]
    context_length, batch = parameters.get("context_length"), parameters["batch_size"]
    world_size = spec["nodes"] * spec["gpus_per_node"]
    row = {}
    if context_length is not None and step_s is not None:
        row["throughput_tokens_per_s"] = world_size * batch * context_length / step_s
    flops_per_sample = _agreed(launches, "flops_per_sample")
    if flops_per_sample is None or step_s is None:
        return row
    reached = int(flops_per_sample) * batch / step_s / TFLOP
    row |= {"flops_per_sample": int(flops_per_sample), "compute_per_gpu_tflop_per_s": reached}
    peak = peak_of(campaign, spec, launches)
    if peak is not None:
        row |= {"peak_dtype": peak["dtype"], "peak_tflop_per_s": peak["tflop_per_s"]}
        row |= {"mfu_ratio": reached / peak["tflop_per_s"]}
    return row


def peak_of(campaign: dict, spec: dict, launches: pd.DataFrame) -> dict | None:
    """Return the entry of the cluster file's `peaks` that a cell is held against, or None where nothing can be said.

    It is that of the fastest arithmetic which torch lets the model's products use, so that a share never looks better
    than it is: with fp32 the peak of tf32, where the file has one for the GPU and the ranks' settings allow it.
    """
    gpu = _agreed(launches, "gpu")
    peaks = {peak["dtype"]: peak for peak in campaign["cluster"].get("peaks") or [] if peak["device"] == gpu}
    dtype = spec["parameters"]["dtype"]
    if dtype != "fp32" or "tf32" not in peaks:
        return peaks.get(dtype)
    is_allowed = _is_tf32_allowed(spec, launches)
    return None if is_allowed is None else peaks.get("tf32" if is_allowed else "fp32")


def _is_tf32_allowed(spec: dict, launches: pd.DataFrame) -> bool | None:
    """Say whether some products of the model may be TF32: convolutions as cuDNN's setting says, matrix products as theirs."""
    settings = ["allow_tf32_matmul"]
    if spec["parameters"].get("image_size") is not None:
        settings.append("allow_tf32_cudnn")  # every classifier has convolutions
    values = [_agreed(launches, setting) for setting in settings]
    return None if None in values else any(values)


def _agreed(launches: pd.DataFrame, column: str) -> object | None:
    """Return the one value that all launches have, or None."""
    values = set(launches[column]) if len(launches) else set()
    if len(values) != 1 or launches[column].isna().any():
        return None
    return values.pop()
