"""Cells, measurements and results folders for tests of comparisons: each test sets the times of its launches."""

import json

from synthetic import collective_cell, make_campaign, make_header
from typed import cell_row

from regatta.store.csv_files import MEASUREMENTS, make_table, write_csv

STACKS = {"contained": {"image_id": "aaa"}, "bound": {"image_id": "aaa", "binds": ["/opt/lib:/host"]}}


def cell_of(stack="contained", message_bytes=4096, **more):
    """Return an all_reduce on one node of two, in a stack of its own kind."""
    cell = collective_cell(message_bytes, 1, 2, stack=stack, **more)
    cell["spec"]["stack"] |= STACKS.get(stack, {})
    return cell


def measured(times):
    """Return measurements. times: (cell, seconds of each launch or a status that is not ok), or with the batch of each."""
    rows = []
    for cell, launches, *batches in times:
        stack = cell["spec"]["stack"]["name"]
        turn = list(STACKS).index(stack) if stack in STACKS else 0
        for repeat, value in enumerate(launches):
            is_ok, batch = not isinstance(value, str), batches[0][repeat] if batches else "n01g02-0"
            row = {"repeat": repeat, "status": "ok" if is_ok else value, "p50_s": value if is_ok else None}
            row |= {"launch": f"{batch}-l{10 * repeat + turn:03d}-a00", "time_utc": f"2026-11-21T03:0{repeat}:05Z"}
            rows.append(cell_row(cell) | row)
    return make_table(rows, MEASUREMENTS)


def results_of(times, **fields):
    """Return (frozen campaign, measurements)."""
    repeats = max(len(launches) for _, launches, *_ in times)
    campaign = make_campaign([cell for cell, *_ in times], **({"repeats": repeats} | fields))
    return campaign, measured(times)


def write_folder(folder, times, day="21", environment=None, **fields):
    """Write a results folder: campaign, measurements.csv, and the first lines of its launch files. Returns the folder."""
    campaign, measurements = results_of(times, name=folder.name, **fields)
    measurements["time_utc"] = measurements["time_utc"].str.replace("11-21", f"11-{day}")
    (folder / "launches").mkdir(parents=True)
    (folder / "campaign.0123456789ab.json").write_text(json.dumps(campaign), encoding="utf-8")
    write_csv(measurements, folder / "measurements.csv")
    cells = {cell["id"]: cell for cell in campaign["cells"]}
    for (launch, repeat), rows in measurements.dropna(subset="launch").groupby(["launch", "repeat"]):
        own = [cells[cell] for cell in rows["cell"]]
        header = make_header(campaign, launch, int(repeat), own, f"2026-11-{day}T03:00:00Z", **(environment or {}))
        (folder / "launches" / f"{launch}.jsonl").write_text(json.dumps(header) + "\n", encoding="utf-8")
    return folder
