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
        names = re.findall(r"^\s*from regatta\.(\w+) import", text, re.MULTILINE)
        for group in re.findall(r"^\s*from regatta import ([\w, ]+)", text, re.MULTILINE):
            names += [name.strip() for name in group.split(",")]
        todo += [SCRIPTS / "regatta" / f"{name}.py" for name in names]
    return sorted(map(str, found))
