"""Variables that a launch sets itself, and `$NAME` in a command or in `env`, which no shell reads: it stays literal."""

import re
from collections.abc import Collection, Iterator, Mapping

from regatta.core.errors import Problem
from regatta.launchers import LAUNCHERS

# Variables of a rank, which a stack's `env` cannot have: those of all ranks would be the same.
OF_RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
TEMPLATES = {  # with the value of a variable
    "MASTER_ADDR": "first_host",
    "MASTER_PORT": "port",
    "WORLD_SIZE": "world_size",
    "NNODES": "nodes",
    **dict.fromkeys(("LOCAL_WORLD_SIZE", "GPUS_PER_NODE"), "gpus_per_node"),
}
OF_COMMAND = re.compile(r"\{(?:nodes|gpus_per_node|world_size)\}")  # templates that env lacks
OF_LAUNCH = re.compile("|".join([*TEMPLATES, *OF_RANKS, "GROUP_RANK", r"PMI\w+", r"OMPI_COMM_\w+"]))
OF_SHELLS = re.compile(
    r"\w*PATH|LD_PRELOAD|HOME|USER|LOGNAME|PWD|HOSTNAME|TMPDIR|SCRATCH|WORK|PROJECT|CUDA_\w+|ROCM_\w+|OMP_\w+"
)
VARIABLE = r"\$(?:(\w+)|\{\{?(\w+)\}?\})"  # {{ }} are braces in a command
SHELL, WITH_CODE = re.compile(r"(?:.*/)?(?:ba|da|z|k|a|mk|tc|c|fi)?sh"), re.compile(r"-[A-Za-z]*c[A-Za-z]*")
OTHER_READER = re.compile(r"(?:.*/)?(?:[gmn]?awk|perl[\d.]*)")  # $NAME is a variable of theirs


def env_problems(env: Mapping[str, str], templates: Collection[str]) -> Iterator[Problem]:
    """Yield what is wrong with the variables of a stack or a cluster file. templates: those of `env`."""
    for name, value in env.items():
        if name in OF_RANKS:
            text = "differs between ranks, so Regatta sets it. Remove it."
            yield Problem(("env", name), text, has_value=False)
        if found := OF_COMMAND.search(value):
            known = " and ".join(f"{{{template}}}" for template in templates)
            text = f"contains {found[0]}, which stays as it is: env has only {known}."
            yield Problem(("env", name), f"{text} Set it in command: [env, '{name}={found[0]}', PROGRAM].")
        for word in re.split(r"[:/]", value):
            if found := _variable(word):
                shell = "Write its value, or set it in a step of `prologue`, which Bash runs"
                text = f"contains {word}, which is not expanded: no shell reads env."
                yield Problem(("env", name), f"{text} {_instead(found, templates, shell)}")
                break


def command_problem(words: list[str], index: int, templates: Collection[str]) -> str | None:
    """Return what is wrong with `$NAME` in a word of a command."""
    if has_reader(words):
        return None
    parts = [part for part in re.split(r"[=:,/]", words[index]) if _is_of_launch(_variable(part) or "")]
    word = words[index] if _variable(words[index]) else next(iter(parts), None)
    if word is None:
        return None
    shell = "Read the variable in the program, or let a shell start it: [sh, -c, 'exec PROGRAM \"$NAME\"']"
    return f"contains {word}, which is not expanded: no shell reads it. {_instead(_variable(word), templates, shell)}"


def _instead(name: str, templates: Collection[str], shell: str) -> str:
    of_launchers = (launcher.ranks.templates.get(name) for launcher in LAUNCHERS.values())
    template = TEMPLATES.get(name) or next(filter(None, of_launchers), None)
    instead = f"Write {{{template}}}" if template in templates else shell.replace("$NAME", f"${name}")
    return f"{instead}; for a literal $, write $$."


def _variable(word: str) -> str | None:
    """Return the name if a word is a known variable."""
    found = re.fullmatch(VARIABLE, word)
    name = found and (found[1] or found[2])
    return name if name and (_is_of_launch(name) or OF_SHELLS.fullmatch(name)) else None


def _is_of_launch(name: str) -> bool:
    """Return whether a launch sets a variable, also by a launcher of a plugin."""
    ranks = [launcher.ranks for launcher in LAUNCHERS.values()]
    of_launchers = any(name in of.templates or name.startswith(of.variables) for of in ranks)
    return bool(of_launchers or OF_LAUNCH.fullmatch(name))


def has_reader(words: list[str]) -> bool:
    """Return whether a command has a shell with code, awk or perl, for which `$NAME` is meant."""
    shells = [index for index, word in enumerate(words) if SHELL.fullmatch(word)]
    is_code = any(WITH_CODE.fullmatch(word) for word in words[shells[0] + 1 :]) if shells else False
    return is_code or any(map(OTHER_READER.fullmatch, words))


def unescaped(text: str) -> str:
    """Return a word of a command, or a value of `env`, with `$$NAME` of a known variable as `$NAME`."""

    def one(found: re.Match) -> str:
        return found[0][1:] if _variable(found[0][1:]) else found[0]

    return re.sub(rf"(?<![^=:,/])\${VARIABLE}(?![^=:,/])", one, text)
