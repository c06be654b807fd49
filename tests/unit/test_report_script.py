"""The script of the report: its pure functions in node, its size, and what it may not contain."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regatta.report.page import TEMPLATES, script_source, script_text

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = script_text()


def test_the_pure_functions_pass_their_tests():
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed (Debian: apt-get install nodejs)")
    done = subprocess.run([node, "--test", str(ROOT / "tests" / "script")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[1]) >= 12


def test_the_script_is_small_and_makes_no_markup_of_texts():
    assert len((TEMPLATES / "report.js").read_bytes()) <= 24_000
    assert sum(len((TEMPLATES / name).read_bytes()) for name in ("style.css", "explore.css")) <= 30_000
    assert not re.search(r"toFixed|toPrecision|toExponential", SCRIPT)  # numbers are texts of the data block
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\((?!`data:)", SCRIPT
    )
    assert "</script" not in SCRIPT.lower()
    assert SCRIPT.startswith('"use strict";\n')


def test_the_policy_names_the_hash_of_the_script():
    # echo -n 'alert(1)' | openssl dgst -sha256 -binary | openssl base64
    assert script_source("alert(1)") == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
