"""A foreign file as a campaign for the length of one comparison: imported into a folder that is thrown away."""

import dataclasses
from pathlib import Path

from regatta.analysis.campaigns_compared import CampaignResults, read_campaign
from regatta.analysis.collect import collect
from regatta.analysis.collected import write_collected
from regatta.formats.reading import Options
from regatta.formats.store_import import import_files
from regatta.store.launch_files import read_frozen
from regatta.store.records import one_line


def read_imported(path: Path, stack: str | None, options: Options, scratch: Path) -> CampaignResults:
    """Return what a file of another benchmark says, under the file's own path. Raises UserError if it is refused."""
    folder = scratch / f"imported{len(list(scratch.iterdir()))}"
    import_files([path], folder, stack, options)
    frozen = next(folder.glob("campaign.*.json"))
    collected, _ = collect(read_frozen(frozen), folder / "launches")
    write_collected(collected, folder / "measurements.csv")
    results = read_campaign(folder)
    return dataclasses.replace(results, folder=path, campaign=results.campaign | {"name": one_line(path.name)})
