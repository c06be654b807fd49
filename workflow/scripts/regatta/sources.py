"""Which files a script is made of, so that an edit of one rebuilds what the script makes (Snakemake sees only the script)."""

import re
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[1]


def sources(script: str) -> list[str]:
    """Return a script of workflow/scripts and every module of regatta that it imports, directly or not."""
    found: set[Path] = set()
    todo = [SCRIPTS / script]
    while todo:
        path = todo.pop()
        if path in found or not path.exists():
            continue
        found.add(path)
        text = path.read_text(encoding="utf-8")
        for package, names in re.findall(r"^\s*from (regatta[.\w]*) import([\w, ]*)", text, re.MULTILINE):
            folder = SCRIPTS.joinpath(*package.split("."))
            todo += [folder.with_suffix(".py"), *(folder / f"{name.strip()}.py" for name in names.split(","))]
    return sorted(map(str, found))
