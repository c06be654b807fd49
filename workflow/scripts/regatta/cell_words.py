"""Words that set cells apart which their ids and short names do not, and the order in which ids are read."""

import re

UNNAMED = (  # parameters that are in no id
    "algorithm", "image_size", "context_length", "batch_size", "dtype", "optimizer", "compile", "channels_last",
    "gradient_as_bucket_view", "static_graph", "compression",
)  # fmt: skip


def natural(text: str) -> list[str | float]:
    """Return a key that sorts ids with their sizes as numbers: 4096 before 16384, 0.5 before 25."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [float(part) if index % 2 else part for index, part in enumerate(parts)]


def parameter_word(name: str, value: object) -> str:
    """Return a parameter as people say it: 64 px, 128 tokens, batch 16, bf16, no compile."""
    if name == "gradient_as_bucket_view":
        return "view" if value else "copy"
    if name == "compression":
        return "whole gradients" if value == "none" else f"{value} gradients"
    if name in ("compile", "channels_last", "static_graph"):
        return f"{'' if value else 'no '}{name.replace('_', ' ')}"
    told = {"image_size": f"{value} px", "context_length": f"{value} tokens", "batch_size": f"batch {value}"}
    return told.get(name, str(value))


def with_words(cell: str, words: dict[str, str]) -> str:
    """Return the id of a cell with its words of `varying_words` behind it."""
    return f"{cell} ({words[cell]})" if cell in words else cell


def varying_words(campaign: dict) -> dict[str, str]:
    """Return for each cell what varies among the cells of its benchmark and its id does not tell: `batch 16, view`.

    Only cells of which there is something to tell are in it.
    """
    cells = [*campaign["cells"], *campaign["skipped"]]
    values: dict[tuple[str, str], set] = {}
    for cell in cells:
        for name, value in _unnamed(cell["spec"]).items():
            values.setdefault((cell["spec"]["benchmark"], name), set()).add(value)
    words = {}
    for cell in cells:
        own = _unnamed(cell["spec"])
        told = [parameter_word(n, v) for n, v in own.items() if len(values[cell["spec"]["benchmark"], n]) > 1]
        if told:
            words[cell["id"]] = ", ".join(told)
    return words


def _unnamed(spec: dict) -> dict:
    """Return those parameters of a cell that have a value and stand in no id."""
    own = {name: spec["parameters"].get(name) for name in UNNAMED} | {"backend": spec["backend"]}
    return {name: value for name, value in own.items() if value is not None}


def rank_word(device: str) -> str:
    """Return what a rank is on this device, in the report: a rank of a CPU campaign has no GPU."""
    return "process" if device == "cpu" else "GPU"


def ranks_word(device: str) -> str:
    return "processes" if device == "cpu" else "GPUs"
