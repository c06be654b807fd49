"""Slurm's host lists."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regatta.launchers.slurm_queue import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("r[1-2]n[1-2]-ib", ["r1n1-ib", "r1n2-ib", "r2n1-ib", "r2n2-ib"]),
        ("a[01,3],b[2]", ["a01", "a3", "b2"]),
        ("n[9-11]-ib,login.site", ["n9-ib", "n10-ib", "n11-ib", "login.site"]),
        ("n[99-101]", ["n99", "n100", "n101"]),
    ],
)
def test_a_list_of_nodes_is_read_as_slurm_reads_it(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    "text", ["", "n[1-", "n1]", "n[]", "n[a-b]", "n[3-1]", "n[1-9999999999]", "a[1-999]b[1-999]", "n[1,,2]"]
)
def test_what_is_no_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match=r"^'?.*not a (host list|list of|range of)|more nodes than"):
        expand(text)


@given(st.text(max_size=30))
def test_no_text_does_anything_else(text):
    with contextlib.suppress(ValueError):
        assert all(isinstance(name, str) for name in expand(text))
