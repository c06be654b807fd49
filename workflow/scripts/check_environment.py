"""Report the packages needed by Regatta that a Python environment lacks. Installs nothing; needs only Python.

python workflow/scripts/check_environment.py driver rank

Each set is a file requirements/<set>.in: its packages must be installed, in the minimum version given with `>=`. An
exact pin (`==`) of the driver must match. `make` also installs those of `rank`, but the user's environment may have
different versions; torch and torchvision must be from the same build: pip accepts a CPU build of one with a CUDA build
of the other.
"""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "workflow" / "scripts" / "regatta" / "core"))

# As a plain module: the package regatta needs libraries that may be missing.
from errors import run_script, script_parser  # noqa: E402

LINE = re.compile(r"^([A-Za-z0-9._-]+)(?:.*?>=\s*([0-9.]+))?")


def read_requirements(text: str) -> dict[str, str | None]:
    """Return the minimum version, or None, of each package in the text of a requirements file."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    return dict(LINE.match(line).groups() for line in lines if line and not line.startswith("-"))


def installed_version(name: str) -> str | None:
    """Return the version in the package's metadata, without an import; None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def is_older(version: str, lowest: str) -> bool:
    """Compare the numbers of two versions, ignoring what follows them (rc1, +cpu)."""

    def numbers(text: str) -> list[int]:
        return [int(n) for n in re.match(r"[0-9]+(?:\.[0-9]+)*", text).group().split(".")] + [0] * 4

    return numbers(version)[:4] < numbers(lowest)[:4]


def missing_packages(names: dict[str, str | None]) -> list[str]:
    """Return a message about packages that are missing, and one for each that is too old."""
    versions = {name: installed_version(name) for name in names}
    missing = [name for name, version in versions.items() if version is None]
    problems = [f"missing: {', '.join(missing)}."] if missing else []
    for name, lowest in names.items():
        if versions[name] and lowest and is_older(versions[name], lowest):
            problems.append(f"{name} is {versions[name]}; Regatta needs {lowest} or newer.")
    return problems


def is_surely_a_pair(torch: str, torchvision: str, torch_requirement: str | None) -> bool:
    """Return whether two versions are of one build: the same tag after `+`, and the torch that torchvision requires.

    False means unknown: an index may omit the tag of its default build.
    """
    torch_number, _, torch_build = torch.partition("+")
    return torch_build == torchvision.partition("+")[2] and torch_requirement in (None, torch_number)


def pair_problem(is_import_wanted: bool) -> list[str]:
    """Return what is wrong with torch and torchvision together.

    They are imported only if wanted or necessary, since it takes seconds; in a separate process, since it may crash.
    """
    torch, torchvision = installed_version("torch"), installed_version("torchvision")
    if torch is None or torchvision is None:
        return []
    pins = (re.match(r"torch\s*\(?==\s*([0-9][\w.]*)", text) for text in metadata.requires("torchvision") or [])
    is_pair = is_surely_a_pair(torch, torchvision, next((pin.group(1) for pin in pins if pin), None))
    if is_pair and not is_import_wanted:
        return []
    done = subprocess.run([sys.executable, "-I", "-c", "import torch, torchvision"], capture_output=True, text=True)
    if done.returncode == 0:
        return []
    output = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
    cause = next((line for line in reversed(output) if "torchvision::nms" in line), output[-1]).strip()
    names = f"torch {torch} and torchvision {torchvision}"
    if "torchvision::nms" not in cause and is_pair:
        return [f"{names} cannot be imported: {cause}"]
    return [
        f"{names} are not of the same build; importing them fails: {cause}\n"
        "  Install both from one index into an environment (pip install --index-url INDEX torch torchvision),\n"
        "  and use it: make VENV=DIR"
    ]


def advice(sets: list[str]) -> str:
    if (Path(sys.prefix) / ".regatta").is_dir():
        is_default = Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()
        line = "make clean-env" if is_default else f"make clean-env VENV='{sys.prefix}'"
        return f"Rebuild the environment: {line}, then run the same command again."
    locks = " ".join(f"-r requirements/{name}.lock" for name in sets)
    return (
        "Regatta installs nothing into an environment that it did not create. Install what is missing yourself\n"
        f"  ({sys.executable} -m pip install --require-hashes {locks}),\n"
        "or let Regatta create a new one: make VENV=DIR, where DIR does not exist."
    )


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("sets", nargs="+", choices=["driver", "rank", "dev"], help="requirements to check")
    parser.add_argument(
        "--import", dest="is_import_wanted", action="store_true", help="import torchvision; takes seconds"
    )
    arguments = parser.parse_args()
    texts = {name: (ROOT / "requirements" / f"{name}.in").read_text(encoding="utf-8") for name in arguments.sets}
    problems = {name: missing_packages(read_requirements(text)) for name, text in texts.items()}
    missing = {name: found for name, found in problems.items() if found}
    lines = [f"requirements/{name}.in: {problem}" for name, found in missing.items() for problem in found]
    lines += [advice(list(missing))] if missing else []
    lines += pair_problem(arguments.is_import_wanted) if "rank" in arguments.sets else []
    if lines:
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit("\n".join([f"{sys.prefix} (Python {version}) lacks what Regatta needs:", *lines]))


if __name__ == "__main__":
    run_script(main)
