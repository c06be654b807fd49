"""Check the references of a gate against the planned cells, before anything is measured."""

from collections.abc import Sequence

from regatta.campaign.expansion import MatrixCell, has_fields
from regatta.campaign.load import Campaign
from regatta.campaign.yaml_file import raise_errors
from regatta.core.benchmarks import load_benchmark
from regatta.core.errors import nearest
from regatta.core.schemas import place, show


def check_references(campaign: Campaign, cells: Sequence[MatrixCell]) -> None:
    """Raise UserError for references that select no cell, or cells without the metric."""
    errors = []
    for index, reference in enumerate(campaign.data["gate"]["references"]):
        from regatta.tables.references import numbers_of  # loads pandas, which other plans do not need

        where, metric = ("gate", "references", index), reference["metric"]
        benchmarks = dict.fromkeys(cell.benchmark for cell in cells if has_fields(cell, reference["when"]))
        if not benchmarks:
            text = f"{place(where)}.when selects no planned cell. Correct it, or remove the reference."
            errors.append(campaign.file.error((*where, "when"), text))
        wanted = reference["when"].items() if benchmarks else ()
        lists = [(name, value) for name, values in wanted if isinstance(values, list) for value in values]
        for name, value in lists:
            if not any(has_fields(cell, reference["when"] | {name: value}) for cell in cells):
                text = (
                    f"{place(where)}.when.{name}: {show(value)} selects no planned cell. Remove it, or plan its cells."
                )
                errors.append(campaign.file.error((*where, "when", name), text))
        for benchmark in benchmarks:
            if metric not in (names := numbers_of(load_benchmark(benchmark))):
                text = f"{place(where)}.metric = {show(metric)} is not a metric of {benchmark}, which its"
                text += f" `when` selects.{nearest(metric, names)} Choose from: {', '.join(names)}."
                errors.append(campaign.file.error((*where, "metric"), text))
    raise_errors(campaign.file, errors)
