"""Reports that PyTorch's benchmarks/distributed/ddp/benchmark.py writes with --json. Read and written.

One entry for each model; in it one for each number of ranks, of which the first is without DDP, by its position alone.
`measurements` are seconds of single synchronised steps, those of rank 0 first, then those of rank 1.
"""

from collections.abc import Iterator

from regatta.core.errors import UserError
from regatta.core.text import is_unknown, shape
from regatta.formats.base import NANOSECONDS, Node, Options, Reading, Source, shape_of, whole_ns
from regatta.formats.exported_fields import (
    cell_fields,
    is_there,
    other_parameters,
    read_cell_fields,
    read_parameters,
    stated_shape,
)
from regatta.formats.exporter import ResultsFolder
from regatta.formats.pytorch_text import IMAGE_SIZE

FORMAT = "pytorch-json"
KEYS = ("pytorch_version", "cuda_version", "distributed_backend", "bucket_size", "device", "benchmark_results")
STATISTIC = "single steps of every rank, each synchronised: a step costs what its slowest rank took"
NO_DEVICE = f"the file names no device and no image size: cuda and {IMAGE_SIZE}, those of benchmark.py, were taken"
NAMED = ("model", "batch_size", "strategy")  # parameters that a report has a place for
NOT_IN_REPORT = (*NAMED, "bucket_cap_mb")  # which may differ between its results


def is_pytorch_json(value: object) -> bool:
    return isinstance(value, dict) and "benchmark_results" in value


def read_pytorch_json(report: Node, options: Options) -> Source:
    bucket, backend = report.key("bucket_size"), report.key("distributed_backend").text()
    readings, twice = [], "again"
    for entry in report.key("benchmark_results").items():
        model, batch_size = entry.key("model").text(), entry.key("batch_size").whole()
        for position, result in enumerate(entry.key("result").items()):
            ranks, measurements = result.key("ranks").items(), result.key("measurements").items()
            if position == 0 and not measurements:
                continue  # a report that Regatta wrote of a campaign without such a cell
            if position == 0 and len(ranks) != 1:
                raise result.key("ranks").refuse(
                    "one rank in the first result of a model, which is the one without DDP"
                )
            named = {"model": model, "batch_size": batch_size, "strategy": "ddp" if position else "none"}
            if not is_there(result, "parameters"):
                named |= {"image_size": IMAGE_SIZE, "bucket_cap_mb": bucket.number()}
            parameters = read_parameters(result, "train_step", **named)
            shape, samples = _shape(result, len(ranks), options), _samples_ns(result, len(ranks))
            readings += _readings(result, parameters, shape, samples)
            twice = "launch" if result.has("launches") else twice
    if not readings:
        raise report.key("benchmark_results").refuse("measurements of one model at least")
    versions = {"torch": _version(report, "pytorch_version"), "cuda": _version(report, "cuda_version")}
    notes = () if report.has("device") else (NO_DEVICE,)
    return Source(FORMAT, STATISTIC, backend, _device(report), tuple(readings), notes, versions, twice=twice)


def _device(report: Node) -> str:
    if not report.has("device"):
        return "cuda"
    if (device := report.key("device")).value not in ("cpu", "cuda"):
        raise device.refuse("cpu or cuda")
    return device.value


def _readings(result: Node, parameters: dict, shape: tuple, samples: list[list[int]]) -> Iterator[Reading]:
    """Yield the launches of a result: one, but for a report that Regatta wrote, which says where each begins."""
    fields = read_cell_fields(result)
    if not result.has("launches"):
        yield Reading(None, "train_step", parameters, *shape, samples_ns=samples, steps_per_window=1,
                      num_iterations=len(samples[0]), **fields)  # fmt: skip
        return
    start, launches = 0, result.key("launches")
    for launch in launches.items():
        num = launch.key("num_iterations").whole()
        times = {"window_step_s": launch.key("window_step_s").positive()} if is_there(launch, "window_step_s") else {}
        part = [row[start : start + num] for row in samples]
        yield Reading(None, "train_step", parameters, *shape, times, samples_ns=part, num_iterations=num, **fields)
        start += num
    if start != len(samples[0]):
        raise launches.refuse(f"{len(samples[0])} iterations in all, as many as each rank has measurements")


def _version(report: Node, key: str) -> str | None:
    return None if report.key(key).value is None else str(report.key(key).value)


def _shape(result: Node, num_ranks: int, options: Options) -> tuple[int, int]:
    if shape := stated_shape(result, num_ranks):
        return shape
    if num_ranks == 1:
        return 1, 1
    if options.gpus_per_node is None:
        raise UserError(
            f"{result.name}: {result.place} has {num_ranks} ranks, and such a report does not say how many GPUs a node"
            " has. Add --gpus-per-node. Nothing was imported."
        )
    shape = shape_of(num_ranks, options.gpus_per_node)
    if shape is None:
        raise result.key("ranks").refuse(f"whole nodes of {options.gpus_per_node} GPUs; correct --gpus-per-node")
    return shape


def _samples_ns(result: Node, num_ranks: int) -> list[list[int]]:
    """Return [rank][iteration]. Measurements stand rank by rank, the same number of each."""
    seconds = result.key("measurements").items()
    if num_ranks == 0 or not seconds or len(seconds) % num_ranks:
        told = f"{result.place}.measurements has {len(seconds)} values for {num_ranks} ranks"
        raise UserError(f"{result.name}: {told}; expected the same number for each. Nothing was imported.")
    times = [whole_ns(value.value) for value in seconds]
    if None in times:
        raise seconds[times.index(None)].refuse("a time in seconds above 0")
    num = len(times) // num_ranks
    return [times[rank * num : (rank + 1) * num] for rank in range(num_ranks)]


def pytorch_report(folder: ResultsFolder) -> dict:
    """Return the measured training steps as a report that upstream's diff.py reads.

    The samples of all launches of a cell stand together, those of a rank behind each other. Raises UserError where the
    form has no place for what was measured: two bucket sizes, two stacks, strategies other than none and ddp.
    """
    cells = [cell for cell in folder.cells if cell["spec"]["benchmark"] == "train_step" and len(folder.ok_rows(cell))]
    if not cells:
        raise UserError(f"{folder.path}: no training step has a valid record, so nothing is written.")
    _check_room(folder, cells)
    models: dict[tuple, list[dict]] = {}
    for cell in cells:
        parameters = cell["spec"]["parameters"]
        models.setdefault((parameters["model"], parameters["batch_size"]), []).append(cell)
    wrapped = [cell["spec"]["parameters"]["bucket_cap_mb"] for cell in cells if _is_wrapped(cell)]
    return {
        "pytorch_version": folder.version("torch"),
        "cuda_version": folder.version("cuda"),
        "distributed_backend": cells[0]["spec"]["backend"],
        "bucket_size": wrapped[0] if wrapped else None,
        "device": cells[0]["spec"]["device"],
        "benchmark_results": [
            {"model": model, "batch_size": batch_size, "result": _results(folder, own)}
            for (model, batch_size), own in models.items()
        ],
    }


def _is_wrapped(cell: dict) -> bool:
    return cell["spec"]["parameters"]["strategy"] != "none"


def _check_room(folder: ResultsFolder, cells: list[dict]) -> None:
    """Refuse cells that would be one and the same in a report."""
    folder.one_value(cells, "strategy", ("none", "ddp"))
    folder.one_value([cell for cell in cells if _is_wrapped(cell)], "bucket_cap_mb")
    others = [name for name in cells[0]["spec"]["parameters"] if name not in NOT_IN_REPORT]
    for name in ("stack", "backend", "device", *others):
        folder.one_value(cells, name)
    shapes: dict[int, tuple] = {}
    for cell in filter(_is_wrapped, cells):
        own = cell["spec"]["nodes"], cell["spec"]["gpus_per_node"]
        other = shapes.setdefault(_num_ranks(cell), own)
        if own != other:
            raise UserError(
                f"{folder.path}: {shape(*other)} and {shape(*own)} have the same ranks in a report, which knows no nodes. Choose one,"
                f" such as --where nodes={own[0]}."
            )


def _results(folder: ResultsFolder, cells: list[dict]) -> list[dict]:
    """Return the results of one model: the one without DDP first, also where there is none, then by number of ranks."""
    alone = [cell for cell in cells if not _is_wrapped(cell)]
    wrapped = [cell for cell in cells if _is_wrapped(cell)]
    wrapped.sort(key=lambda cell: (_num_ranks(cell), cell["spec"]["nodes"]))
    first = _result(folder, alone[0]) if alone else {"ranks": [0], "measurements": []}
    return [first, *(_result(folder, cell) for cell in wrapped)]


def _num_ranks(cell: dict) -> int:
    return cell["spec"]["nodes"] * cell["spec"]["gpus_per_node"]


def _result(folder: ResultsFolder, cell: dict) -> dict:
    """Return one result. Keys beside `ranks` and `measurements` are for the import; upstream's programs ignore them."""
    by_rank: list[list[float]] = [[] for _ in range(_num_ranks(cell))]
    launches = []
    for _, row in folder.ok_rows(cell).iterrows():
        samples, window_step_s = folder.record(row).get("samples_ns"), row["window_step_s"]
        if samples is None:
            raise UserError(
                f"{folder.path}: {cell['id']} has no samples by rank, which this format is made of. Write --format csv."
            )
        for of_rank, more in zip(by_rank, samples, strict=True):
            of_rank += [value / NANOSECONDS for value in more]
        step = None if is_unknown(window_step_s) else float(window_step_s)
        launches.append({"num_iterations": len(samples[0]), "window_step_s": step})
    return {
        "ranks": list(range(len(by_rank))),
        "measurements": [value for of_rank in by_rank for value in of_rank],
        **cell_fields(cell["spec"]),
        "parameters": other_parameters(cell["spec"], NAMED),
        "launches": launches,
    }
