"""Samples of an output: of which rank, how many, and which the pattern misses. Entered by try_output.py."""

import pytest
from campaign_files import small, write
from test_try_output import program, try_it

TOOK = {"samples": r"took ([\d.]+) ms", "unit": "ms", "better": "smaller"}
BARE = TOOK | {"samples": r"took ([\d.]+)"}
TIMES = [5.013, 5.127, 5.009, 5.228, 5.131, 5.044]
LABELLED = "regatta: each line of a rank begins with its number\n"
BY_SRUN = "regatta: each line of a rank begins with its number (srun --label)\n"


def steps(times: list = TIMES, line: str = "step {n} took {t} ms", times_printed: int = 1) -> list[str]:
    return [line.format(n=n, t=t) for n, t in enumerate(times) for _ in range(times_printed)]


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def with_line(place: int, line: str, lines: list[str] | None = None) -> str:
    lines = lines or steps()
    return text([*lines[:place], line, *lines[place:]])


@pytest.fixture
def tried(tmp_path, capsys, monkeypatch):
    """A function that returns what try_output.py prints of a quantity, and the problems; without any, it passes."""

    def run(output: str, quantity: dict) -> tuple[str, str]:
        path = write(tmp_path, small(cluster="local", benchmarks=[program(read={"step": quantity})]))
        (tmp_path / "old.log").write_text(output)
        status, found, errors = try_it(capsys, monkeypatch, path, tmp_path / "old.log")
        assert status == (2 if errors else 0)
        return found, errors

    return run


GOOD = {
    "one for each step": (text(steps()), TOOK, 6),
    "equal times of a coarse clock": (text(steps([5, 5, 6, 5, 5, 6])), TOOK, 6),
    "equal times without a counter": (text(steps([5, 5, 5, 6, 5, 5], "took {t} ms")), TOOK, 6),
    "iterations of epochs": (text([f"epoch {e} took {t} ms" for e in range(3) for t in (5, 5, 6, 6, 6)]), TOOK, 15),
    "a counter that starts again": (text(steps() + steps(TIMES[::-1])), TOOK, 12),
    "a summary in words": (with_line(6, "mean step took about 5 ms"), TOOK, 6),
    "another line of the same words": (with_line(0, "first step took long"), BARE, 6),
    "selected by what follows": (
        text(steps(line="step {n} took {t} ms (train)") + steps(line="step {n} took {t} ms (eval)")),
        TOOK | {"samples": r"took ([\d.]+) ms \(train\)"},
        6,
    ),
    "as many as expected": (text(steps()), TOOK | {"expected": 6, "drop": 2}, 4),
    "printed twice, as expected": (text(steps(times_printed=2)), TOOK | {"expected": 12}, 12),
    "several in each line": (text([f"a took {t} ms, b took {t + 1} ms" for t in TIMES]), TOOK, 12),
    "of one rank": (LABELLED + text([f"1: {line}" for line in steps()] + ["0: done", "start_ranks: end"]), TOOK, 6),
    "behind colors of tput": (text([f"\x1b[1mtook\x1b(B\x1b[m {t} ms" for t in TIMES]), TOOK, 6),
    "of GPUs of which each iteration names one": (text(steps(line="step {n}, slowest gpu {n}, took {t} ms")), TOOK, 6),
    "of epochs in brackets": (text([f"[{e}] step {n} took {t} ms" for e in (0, 1) for n, t in enumerate(TIMES)]), TOOK, 12),
    "beside a long line": (with_line(2, "x" * 25_000), TOOK, 6),
    "at the beginning of a long line": (with_line(6, "step 6 took 5.1 ms" + "." * 25_000), TOOK, 7),
    "beside one in a long line, as many as expected": (
        with_line(2, "x" * 25_000 + " took 5.1 ms"),
        TOOK | {"expected": 6},
        6,
    ),
    "resumed with other times": (text(steps() + steps(line="step {n} took 9{t} ms")[4:]), TOOK, 8),
    "of one rank that names others": (text(steps(line="rank 0 step {n} took {t} ms, slowest rank {n}")), TOOK, 6),
    "of an iteration whose number is in front": (text(steps(line="{n}: took {t} ms")), TOOK, 6),
    "with progress bars": ("\r".join(steps()) + "\n", TOOK, 6),
    "at the beginning of labelled lines": (
        LABELLED + text([f" 0: {t} ms" for t in TIMES]),
        TOOK | {"samples": r"^([\d.]+) ms$"},
        6,
    ),
    "in a line that srun divides": (
        BY_SRUN + text(["0: " + "step 1 took 5.0".rjust(1024, "x"), "1: other", "0: 13 ms"]),
        TOOK,
        1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_samples_that_are_right_are_read(tried, name):
    output, quantity, num = GOOD[name]
    found, errors = tried(output, quantity)
    assert errors == ""
    assert f"gives {num} sample" in found


def ranks(lines: list[list[str]], prefix: str) -> str:
    """Return the lines of ranks in turn."""
    return text([prefix.format(rank) + line for of in zip(*lines, strict=True) for rank, line in enumerate(of)])


TWO = [steps(), steps([t + 1 for t in TIMES])]
MATCH = {"match": r"triad ([\d.]+)", "unit": "MB/s", "better": "larger"}
TRIAD = "rank {} triad {}\n"
BAD = {
    "another notation": (with_line(3, "step 9 took 1.5e-3 ms"), TOOK, "'1.5e-3' (line 4)"),
    "not a number": (with_line(3, "step 9 took nan ms"), TOOK, "'nan' (line 4)"),
    "negative": (with_line(3, "step 9 took -5.1 ms"), TOOK, "'-5.1' (line 4)"),
    "asterisks of Fortran": (with_line(3, "step 9 took ****** ms"), TOOK, "'******' (line 4)"),
    "a duration": (with_line(3, "step 9 took 1:02 ms"), TOOK, "'1:02' (line 4)"),
    "in other places": (
        text(["5.1 tokens/s", "nan tokens/s"]),
        {"samples": r"([\d.]+) tokens/s", "unit": "tokens/s", "better": "larger"},
        "'nan' (line 2)",
    ),
    "torn at the end": (text(steps()) + "step 6 took 5.1", TOOK, "'5.1' (line 7)"),
    "torn by another rank": (with_line(3, "step 3 took 5.step 3 took 5.2 ms"), TOOK, "(line 4)"),
    "torn, without a unit": (with_line(3, "step 3 took 5.step 3 took 5.2", steps() * 2), BARE, "line 4: several"),
    "each twice": (text(steps(times_printed=2)), TOOK, "each is printed 2 times (lines 1, 2)"),
    "each three times, without a counter": (text(steps(line="took {t} ms", times_printed=3)), TOOK, "3 times"),
    "one twice": (with_line(3, steps()[2]), TOOK, "line 4: already printed"),
    "the last twice": (with_line(6, steps()[5]), TOOK, "line 7: already printed"),
    "some again after a restart": (text(steps() + steps()[3:]), TOOK, "lines 7, 8, 9: already printed"),
    "each in two logs": (
        text([f"{prefix}{line}" for line in steps() for prefix in ("", "INFO:root:")]),
        TOOK,
        "each is printed 2 times (lines 1, 2)",
    ),
    "one twice and one torn, as many as expected": (
        with_line(3, steps()[2]) + "step 6 took 5.1",
        TOOK | {"expected": 7},
        "'5.1' (line 8); line 4: already printed",
    ),
    "behind the end of what is read of a line": (
        text([" ".join(steps(TIMES * 200))]),
        TOOK,
        "of line 1. Only",
    ),
    "the only ones there, on a labelled line": (
        LABELLED + f"1: {'x' * 25_000} took 5.1 ms\n",
        TOOK,
        "'5.1' is after the first 10,000 characters of line 2",
    ),
    "of ranks with clocks": (
        text([f"12:00:0{n}.{rank} step {n} took {t + rank} ms" for n, t in enumerate(TIMES) for rank in (0, 1)]),
        TOOK,
        "2 times with different numbers (lines 1, 2)",
    ),
    "of ranks that name themselves in the middle": (
        text([f"step {n} (rank {rank}) took {t + rank} ms" for n, t in enumerate(TIMES) for rank in (0, 1)]),
        TOOK,
        "2 times with different numbers (lines 1, 2)",
    ),
    "of mpiexec -l": (
        text([f"[{rank}] step {n} took {t + rank} ms" for n, t in enumerate(TIMES) for rank in (0, 1)]),
        TOOK,
        "2 times with different numbers (lines 1, 2)",
    ),
    "of ranks of a logger": (
        text([f"2026-01-01 12:00:00,5 [Rank {rank}] step {n} took 5 ms" for n in range(3) for rank in (0, 1)]),
        TOOK,
        "printed on 2 ranks: 0 (line 1), 1 (line 2)",
    ),
    "one number at the end of what is read of a line": ("x" * 9_990 + " triad 1234.5\n", MATCH, "'1234.5' is after"),
    "of ranks without labels": (ranks(TWO, ""), TOOK, "2 times with different numbers (lines 1, 2)"),
    "fewer than expected": (text(steps()), TOOK | {"expected": 7}, "6 samples, 7 expected"),
    "more than expected": (text(steps(times_printed=2)), TOOK | {"expected": 6}, "12 samples, 6 expected; each is"),
    "of labelled ranks": (LABELLED + ranks(TWO, "{}: "), TOOK, "printed on 2 ranks: 0 (line 2), 1 (line 3)"),
    "of torchrun's ranks": (ranks(TWO, "[rank{}]:"), TOOK, "printed on 2 ranks: 0 (line 1), 1 (line 2)"),
    "of torchrun --tee": (ranks(TWO, "[default{}]:"), TOOK, "printed on 2 ranks"),
    "of mpirun --tag-output": (ranks(TWO, "[1,{}]<stdout>:"), TOOK, "printed on 2 ranks"),
    "one number of each rank": (
        "".join(TRIAD.format(rank, rate) for rank, rate in enumerate([15000.0, 7400.0, 14900.0, 15100.0])),
        MATCH,
        "printed on 4 ranks: 0 (line 1), 1 (line 2), 2 (line 3), 3 (line 4)",
    ),
    "one equal number of each rank": (LABELLED + "0: triad 5\n1: triad 5\n", MATCH, "printed on 2 ranks"),
    "one number of who knows": ("triad 5\ntriad 6\n", MATCH, "print it on one rank"),
    "one number in another notation": ("triad -5\n", MATCH, "'-5' (line 1)"),
}


@pytest.mark.parametrize("name", BAD)
def test_samples_that_may_be_wrong_are_named_and_fail(tried, name):
    output, quantity, words = BAD[name]
    _, errors = tried(output, quantity)
    assert words in errors


@pytest.mark.parametrize("name", ["another notation", "each twice", "fewer than expected", "of labelled ranks"])
def test_the_message_says_what_to_do(tried, wording, name):
    output, quantity, _ = BAD[name]
    wording(tried(output, quantity)[1])


def test_many_matches_of_a_large_output_are_read_in_time(tried):
    found, errors = tried("".join(f"step {n} took {n}.5 ms\n" for n in range(200_000)), TOOK)
    assert (errors, "gives 200000 samples" in found.replace(",", "")) == ("", True)
