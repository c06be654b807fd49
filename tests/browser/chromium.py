"""Drive Debian's chromium over its debugging pipe (Chrome DevTools Protocol), with only the standard library.

Messages are JSON, each terminated by a zero byte; the browser reads file descriptor 3 and writes 4.
Protocol: https://chromedevtools.github.io/devtools-protocol/
"""

import base64
import json
import os
import re
import select
import subprocess
import tempfile
import time
from pathlib import Path

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync --disable-default-apps --mute-audio --remote-debugging-pipe"
)
TIMEOUT_S = 280  # axe takes minutes where other tests fill the cores
MAX_SHOT_PIXELS = 60_000
AXE = Path(__file__).resolve().parents[2] / "requirements/node_modules/axe-core/axe.min.js"  # of `make test-site`


class Chromium:
    """One browser with one page. `events` holds all that it reported. Use as a context manager."""

    def __init__(self, program: str) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="regatta-browser-", ignore_cleanup_errors=True)
        to_browser, self.write_end = os.pipe()
        self.read_end, from_browser = os.pipe()

        def place_pipes() -> None:
            # Via high numbers, so that neither end is overwritten while the other is put in its place.
            high = [os.dup2(fd, 60 + i) for i, fd in enumerate((to_browser, from_browser))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program, *FLAGS.split(), f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=place_pipes, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.events, self.number, self.session = b"", [], 0, None
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(t["targetId"] for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(timeout=TIMEOUT_S)
        os.close(self.write_end)
        os.close(self.read_end)
        self.profile.cleanup()

    def call(self, method: str, **params) -> dict:
        """Call one method and wait for its answer. Raises RuntimeError with the browser's own words."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_end, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def _next(self) -> dict:
        deadline = time.monotonic() + TIMEOUT_S
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_end], [], [], max(0, deadline - time.monotonic()))
            chunk = os.read(self.read_end, 1 << 20) if ready else b""
            if not chunk:
                raise RuntimeError(f"chromium said nothing for {TIMEOUT_S} s, or ended")
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def open(self, path: Path, width: int, height: int = 900, scheme: str = "light", fragment: str = "") -> None:
        """Load a file as a screen of this size would, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri() + fragment)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def evaluate(self, expression: str) -> object:
        return self.call("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def axe_violations(self) -> list[str]:
        """Return what axe-core (WCAG 2 A and AA, and its best practices) finds wrong with the page, one line each."""
        self.evaluate(AXE.read_text(encoding="utf-8") + ";0")
        told = "(async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
        told += ".map(v => `${v.id}: ${v.help}, ${v.nodes.length} times, such as ${v.nodes[0].html}`))()"
        answer = self.call("Runtime.evaluate", expression=told, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"axe did not run: {answer['exceptionDetails']}")
        return answer["result"]["value"]

    def screenshot(self, path: Path) -> None:
        """Save the page from its top, at most MAX_SHOT_PIXELS of it: Chromium makes no image of 131,072 lines and more."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], MAX_SHOT_PIXELS), "scale": 1}
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(shot["data"]))

    def print_pdf(self, path: Path) -> int:
        """Print the page on A4; return the number of sheets."""
        paper = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True}
        pdf = base64.b64decode(self.call("Page.printToPDF", **paper)["data"])
        path.write_bytes(pdf)
        return len(re.findall(rb"/Type /Page\b(?!s)", pdf))

    def complaints(self) -> list[str]:
        """Return errors and warnings that the page wrote to the console or the log."""
        found = []
        for event in self.events:
            params = event.get("params", {})
            if event.get("method") == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif event.get("method") == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
                found.append(str(params["args"]))
        return found

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]
