"""Settings of Hypothesis: no deadline, for a busy machine is no failure, and the same cases in each run. Fixtures.

Drawing is most of what a report costs. Only tests with the fixture `drawing` draw; elsewhere each figure is an empty SVG.
"""

from pathlib import Path

import pytest
from campaign_files import fake_sif, program
from hypothesis import settings

settings.register_profile("regatta", deadline=None, derandomize=True)
settings.load_profile("regatta")


@pytest.fixture(autouse=True, scope="session")
def _without_drawing():
    with pytest.MonkeyPatch.context() as patch:
        from matplotlib.figure import Figure

        patch.setattr(Figure, "save_drawing", Figure.savefig, raising=False)
        patch.setattr(Figure, "savefig", _save_nothing)
        yield


@pytest.fixture
def drawing(monkeypatch):
    """Draw for real in this test."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", Figure.save_drawing)


def _save_nothing(figure, file, **_):
    file.write(b"<svg xmlns='http://www.w3.org/2000/svg'/>")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with an image and a wrapper, and a runtime on the PATH; the test runs in it."""
    monkeypatch.chdir(tmp_path)
    fake_sif(tmp_path / "a.sif")
    program(tmp_path / "wrapper.sh", 'exec "$@"\n')
    (tmp_path / "bin").mkdir()
    program(tmp_path / "bin" / "apptainer", "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path
