"""Strip line prefixes added by launchers, log collectors and documents. Those of ranks and hosts are kept as labels."""

import re
from dataclasses import dataclass
from functools import cached_property

from regatta.core.matching import ESCAPES

TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
# `label`: what distinguishes the lines of ranks or hosts. A last blank may be missing at the end of a line.
PREFIXES = {
    "mpirun --tag-output": r"(?:\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4})?(?P<label>(?:\[[^\]\s]{1,300}\]){0,2})"
    r"<std(?:out|err|diag)>: ?",
    "mpirun -l": r"(?P<label>\[\d{1,7}\]) ",
    "torchrun": r"(?P<label>\[[A-Za-z_][\w.|-]{0,99}\d\]): ?",
    "srun -l": r" {0,6}(?P<label>\d{1,7}): ",
    "kubectl logs --prefix": r"(?P<label>\[pod/[^\]\s]{1,300}\]) ",
    "docker compose": r"(?P<label>[\w.@-]{1,100}) +\| ",
    "Ray": r"\((?P<label>[^()]{0,200}\bpid=\d[^()]{0,200})\) ",
    "timestamp": rf"\[?(?:\d{{4}}[-/]\d\d[-/]\d\d[T ])?{TIME}(?: ?Z| ?[+-]\d\d:?\d\d)?\]?:? ",
    "syslog": rf"[A-Z][a-z]{{2}} [ \d]\d {TIME} (?P<label>\S{{1,253}}) [^\s:]{{1,100}}: ",
    "ts": rf"[A-Z][a-z]{{2}} [ \d]\d {TIME} ",
    "clush, pdsh": r"(?P<label>[\w.-]{1,253}(?: \d{1,7})?): ",
    "Markdown quote": r"> ?",
    "indentation": r"(?: {4}|\t)",
}
PATTERNS = [re.compile(f"{form[:-1]}(?: |$)" if form.endswith(" ") else form) for form in PREFIXES.values()]
MIN_SHARE = 0.9  # of the lines that are not blank; others, as from the launcher itself, stay as they are
MAX_PREFIXES = 4  # applied in sequence, such as a timestamp before a rank


@dataclass(frozen=True)
class Stripped:
    """The lines of a text without their prefixes, and the label of each line: its rank or host, empty without one."""

    lines: list[str]
    labels: list[str]

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    def by_label(self) -> dict[str, dict[int, str]]:
        """Return the lines of each label by their index, if there are several."""
        found: dict[str, dict[int, str]] = {}
        for index, (line, label) in enumerate(zip(self.lines, self.labels, strict=True)):
            if label:
                found.setdefault(label, {})[index] = line
        return found if len(found) > 1 else {}

    def without(self, pattern: re.Pattern) -> "Stripped":
        """Return this with one prefix fewer on each line that has it."""
        lines, labels, has_label = [*self.lines], [*self.labels], "label" in pattern.groupindex
        for index, line in enumerate(lines):
            if match := pattern.match(line):
                lines[index] = line[match.end() :]
                labels[index] = f"{labels[index]} {match['label']}".strip() if has_label else labels[index]
        return Stripped(lines, labels)


def strip_prefixes(text: str) -> Stripped:
    """Return a text without ANSI escapes and common line prefixes. Line numbers do not change."""
    lines = ESCAPES.sub("", text).split("\n")
    found = Stripped(lines, [""] * len(lines))
    for _ in range(MAX_PREFIXES):
        filled = [line for line in found.lines if line.strip()]
        usual = next((one for one in PATTERNS if _is_usual(one, filled)), None)
        if usual is None:
            break
        found = found.without(usual)
    return found


def known_prefixes(prefix: str) -> list[re.Pattern]:
    """Return the patterns of which a line's prefix consists; none if a part of it is unknown."""
    found = []
    while prefix.strip() and len(found) < MAX_PREFIXES:
        match = next((match for one in PATTERNS if (match := one.match(prefix)) and match.end()), None)
        if match is None:
            return []
        found.append(match.re)
        prefix = prefix[match.end() :]
    return [] if prefix.strip() else found


def _is_usual(prefix: re.Pattern, lines: list[str]) -> bool:
    num_without = 0  # the first lines of most files already show that they have no prefix
    most = (1 - MIN_SHARE) * len(lines)
    for line in lines:
        num_without += prefix.match(line) is None
        if num_without > most:
            return False
    return bool(lines)
