"""Load a campaign file and the cluster file that it names, and refuse both with a clear message before anything runs."""

from dataclasses import dataclass
from pathlib import Path

from regatta.benchmarks import benchmark_names, load_benchmark, parse_bytes
from regatta.errors import UserError, nearest
from regatta.validation import fill_defaults, load_schema, raise_mistakes, schema_mistakes, show
from regatta.yaml_file import YamlFile, read_yaml

CLUSTERS = Path(__file__).resolve().parents[3] / "config" / "clusters"
GPU_FOLDER = Path("/proc/driver/nvidia/gpus")  # one entry for each GPU that the driver has bound
CELL_FIELDS = ["benchmark", "backend", "stack", "nodes", "gpus_per_node", "world_size"]


@dataclass(frozen=True)
class Campaign:
    """A campaign file that has passed every check. `data` has all defaults filled in; `cluster` likewise."""

    file: YamlFile
    data: dict
    cluster: dict

    @property
    def name(self) -> str:
        return self.data["name"]


def load_campaign(path: Path, clusters: Path = CLUSTERS) -> Campaign:
    """Read and check a campaign. Raises UserError that lists every mistake with file, line, value and what to do."""
    file = read_yaml(path)
    schema = load_schema("campaign")
    raise_mistakes(schema_mistakes(file, file.data, schema))
    raise_mistakes(_benchmark_mistakes(file))
    data = fill_defaults(file.data, schema)
    data["stacks"] = {
        name: fill_defaults(stack, schema["properties"]["stacks"]["additionalProperties"])
        for name, stack in data["stacks"].items()
    }
    data["benchmarks"] = [
        {**entry, "parameters": fill_defaults(entry["parameters"], load_benchmark(entry["benchmark"]).schema)}
        for entry in data["benchmarks"]
    ]
    cluster = load_cluster(file, clusters)
    raise_mistakes(
        _shape_mistakes(file, cluster, clusters) + _rule_mistakes(file, data) + _sampling_mistakes(file, data)
    )
    data["exclude"] = [{**rule, "when": _plain_bytes(rule["when"])} for rule in data["exclude"]]
    return Campaign(file, data, cluster)


def load_cluster(campaign: YamlFile, clusters: Path) -> dict:
    """Return the cluster file that the campaign names, with `gpus_per_node` counted where it says detect."""
    name = campaign.data["cluster"]
    path = clusters / f"{name}.yaml"
    if not path.exists():
        known = sorted(p.stem for p in clusters.glob("*.yaml"))
        raise UserError(
            f"{campaign.at(('cluster',))}: cluster = '{name}', but there is no {path}.{nearest(name, known)}"
            f" Write that file, or choose from: {', '.join(known)}."
        )
    file = read_yaml(path)
    raise_mistakes(schema_mistakes(file, file.data, load_schema("cluster")))
    if file.data["name"] != name:
        raise UserError(f"{file.at(('name',))}: name = '{file.data['name']}' must be '{name}', as the file is called.")
    cluster = dict(file.data)
    if cluster["gpus_per_node"] == "detect":
        cluster["gpus_per_node"] = len(list(GPU_FOLDER.iterdir())) if GPU_FOLDER.is_dir() else 0
    return cluster


def _benchmark_mistakes(file: YamlFile) -> list[str]:
    mistakes = []
    for index, entry in enumerate(file.data["benchmarks"]):
        where = ("benchmarks", index)
        if entry["benchmark"] not in benchmark_names():
            mistakes.append(
                f"{file.at((*where, 'benchmark'))}: benchmarks[{index}].benchmark = {show(entry['benchmark'])} is not known."
                f"{nearest(entry['benchmark'], benchmark_names())} Choose from: {', '.join(benchmark_names())}."
            )
            continue
        schema = load_benchmark(entry["benchmark"]).schema
        mistakes += schema_mistakes(file, entry["parameters"], schema, (*where, "parameters"))
    return mistakes


def _shape_mistakes(file: YamlFile, cluster: dict, clusters: Path) -> list[str]:
    """A shape that the cluster does not have. GPUs are counted only where the campaign uses them."""
    limits = {"nodes": ("num_nodes", "nodes", cluster["num_nodes"])}
    if file.data["device"] == "cuda" and cluster["gpus_per_node"] > 0:
        limits["gpus_per_node"] = ("gpus_per_node", "GPUs per node", cluster["gpus_per_node"])
    cluster_file = clusters / f"{cluster['name']}.yaml"
    return [
        f"{file.at(('shapes', i, key, j))}: shapes[{i}].{key}[{j}] = {value}, but cluster '{cluster['name']}' has"
        f" {limit} {words}. Lower it, or correct {cluster_key} in {cluster_file}."
        for i, shape in enumerate(file.data["shapes"])
        for key, (cluster_key, words, limit) in limits.items()
        for j, value in enumerate(shape[key])
        if value > limit
    ]


def _rule_mistakes(file: YamlFile, data: dict) -> list[str]:
    """Fields that no cell of this campaign has, in `exclude` and `baseline`."""
    parameters = {name for entry in data["benchmarks"] for name in load_benchmark(entry["benchmark"]).parameters}
    rules = [
        (("exclude", i, "when"), rule["when"], [*CELL_FIELDS, *parameters]) for i, rule in enumerate(data["exclude"])
    ]
    train_step = load_benchmark("train_step").parameters
    rules.append((("baseline",), data["baseline"], ["nodes", "gpus_per_node", *train_step]))
    return [
        f"{file.at((*where, key))}: unknown field '{key}' in {where[0]}.{nearest(key, known)}"
        f" Fields that may stand here: {', '.join(sorted(known))}."
        for where, fields, known in rules
        for key in fields
        if key not in known
    ]


def _plain_bytes(fields: dict) -> dict:
    """Return the fields of a rule with `message_bytes: 64KiB` as the number that cells hold."""
    if "message_bytes" not in fields:
        return fields
    value = fields["message_bytes"]
    try:
        plain = [parse_bytes(v) for v in value] if isinstance(value, list) else parse_bytes(value)
    except (AttributeError, KeyError, TypeError):
        return fields  # no size at all: it matches no cell, and the plan says that the rule has no effect
    return {**fields, "message_bytes": plain}


def _sampling_mistakes(file: YamlFile, data: dict) -> list[str]:
    pairs = [("min_seconds", "max_seconds"), ("min_samples", "max_samples")]
    sampling = data["sampling"]
    return [
        f"{file.at(('sampling', low))}: sampling.{low} = {sampling[low]} is more than sampling.{high} = {sampling[high]}"
        f" (line {file.lines.get(('sampling', high), 'not given: the default')}). Lower the first or raise the second."
        for low, high in pairs
        if sampling[low] > sampling[high]
    ]
