"""The script of the report: its pure functions in node, its size, and what it may not contain."""

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from regatta.core.text import three, with_minus_signs
from regatta.report.page import TEMPLATES, script_source

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (TEMPLATES / "report.js").read_text(encoding="utf-8")


def test_the_pure_functions_pass_their_tests_and_numbers_read_as_python_writes_them(tmp_path):
    if (node := shutil.which("node")) is None:
        pytest.skip("node is not installed (Debian: apt-get install nodejs)")
    rng = random.Random(1)
    numbers = [rng.uniform(0.1, 10) * 10 ** rng.randint(-7, 7) for _ in range(2000)]
    numbers += [float(f"{number:.4g}") for number in numbers]  # half of those that end in 5 are ties
    numbers += [1.125, 1.375, 100.5, 101.5, 1005, 12345, 0.5, 0.25, 1e-7, 999.5, 99950, -1.125]
    (tmp_path / "numbers.json").write_text(
        json.dumps([(number, with_minus_signs(three(number))) for number in numbers])
    )
    environment = os.environ | {"REGATTA_NUMBERS": str(tmp_path / "numbers.json")}
    done = subprocess.run(
        [node, "--test", str(ROOT / "tests" / "script")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)[1]) >= 10


def test_the_script_is_small_and_makes_no_markup_of_texts():
    assert len(SCRIPT.encode()) <= 40 * 1024
    # Of the page itself: what is folded on a large page.
    rest = SCRIPT.replace('(":scope > noscript")) child.outerHTML = child.textContent;', "")
    assert rest != SCRIPT
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|fetch\(", rest)
    assert "</script" not in SCRIPT.lower()
    assert SCRIPT.startswith('"use strict";\n')


def test_the_policy_names_the_hash_of_the_script():
    # echo -n 'alert(1)' | openssl dgst -sha256 -binary | openssl base64
    assert script_source("alert(1)") == "'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='"
