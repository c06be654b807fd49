"""How the environments of two sides of a comparison differ: versions, libraries, network, machines, variables.

Read from the first lines of their launch files, the stacks of their cells, and the preflight.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from regatta.report.panels import Table
from regatta.report.provenance import NEW_EACH_LAUNCH, VERSIONS
from regatta.run.preflight_verdict import COMMUNICATION, family_of
from regatta.store.records import one_line

OF_STACK = ("kind", "image_id", "wrapper_sha256", "runtime", "runtime_options", "binds", "python", "srun", "scripts")
OF_NCCL = ("network", "plugin", "provider", "transports")  # read by the preflight from NCCL's log
MOST_VALUES = 3
NOT_LOADED, NOT_SET, NONE = "not loaded", "not set", "none"
NOT_KNOWN, NOTHING = "not recorded", "nothing"
ABSENT_IS_NONE = tuple(name.replace("_", " ") for name in OF_STACK if name != "kind")

Facts = dict[str, set[str]]  # name -> all values, over all launches of a side


@dataclass(frozen=True)
class Difference:
    """A fact that differs. reference, other: all values of a side, as text."""

    name: str
    reference: str
    other: str


@dataclass(frozen=True)
class Side:
    """One side of a comparison. specs: of its cells. nccl: what the preflight found of its stack, or None."""

    headers: list[dict]
    specs: list[dict]
    nccl: dict | None = None


def differences(reference: Side, other: Side) -> list[Difference]:
    """Return what differs, in a fixed order: stack, versions, network, libraries, machine, settings, variables.

    A fact known on one side only is no difference; the last entry names it on the side where it is not recorded.
    """
    facts = _facts(reference), _facts(other)
    names = list(dict.fromkeys([*ORDER, *sorted(facts[0].keys() | facts[1].keys())]))
    values = {
        name: tuple(_values(name, side, of) for side, of in zip((reference, other), facts, strict=True))
        for name in names
    }
    found = [
        Difference(name, *(_text(name, of_side) for of_side in pair))
        for name, pair in values.items()
        if all(pair) and pair[0] != pair[1]
    ]
    unknown = [_kinds(name for name, pair in values.items() if any(pair) and not pair[side]) for side in (0, 1)]
    if any(unknown):
        found.append(Difference(NOT_KNOWN, *(", ".join(names) or NOTHING for names in unknown)))
    return found


def by_stack(pairs: dict[str, tuple[Side, Side]]) -> list[Difference]:
    """Return what differs between two campaigns, with the name of the stack where it does not hold for all of them."""
    found = {stack: differences(*sides) for stack, sides in pairs.items()}
    shared = [d for d in next(iter(found.values()), []) if all(d in of_stack for of_stack in found.values())]
    return shared + [
        replace(difference, name=f"{difference.name} (stack {stack})")
        for stack, of_stack in found.items()
        for difference in of_stack
        if difference not in shared
    ]


def environment_table(title: str, found: list[Difference], reference: str, other: str) -> Table | None:
    """Return what differs between the environments of two sides, or None if nothing is known to."""
    if not found:
        return None
    rows = tuple((d.name.replace(NOT_KNOWN, f"{NOT_KNOWN}, so not compared", 1), d.reference, d.other) for d in found)
    return Table(title, ("what", reference, other), rows, is_words=True, sources=("launches/*.jsonl",))


def _facts(side: Side) -> Facts:
    facts: Facts = {}

    def add(name: str, value: object) -> None:
        if value is not None and value != [] and value != "":
            value = [f"{key}={of_key}" for key, of_key in value.items()] if isinstance(value, dict) else value
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            facts.setdefault(name, set()).add(one_line(text))

    for spec in side.specs:
        add("cluster", spec.get("cluster"))
        for name in OF_STACK:
            add(name.replace("_", " "), spec["stack"].get(name))
    for name in OF_NCCL:
        add(f"NCCL {name}", (side.nccl or {}).get(name))
    for header in side.headers:
        git = header.get("git") or {}
        add("commit", git.get("commit") and git["commit"][:12] + (" (dirty)" if git.get("is_dirty") else ""))
        _add_environment(header.get("environment") or {}, add)
    return facts


def _add_environment(environment: dict, add) -> None:
    for name in VERSIONS:
        add("python version" if name == "python" else name, environment.get(name))
    for host in environment.get("hosts", []):
        add("hosts", host["host"])
        add("CPU", host.get("cpu_model"))
        add("cores per host", host.get("num_cores"))
    for gpu in environment.get("gpus") or []:
        add("GPU", gpu.get("name") if isinstance(gpu, dict) else None)
    add("threads per rank", environment.get("threads_per_rank"))
    for path in environment.get("libraries") or []:
        add(family_of(Path(path).name) or "other libraries", path)
    for name, value in (environment.get("settings") or {}).items():
        add(f"setting {name}", value)
    for name, value in (environment.get("variables") or {}).items():
        if not name.startswith(NEW_EACH_LAUNCH):
            add(f"variable {name}", value)


ORDER = (
    *("cluster", *(name.replace("_", " ") for name in OF_STACK), "commit", "torch", "cuda", "nccl"),
    *(f"NCCL {name}" for name in OF_NCCL),
    *("cudnn", "driver", "torchvision", "python version", "kernel", *COMMUNICATION, "other libraries"),
    *("GPU", "CPU", "cores per host", "threads per rank", "hosts"),
)


def _values(name: str, side: Side, facts: Facts) -> set[str]:
    """Return the values of a fact. Absent: "not set" or "none" where it would have been recorded, else unknown."""
    if name in facts:
        return facts[name]
    environments = [h["environment"] for h in side.headers if h.get("environment") and not h.get("imported")]
    if name.startswith("variable "):
        return {NOT_SET} if any(environment.get("variables") is not None for environment in environments) else set()
    if name in COMMUNICATION:
        return {NOT_LOADED} if any(environment.get("libraries") for environment in environments) else set()
    if name.startswith("NCCL "):
        return {NONE} if side.nccl else set()
    return {NONE} if name in ABSENT_IS_NONE and side.specs else set()


def _kinds(names: Iterable[str]) -> list[str]:
    """Return the kinds of facts: `libraries`, `variables`, `settings`, `network`, else the name."""
    kinds = {"variable": "variables", "setting": "settings", "NCCL": "network"}
    return list(dict.fromkeys("libraries" if n in COMMUNICATION else kinds.get(n.split()[0], n) for n in names))


def _text(name: str, values: set[str]) -> str:
    if name == "other libraries" and len(values) > 1:
        return f"{len(values)} files"
    ordered = sorted(values)
    more = len(ordered) - MOST_VALUES
    return " | ".join(ordered[:MOST_VALUES]) + (f" and {more} more" if more > 0 else "")
