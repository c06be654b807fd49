"""Numbers, durations and units as programs print them: tables of spellings, what each is, and what is refused."""

import pytest

from regatta.core.errors import UserError
from regatta.core.printed_numbers import parse_duration, parse_number, parse_scaled
from regatta.core.readers import parse_reader
from regatta.core.units import EXAMPLES, KNOWN, find_unit

BOTH, DECIMAL_COMMA, THOUSANDS = "or", "decimal", "thousands"  # what the error says


@pytest.mark.parametrize(
    ("text", "unknown", "thousands", "decimal"),
    [
        ("1,176", BOTH, 1176, 1.176),
        ("-1,176", BOTH, -1176, -1.176),
        ("12,345", BOTH, 12345, 12.345),
        ("999,999", BOTH, 999999, 999.999),
        ("1,176.", BOTH, 1176, 1.176),
        ("1,176e3", BOTH, 1176000, 1176),
        ("0,415", DECIMAL_COMMA, DECIMAL_COMMA, 0.415),
        ("00,415", DECIMAL_COMMA, DECIMAL_COMMA, 0.415),
        ("12,34", DECIMAL_COMMA, DECIMAL_COMMA, 12.34),
        ("1,2345", DECIMAL_COMMA, DECIMAL_COMMA, 1.2345),
        ("1234,567", DECIMAL_COMMA, DECIMAL_COMMA, 1234.567),
        ("1,5e-3", DECIMAL_COMMA, DECIMAL_COMMA, 0.0015),
        (",5", DECIMAL_COMMA, DECIMAL_COMMA, 0.5),
        ("1.234,5", DECIMAL_COMMA, DECIMAL_COMMA, 1234.5),
        ("1.234.567,8", DECIMAL_COMMA, DECIMAL_COMMA, 1234567.8),
        ("1\N{NARROW NO-BREAK SPACE}234,5", DECIMAL_COMMA, DECIMAL_COMMA, 1234.5),
        ("1,234,567", 1234567, 1234567, THOUSANDS),
        ("1,234.5", 1234.5, 1234.5, THOUSANDS),
        ("1,234,567.5", 1234567.5, 1234567.5, THOUSANDS),
        ("1.234", 1.234, 1.234, BOTH),
        ("1.234.567", THOUSANDS, THOUSANDS, 1234567),
        ("0.234", 0.234, 0.234, 0.234),
        ("12.5", 12.5, 12.5, 12.5),
        ("1'234.5", 1234.5, 1234.5, 1234.5),
        ("1\N{RIGHT SINGLE QUOTATION MARK}234", 1234, 1234, 1234),
        ("1_234_567", 1234567, 1234567, 1234567),
        ("1\N{NO-BREAK SPACE}234", 1234, 1234, 1234),
        ("1 234", "space", "space", "space"),
        ("1.5e-3", 1.5e-3, 1.5e-3, 1.5e-3),
        ("1.5D+03", 1500, 1500, 1500),
        ("-.5", -0.5, -0.5, -0.5),
        ("7.", 7, 7, 7),
        ("007", 7, 7, 7),
    ],
)
def test_a_comma_is_what_it_can_only_be_or_what_the_key_says(text, unknown, thousands, decimal):
    for comma, expected in (("", unknown), ("thousands", thousands), ("decimal", decimal)):
        if isinstance(expected, str):
            with pytest.raises(ValueError, match=expected):
                parse_number(text, comma)
        else:
            assert parse_number(text, comma) == expected, comma


@pytest.mark.parametrize(("text", "value"), [("11.9k", 11900), ("1,234.5k", 1234500), ("4Ki", 4096), ("3 M", 3e6)])
def test_a_suffix_multiplies(text, value):
    assert parse_scaled(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        ",",
        "nan",
        "-inf",
        "Infinity",
        "nan(ind)",
        "1,5,6",
        "1,23,456",
        "1e999",
        "0x10",
        "1.2.3",
        "e5",
        "٣",
        "1,,2",
    ],
)
def test_what_is_no_number(text):
    for comma in ("", "thousands", "decimal"):
        with pytest.raises(ValueError, match=r"not|comma|range|float"):
            parse_number(text, comma)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2m5.250s", 125.25),  # bash
        ("0m0,415s", 0.415),  # bash in a German locale
        ("0m1,176s", 1.176),
        ("12m34s", 754),
        ("1h2m3.5s", 3723.5),  # Go
        ("1m30s500ms", 90.5),
        ("415ms", 0.415),
        ("8.1\N{MICRO SIGN}s", 8.1e-6),
        ("12.5s", 12.5),
        ("3h 4m", 11040),
        ("3 hours", 10800),
        ("2 minutes, 5 seconds", 125),
        ("1d 2h", 93600),
        ("1:02", 62),
        ("00:40", 40),
        ("0:12.50", 12.5),  # GNU time
        ("90:05", 5405),
        ("1:02:03.50", 3723.5),
        ("1:02:03,5", 3723.5),
        ("00:00:07.123456", 7.123456),
        ("1-02:03:04", 93784),  # Slurm
        ("1-02:03", 93780),
        ("1 day, 2:03:04", 93784),  # Python
        ("2 days, 1:02:03.5", 176523.5),
        ("1:02:03:04", 93784),
        ("PT1H2M3S", 3723),
        ("PT0.5S", 0.5),
        ("P1DT2H", 93600),
    ],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["1.5", "5m", "1:2", "1:02:60", "5s3m", "1:02:03:04:05", "12 GB", "P", "PT", "3x", "m5s"]
)
def test_what_is_no_duration(text):
    assert parse_duration(text) is None


K, M, G, T, DAY = 1e3, 1e6, 1e9, 1e12, 86400
SPELLINGS = {
    "s": ("s", {
        "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1, "Seconds": 1, "ms": 1 / K, "msec": 1 / K, "msecs": 1 / K,
        "millisec": 1 / K, "milliseconds": 1 / K, "us": 1 / M, "usec": 1 / M, "usecs": 1 / M, "microseconds": 1 / M,
        "\N{MICRO SIGN}s": 1 / M, "\N{GREEK SMALL LETTER MU}s": 1 / M, "ns": 1 / G, "nsec": 1 / G, "nanoseconds": 1 / G,
        "ps": 1 / T, "min": 60, "mins": 60, "minutes": 60, "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
        "d": DAY, "days": DAY,
    }),
    "rates of iterations": ("iterations/s", {
        "it/s": 1, "its/s": 1, "iter/s": 1, "iters/s": 1, "iter/sec": 1, "iterations/sec": 1, "iterations/second": 1,
        "iterations per second": 1, "it/min": 1 / 60, "Kit/s": K,
    }),
    "times of an iteration": ("s/iteration", {
        "s/it": 1, "s/iter": 1, "sec/iter": 1, "secs/iteration": 1, "ms/iter": 1 / K, "ms/it": 1 / K, "min/it": 60,
        "seconds per iteration": 1,
    }),
    "times of a step": ("s/step", {"s/step": 1, "sec/step": 1, "ms/step": 1 / K, "us/step": 1 / M}),
    "steps": ("steps/s", {
        "steps/s": 1, "step/s": 1, "steps/sec": 1, "timesteps/s": 1, "steps/min": 1 / 60, "steps/hour": 1 / 3600,
        "steps/day": 1 / DAY, "ksteps/s": K,
    }),
    "tokens": ("tokens/s", {
        "tokens/s": 1, "tok/s": 1, "tok/sec": 1, "t/s": 1, "tokens/sec": 1, "tokens/second": 1, "tokens per second": 1,
        "token/s": 1, "Tokens/s": 1, "ktok/s": K, "Mtokens/s": M, "K tokens/s": K, "tokens/day": 1 / DAY,
    }),
    "tokens of a GPU": ("tokens/s/gpu", {"tokens/s/GPU": 1, "tok/s/gpu": 1, "tokens/GPU/s": 1, "tokens/sec/GPU": 1}),
    "times of a token": ("s/token", {"ms/token": 1 / K, "s/tok": 1, "ms per token": 1 / K}),
    "samples": ("samples/s", {"samples/s": 1, "samples/sec": 1, "Samples/sec": 1, "samples per second": 1, "sample/s": 1}),
    "images": ("images/s", {"img/s": 1, "img/sec": 1, "imgs/s": 1, "images/sec": 1, "images/second": 1, "image/s": 1}),
    "sequences": ("sequences/s", {"seq/s": 1, "seqs/s": 1, "sequences/s": 1, "sequences/sec": 1}),
    "examples": ("examples/s", {"examples/sec": 1, "ex/s": 1, "examples/s": 1}),
    "requests": ("requests/s", {"req/s": 1, "reqs/s": 1, "requests/sec": 1, "Requests/sec": 1, "rps": 1, "RPS": 1}),
    "queries": ("queries/s", {"queries/s": 1, "QPS": 1, "qps": 1, "query/s": 1}),
    "transactions": ("transactions/s", {"transactions/sec": 1, "txn/s": 1}),
    "events": ("events/s", {"events/s": 1, "events/sec": 1}),
    "words": ("words/s", {"words/s": 1, "wps": 1}),
    "sentences": ("sentences/s", {"sentences/s": 1}),
    "batches": ("batches/s", {"batches/s": 1, "batch/s": 1}),
    "times of a batch": ("s/batch", {"s/batch": 1, "ms/batch": 1 / K}),
    "epochs": ("epochs/s", {"epochs/h": 1 / 3600, "epoch/hour": 1 / 3600, "epochs/day": 1 / DAY}),
    "times of an epoch": ("s/epoch", {"min/epoch": 60, "s/epoch": 1, "hours/epoch": 3600}),
    "frames": ("frames/s", {"fps": 1, "FPS": 1, "frames/s": 1, "frames/sec": 1}),
    "operations": ("operations/s", {
        "ops/s": 1, "op/s": 1, "ops/sec": 1, "kops/s": K, "Mops/s": M, "Mop/s": M, "IOPS": 1, "iops": 1, "kIOPS": K,
        "KIOPS": K, "MIOPS": M, "GOPS": G, "TOPS": T, "operations/sec": 1,
    }),
    "times of an operation": ("s/operation", {"ns/op": 1 / G, "us/op": 1 / M, "\N{MICRO SIGN}s/op": 1 / M, "ms/op": 1 / K}),
    "messages": ("messages/s", {"msg/s": 1, "msgs/s": 1, "Mmsg/s": M, "messages/sec": 1}),
    "packets": ("packets/s", {"pps": 1, "kpps": K, "Mpps": M, "packets/s": 1}),
    "updates": ("updates/s", {"GUPS": G, "GUP/s": G, "MLUPS": M, "GLUPS": G, "MFLUPS": M, "GCUPS": G, "Mupdates/s": M}),
    "edges": ("edges/s", {"TEPS": 1, "MTEPS": M, "GTEPS": G}),
    "rays": ("rays/s", {"Mrays/s": M, "Grays/s": G}),
    "unknowns": ("dofs/s", {"MDOF/s": M, "GDoFs/s": G}),
    "atoms": ("atom-steps/s", {"atom-step/s": 1, "katom-step/s": K, "Matom-step/s": M}),
    "hashes": ("hashes/s", {"H/s": 1, "MH/s": M, "kH/s": K}),
    "transfers": ("transfers/s", {"GT/s": G, "MT/s": M}),
    "a count of any name": ("widgets/s", {"widgets/min": 1 / 60, "widget/s": 1, "Widgets/h": 1 / 3600}),
    "a count that begins as a prefix": ("kernels/s", {"kernels/s": 1, "Kernels/ms": K}),
    "units of LAMMPS": ("taus/s", {"tau/day": 1 / DAY}),
    "simulated time": ("simulated s/s", {
        "ns/day": 1e-9 / DAY, "us/day": 1e-6 / DAY, "ps/day": 1e-12 / DAY, "ns/h": 1e-9 / 3600, "ps/s": 1e-12, "ns/d": 1e-9 / DAY,
    }),
    "time of simulated time": ("s/simulated s", {"hour/ns": 3600 * G, "hours/ns": 3600 * G, "days/ns": DAY * G, "s/ps": T}),
    "climate": ("years/s", {"SYPD": 1 / DAY, "years/day": 1 / DAY}),
    "frequency": ("1/s", {"Hz": 1, "hz": 1, "kHz": K, "MHz": M, "GHz": G, "1/s": 1}),
    "bytes": ("B", {
        "B": 1, "bytes": 1, "kB": K, "KB": K, "KiB": 1024, "MB": M, "MiB": 2**20, "GB": G, "GBytes": G, "GiB": 2**30, "TB": T,
        "Mbit": M / 8,
    }),
    "bytes per second": ("B/s", {
        "B/s": 1, "bytes/s": 1, "Bytes/sec": 1, "bytes_per_second": 1, "kB/s": K, "KB/s": K, "KB/sec": K, "KiB/s": 1024,
        "KBytes/sec": K, "MB/s": M, "MB/sec": M, "MBps": M, "MBytes/sec": M, "MiB/s": 2**20, "MiB/sec": 2**20, "GB/s": G,
        "GB/sec": G, "GBps": G, "GBytes/sec": G, "GiB/s": 2**30, "GiB/sec": 2**30, "TB/s": T, "gigabytes/s": G,
        "B/\N{MICRO SIGN}s": M, "B/us": M, "B/ns": G, "MB/ms": G,
        "bit/s": 1 / 8, "bits/sec": 1 / 8, "bps": 1 / 8, "kbit/s": K / 8, "kbps": K / 8, "Kbits/sec": K / 8, "Mbit/s": M / 8,
        "Mbits/sec": M / 8, "Mbps": M / 8, "Mb/s": M / 8, "Gbit/s": G / 8, "Gbits/sec": G / 8, "Gbit/sec": G / 8,
        "Gbps": G / 8, "Gb/s": G / 8, "Tbit/s": T / 8, "Gib/s": 2**30 / 8,
    }),
    "time of a byte": ("s/B", {"ns/B": 1 / G, "s/GB": 1 / G, "ns/byte": 1 / G}),
    "flop": ("flop/s", {
        "flop/s": 1, "flops/s": 1, "FLOPS": 1, "Mflop/s": M, "MFLOPS": M, "MFlops": M, "mflops": M, "Gflops": G, "GFLOPS": G,
        "Gflop/s": G, "GFlop/s": G, "GFLOP/s": G, "GF/s": G, "gflops": G, "TFLOPS": T, "TFLOPs": T, "TFLOP/s": T, "Tflops": T,
        "tflops": T, "PFLOPS": 1e15, "PFlop/s": 1e15, "EFLOPS": 1e18,
    }),
    "flop of a GPU": ("flop/s/gpu", {"TFLOP/s/GPU": T, "TFLOPS/GPU": T, "TFLOPs/gpu": T}),
    "power": ("W", {"W": 1, "kW": K, "mW": 1 / K, "MW": M, "Watts": 1}),
    "energy": ("J", {"J": 1, "kJ": K, "Joules": 1, "Wh": 3600, "kWh": 3600 * K}),
    "flop of a watt": ("flop/s/W", {"Gflops/W": G, "GFLOPS/W": G}),
    "energy of a token": ("J/token", {"J/token": 1, "mJ/token": 1 / K}),
    "cycles": ("cycles/B", {"cycles/byte": 1}),
    "no dimension": ("", {"": 1, "%": 0.01, "percent": 0.01, "x": 1}),
}  # fmt: skip
TABLE = [(text, si, factor) for si, texts in SPELLINGS.values() for text, factor in texts.items()]


@pytest.mark.parametrize(("text", "si", "factor"), TABLE, ids=[text for text, *_ in TABLE])
def test_spellings_of_programs(text, si, factor):
    unit = find_unit(text)
    assert (unit.si, unit.factor) == (si, pytest.approx(factor, rel=1e-14))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Gflop/z", "'Gflop/s'"), ("GB/sx", "'GB/s'"), ("mB/s", "'MB/s'"), ("mB", "'MB'"), ("gb/s", "'GB/s'"),
        ("Gbit/sek", "'Gbit/s'"), ("m", "min, or ms"), ("it/m", "min, or ms"), ("tps", "tokens/s or transactions/s"),
        ("M/s", "prefix"), ("Gi/s", "prefix"), ("tokens", "a rate has a time"), ("s/s", "ns/day"), ("/s", "1/s"),
    ],
)  # fmt: skip
def test_an_unknown_unit_is_an_error_with_one_of_its_kind_and_the_list(text, words):
    with pytest.raises(UserError) as refused:
        parse_reader({"rate": {"match": "x", "unit": text}})
    message = str(refused.value)
    assert message.startswith("read.rate.unit: ")
    assert words in message.removesuffix(f" Known units: {KNOWN}.")
    assert message.endswith(f"{KNOWN}.")


@pytest.mark.parametrize(
    "text", ["12/s", "a/b/c/d", "foo/bar", "GBs/s", "\x1b[31m", "s" * 100, "//", "%%", "B B", "\N{KELVIN SIGN}/s"]
)
def test_what_is_no_unit(text):
    with pytest.raises(UserError, match="unknown unit"):
        find_unit(text)


@pytest.mark.parametrize("unit", EXAMPLES)
def test_what_is_suggested_is_known(unit):
    assert find_unit(unit)
