"""Load a campaign file and the cluster file that it names. One UserError lists all errors with file and line."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from regatta.campaign import benchmark_files, executables
from regatta.campaign import program_entries as programs
from regatta.campaign import script_entries as scripts
from regatta.campaign.detected_gpus import detected_gpus
from regatta.campaign.node_types import Shape, clusters_of_stacks, of_node_type, original, shapes_of_stacks
from regatta.campaign.stacks import beside_each_other, complete_stack, stack_problems
from regatta.campaign.sweep import sweep_errors
from regatta.campaign.variables import env_problems
from regatta.campaign.versus import parameter_names, versus_as_in_cells, versus_errors, with_sizes_in_bytes
from regatta.campaign.yaml_file import FileError, YamlFile, raise_errors, read_yaml, schema_errors
from regatta.core.benchmarks import baseline_parameters, benchmark_names, built_in_names, load_benchmark
from regatta.core.errors import DID_YOU_MEAN, Problem, UserError, nearest
from regatta.core.readers import program_of
from regatta.core.schemas import fill_defaults, load_schema, place, show, violations
from regatta.core.text import plural
from regatta.launchers import BY_HAND, LAUNCHERS, launcher_of
from regatta.runtimes import RUNTIMES
from regatta.runtimes.plugins import PLUGINS, load_plugin
from regatta.runtimes.prologue_steps import prologue_problems

CLUSTERS = Path(__file__).resolve().parents[4] / "config" / "clusters"
GPU_FOLDER = Path("/proc/driver/nvidia/gpus")  # one entry for each GPU that the driver has bound
KFD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")  # of AMD's driver: CPUs and GPUs (Linux, amdkfd/kfd_topology.c)
# Threads of a rank. Ranks also read the first as REGATTA_THREADS_PER_RANK (launch.stack_variables).
THREAD_VARIABLES = ("OMP_NUM_THREADS", "REGATTA_THREADS_PER_RANK")
THREADS = "threads per rank, an integer above 0 such as 4; without it, ranks share the host's cores"
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}  # of cells of programs, which do not use it, if the campaign has none
CELL_FIELDS = ["benchmark", "backend", "stack", "nodes", "gpus_per_node", "world_size"]
ENTRY = load_schema("campaign")["properties"]["benchmarks"]["items"]["properties"]
BUILT_IN_FORMATS = tuple(ENTRY["read"]["then"]["enum"])
LATER_KEYS = ("exclude_nodes", "gpu_type", "gpu_vendor", "gres", "clusters")  # of a cluster file
SOCKET_VARIABLES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # of network_interface


class Missing(NamedTuple):
    """The reason why a valid campaign cannot run here: a stack (None: all of them) names a missing file.

    is_in_id: ids of the stack's cells depend on it.
    """

    stack: str | None
    text: str
    is_in_id: bool


@dataclass(frozen=True)
class Campaign:
    """A campaign file that has passed every check. `data` has all defaults filled in; `cluster` likewise.

    missing: empty, unless the campaign was loaded only to be shown. clusters: by stack, with the keys of its node type.
    declared: benchmarks outside Regatta's tree, by name.
    """

    file: YamlFile
    data: dict
    cluster: dict
    missing: tuple[Missing, ...] = ()
    clusters: dict[str, dict] = field(default_factory=dict)
    declared: dict[str, dict] = field(default_factory=dict)
    cluster_file: Path = Path()

    @property
    def provisional_stacks(self) -> list[str]:
        """Return the stacks whose cell ids may differ on machines that have the missing files."""
        found = {missing.stack for missing in self.missing if missing.is_in_id}
        return [name for name in self.data["stacks"] if found & {original(name), None}]

    @property
    def name(self) -> str:
        return self.data["name"]

    @property
    def shapes(self) -> dict[str, list[Shape]]:
        """Return the shapes in which each stack is measured."""
        return shapes_of_stacks(self.data["shapes"], self.clusters)

    def places(self) -> list[tuple[dict, list[Shape]]]:
        """Return each node type that stacks use, as a cluster, and the shapes that fit on it."""
        used: dict[str | None, tuple[dict, list[Shape]]] = {}
        for name, shapes in self.shapes.items():
            cluster = self.clusters[name]
            _, known = used.setdefault(cluster.get("node_type"), (cluster, []))
            known += [s for s in shapes if s not in known and not does_not_fit(cluster, *s, "cpu")]
        return list(used.values())


def for_jobs(cluster: dict) -> dict:
    """Return a cluster without keys that no job reads, so that editing them repeats no job, and without `prologue`,
    which the stacks contain.

    `peaks` stays, and LATER_KEYS are omitted if empty, so that ids of earlier batches and preflights stay the same.
    """
    without = {"links", "max_jobs", "prologue", *(key for key in LATER_KEYS if not cluster[key])}
    return {key: value for key, value in cluster.items() if key not in without}


def does_not_fit(cluster: dict, nodes: int, gpus_per_node: int, device: str) -> str | None:
    """Return why a shape is too large for a node type, or None. Each shape fits on at least one type."""
    kind = f"node type {cluster['node_type']}" if "node_type" in cluster else f"cluster {cluster['name']}"
    if nodes > cluster["num_nodes"]:
        return f"{kind} has {plural(cluster['num_nodes'], 'node')}"
    if device == "cuda" and gpus_per_node > cluster["gpus_per_node"] > 0:
        return f"{kind} has {plural(cluster['gpus_per_node'], 'GPU')} per node"
    return None


def load_campaign(path: Path, clusters: Path = CLUSTERS, *, may_lack_files: bool = False) -> Campaign:
    """Read and check a campaign. Raises one UserError that lists every error with file, line, value and remedy.

    may_lack_files: missing images, binds, wrappers and programs do not raise; the campaign lists them.
    """
    file, declared, modules = benchmark_files.resolve(read_yaml(path))
    cluster_file = _cluster_file(path, str(file.data.get("cluster")), clusters)
    _load_plugins(cluster_file)  # first: they add runtimes
    schema = file_schema("campaign", declared)
    errors = schema_errors(file, file.data, schema) + _parameter_errors(file) + programs.entry_errors(file)
    # The following checks skip keys that the schema rejects, so that all errors are reported together.
    broken = {error.where[0] for error in errors if error.where}
    sound = fill_defaults({key: value for key, value in file.data.items() if key not in broken}, schema)
    if "backend" not in sound and "device" in sound and "backend" not in broken:  # a campaign of programs alone
        sound["backend"] = [BACKENDS[sound["device"]]]
    cluster = None
    sound["benchmarks"], found = programs.complete_entries(file, sound.get("benchmarks", []))
    errors += [error for error, is_missing in found if not (is_missing and may_lack_files)]
    lacking = [Missing(None, error.text, is_in_id=True) for error, is_missing in found if is_missing]
    missing = lacking if may_lack_files else None
    try:
        cluster = load_cluster(file, cluster_file, clusters, missing) if "cluster" in sound else None
        whole = cluster
        cluster = cluster and of_node_type(file, whole, sound.get("node_type"), ("node_type",))
    except UserError as error:
        errors.append(FileError(("cluster",), str(error)))
    stack_schema = schema["properties"]["stacks"]["additionalProperties"]
    stacks = {name: fill_defaults(stack, stack_schema) for name, stack in sound.get("stacks", {}).items()}
    for name, stack in stacks.items():
        # Keep values as written: YAML would turn 1.10 into 1.1 and 010 into 8.
        stack["env"] = {key: file.texts["stacks", name, "env", key] for key in stack["env"]}
        errors += _thread_errors(file, ("stacks", name, "env"), stack["env"])
    of_stacks: dict[str, dict] = {}
    if cluster:
        of_stacks, found = clusters_of_stacks(file, sound, whole, stacks)
        errors += found + sweep_errors(file, sound, cluster)
        errors += _shape_errors(file, sound, [*of_stacks.values()] or [cluster], cluster_file)
        for name, stack in stacks.items():
            where = ("stacks", name)
            given = [key for key in stack if (*where, key) in file.lines]
            places = [place for copy, place in of_stacks.items() if original(copy) == name] or [cluster]
            place = next((place for place in places if place["gpu_request"] != "none"), places[0])  # refuses most
            errors += _problem_errors(file, where, stack, stack_problems(stack, given, place), missing)
        for error, is_missing in executables.depends_errors(file, sound["benchmarks"], cluster):
            if is_missing and missing is not None:
                missing.append(Missing(None, error.text, is_in_id=True))
            else:
                errors.append(error)
    errors += _field_errors(file, sound) + _sampling_errors(file, sound) + _allocation_errors(file, sound)
    errors += versus_errors(file, sound, stacks if errors else of_stacks)
    raise_errors(file, errors)
    data = _complete(sound, stacks, of_stacks, may_lack_files)
    for index, module in modules.items():
        data["benchmarks"][index]["module"] = module
    return Campaign(file, data, cluster, tuple(missing or ()), of_stacks, declared, cluster_file)


def results_folder(path: Path) -> Path:
    """Return a results folder, given as a folder or as its campaign file. Raises UserError for an invalid campaign."""
    if path.is_dir() or not (path.exists() or path.suffix in (".yaml", ".yml")):
        return path
    name = read_yaml(path).data.get("name")
    if not violations(name, load_schema("campaign")["properties"]["name"]):
        folder = Path("results") / name
        if any(folder.glob("campaign.*.json")):  # its report needs nothing that the campaign names
            return folder
    return Path("results") / load_campaign(path, may_lack_files=True).name


def file_schema(name: str, declared: Iterable[str] = ()) -> dict:
    """Return a schema with the names of all launchers, runtimes, benchmarks and formats of plugins.

    declared: names of benchmarks outside Regatta's tree.
    """
    schema = load_schema(name)
    if name == "cluster":
        schema["properties"]["scheduler"]["enum"] = list(LAUNCHERS)
    else:
        stack = schema["properties"]["stacks"]["additionalProperties"]["properties"]
        entry = schema["properties"]["benchmarks"]["items"]["properties"]
        entry["benchmark"]["enum"] = [*built_in_names(), *declared]
        formats = [kind.name for kinds in PLUGINS.values() for kind in kinds if hasattr(kind, "name")]
        words = dict.fromkeys(word for name in formats for word in (name, program_of(name)))
        entry["read"]["then"]["enum"] = [*BUILT_IN_FORMATS, *words]
        stack["runtime"]["enum"] = [name for name, runtime in RUNTIMES.items() if runtime.has_image]
    return schema


def _complete(data: dict, filled: dict[str, dict], clusters: dict[str, dict], may_lack_files: bool) -> dict:
    """Return the campaign's data with all defaults, also in stacks (filled) and benchmarks, and values as in cells."""
    stacks = {
        name: complete_stack(filled[original(name)], cluster, may_lack_files=may_lack_files)
        for name, cluster in clusters.items()
    }
    benchmarks = [
        {**entry, "parameters": fill_defaults(entry["parameters"], load_benchmark(entry["benchmark"]).schema)}
        for entry in data["benchmarks"]
    ]
    exclude = with_sizes_in_bytes(data["exclude"])
    gate = data["gate"] | {"references": with_sizes_in_bytes(data["gate"]["references"])}
    versus = versus_as_in_cells(data)
    stacks = beside_each_other(stacks)
    return {**data, "stacks": stacks, "benchmarks": benchmarks, "exclude": exclude, "versus": versus, "gate": gate}


def _cluster_file(campaign: Path, cluster: str, clusters: Path) -> Path:
    """Return the file of a cluster: a path is relative to the campaign's file; a name is one of a file in `clusters`,
    or in config/clusters of the folder where the command was started."""
    if "/" in cluster:
        return scripts.whole_path_in(cluster, campaign.parent)
    here = Path("config", "clusters", f"{cluster}.yaml")
    return here if clusters == CLUSTERS and here.is_file() else clusters / here.name


def _load_plugins(path: Path) -> None:
    """Load the plugins that a cluster file lists. Raises UserError with its line. Other errors are found later."""
    if not os.path.isfile(path):
        return
    file = read_yaml(path)
    if not violations(file.data.get("plugins"), load_schema("cluster")["properties"]["plugins"]):
        for index, plugin in enumerate(_plugin_paths(path, file.data)):
            try:
                load_plugin(plugin)
            except UserError as error:
                raise UserError(f"{file.at(('plugins', index))}: plugins[{index}]: {error}") from None


def _plugin_paths(path: Path, cluster: dict) -> list[Path]:
    return [scripts.whole_path_in(text, path.absolute().parent) for text in cluster["plugins"]]


def load_cluster(campaign: YamlFile, path: Path, clusters: Path, missing: list[Missing] | None) -> dict:
    """Return the cluster file that the campaign names, with `gpus_per_node: detect` replaced by the count."""
    given, name = campaign.data["cluster"], path.stem
    if not os.path.exists(path):  # not Path.exists, which raises an error for a long name
        beside = (p.name for p in campaign.path.parent.glob("*.y*ml") if p.name == given)
        known = [*(f"./{name}" for name in beside), *sorted(p.stem for p in clusters.glob("*.yaml"))]
        raise UserError(
            f"{campaign.at(('cluster',))}: cluster = '{given}', but there is no {path}.{nearest(given, known)}"
            f" Create that file, or choose from: {', '.join(known)}."
        )
    file = read_yaml(path)
    schema = file_schema("cluster")
    raise_errors(file, schema_errors(file, file.data, schema))
    if file.data["name"] != name:
        raise UserError(f"{file.at(('name',))}: name = '{file.data['name']}' must be '{name}', the name of the file.")
    cluster = fill_defaults(file.data, schema)
    cluster["env"] = {key: file.texts["env", key] for key in cluster["env"]}
    raise_errors(file, _cluster_errors(file, cluster, missing))
    if "plugins" in cluster:  # absent otherwise, so that earlier batches stay the same
        cluster["plugins"] = list(map(str, _plugin_paths(path, cluster)))
    launcher_of(cluster).queue.use_cluster(cluster)
    # As variables they are part of ids. Without the key, earlier ids stay valid.
    if interfaces := cluster.pop("network_interface"):
        names = interfaces if isinstance(interfaces, str) else ",".join(interfaces)
        cluster["env"] |= dict.fromkeys(SOCKET_VARIABLES, names)
    if cluster["gpus_per_node"] == "detect":
        cluster |= detected_gpus(cluster["gpu_vendor"], GPU_FOLDER, KFD_NODES)
    return cluster


def _cluster_errors(file: YamlFile, cluster: dict, missing: list[Missing] | None) -> list[FileError]:
    launcher = launcher_of(cluster)
    checks = launcher.checks
    problems = checks.cluster_problems(cluster) + prologue_problems(cluster["prologue"], cluster["node_folders"])
    problems += env_problems(cluster["env"], BY_HAND)
    found = _problem_errors(file, (), cluster, problems, missing)
    found += _thread_errors(file, ("env",), cluster["env"])
    both = [name for name in SOCKET_VARIABLES if cluster["network_interface"] and name in cluster["env"]]
    found += [file.error(("env", n), f"env.{n} is also set by network_interface. Keep one of the two.") for n in both]
    others = {key for other in LAUNCHERS.values() for key in other.checks.cluster_keys} - {*checks.cluster_keys}
    found += [
        file.error((key,), f"{key} has no effect with scheduler: {launcher.name}. Remove it.")
        for key in cluster
        if key in others and (key,) in file.lines
    ]
    for key, what, kind in (("peaks", "peak of {}", "dtype"), ("links", "entry between {}", "between")):
        pairs = [(entry["device"], entry[kind]) for entry in cluster[key]]
        for index, (device, value) in enumerate(pairs):
            if (device, value) in pairs[:index]:
                text = f"{key}[{index}] is a second {what.format(value)} for '{device}'. Keep one of the two."
                found.append(file.error((key, index), text))
    if launcher.submits and cluster["gpus_per_node"] == "detect":
        text = "gpus_per_node = detect counts GPUs on this machine, which is not a compute node. Specify the number."
        found.append(file.error(("gpus_per_node",), text))
    return found


def _problem_errors(
    file: YamlFile, base: tuple, owner: dict, problems: Iterable[Problem], missing: list[Missing] | None
) -> list[FileError]:
    """Return the problems of a stack or cluster, `owner`, with file, line and value, unless they go into `missing`."""
    found = []
    for problem in problems:
        where, value = (*base, *problem.key), owner
        for step in problem.key:
            value = value[step]
        shown = f"= {show(value)} " if problem.has_value else ""
        error = file.error(where, f"{place(where)} {shown}{problem.text}")
        if problem.is_missing and missing is not None:
            missing.append(Missing(base[1] if base else None, error.text, problem.is_in_id))
        else:
            found.append(error)
    return found


def _thread_errors(file: YamlFile, where: tuple, env: dict[str, str]) -> list[FileError]:
    """Return an error for each number of threads that is not one positive integer, such as OpenMP's lists."""
    rule = {"pattern": "^[1-9][0-9]*$", "description": THREADS}
    return schema_errors(file, env, {"properties": dict.fromkeys(THREAD_VARIABLES, rule)}, where)


def _parameter_errors(file: YamlFile) -> list[FileError]:
    """Return the errors in the parameters of known benchmarks. The campaign's schema checks the other keys."""
    entries = file.data.get("benchmarks")
    return [
        error
        for index, entry in enumerate(entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("benchmark") in benchmark_names()
        if entry["benchmark"] not in (scripts.BENCHMARK, programs.BENCHMARK)
        if isinstance(entry.get("parameters"), dict)
        for error in schema_errors(
            file, entry["parameters"], load_benchmark(entry["benchmark"]).schema, ("benchmarks", index, "parameters")
        )
    ]


def _shape_errors(file: YamlFile, data: dict, used: list[dict], cluster_file: Path) -> list[FileError]:
    """Return an error for each shape that the cluster lacks. GPUs are counted only if the campaign uses them."""
    limits = {"nodes": "num_nodes"}
    if data.get("device") == "cuda" and all(cluster["gpus_per_node"] > 0 for cluster in used):
        limits["gpus_per_node"] = "gpus_per_node"
    rules = {
        key: {
            "items": {"maximum": max(cluster[limit] for cluster in used), "description": f"{limit} of {cluster_file}"}
        }
        for key, limit in limits.items()
    }
    return schema_errors(file, data.get("shapes", []), {"items": {"properties": rules}}, ("shapes",))


def _field_errors(file: YamlFile, data: dict) -> list[FileError]:
    """Return errors for fields of `exclude`, `baseline` and references that no cell has, and for impossible baselines.

    If the benchmarks have errors, their parameters are unknown: then only errors that resemble a known field count.
    """
    of_user = {name: {} for name in programs.own_names(data)}
    when = fields_schema({key: {} for key in [*CELL_FIELDS, *parameter_names(data)]})
    errors = schema_errors(file, data["baseline"], fields_schema(of_user | baseline_fields()), ("baseline",))
    for where, rules in ((("exclude",), data["exclude"]), (("gate", "references"), data["gate"]["references"])):
        for index, rule in enumerate(rules):
            errors += schema_errors(file, rule["when"], when, (*where, index, "when"))
    return errors if data.get("benchmarks") else [error for error in errors if DID_YOU_MEAN in error.text]


def baseline_fields() -> dict[str, dict]:
    """Return the fields of `baseline` with their schemas: single values, where the matrix has lists."""
    shape = {name: {"type": "integer", "minimum": 1} for name in ("nodes", "gpus_per_node")}
    rules = baseline_parameters()
    return shape | {name: {"description": rule["description"]} | rule["items"] for name, rule in rules.items()}


def fields_schema(fields: dict[str, dict]) -> dict:
    """Return the schema of a mapping that allows only these keys."""
    return {"properties": fields, "additionalProperties": False}


def _sampling_errors(file: YamlFile, data: dict) -> list[FileError]:
    sampling, errors = data["sampling"], []
    for low, high in (("min_seconds", "max_seconds"), ("min_samples", "max_samples")):
        if sampling[low] > sampling[high]:
            line = file.lines.get(("sampling", high))
            text = (
                f"sampling.{low} = {sampling[low]:g} is more than sampling.{high} = {sampling[high]:g}"
                f" ({f'line {line}' if line else 'the default'}). Lower the first or raise the second."
            )
            errors.append(file.error(("sampling", low if ("sampling", low) in file.lines else high), text))
    return errors


def _allocation_errors(file: YamlFile, data: dict) -> list[FileError]:
    allocations, repeats = data.get("allocations", 1), data.get("repeats", 1000)
    text = f"allocations = {allocations} is more than repeats = {repeats}: each allocation needs a launch."
    remedy = "Raise repeats, or lower allocations."
    return [file.error(("allocations",), f"{text} {remedy}")] if allocations > repeats else []
