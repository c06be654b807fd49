"""Compare the values of all tables and of answer.json between two versions of Regatta, on campaigns with known content.

    python3 tests/freeze.py COMMIT           this tree with a commit
    python3 tests/freeze.py --write FOLDER   only write the values of this tree
    python3 tests/freeze.py BEFORE AFTER     two folders that --write wrote

Numbers are equal to a relative 1e-8, all other values exactly. freeze_map.csv says where a column is now, and why one
is gone. Of answer.json, sentences are not compared. Exit status 1: something differs.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pandas as pd

TESTS = Path(__file__).resolve().parent
MAP = TESTS / "freeze_map.csv"
REL_TOLERANCE = 1e-8
KEYS = ("cell", "rank", "epoch", "repeat", "axis", "value", "against", "host")  # of a row, as far as a table has them
SENTENCES = {"lead", "text", "anchor", "steps", "reasons", "pattern"}  # keys of answer.json
SHOWN = 20  # differences


def campaigns() -> dict:
    """Return a function by name that writes a results folder."""
    sys.path[:0] = [str(TESTS / folder) for folder in ("unit", "../benchmarks", "../workflow/scripts")]
    import five_thousand_cells as large
    from synthetic import write_results
    from synthetic_own import write_custom, write_own
    from synthetic_stacks import write_stacks
    from synthetic_timeline import write_nights
    from test_frozen_tables import CAMPAIGNS
    from test_planted_truths import plant_disturbed, plant_laptop, plant_slow_node, plant_stacks

    return {
        **CAMPAIGNS,
        "own": write_own,
        "stacks": write_stacks,
        "nights": write_nights,
        "planted-laptop": plant_laptop,
        "planted-stacks": plant_stacks,
        "slow-node": plant_slow_node,
        "bad-night": plant_disturbed,
        "large": lambda folder: write_results(folder, large.campaign(), large.MACHINE, pause_s=large.PAUSE_S),
        "custom": write_custom,
    }


def write(target: Path) -> None:
    """Write the tables and answer.json of each campaign into target/NAME."""
    made = campaigns()
    from test_comparison_of_several import folders_in
    from test_frozen_tables import run, stable

    for name, make in made.items():
        folder, out = target / "results" / name, target / name
        print(name, flush=True)
        with contextlib.redirect_stderr(io.StringIO()):
            make(folder)
        [frozen] = folder.glob("campaign.*.json")
        of_store = [
            "--campaign",
            frozen,
            "--launches",
            folder / "launches",
            "--measurements",
            folder / "measurements.csv",
        ]
        run("analyse", *of_store, "--out-dir", folder / "tables")
        run("report", *of_store, "--tables", folder / "tables", "--out", folder / "report.html")
        out.mkdir()
        for path in (*folder.glob("*.csv"), *folder.glob("tables/*.csv"), folder / "answer.json"):
            (out / path.name).write_text(stable(path.read_text("utf-8"), target), encoding="utf-8")
    (target / "several").mkdir()
    with contextlib.redirect_stdout(io.StringIO()):
        run("compare", *folders_in(target / "results" / "five"), "--csv", target / "several" / "compared.csv")
    shutil.rmtree(target / "results")


def is_equal(before: object, after: object) -> bool:
    if isinstance(before, dict) and isinstance(after, dict):
        names = (before.keys() | after.keys()) - SENTENCES
        return all(name in before and name in after and is_equal(before[name], after[name]) for name in names)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(is_equal, before, after))
    try:
        numbers = float(before), float(after)
    except (TypeError, ValueError):
        return before == after
    return math.isclose(*numbers, rel_tol=REL_TOLERANCE, abs_tol=1e-300) or all(map(math.isnan, numbers))


def read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path, dtype=str, keep_default_na=False)


def keyed(table: pd.DataFrame, names: list[str]) -> dict[tuple, dict]:
    """Return the rows by their keys; equal keys are numbered in the order of the file."""
    rows, num = {}, Counter()
    for row in table.to_dict("records"):
        key = tuple(row[name] for name in names)
        rows[*key, num[key]] = row
        num[key] += 1
    return rows


def compare(before: Path, after: Path) -> int:
    """Print what differs, and return the number of different values."""
    with MAP.open(encoding="utf-8", newline="") as file:
        moved = {(row["table"], row["column"]): row for row in csv.DictReader(file)}
    differences, num_values = [], 0
    for path in sorted(before.glob("*/*.csv")):
        campaign, name, old = path.parent.name, path.stem, read(path)
        tables: dict[str, tuple[pd.DataFrame, dict]] = {}
        for column in old:
            at = moved.get((name, column)) or moved.get((name, "*")) or {"new_table": name, "new_column": "*"}
            table, new = at["new_table"], column if at["new_column"] == "*" else at["new_column"]
            if not table:
                continue  # gone, for the reason in the map
            if table not in tables:
                file = after / campaign / f"{table}.csv"
                if not file.exists():
                    differences.append(f"{campaign}: no table {table} for {name}")
                    break
                frame = read(file)
                keys = [key for key in KEYS if key in old and key in frame]
                tables[table] = keyed(old, keys), keyed(frame, keys), set(frame)
            olds, news, names = tables[table]
            for key, row in olds.items():
                num_values += 1
                value = news.get(key, {}).get(new, "")
                if (new not in names and row[column]) or not is_equal(row[column], value):
                    is_known = new in names
                    found = repr(value) if is_known else "no such column"
                    differences.append(f"{campaign}: {name}.{column} of {key[0]}: {row[column]!r}, now {found}")
            if table == name and len(news) != len(olds):
                differences.append(f"{campaign}: {name}: {len(olds)} rows, now {len(news)}")
    for path in sorted(before.glob("*/answer.json")):
        campaign, num_values = path.parent.name, num_values + 1
        lines = [json.loads((of / campaign / path.name).read_text("utf-8"))["lines"] for of in (before, after)]
        old, new = ({line["id"]: line["values"] for line in of} for of in lines)
        for key in old.keys() | new.keys():
            if not is_equal(old.get(key, {}), new.get(key, {})):
                differences.append(f"{campaign}: answer.json, {key}: {old.get(key)}, now {new.get(key)}")
    by_column = Counter(text.partition(" of ")[0] for text in differences)
    print(*differences[:SHOWN], sep="\n")
    print(*(f"{num:6} {text}" for text, num in by_column.most_common(2 * SHOWN)), sep="\n")
    print(f"{num_values} values compared, {len(differences)} differ")
    return len(differences)


def write_with(tree: Path, target: Path) -> None:
    command = [sys.executable, str(tree / "tests" / "freeze.py"), "--write", str(target)]
    subprocess.run(command, check=True, cwd=tree, env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", help="a commit, or two folders")
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    if options.write:
        options.write.mkdir(parents=True)
        write(options.write)
        return
    if len(options.versions) == 2:
        sys.exit(compare(*map(Path, options.versions)) > 0)
    [commit] = options.versions
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], check=True, cwd=TESTS)
        try:
            write_with(tree, Path(name) / "before")
            write_with(TESTS.parent, Path(name) / "after")
            sys.exit(compare(Path(name) / "before", Path(name) / "after") > 0)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(tree)], check=True, cwd=TESTS)


if __name__ == "__main__":
    main()
