"""The facts on launches, hosts and stacks, one row each, and how they differ. What is not recorded is unknown.

Tuples, not a data frame: values are grouped in many small groups.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from regatta.core.text import one_line, shape, size
from regatta.kit.kinds import joined
from regatta.launchers import LAUNCHERS, STACK_KEYS
from regatta.model.frozen import Cell, FrozenCampaign, Stack
from regatta.run.preflight_verdict import family_of

VERSIONS = ("python version", "torch", "torchvision", "cuda", "nccl", "cudnn", "driver", "kernel")
OF_STACK = "image_id wrapper_sha256 runtime runtime_options binds python".split()
OF_STACK += [*STACK_KEYS, "scripts", "prologue"]
NAMED = (*STACK_KEYS, "prologue")  # with image and variables, what names a stack
OF_HOST = {"CPU": "cpu_model", "cores per host": "num_cores"}
OF_NCCL = ("network", "plugin", "provider", "transports")  # read by the preflight from NCCL's log
NEW_EACH_LAUNCH = (  # variables that do not describe the software
    *("MASTER_", "TORCHELASTIC_"),
    *(v for launcher in LAUNCHERS.values() for v in launcher.ranks.variables),
)
DIRTY = " (dirty)"  # after a commit
DETAIL = "detail"  # group of facts that are only listed
# Of a fact that is absent where others of its group were recorded. Of other groups, it is unknown.
ABSENT = {"variable": "not set", "library": "not loaded", "stack": "none", "network": "none"}
PLURALS = {"variable": "variables", "setting": "settings", "library": "libraries", "network": "network"}
OTHER_LIBRARIES = "other libraries"
NOT_KNOWN, NOTHING = "not recorded", "nothing"
SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)


class Fact(NamedTuple):
    """A row. launch: empty if it is of the stack itself. host: empty if it is not of one host.

    value: as one line; None if there is none, which is unknown unless the group is of ABSENT.
    """

    launch: str
    host: str
    stack: str
    shape: str
    group: str
    name: str
    value: str | None

    @property
    def label(self) -> str:
        return f"{self.group} {self.name}" if self.group in ("variable", "setting") else self.name

    @property
    def is_compared(self) -> bool:
        """Whether it can be the same in two launches."""
        return self.group != DETAIL and not (self.group == "variable" and self.name.startswith(NEW_EACH_LAUNCH))


Values = dict[str | None, set[str]]  # of one fact: who has each value; None: not recorded


@dataclass(frozen=True)
class Difference:
    """A fact that differs between two sides, with all values of each as text. NOT_KNOWN names what one side lacks."""

    name: str
    reference: str
    other: str


def of_stack(stack: str, group: str, name: str, value: object) -> Fact:
    return Fact("", "", stack, "", group, name, _text(value))


def facts_of(headers: Iterable[dict], cells: Iterable[Cell], checked: Iterable[dict] = ()) -> list[Fact]:
    """Return the facts on stacks, then on launches. headers: their first lines. checked: stacks of a preflight."""
    cells = list(cells)
    found = []
    for cell in {cell.stack.name: cell for cell in cells}.values():
        found += [of_stack(cell.stack.name, "kind", "cluster", cell.spec.get("cluster")), *stack_facts(cell.stack)]
    programs = {
        of_stack(cell.stack.name, "program", f"SHA-256 of {Path(path).name}", digest[:12])
        for cell in cells
        for path, digest in cell.spec.get("executables", {}).items()
    }
    found += sorted(programs)
    for one in checked:
        found += [of_stack(one["stack"], "network", f"NCCL {name}", one["verdict"].get(name)) for name in OF_NCCL]
    with_digest = {fact.stack for fact in programs}  # there, a copy is no other program
    of_launches = (fact for header in headers for fact in launch_facts(header))
    return found + [fact for fact in of_launches if fact.group != "program" or fact.stack not in with_digest]


def stack_facts(stack: Stack) -> Iterator[Fact]:
    """Yield what a stack itself sets."""
    steps = (" ".join(map(str, step.values())) for step in stack.settings.get("prologue") or ())
    settings = {**stack.settings, "prologue": "; ".join(map(one_line, steps))}
    yield of_stack(stack.name, "kind", "kind", settings.get("kind"))
    yield from (of_stack(stack.name, "stack", name.replace("_", " "), settings.get(name)) for name in OF_STACK)
    for name, value in (settings.get("env") or {}).items():
        yield of_stack(stack.name, "variable", name, shown_variable(name, value))


def shown_variable(variable: str, value: object) -> str:
    """Return the value of a variable as one line; of one that may be a secret, a short hash."""
    text = str(value)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:8]}" if SECRET.search(variable) else one_line(text)


def launch_facts(header: dict) -> Iterator[Fact]:
    """Yield what a launch recorded, by the first line of its file."""
    git, environment = header.get("git") or {}, header.get("environment") or {}
    hosts = environment.get("hosts") or []
    only = hosts[0]["host"] if len(hosts) == 1 else ""
    place = header["stack"], shape(header["nodes"], header["gpus_per_node"])

    def fact(group: str, name: str, value: object, host: str = only) -> Fact:
        return Fact(header["launch"], host, *place, group, name, _text(value))

    commit = git.get("commit") or ""
    yield fact("commit", "commit", commit[:12] + (DIRTY if commit and git.get("is_dirty") else ""))
    if not environment:
        return
    yield from (fact("version", name, environment.get(name.removesuffix(" version"))) for name in VERSIONS)
    yield from (fact("library", _library(path), path) for path in environment.get("libraries") or [])
    for gpu in environment.get("gpus") or ([{}] if header.get("device") == "cuda" else []):
        on = gpu.get("host") or only
        yield fact("machine", "GPU", gpu.get("name"), on)
        more = [name for name in gpu if name not in ("name", "host", "rank")]
        yield from (fact(DETAIL, f"GPU {name.replace('_', ' ')}", gpu[name], on) for name in more)
    for file in environment.get("programs") or []:
        yield fact("program", "program", f"{file['path']} ({file['size_bytes']} bytes of {file['time_utc']})")
    yield fact("machine", "threads per rank", environment.get("threads_per_rank"))
    for host in hosts:
        yield from (fact("machine", name, host.get(key), host["host"]) for name, key in OF_HOST.items())
        yield fact("host", "hosts", host["host"], host["host"])
        memory = host.get("memory_bytes")
        yield fact(DETAIL, "ranks", len(host.get("ranks") or ()), host["host"])
        yield fact(DETAIL, "memory", None if memory is None else size(memory), host["host"])
    for group in ("setting", "variable"):
        yield from (fact(group, name, value) for name, value in (environment.get(f"{group}s") or {}).items())


@cache
def _library(path: str) -> str:
    return family_of(Path(path).name) or OTHER_LIBRARIES


def _text(value: object) -> str | None:
    """Return a value as one line; None if there is none."""
    if value in (None, "", [], {}):
        return None
    value = [f"{key}={of_key}" for key, of_key in value.items()] if isinstance(value, dict) else value
    return _line(" ".join(map(str, value)) if isinstance(value, list) else str(value))


_line = cache(one_line)  # launches repeat most values


# What differs between launches, hosts, stacks, or two sides of a comparison.


def values_by(facts: Iterable[Fact], subject: str, *by: str) -> dict[tuple[str, ...], Values]:
    """Return who has each value, by group and label of a fact and these fields. subject: a field, such as launch."""
    found: dict[tuple[str, ...], Values] = defaultdict(lambda: defaultdict(set))
    recorded: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for fact in facts:
        if who := getattr(fact, subject):
            place = [getattr(fact, name) for name in by]
            found[fact.group, fact.label, *place][fact.value or ABSENT.get(fact.group)].add(who)
            for group in ("stack", "variable") if fact.group == "stack" else (fact.group,):  # a stack has all its env
                recorded[group, *place].add(who)
    for (group, _, *place), values in found.items():
        if group in ABSENT and (without := recorded[group, *place].difference(*values.values())):
            values[ABSENT[group]] |= without
    return found


def differing(values: Values) -> set[str]:
    """Return who has a known value, if some lack one that others have. What is not recorded differs from nothing."""
    known = [of for value, of in values.items() if value is not None]
    everyone = set().union(*known)
    return everyone if any(of != everyone for of in known) else set()


def values_texts(values: Values) -> list[str]:
    """Return the value of all, or how many have each: `570.86 in 213 of 214`, `550.54 in 1 of 214`."""
    num = len(set().union(*values.values()))
    ordered = sorted(values.items(), key=lambda item: (-len(item[1]), str(item[0])))
    texts = [(NOT_KNOWN if value is None else value, len(of)) for value, of in ordered]
    return [text if of == num else f"{text} in {of} of {num}" for text, of in texts]


def known_values(facts: Iterable[Fact], name: str) -> list[str]:
    """Return the distinct known values of a fact."""
    return sorted({fact.value for fact in facts if fact.name == name and fact.value is not None})


def stack_texts(stack: Stack) -> list[str]:
    """Return what a stack sets: `image 3f2a1c9d`, `MY_FACTOR=1.25`, `srun --mpi=pmix`, `prologue cuda/12.4`."""
    found = [fact for fact in stack_facts(stack) if fact.value is not None]
    image = [f"image {fact.value[:8]}" for fact in found if fact.name == "image id"]
    env = [f"{fact.name}={fact.value}" for fact in found if fact.group == "variable"]
    return image + env + [f"{fact.name} {fact.value}" for fact in found if fact.name in NAMED]


def own_facts(campaign: FrozenCampaign) -> dict[str, list[str]]:
    """Return for each stack what distinguishes it: what not all stacks set; of one stack, what the cluster does not."""
    stacks = {cell.stack.name: cell.stack for cell in campaign.cells}
    facts = {name: stack_texts(stack) for name, stack in stacks.items()}
    others = facts.values() if len(facts) > 1 else [*facts.values(), stack_texts(Stack("", campaign.cluster))]
    common = set.intersection(*map(set, others))
    return {name: [fact for fact in of if fact not in common] for name, of in facts.items()}


def differences(*sides: Iterable[Fact]) -> list[Difference]:
    """Return which facts differ between two sides, in the order of facts.

    A fact known on one side only is no difference; the last entry names it on the other side.
    """
    facts = [
        fact._replace(launch=side + fact.launch)
        for side, of in zip("ab", sides, strict=True)
        for fact in of
        if fact.is_compared
    ]
    found, lacking = [], {"a": {}, "b": {}}
    for (group, label), values in values_by(facts, "launch").items():
        one, other = (_of_side(side, values, ABSENT.get(group)) for side in lacking)
        if one and other:
            texts = (_side_text(label, of) for of in (one, other))
            found += [Difference(label, *texts)] if one.keys() != other.keys() else []
        elif (one.keys() | other.keys()) - {ABSENT.get(group)}:
            lacking["b" if one else "a"][PLURALS.get(group, label)] = None
    names = [", ".join(of) or NOTHING for of in lacking.values()]
    return [*found, Difference(NOT_KNOWN, *names)] if any(lacking.values()) else found


def _side_text(label: str, values: Values) -> str:
    is_counted = label == OTHER_LIBRARIES and len(values) > 1
    return f"{len(values)} files" if is_counted else joined(values_texts(values))


def _of_side(side: str, values: Values, absent: str | None) -> Values:
    """Return which launches of a side have each known value, else its stack. A fact is absent if no launch has it."""
    known = {value: {who for who in of if who.startswith(side)} for value, of in values.items() if value is not None}
    found = {value: of - {side} or of for value, of in known.items() if of}
    return {value: of for value, of in found.items() if value != absent} or found


def differences_by_stack(*campaigns: list[Fact]) -> list[Difference] | None:
    """Return what differs between two campaigns, with the stack's name if it does not apply to all of both.

    None if one has no launch file, or no stack is in both.
    """
    stacks = [dict.fromkeys(fact.stack for fact in facts) for facts in campaigns]
    found = {
        stack: differences(*([fact for fact in facts if fact.stack == stack] for facts in campaigns))
        for stack in stacks[0]
        if stack in stacks[1] and all(any(fact.launch for fact in facts) for facts in campaigns)
    }
    shared = [d for d in next(iter(found.values()), []) if all(d in of for of in found.values())]
    own = [replace(d, name=f"{d.name} (stack {stack})") for stack, of in found.items() for d in of if d not in shared]
    return shared + own if found else None
