"""Expand a campaign into its cells, each with a content-hash id. Cells that cannot run are skipped with a reason."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from regatta.campaign import executables
from regatta.campaign import program_entries as programs
from regatta.campaign.load import Campaign, does_not_fit
from regatta.campaign.stacks import identity
from regatta.campaign.sweep import host_sets
from regatta.campaign.versus import axis_values
from regatta.campaign.yaml_file import raise_errors
from regatta.core.benchmarks import load_benchmark, normalize
from regatta.launchers import command_by_hand, program_by_hand
from regatta.model.frozen import Cell, FrozenCell

ELEMENT_BYTES = {"fp32": 4, "bf16": 2}
MAX_CELLS = 1_000_000  # per `benchmarks` entry, before deduplication and exclusions; 100,000 take 20 s to plan


@dataclass(frozen=True, eq=False)
class MatrixCell(Cell):
    """A cell with what its launches need.

    stack_entry: that of the campaign, with the paths that are not in `spec`. parameters_text: their canonical JSON.
    """

    limit_seconds: float
    stack_entry: dict
    cluster: dict
    parameters_text: str

    @cached_property
    def command(self) -> str:
        """Return the command that repeats this cell by hand."""
        if "program" in self.spec:
            geometry, words = programs.geometry_of(self.spec, self.cluster), programs.command_of(self.spec)
            return program_by_hand(replace(geometry, hosts=self.hosts[: geometry.nodes]), self.stack_entry, words)
        return command_by_hand(self.spec, self.stack_entry, self.cluster)

    @property
    def twin_key(self) -> tuple:
        """Return the key of cells that differ only in their stack: they are compared, so they stay together.

        The cells that a launch of a program measures together have one key as well.
        """
        text = self.parameters_text
        if self.benchmark == programs.BENCHMARK:
            read, check = (self.spec["program"][key] for key in ("read", "check"))
            read = read if isinstance(read, str) else None
            text = canonical_json([read, check, programs.what_runs(self.spec) | {"stack": None}])
        return self.benchmark, self.backend, *self.shape, text

    def frozen(self, reason: str | None = None) -> FrozenCell:
        """Return the cell of the frozen campaign. reason: why it is skipped."""
        if reason is not None:
            return FrozenCell(self.id, self.spec, reason=reason)
        return FrozenCell(self.id, self.spec, self.command, self.limit_seconds)


@dataclass
class CampaignMatrix:
    """The cells to measure, and those skipped, each with a reason. `notes`: rules without effect."""

    cells: list[MatrixCell] = field(default_factory=list)
    skipped: list[tuple[MatrixCell, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


WHOLE_FLOAT = re.compile(r"\.0\b|e\+")  # in JSON; also found in some strings
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def canonical_json(value: object) -> str:
    """Return the canonical JSON of a value: keys sorted, no spaces, whole floats as integers."""
    text = _encode(value)
    return _encode(whole(value)) if WHOLE_FLOAT.search(text) else text


def content_hash(value: object) -> str:
    """Return the first 12 hex digits of SHA-256 over the canonical JSON."""
    return _short_hash(canonical_json(value))


def _short_hash(text: str) -> str:
    # surrogatepass: the name of a file need not be UTF-8
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]


def expand(campaign: Campaign) -> CampaignMatrix:
    """Cross the axes of a campaign into cells, in the order of the file; duplicates are dropped.

    Raises UserError, before creating cells, if the axes yield more than MAX_CELLS.
    """
    file, data = campaign.file, campaign.data
    sets = {kind: host_sets(file, data, cluster) for kind, cluster in _kinds(campaign).items()}
    _check_num_cells(campaign, max(map(len, sets.values())))
    matrix = CampaignMatrix()
    uses = [0] * len(campaign.data["exclude"])
    cells: dict[str, MatrixCell] = {}
    for cell in _all_cells(campaign, sets):
        cells.setdefault(cell.id, cell)
    for cell in cells.values():
        reason = impossible(cell, cell.cluster) or _excluded(cell, data["exclude"], uses)
        reason = reason or sets[cell.node_type][cell.hosts]
        if reason:
            matrix.skipped.append((cell, reason))
        else:
            matrix.cells.append(cell)
    notes = [file.error(("exclude", i), f"exclude[{i}] matches no cell") for i, num in enumerate(uses) if num == 0]
    trained = [cell for cell in matrix.cells if load_benchmark(cell.benchmark).has_baseline]
    if trained and not any(has_fields(cell, data["baseline"]) for cell in trained):
        text = "no cell matches `baseline`; efficiency will be n/a. Add its shape and strategy to the campaign."
        notes.append(file.error(("baseline",), text))
    axis = data["versus"]["axis"]
    if "versus" in file.data and len(axis_values(data, axis)) <= 1:
        text = f"{axis} has one value in this campaign, so there is nothing to compare"
        notes.append(file.error(("versus",), text))
    matrix.notes = [note.text for note in notes]
    return matrix


def impossible(cell: Cell, cluster: dict) -> str | None:
    """Return why a cell cannot run at all, or None."""
    if cell.device == "cuda" and cluster["gpus_per_node"] == 0:
        return f"device cuda needs a GPU; cluster '{cluster['name']}' has none"
    if reason := does_not_fit(cluster, *cell.shape, cell.device):
        return reason
    if cell.backend == "nccl" and cell.device != "cuda":
        return "backend nccl needs device cuda; this campaign's device is cpu"
    fields = cell.fields | {"world_size": cell.world_size}
    fields["element_bytes"] = ELEMENT_BYTES.get(cell.parameters.get("dtype"))
    for rule in load_benchmark(cell.benchmark).schema.get("x-impossible", []):
        if all(_meets(fields[name], wanted, fields) for name, wanted in rule["when"].items()):
            return rule["reason"].format(**fields)
    return None


def _meets(value: object, wanted: object, fields: dict) -> bool:
    """Return whether a value meets a condition: a value, a list, {not: list}, {above: n}, {below: n},
    {not_multiple_of: fields}."""
    if isinstance(wanted, list):
        return value in wanted
    if not isinstance(wanted, dict):
        return value == wanted
    ((rule, limit),) = wanted.items()
    if rule == "not":
        return value not in limit
    if value is None:
        return False
    if rule == "not_multiple_of":
        return value % math.prod(fields[name] for name in limit) != 0
    return value > limit if rule == "above" else value < limit


def _kinds(campaign: Campaign) -> dict[str | None, dict]:
    return {cluster.get("node_type"): cluster for cluster in campaign.clusters.values()}


def _check_num_cells(campaign: Campaign, num_host_sets: int) -> None:
    data, errors = campaign.data, []
    num_shapes = sum(len(shape["nodes"]) * len(shape["gpus_per_node"]) for shape in data["shapes"])
    common = {"shapes": num_shapes, "stacks": len(data["stacks"]), "backend": len(data["backend"])}
    common |= {data["sweep"]: num_host_sets} if data["sweep"] else {}
    for index, entry in enumerate(data["benchmarks"]):
        axes = {name: len(entry["parameters"][name]) for name in load_benchmark(entry["benchmark"]).parameters}
        lengths = common | ({"points": len(entry["points"])} if "points" in entry else axes)
        if (product := math.prod(lengths.values())) > MAX_CELLS:
            axes = " × ".join(f"{num:,} {name}" for name, num in lengths.items() if num > 1)
            text = f"benchmarks[{index}] expands to {product:,} cells ({axes}); the limit is {MAX_CELLS:,}."
            text += " Remove values from an axis."
            errors.append(campaign.file.error(("benchmarks", index), text))
    raise_errors(campaign.file, errors)


def _all_cells(campaign: Campaign, sets: dict[str | None, Iterable[tuple[str, ...]]]) -> Iterator[MatrixCell]:
    """Yield the cells. sets: by node type, the nodes of each cell of a sweep."""
    data = campaign.data
    of_stacks = campaign.shapes
    shapes = dict.fromkeys(shape for s in data["shapes"] for shape in itertools.product(s["nodes"], s["gpus_per_node"]))
    for entry in data["benchmarks"]:
        benchmark = load_benchmark(entry["benchmark"])
        unused = () if benchmark.has_windows else ("windows_ratio",)
        sampling = {key: value for key, value in data["sampling"].items() if key not in unused}
        sampling = None if benchmark.name == programs.BENCHMARK else sampling  # a program ignores it
        points, of = _points(entry), "module" if "module" in entry else benchmark.name  # script or program
        texts = [(canonical_json(parameters), canonical_json(code)) for parameters, code in points]  # once
        limit = float(entry.get("cell_seconds", data["limits"]["cell_seconds"]))
        for (nodes, gpus), (name, stack), backend in itertools.product(shapes, data["stacks"].items(), data["backend"]):
            if (nodes, gpus) not in of_stacks[name]:
                continue
            cluster = campaign.clusters[name]
            common = {
                "benchmark": benchmark.name,
                "version": benchmark.version,
                "cluster": cluster["name"],
                "device": data["device"],
                "backend": backend,
                "nodes": nodes,
                "gpus_per_node": gpus,
                "stack": identity(name, stack, cluster),
                "parameters": None,
                "sampling": sampling,
            }
            if "node_type" in cluster:  # absent otherwise, so that earlier ids stay valid
                common["node_type"] = cluster["node_type"]
            parts = {key: canonical_json(value) for key, value in common.items()}
            of_type = sets[cluster.get("node_type")]
            for hosts, ((parameters, code), (text, of_code)) in itertools.product(
                of_type, zip(points, texts, strict=True)
            ):
                spec, parts["parameters"] = common | {"parameters": parameters}, text
                if code:
                    spec[of], parts[of] = code, of_code
                parts.pop(executables.KEY, None)
                if of == programs.BENCHMARK and (
                    files := executables.executables_of(spec, entry.get("depends", ()), stack, cluster)
                ):
                    spec[executables.KEY], parts[executables.KEY] = files, canonical_json(files)
                if hosts:
                    spec["hosts"], parts["hosts"] = list(hosts), canonical_json(hosts)
                members = ",".join(f'"{key}":{parts[key]}' for key in sorted(parts))
                cell = _with_slug(spec, _short_hash(f"{{{members}}}"))
                yield MatrixCell(cell, spec, limit, stack, cluster, text)


def _points(entry: dict) -> list[tuple[dict, dict | None]]:
    """Return the parameters of the cells of an entry, and what else identifies those of a user's files."""
    if "points" in entry:
        return entry["points"]
    benchmark = load_benchmark(entry["benchmark"])
    axes = [[(name, value) for value in entry["parameters"][name]] for name in benchmark.parameters]
    return [(normalize(benchmark, dict(point)), entry.get("module")) for point in itertools.product(*axes)]


def cell_id(spec: dict) -> str:
    """Return the readable slug and the content hash of a cell."""
    return _with_slug(spec, content_hash(spec))


def _with_slug(spec: dict, digest: str) -> str:
    values = [spec["parameters"].get(name) for name in load_benchmark(spec["benchmark"]).slug_axes]
    slugs = [str(value) for value in values if value is not None]
    shape = f"n{spec['nodes']:02d}g{spec['gpus_per_node']:02d}"
    return "-".join([spec["benchmark"], *slugs, shape, spec["stack"]["name"], *spec.get("hosts", ()), digest])


def _excluded(cell: Cell, rules: list[dict], uses: list[int]) -> str | None:
    """Return the reason of the first rule that excludes a cell, or None. uses: how often each rule applied."""
    for index, rule in enumerate(rules):
        if has_fields(cell, rule["when"]):
            uses[index] += 1
            return f"excluded: {' '.join(rule['reason'].split())}"
    return None


def has_fields(cell: Cell, fields: dict) -> bool:
    """Return whether a cell has these values, each one or a list. Program parameters are strings, as written."""
    of_program = cell.user_parameters if cell.benchmark == programs.BENCHMARK else {}
    return all(_is_one_of(cell.field(name), wanted, name in of_program) for name, wanted in fields.items())


def _is_one_of(value: object, wanted: object, is_text: bool) -> bool:
    values = wanted if isinstance(wanted, list) else [wanted]
    return value in ([str(of).lower() if isinstance(of, bool) else str(of) for of in values] if is_text else values)


def whole(value: object) -> object:
    """Return a value with whole floats as integers."""
    if isinstance(value, dict):
        return {key: whole(v) for key, v in value.items()}
    if isinstance(value, list):
        return [whole(v) for v in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
