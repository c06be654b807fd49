"""The cells of the shipped campaigns keep their ids: tests/golden/cell_ids.json has those of version 0.1.0's first tag.

A cell gets another id only by a key of LATER, which says that it is measured otherwise than before.
"""

import copy
import json
from pathlib import Path

import pytest

from regatta.campaign.expansion import content_hash, expand
from regatta.campaign.load import CLUSTERS, load_campaign
from regatta.core.files import ROOT

CONFIG, IDS = CLUSTERS.parent, ROOT / "tests" / "golden" / "cell_ids.json"
CAMPAIGNS = ["config.yaml", *sorted(str(path.relative_to(CONFIG)) for path in CONFIG.glob("campaigns/**/*.yaml"))]
LATER = ("executables", "program.starter", "program.read.rate.comma")  # keys of a spec


@pytest.fixture(autouse=True)
def anywhere(monkeypatch):
    """A machine without GPUs, in Regatta's folder."""
    monkeypatch.setattr("regatta.campaign.load.GPU_FOLDER", Path("/nonexistent"))
    monkeypatch.chdir(ROOT)


def hash_without(spec: dict, keys: tuple[str, ...]) -> str:
    """Return the hash in the id of a cell without these keys, as if Regatta's folder were /regatta."""
    spec = copy.deepcopy(spec)
    for key in keys:
        *path, name = key.split(".")
        of = spec
        for word in path:
            of = of.get(word, {}) if isinstance(of, dict) else {}
        of.pop(name, None) if isinstance(of, dict) else None
    return content_hash(json.loads(json.dumps(spec).replace(f"{ROOT}/", "/regatta/")))


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_cells_of_shipped_campaigns_keep_their_ids(name):
    found = expand(load_campaign(CONFIG / name, may_lack_files=True))
    cells = [*found.cells, *(cell for cell, _ in found.skipped)]
    assert [hash_without(cell.spec, LATER) for cell in cells] == json.loads(IDS.read_text())[name].split()
    for cell in cells:
        assert cell.id.endswith(content_hash(cell.spec))
        ranks = cell.spec.get("program", {}).get("ranks", "gpu")
        assert cell.spec.get("program", {}).get("starter") == (None if ranks == "gpu" else 2)
