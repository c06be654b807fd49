"""Reading YAML: every unusable file is rejected with file, line, value and remedy."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.campaign.yaml_file import read_yaml
from regatta.core.errors import UserError
from regatta.core.schemas import place


def refusal(folder, content: str | bytes) -> str:
    path = folder / "c.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    return str(caught.value).replace(f"{folder}/", "")


def read(folder, content: str):
    path = folder / "c.yaml"
    path.write_text(content, encoding="utf-8")
    return read_yaml(path)


def test_every_key_and_item_has_its_line(tmp_path):
    file = read(tmp_path, "a: 1\nb:\n  - x\n  - y: 2\n")
    assert file.data == {"a": 1, "b": ["x", {"y": 2}]}
    assert file.lines == {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 1): 4, ("b", 1, "y"): 4}
    assert file.at(("b", 1, "y", "not there")) == f"{tmp_path}/c.yaml:4"


def test_a_place_is_written_as_people_write_it():
    assert place(("benchmarks", 0, "parameters", "model", 1)) == "benchmarks[0].parameters.model[1]"


def test_a_whole_float_is_a_whole_number(tmp_path):
    data = read(tmp_path, "a: 25.0\nb: 0.5\nc: 1.0e+3\n").data
    assert data == {"a": 25, "b": 0.5, "c": 1000}
    assert [type(value) for value in data.values()] == [int, float, int]


def test_texts_keep_what_yaml_would_change(tmp_path):
    file = read(tmp_path, 'a: 1.10\nenv: {b: 010}\nc: "yes"\n')
    assert [file.texts[where] for where in (("a",), ("env", "b"), ("c",))] == ["1.10", "010", "yes"]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("0777", "YAML reads it as the octal number 511"),
        ("-010", "YAML reads it as the octal number -8"),
        ("1:30", "YAML reads it as the base-60 number 90"),
        ('!!int ""', "it is not a valid int"),
        ("!!timestamp no", "it is not a valid timestamp"),
        ("!!bool x", "it is not a valid bool"),
        ("9007199254740993", "it is larger than 2^53"),
        ('"a\\0b"', "it contains a NUL character"),
        ("1e400", None),
        ("." + "9" * 400, None),
        ("9" * 5000, "Exceeds the limit (4300 digits) for integer string conversion"),
    ],
)
def test_ambiguous_or_unrepresentable_values_are_rejected(tmp_path, value, reason):
    if reason is None:  # a string for YAML 1.1, or a number
        assert read(tmp_path, f"a: {value}\n").data
    else:
        assert refusal(tmp_path, f"x: 1\na: {value}\n").startswith("c.yaml:2: a = ")
        assert reason in refusal(tmp_path, f"x: 1\na: {value}\n")


def test_alias_expansion_is_limited(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    expected = "c.yaml:5: a4 expands to more than 100,000 values, aliases (*name) included. Remove nested aliases, or shorten its"
    expected += " lists."
    assert refusal(tmp_path, "\n".join(lines)) == expected


@pytest.mark.parametrize("value", ["!!set {a}", "!!omap [a: 1]", "!mine [a]", "!!python/tuple [a]"])
def test_tags_of_lists_and_mappings_are_refused(tmp_path, value, wording):
    wording(refusal(tmp_path, f"x: 1\na: {value}\n"))


def test_a_pipe_is_refused_instead_of_read(tmp_path, wording):
    os.mkfifo(tmp_path / "c.yaml")
    with wording.raises(UserError):
        read_yaml(tmp_path / "c.yaml")


def test_oversized_file_is_rejected_without_reading(tmp_path, wording):
    with (tmp_path / "c.yaml").open("wb") as file:
        file.truncate(2**40)
    with wording.raises(UserError):
        read_yaml(tmp_path / "c.yaml")


def test_keys_are_texts_even_where_yaml_has_a_type_for_them(tmp_path):
    assert read(tmp_path, "1: a\nno: b\nnull: c\n").data == {"1": "a", "no": "b", "null": "c"}


def test_a_merged_mapping_may_be_overridden_and_used_again(tmp_path):
    text = "base: &base {kind: host, python: a}\nx: &x\n  <<: *base\n  python: b\ny: *x\n"
    data = read(tmp_path, text).data
    assert data["x"] == data["y"] == {"kind": "host", "python": "b"}


UNUSABLE = [
    "a: 1\nb: 2\na: 3\n",
    "s:\n  - {x: 1, x: 2}\n",
    "a: 1\nb: .nan\n",
    "a: [1, -.inf]\n",
    "a: 2026-01-31\n",
    "a: 2026-13-45\n",
    "a: 12:00:00\n",
    "a: !!binary aGk=\n",
    'a: 1\nb: "\\ud800"\n',
    "a: 1\nb: &b [1, *b]\n",
    "a: 1\n? [x, y]\n: 2\n",
    "a: 1\n\tb: 2\n",
    "a: [1, 2\nb: 3\n",
    "a: [--n={n}]\n",
    "a: 1\n---\nb: 2\n",
    "a: *nowhere\n",
    "a: 1\nb: \t\n  - 1\n",
    "",
    "# only\n",
    "\n- a\n",
    "hello",
    "a: 1\nb: \0\n",
    b"a: 1\nb: \xff\xfe",
    b"\x7fELF\x02\x01\x01\0",
    "a: " + 5000 * "[",
]


@pytest.mark.parametrize("content", UNUSABLE, ids=[f"file {index}" for index in range(len(UNUSABLE))])
def test_a_file_that_cannot_be_used_is_refused_with_line_value_and_remedy(tmp_path, content, wording):
    wording(refusal(tmp_path, content))


def test_all_values_that_cannot_be_used_are_named_together_in_file_order(tmp_path):
    lines = refusal(tmp_path, "a: .nan\nb: 1\nb: 2\nc: 2026-01-31\n").splitlines()
    assert [line.split(" ")[0] for line in lines] == ["c.yaml:1:", "c.yaml:3:", "c.yaml:4:"]


def test_a_long_value_is_shortened_in_the_message(tmp_path, wording):
    message = refusal(tmp_path, "a: " + 5000 * "9")
    wording(message)


def test_a_file_that_is_not_there_is_refused(tmp_path, wording):
    with pytest.raises(UserError) as caught:
        read_yaml(tmp_path / "none.yaml")
    wording(str(caught.value))


def test_a_folder_is_refused(tmp_path, wording):
    with pytest.raises(UserError) as caught:
        read_yaml(tmp_path)
    wording(str(caught.value))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_without_permission_is_refused(tmp_path, wording):
    path = tmp_path / "c.yaml"
    path.write_text("a: 1\n")
    path.chmod(0)
    with wording.raises(UserError):
        read_yaml(path)


def assert_read_or_refused(path):
    try:
        outcome = read_yaml(path).data
    except UserError as error:
        outcome = error
    assert isinstance(outcome, dict) or str(outcome).startswith(f"{path}:")


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    assert_read_or_refused(path)


@given(st.text(alphabet="ab:- \n\t[]{}&*<!?'\"#,|>0.1e_~", max_size=40))
def test_no_text_near_yaml_raises_anything_but_a_user_error(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "near.yaml"
    path.write_text(content, encoding="utf-8")
    assert_read_or_refused(path)
