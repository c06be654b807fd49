"""The lock files pin all that requirements/*.in list, in the same versions, with hashes."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "requirements"


@pytest.mark.parametrize("name", ["driver", "rank", "dev"])
def test_each_requirements_file_is_pinned_in_its_lock(name):
    pinned = [line.split("==")[0] for line in (FOLDER / f"{name}.lock").read_text().splitlines() if "==" in line]
    listed = re.findall(r"(?m)^[\w.-]+", (FOLDER / f"{name}.in").read_text())
    assert listed
    assert set(listed) <= set(pinned)


def test_the_three_locks_agree_on_every_version():
    versions = {}
    for path in sorted(FOLDER.glob("*.lock")):
        for line in path.read_text().splitlines():
            if "==" in line and not line.startswith((" ", "#")):
                name, version = line.split(" ")[0].split("==")
                assert versions.setdefault(name, version) == version, f"{path.name}: {name}"
    assert versions["torch"] == "2.14.1"
    assert versions["torchvision"] == "0.29.1"


def test_locks_name_no_index_and_hash_everything():
    for path in FOLDER.glob("*.lock"):
        text = path.read_text()
        assert "://" not in text
        assert text.count("==") - text.count("== '") - text.count("!= '") <= text.count("--hash=sha256:"), path.name
    of_npm = (FOLDER / "package-lock.json").read_text()
    assert "://" not in of_npm
    assert of_npm.count('"node_modules/') == of_npm.count('"integrity": "sha512-') > 0
