"""Seeded mutations of YAML files."""

import random
import re

SEED = 20261123
SCALARS = [
    "", "~", "null", "true", "no", "-1", "0", "0777", "-0o7", "0x1F", "1e3", "1e400", "-.inf", ".nan", "1:30", "1_000",
    "9" * 40, "9" * 5000, "0." + "9" * 400, "2001-01-01", "2001-01-01 25:61:61", "[]", "{}", "[[]]", "[1, 1]", "{a: 1}",
    "a" * 300, "../../etc/passwd", "/dev/zero", "..", ".", "a/b", "-rf", "--help", "*", "!", "!!int \"\"", "!!float x",
    "!!timestamp no", "!!bool x", "!!binary x", "!!null x", "!!set {a}", "!!omap [a: 1]", "!!str 1", "!foo bar",
    "!!python/object/apply:os.system [touch hacked]", "!!seq {a: 1}", "!!map [a]", '"\\0"', '"a\\nb"', '"\\ud800"',
    '"\\u2028"', '"\\e[31m"', "$(touch hacked)", "`touch hacked`", "${HOME}", "$", "'", "&a [*a]", "*nowhere", "? a",
    "<<: 1", "|\n    a\n    b", ">-\n   x", "%", "@", "a: b: c", "{a: [}", "\t", "\x00", "\x07", "\ufeff", "é" * 40,
    "[" * 200 + "]" * 200, "[" * 3000 + "]" * 3000, str(list(range(2000))), "[1, 2, 4, 8, 16, 32, 64, 128, 256]",
]  # fmt: skip
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]\n" for i in range(9)
)


def mutated(text: str, rng: random.Random) -> str:
    """Return a text with one to three edits: of a value, a key, a line, an indentation or a character."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        lines = text.split("\n")
        place = rng.randrange(len(lines))
        match rng.randrange(8):
            case 0 | 1 | 2:
                lines[place] = re.sub(r":( .*)?$", lambda _: ": " + rng.choice(SCALARS), lines[place], count=1)
            case 3:
                lines[place] = re.sub(r"[\w.]+(?=[\]},]|$)", lambda _: rng.choice(SCALARS), lines[place], count=1)
            case 4:
                lines.insert(place, lines[rng.randrange(len(lines))])
            case 5:
                del lines[place]
            case 6:
                lines[place] = rng.choice(("  ", "\t", "- ", "")) + lines[place].lstrip()
            case 7:
                letter = rng.randrange(len(lines[place]) + 1)
                lines[place] = (
                    lines[place][:letter] + rng.choice("\x00\x1b:{}[]&*!|>'\"%@`#é\u2028-?,") + lines[place][letter:]
                )
        text = "\n".join(lines)
    return text if rng.random() > 0.02 else BOMB + text
