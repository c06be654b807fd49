"""Check the references of a gate against the planned cells, before anything is measured."""

from collections.abc import Sequence

from regatta.campaign.expansion import MatrixCell
from regatta.campaign.load import Campaign
from regatta.campaign.yaml_file import raise_errors


def check_references(campaign: Campaign, cells: Sequence[MatrixCell]) -> None:
    """Raise UserError for references that select no cell, or cells without the metric."""
    if references := campaign.data["gate"]["references"]:
        from regatta.tables.references import reference_errors  # loads pandas, which other plans do not need

        found, file = reference_errors(references, cells), campaign.file
        raise_errors(file, [file.error(("gate", "references", *where), text) for where, text in found])
