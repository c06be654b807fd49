import os
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2] / "workflow" / "scripts")]
# fake_launch.py is started by `env python3`: by the Python of these tests, whatever the shell's PATH has first.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
