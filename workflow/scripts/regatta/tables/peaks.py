"""Peak compute rates of the cluster file, which MFU is relative to: docs/metrics.md."""

from regatta.model.frozen import Cell

SETTINGS = ("allow_tf32_matmul", "allow_tf32_cudnn")  # of torch, in measurements.csv


def peaks_of(values) -> list[dict | None]:
    """Return the entry of the cluster file's `peaks` of each cell, None if it is unknown.

    values: `tables.cells.CellValues`.
    """
    peaks = values.campaign.cluster.get("peaks") or []
    agreed = zip(*(values.agreed(name) for name in ("gpu", *SETTINGS)), strict=True)
    return [_peak_of(cell, peaks, *of_cell) for cell, of_cell in zip(values.cells, agreed, strict=True)]


def _peak_of(cell: Cell, peaks: list[dict], gpu: str | None, *is_allowed: bool | None) -> dict | None:
    """Return the peak for the fastest math mode that torch allows, so that MFU is never overstated.

    With fp32 it is that of tf32, where the file has one for the GPU and the ranks' settings allow it.
    """
    of_gpu = {peak["dtype"]: peak for peak in peaks if peak["device"] == gpu}
    dtype = cell.parameters.get("dtype")
    if dtype != "fp32" or "tf32" not in of_gpu:
        return of_gpu.get(dtype)
    # Settings of matrix products and of cuDNN: every classifier has convolutions.
    is_allowed = is_allowed if cell.parameters.get("image_size") is not None else is_allowed[:1]
    return None if None in is_allowed else of_gpu.get("tf32" if any(is_allowed) else "fp32")
