"""Counters of one GPU from NVIDIA's library libnvidia-ml.so.1 (NVML), read in a separate process.

A call into the NVIDIA driver can crash or hang. In this process it costs the rank at most ANSWER_SECONDS; it does not
retry. Every symbol is optional.

  python3 nvml.py UUID        for each line on stdin, write one line with the values of COUNTERS as JSON

Standard library only, and no import of Regatta: it starts with `python -I -S`.
"""

import ctypes
import functools
import json
import os
import select
import signal
import subprocess
import sys
import time

LIBRARY = "libnvidia-ml.so.1"
ANSWER_SECONDS = 2.0  # per reading; the first includes the start of Python and nvmlInit
# The order of a reading. Below 0: a reason (`reason`).
COUNTERS = (
    "sm_clock_mhz",
    "temperature_c",
    "power_limit_mw",
    "throttle_reasons",
    "power_throttled_ns",
    "thermal_throttled_ns",
    "board_limit_throttled_ns",
    "corrected_ecc_errors",
    "uncorrected_ecc_errors",
)
NO_LIBRARY, NO_SYMBOL, NO_ANSWER, ENDED, NO_UUID, NVML = -11, -12, -13, -14, -15, -1000
NOT_SUPPORTED = NVML - 3
REASONS = {
    NO_LIBRARY: f"{LIBRARY} cannot be loaded",
    NO_SYMBOL: f"{LIBRARY} has no such function",
    NO_ANSWER: f"timed out after {ANSWER_SECONDS:g} s; not retried",
    ENDED: "NVML helper process exited; not retried",
    NO_UUID: "torch does not report the GPU's UUID",
}
# nvml.h, nvmlReturn_t
ERRORS = {1: "uninitialized", 2: "invalid argument", 3: "not supported", 4: "no permission", 6: "not found"}
ERRORS |= {9: "driver not loaded", 15: "GPU is lost", 18: "driver and library differ in version"}
# nvml.h, nvmlClocksEventReasons: names of the bits
THROTTLE_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
PR_SET_PDEATHSIG = 1  # linux/prctl.h
CLOCK_SM, SENSOR_GPU, VOLATILE = 1, 0, 0
POLICY_POWER, POLICY_THERMAL, POLICY_BOARD_LIMIT = 0, 1, 3
CORRECTED, UNCORRECTED = 0, 1


def reason(code: int) -> str:
    """Return why a value is below 0."""
    if code > NVML:
        return REASONS[code]
    number = NVML - code
    return f"NVML error {number}" + (f": {ERRORS[number]}" if number in ERRORS else "")


def throttle_names(bits: int) -> list[str]:
    """Return the reasons of NVML's bits; unknown bits as numbers."""
    known = [name for bit, name in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return [*known, hex(rest)] if rest else known


class Reader:
    """The rank's side: a process that reads the counters of one GPU. It ends with the rank."""

    def __init__(self, uuid: str | None, program: str = __file__) -> None:
        self.failure = NO_UUID if uuid is None else None
        if self.failure is None:
            try:
                self.process = subprocess.Popen(
                    [sys.executable, "-I", "-S", program, uuid],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            except OSError:
                self.failure = ENDED

    def read(self) -> list[int]:
        """Return the values of COUNTERS."""
        if self.failure is None:
            try:
                os.write(self.process.stdin.fileno(), b"\n")
                line = self._line(time.monotonic() + ANSWER_SECONDS)
                values = json.loads(line)
                if isinstance(values, list) and list(map(type, values)) == [int] * len(COUNTERS):
                    return values
                self.failure = ENDED
            except TimeoutError:
                self.failure = NO_ANSWER
            except (OSError, ValueError):
                self.failure = ENDED
            self.process.kill()  # not waited for: a hanging call into the NVIDIA driver cannot be interrupted
        return [self.failure] * len(COUNTERS)

    def _line(self, deadline: float) -> bytes:
        found = b""
        while not found.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            if not (part := os.read(self.process.stdout.fileno(), 4096)):
                raise OSError("the reader has ended")
            found += part
        return found


@functools.cache
def reader(uuid: str | None) -> Reader:
    """Return this process's reader of a GPU, the same for all cells."""
    return Reader(uuid)


# The reading process.


class Violation(ctypes.Structure):
    """nvmlViolationTime_t: microseconds since a reference, and nanoseconds of throttling."""

    _fields_ = [("referenceTime", ctypes.c_ulonglong), ("violationTime", ctypes.c_ulonglong)]


def main(uuid: str) -> None:
    """Answer each line on stdin. A library that is missing, or a GPU that is not found, is an answer too."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    library, device, failure = open_gpu(uuid)
    for _ in sys.stdin:
        values = [failure] * len(COUNTERS) if failure else read_counters(library, device)
        sys.stdout.write(json.dumps(values) + "\n")
        sys.stdout.flush()


def open_gpu(uuid: str) -> tuple[ctypes.CDLL | None, ctypes.c_void_p, int]:
    """Return (library, handle of the GPU, 0), or a reason below 0 as the last."""
    device = ctypes.c_void_p()
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return None, device, NO_LIBRARY
    for names, arguments in (
        (("nvmlInit_v2", "nvmlInit"), ()),
        (("nvmlDeviceGetHandleByUUID",), (ctypes.c_char_p(uuid.encode()), ctypes.byref(device))),
    ):
        if failure := call(library, names, *arguments):
            return library, device, failure
    return library, device, 0


def call(library: ctypes.CDLL, names: tuple[str, ...], *arguments: object) -> int:
    """Call the first function that the library has. Returns 0, or a reason below 0."""
    for name in names:
        if (function := getattr(library, name, None)) is not None:
            code = function(*arguments)
            return NVML - code if code else 0
    return NO_SYMBOL


def read_counters(library: ctypes.CDLL, device: ctypes.c_void_p) -> list[int]:
    """Return the values of COUNTERS, each or its reason."""

    def value(kind: type, names: tuple[str, ...], *arguments: int) -> int:
        result = kind()
        failure = call(library, names, device, *map(ctypes.c_int, arguments), ctypes.byref(result))
        number = result.violationTime if kind is Violation else result.value
        is_missing = number in (2**32 - 1, 2**64 - 1) or number >= 2**63  # NVML_VALUE_NOT_AVAILABLE
        return failure or (NOT_SUPPORTED if is_missing else number)

    clocks = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")  # new, old name
    limits = ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit")
    errors, times = ("nvmlDeviceGetTotalEccErrors",), ("nvmlDeviceGetViolationStatus",)
    return [
        value(ctypes.c_uint, ("nvmlDeviceGetClockInfo",), CLOCK_SM),
        value(ctypes.c_uint, ("nvmlDeviceGetTemperature",), SENSOR_GPU),
        value(ctypes.c_uint, limits),
        value(ctypes.c_ulonglong, clocks),
        *(value(Violation, times, policy) for policy in (POLICY_POWER, POLICY_THERMAL, POLICY_BOARD_LIMIT)),
        *(value(ctypes.c_ulonglong, errors, kind, VOLATILE) for kind in (CORRECTED, UNCORRECTED)),
    ]


if __name__ == "__main__":
    main(sys.argv[1])
