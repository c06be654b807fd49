"""Write a benchmark outside Regatta's tree, a campaign and a test: docs/benchmarks/own.md.

python workflow/scripts/new_benchmark.py ../bench/my_step
"""

from regatta.campaign.benchmark_files import check_name
from regatta.core.errors import UserError, run_script, script_parser
from regatta.core.files import ROOT
from regatta.runtimes.base import whole_path

EXAMPLE, NAME = ROOT / "examples" / "own", "my_step"
BENCH = "workflow/scripts/bench"


def main() -> None:
    parser = script_parser(__doc__)
    parser.add_argument("name", help="name of the benchmark, with the path of its folder if it is another one")
    name = parser.parse_args().name.removesuffix(".py")
    if not name:
        raise UserError("The name is empty. Write make new-benchmark NAME=../bench/my_step.")
    path = whole_path(name)
    check_name(path.with_name(f"{path.name}.py"))
    written = {path.with_name(one.name.replace(NAME, path.name)): one for one in sorted(EXAMPLE.glob(f"*{NAME}*.*"))}
    for target in written:
        if target.exists():
            raise UserError(f"{target} exists. Nothing was written. Choose another name.")
    path.parent.mkdir(parents=True, exist_ok=True)
    for target, source in written.items():
        text = source.read_text(encoding="utf-8").replace(NAME, path.name)
        target.write_text(text.replace(f'"{BENCH}"', repr(str(ROOT / BENCH))), encoding="utf-8")
        print(target)
    print(f"run: make campaign CONFIG={path}.yaml")


if __name__ == "__main__":
    run_script(main)
