"""Print which files of the host a node needs so that this interpreter works there: lines SOURCE<TAB>TARGET.

Run by the environment's own python3: python3 -I print_binds.py ENVIRONMENT. Each file keeps its path on the host.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator


def needed_paths(environment: str) -> Iterator[str]:
    yield os.path.abspath(environment)
    if sys.base_prefix != "/usr":
        yield sys.base_prefix
        return
    # Not all of /usr: the interpreter under each name on the way to it, its modules, and its library.
    link = sys.executable
    while os.path.islink(link):
        link = os.path.normpath(os.path.join(os.path.dirname(link), os.readlink(link)))
        yield link
    usr = dict.fromkeys(("base", "platbase", "installed_base", "installed_platbase"), "/usr")
    yield from (sysconfig.get_path(name, vars=usr) for name in ("stdlib", "platstdlib"))
    if sysconfig.get_config_var("Py_ENABLE_SHARED"):
        yield os.path.join(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))


def main() -> None:
    paths = list(needed_paths(sys.argv[1]))
    for path in dict.fromkeys([*paths, *map(os.path.realpath, paths)]):  # once each, the environment first
        print(os.path.realpath(path), path, sep="\t")


main()
