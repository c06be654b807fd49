"""Load a campaign file and the cluster file that it names, and refuse both with a clear message."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regatta.campaign.benchmarks import parse_bytes
from regatta.campaign.stacks import complete_stack, stack_problems
from regatta.campaign.versus import complete_versus, versus_mistakes
from regatta.campaign.yaml_file import Mistake, YamlFile, raise_mistakes, read_yaml, schema_mistakes
from regatta.core.benchmarks import baseline_parameters, benchmark_names, load_benchmark
from regatta.core.errors import Problem, UserError, nearest
from regatta.core.schemas import fill_defaults, load_schema, place, show
from regatta.launchers import LAUNCHERS, launcher_of
from regatta.runtimes import RUNTIMES

CLUSTERS = Path(__file__).resolve().parents[4] / "config" / "clusters"
GPU_FOLDER = Path("/proc/driver/nvidia/gpus")  # one entry for each GPU that the driver has bound
# How many threads a rank has: ranks take the first as REGATTA_THREADS_PER_RANK too (launch.stack_variables).
OF_THREADS = ("OMP_NUM_THREADS", "REGATTA_THREADS_PER_RANK")
CELL_FIELDS = ["benchmark", "backend", "stack", "nodes", "gpus_per_node", "world_size"]


class Missing(NamedTuple):
    """Why a correct campaign cannot run here: a stack (None: each of them) names a file that this machine lacks.

    is_in_id: ids of the stack's cells depend on it.
    """

    stack: str | None
    text: str
    is_in_id: bool


@dataclass(frozen=True)
class Campaign:
    """A campaign file that has passed every check. `data` has all defaults filled in; `cluster` likewise.

    missing: empty, unless the campaign was loaded only to be shown.
    """

    file: YamlFile
    data: dict
    cluster: dict
    missing: tuple[Missing, ...] = ()

    @property
    def provisional_stacks(self) -> list[str]:
        """Return the stacks whose cells may have other ids where the missing files are."""
        found = {missing.stack for missing in self.missing if missing.is_in_id}
        return [name for name in self.data["stacks"] if found & {name, None}]

    @property
    def name(self) -> str:
        return self.data["name"]


def load_campaign(path: Path, clusters: Path = CLUSTERS, *, may_lack_files: bool = False) -> Campaign:
    """Read and check a campaign. Raises UserError that lists every mistake with file, line, value and what to do.

    may_lack_files: images, binds, wrappers and programs that are not here do not raise; the campaign lists them.
    """
    file = read_yaml(path)
    schema = file_schema("campaign")
    mistakes = schema_mistakes(file, file.data, schema) + _benchmark_mistakes(file)
    # What the schema refuses is left out of the checks that follow, so that all mistakes are said together.
    broken = {mistake.where[0] for mistake in mistakes if mistake.where}
    sound = fill_defaults({key: value for key, value in file.data.items() if key not in broken}, schema)
    cluster = None
    missing: list[Missing] | None = [] if may_lack_files else None
    try:
        cluster = load_cluster(file, sound["cluster"], clusters, missing) if "cluster" in sound else None
    except UserError as error:
        mistakes.append(Mistake(("cluster",), str(error)))
    stacks = _filled_stacks(file, sound, schema)
    for name, stack in stacks.items():
        mistakes += _thread_mistakes(file, ("stacks", name, "env"), stack["env"])
    if cluster:
        mistakes += _shape_mistakes(file, sound, cluster, clusters)
        for name, stack in stacks.items():
            where = ("stacks", name)
            given = [key for key in stack if (*where, key) in file.lines]
            mistakes += _mistakes(file, where, stack, stack_problems(stack, given, cluster), missing)
    mistakes += _rule_mistakes(file, sound) + _baseline_mistakes(file, sound) + _sampling_mistakes(file, sound)
    mistakes += versus_mistakes(file, sound)
    raise_mistakes(file, mistakes)
    return Campaign(file, _complete(file, sound, schema, cluster, may_lack_files), cluster, tuple(missing or ()))


def file_schema(name: str) -> dict:
    """Return a schema with the launchers and runtimes that there are: a new one takes no edit of the schema."""
    schema = load_schema(name)
    if name == "cluster":
        schema["properties"]["scheduler"]["enum"] = list(LAUNCHERS)
    else:
        stack = schema["properties"]["stacks"]["additionalProperties"]["properties"]
        stack["runtime"]["enum"] = [name for name, runtime in RUNTIMES.items() if runtime.has_image]
    return schema


def _filled_stacks(file: YamlFile, data: dict, schema: dict) -> dict[str, dict]:
    stack_schema = schema["properties"]["stacks"]["additionalProperties"]
    stacks = {name: fill_defaults(stack, stack_schema) for name, stack in data.get("stacks", {}).items()}
    for name, stack in stacks.items():
        # As it is written: YAML would make 1.1 of 1.10 and 8 of 010.
        stack["env"] = {key: file.texts["stacks", name, "env", key] for key in stack["env"]}
    return stacks


def _complete(file: YamlFile, data: dict, schema: dict, cluster: dict, may_lack_files: bool) -> dict:
    """Return the campaign's data with defaults also in stacks and benchmarks, and values as cells hold them."""
    filled = _filled_stacks(file, data, schema)
    stacks = {name: complete_stack(s, cluster, may_lack_files=may_lack_files) for name, s in filled.items()}
    benchmarks = [
        {**entry, "parameters": fill_defaults(entry["parameters"], load_benchmark(entry["benchmark"]).schema)}
        for entry in data["benchmarks"]
    ]
    exclude = [{**rule, "when": _plain_bytes(rule["when"])} for rule in data["exclude"]]
    versus = complete_versus(data["versus"])
    return {**data, "stacks": stacks, "benchmarks": benchmarks, "exclude": exclude, "versus": versus}


def load_cluster(campaign: YamlFile, name: str, clusters: Path, missing: list[Missing] | None) -> dict:
    """Return the cluster file that the campaign names, with `gpus_per_node` counted where it says detect."""
    path = clusters / f"{name}.yaml"
    if not path.exists():
        known = sorted(p.stem for p in clusters.glob("*.yaml"))
        raise UserError(
            f"{campaign.at(('cluster',))}: cluster = '{name}', but there is no {path}.{nearest(name, known)}"
            f" Write that file, or choose from: {', '.join(known)}."
        )
    file = read_yaml(path)
    schema = file_schema("cluster")
    raise_mistakes(file, schema_mistakes(file, file.data, schema))
    if file.data["name"] != name:
        raise UserError(f"{file.at(('name',))}: name = '{file.data['name']}' must be '{name}', as the file is called.")
    cluster = fill_defaults(file.data, schema)
    cluster["env"] = {key: file.texts["env", key] for key in cluster["env"]}
    raise_mistakes(file, _cluster_mistakes(file, cluster, missing))
    if cluster["gpus_per_node"] == "detect":
        cluster["gpus_per_node"] = len(list(GPU_FOLDER.iterdir())) if GPU_FOLDER.is_dir() else 0
    return cluster


def _cluster_mistakes(file: YamlFile, cluster: dict, missing: list[Missing] | None) -> list[Mistake]:
    launcher = launcher_of(cluster)
    found = _mistakes(file, (), cluster, launcher.cluster_problems(cluster), missing)
    found += _thread_mistakes(file, ("env",), cluster["env"])
    others = {key for other in LAUNCHERS.values() for key in other.cluster_keys} - {*launcher.cluster_keys}
    found += [
        Mistake((key,), f"{file.at((key,))}: {key} has no effect with scheduler: {launcher.name}. Take it out.")
        for key in cluster
        if key in others and (key,) in file.lines
    ]
    pairs = [(peak["device"], peak["dtype"]) for peak in cluster["peaks"]]
    for index, (device, dtype) in enumerate(pairs):
        if (device, dtype) in pairs[:index]:
            where = ("peaks", index)
            text = f"{file.at(where)}: peaks[{index}] is a second peak of {dtype} for '{device}'. Keep one of the two."
            found.append(Mistake(where, text))
    if launcher.submits and cluster["gpus_per_node"] == "detect":
        where = ("gpus_per_node",)
        text = f"{file.at(where)}: gpus_per_node = detect counts this machine's, which is no node. Give the number."
        found.append(Mistake(where, text))
    return found


def _mistakes(
    file: YamlFile, base: tuple, owner: dict, problems: Iterable[Problem], missing: list[Missing] | None
) -> list[Mistake]:
    """Return the problems of a stack or cluster, `owner`, with file, line and value, unless they go into `missing`."""
    found = []
    for problem in problems:
        where, value = (*base, *problem.key), owner
        for step in problem.key:
            value = value[step]
        shown = f"= {show(value)} " if problem.has_value else ""
        text = f"{file.at(where)}: {place(where)} {shown}{problem.text}"
        if problem.is_missing and missing is not None:
            missing.append(Missing(base[1] if base else None, text, problem.is_in_id))
        else:
            found.append(Mistake(where, text))
    return found


def _thread_mistakes(file: YamlFile, where: tuple, env: dict[str, str]) -> list[Mistake]:
    """Numbers of threads that the ranks cannot take. A list, one number for each nested level, is legal OpenMP."""
    return [
        Mistake(
            (*where, key),
            f"{file.at((*where, key))}: {place((*where, key))} = {show(env[key])} is not one whole number above 0."
            " Give the threads of a rank, such as 4, or take it out: then ranks share their host's cores.",
        )
        for key in OF_THREADS
        if key in env and not re.fullmatch("[1-9][0-9]*", env[key])
    ]


def _benchmark_mistakes(file: YamlFile) -> list[Mistake]:
    """Unknown benchmarks and parameters. What is no list of entries at all, the campaign's schema says."""
    mistakes = []
    entries = file.data.get("benchmarks")
    for index, entry in enumerate(entries if isinstance(entries, list) else []):
        where = ("benchmarks", index)
        name = entry.get("benchmark") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            continue
        if name not in benchmark_names():
            text = (
                f"{file.at((*where, 'benchmark'))}: benchmarks[{index}].benchmark = {show(name)} is not known."
                f"{nearest(name, benchmark_names())} Choose from: {', '.join(benchmark_names())}."
            )
            mistakes.append(Mistake((*where, "benchmark"), text))
        elif isinstance(entry.get("parameters"), dict):
            schema = load_benchmark(name).schema
            mistakes += schema_mistakes(file, entry["parameters"], schema, (*where, "parameters"))
    return mistakes


def _shape_mistakes(file: YamlFile, data: dict, cluster: dict, clusters: Path) -> list[Mistake]:
    """A shape that the cluster does not have. GPUs are counted only where the campaign uses them."""
    limits = {"nodes": "num_nodes"}
    if data.get("device") == "cuda" and cluster["gpus_per_node"] > 0:
        limits["gpus_per_node"] = "gpus_per_node"
    cluster_file = clusters / f"{cluster['name']}.yaml"
    return [
        Mistake(
            ("shapes", i, key, j),
            f"{file.at(('shapes', i, key, j))}: shapes[{i}].{key}[{j}] = {value}, but {limit} of cluster"
            f" '{cluster['name']}' is {cluster[limit]}. Lower it, or correct {limit} in {cluster_file}.",
        )
        for i, shape in enumerate(data.get("shapes", []))
        for key, limit in limits.items()
        for j, value in enumerate(shape[key])
        if value > cluster[limit]
    ]


def _rule_mistakes(file: YamlFile, data: dict) -> list[Mistake]:
    """Fields that no cell of this campaign has, in `exclude` and `baseline`."""
    names = [entry["benchmark"] for entry in data.get("benchmarks", [])] or benchmark_names()
    parameters = dict.fromkeys(parameter for name in names for parameter in load_benchmark(name).parameters)
    rules = [
        (("exclude", i, "when"), rule["when"], [*CELL_FIELDS, *parameters]) for i, rule in enumerate(data["exclude"])
    ]
    rules.append((("baseline",), data["baseline"], ["nodes", "gpus_per_node", *baseline_parameters()]))
    return [
        Mistake(
            (*where, key),
            f"{file.at((*where, key))}: unknown field '{key}' in {place(where)}.{nearest(key, known)}"
            f" Fields that may stand here: {', '.join(sorted(known))}.",
        )
        for where, fields, known in rules
        for key in fields
        if key not in known
    ]


def _baseline_mistakes(file: YamlFile, data: dict) -> list[Mistake]:
    """Values that no cell can have: efficiency against them would be n/a without a word."""
    allowed = {name: rule["items"] for name, rule in baseline_parameters().items()}
    allowed |= {key: {"type": "integer", "minimum": 1} for key in ("nodes", "gpus_per_node")}
    return [
        mistake
        for key, value in data["baseline"].items()
        if key in allowed
        for mistake in schema_mistakes(file, value, allowed[key], ("baseline", key))
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


def _sampling_mistakes(file: YamlFile, data: dict) -> list[Mistake]:
    pairs = [("min_seconds", "max_seconds"), ("min_samples", "max_samples")]
    sampling = data["sampling"]
    mistakes = []
    for low, high in pairs:
        if sampling[low] > sampling[high]:
            where = ("sampling", low if ("sampling", low) in file.lines else high)
            line = file.lines.get(("sampling", high))
            text = (
                f"{file.at(where)}: sampling.{low} = {sampling[low]:g} is more than sampling.{high} ="
                f" {sampling[high]:g} ({f'line {line}' if line else 'the default'}). Lower the first or raise the second."
            )
            mistakes.append(Mistake(where, text))
    return mistakes
