"""Which processes end when Snakemake is stopped: its jobs, including one that is just starting, but no launch."""

import signal
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "workflow" / "scripts"
SNAKEMAKE = """
import subprocess, sys, threading, time
from regatta.launchers import base as stop_jobs

stop_jobs.REPEAT_SECONDS = 0.1
stop, closing = threading.Event(), threading.Event()
thread = threading.Thread(target=stop_jobs.end_jobs, args=(stop, closing))
thread.start()
in_a_shell = subprocess.Popen(["sh", "-c", "sleep 60; true"], stdout=subprocess.PIPE)
launch = subprocess.Popen(["sleep", "60"], start_new_session=True)
time.sleep(0.3)
assert in_a_shell.poll() is None
stop.set()
in_a_shell.stdout.read()  # the end of the shell's child too
print(in_a_shell.wait())
print(subprocess.Popen(["sleep", "60"]).wait())  # started after the request
closing.set()
thread.join()
last = subprocess.Popen(["sleep", "0.3"])
print(last.wait(), launch.poll())
launch.kill()
"""


def test_jobs_are_ended_and_launches_and_what_closes_the_run_are_not():
    line = [sys.executable, "-c", SNAKEMAKE]
    done = subprocess.run(line, cwd=SCRIPTS, capture_output=True, text=True, timeout=30, start_new_session=True)
    assert done.stderr == ""
    ended = str(-signal.SIGTERM)
    assert done.stdout.split() == [ended, ended, "0", "None"]
