"""The lines of the answer on results: scaling, bucket size, comparison, communication, training runs."""

from collections.abc import Callable
from dataclasses import dataclass, field

from regatta.kit.findings import SUMMARY, Value
from regatta.report.findings import Finding
from regatta.topics import buckets, communication, training_runs
from regatta.topics.base import ReportData, Topic
from regatta.topics.comparison import section as comparison
from regatta.topics.scaling import section as scaling
from regatta.topics.sweep import section as sweep

MOST_NAMES = 3  # models, operations or stacks named in one line


@dataclass(frozen=True)
class AnswerLine:
    """One line. lead: the answer. text: what qualifies it. anchor: the section. values: numbers in units of tables."""

    id: str
    lead: str
    text: str = ""
    anchor: str = ""
    values: dict[str, object] = field(default_factory=dict)

    @property
    def plain(self) -> str:
        return f"{self.lead}; {self.text}" if self.text else self.lead


def join_names(names: list[str]) -> str:
    shown = names if len(names) <= MOST_NAMES else names[: MOST_NAMES - 1]
    return ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(shown) < len(names) else "")


def summary_of(topic: Topic) -> Callable[[ReportData], AnswerLine | None]:
    """Return a function that returns the line of a topic, if it has one."""

    def line(data: ReportData) -> AnswerLine | None:
        found = (finding for finding in topic.findings(data) if topic.kind_of(finding).rank == SUMMARY)
        return next((line_of(topic, finding) for finding in found), None)

    return line


def line_of(topic: Topic, finding: Finding) -> AnswerLine:
    """Return the line of a finding of the summary."""
    kind = topic.kind_of(finding)
    lead, text = kind.words(finding.values | finding.words)
    return AnswerLine(kind.line or kind.name, lead, text, finding.anchor or topic.id, numbers(finding))


def numbers(finding: Finding) -> dict[str, object]:
    """Return the values of a finding as answer.json has them."""
    values: dict[str, object] = {}
    for name, value in finding.values.items():
        values |= value.by_name(name) if isinstance(value, Value) else {name: value}
    return values


OF_RESULTS = (sweep, scaling, buckets, comparison, communication, training_runs)
RESULTS = tuple(summary_of(module.TOPIC) for module in OF_RESULTS)
