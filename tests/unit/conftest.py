"""Settings of Hypothesis: no deadline, because a busy machine is not a failure, and the same cases in each run. Fixtures.

Drawing takes most of a report's time. Only tests with the fixture `drawing` draw; elsewhere each figure is an empty SVG.
No file waits for the disk: the tables of a report are 32 files, at 4 ms each.
"""

import os
from pathlib import Path

import pytest
from campaign_files import fake_sif, plan, program, write_launch
from hypothesis import settings

NANO = 1_000_000_000

MAX_EXAMPLES = 200 if "REGATTA_THOROUGH" in os.environ else 50
settings.register_profile("regatta", deadline=None, derandomize=True, max_examples=MAX_EXAMPLES)
settings.load_profile("regatta")


@pytest.fixture(autouse=True, scope="session")
def _without_drawing_and_disk():
    with pytest.MonkeyPatch.context() as patch:
        from matplotlib.figure import Figure

        patch.setattr(Figure, "save_drawing", Figure.savefig, raising=False)
        patch.setattr(Figure, "savefig", _save_nothing)
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture
def drawing(monkeypatch):
    """Draw for real in this test."""
    from matplotlib.figure import Figure

    monkeypatch.setattr(Figure, "savefig", Figure.save_drawing)


def _save_nothing(figure, file, **_):
    file.write(b'<svg viewBox="0 0 1 1"></svg>')


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


@pytest.fixture
def play(tmp_path):
    """A function that plans a campaign, freezes it, and plays its launches. Returns the plan that was played."""

    def play(
        data: dict, statuses: dict | None = None, *, is_retry: bool = False, finish: bool = True, time_utc: str = ""
    ):
        """statuses: (message_bytes, repeat) -> status, ok by default, None for no record. time_utc: that the clock shows."""
        from regatta.plan.plan import write_frozen

        made = plan(tmp_path, data, is_retry=is_retry)
        write_frozen(made)
        for batch in made.batches:
            names = []
            for index, launch in enumerate(batch.launches):
                records = []
                for cell in launch.cells:
                    size = cell.spec["parameters"].get("message_bytes")
                    status = (statuses or {}).get((size, launch.repeat), "ok")
                    if status:
                        cause = None if status == "ok" else f"cause of {status}"
                        record = {"cell": cell.id, "status": status, "cause": cause}
                        if size is not None:  # one that can be collected
                            ranks = [[1000]] * cell.world_size
                            record |= {"spec": cell.spec, "samples_ns": ranks if status == "ok" else None}
                        records.append(record | {"elapsed_ns": 4 * NANO})
                names.append(f"{batch.id}-l{index:03d}-a00")
                hour = len(list((made.results / "launches").glob("*")))
                header = {
                    "time_utc": time_utc or f"2026-11-21T{hour:02d}:00:00Z",
                    "generation": batch.content["generation"],
                }
                write_launch(made.results, names[-1], launch.repeat, records, **header)
            if finish:
                write_manifest(made.results, batch.id, names)
        return made

    return play


def write_manifest(results, batch, names):
    from regatta.model.frozen import fields_to_json
    from regatta.store.history import summarize
    from regatta.store.launch_files import read_launch_file, write_json

    entries = [fields_to_json(summarize(read_launch_file(results / "launches" / f"{name}.jsonl"))) for name in names]
    write_json(results / "batches" / batch / "manifest.json", {"schema": 1, "batch": batch, "launches": entries})
