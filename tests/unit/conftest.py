"""Settings of Hypothesis: no deadline, for a busy machine is no failure, and the same cases in each run. Fixtures.

Drawing is most of what a report costs. Only modules with `DRAWS = True` draw; elsewhere each figure is an empty SVG.
"""

from pathlib import Path

import pytest
from campaign_files import fake_sif, program
from hypothesis import settings

settings.register_profile("regatta", deadline=None, derandomize=True)
settings.load_profile("regatta")


@pytest.fixture(autouse=True, scope="module")
def _without_drawing(request):
    if getattr(request.module, "DRAWS", False):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("matplotlib.figure.Figure.savefig", _save_nothing)
        yield


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
