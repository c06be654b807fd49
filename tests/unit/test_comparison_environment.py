import json
import re

import pandas as pd
from comparison_results import cell_of
from synthetic import make_campaign, make_header
from typed import typed

from regatta.model.frozen import Cell
from regatta.report.page import read_headers
from regatta.tables.facts import NOT_KNOWN, differences, differences_by_stack, facts_of

CELL = cell_of("contained")


def header(repeat=0, **environment):
    return make_header(make_campaign([CELL]), f"n01g02-0-l{repeat:03d}-a00", repeat, [CELL], "2026-11-21T03:00:00Z", **environment)  # fmt: skip


def differing(*sides, cells=((), ())):
    found = differences(*(facts_of(headers, own) for headers, own in zip(sides, cells, strict=True)))
    return [(difference.name, difference.reference, difference.other) for difference in found]


def test_equal_environments_do_not_differ():
    assert differing([header(0), header(1)], [header(2)]) == []


def test_versions_that_differ_are_shown_with_all_their_values():
    [(name, *sides)] = differing([header(0, torch="2.1"), header(1, torch="2.2")], [header(torch="2.1")])
    assert (name, re.findall(r"(\S+) in 1", sides[0]), sides[1]) == ("torch", ["2.1", "2.2"], "2.1")


def test_a_side_of_214_launches_with_one_other_driver_differs_in_that_one():
    launches = [header(repeat, driver="550.54" if repeat == 77 else "570.86") for repeat in range(214)]
    [(name, *sides)] = differing(launches, [header(driver="570.86")])
    assert re.findall(r"(\S+) in (\d+)", sides[0]) == [("570.86", "213"), ("550.54", "1")]
    assert (name, sides[1]) == ("driver", "570.86")


def test_a_library_is_named_with_both_paths_and_a_missing_one_is_not_loaded():
    reference = header(libraries=["/usr/lib/libnccl.so.2.20", "/usr/lib/libm.so.6"])
    other = header(libraries=["/host/lib/libnccl.so.2.27", "/host/lib/libfabric.so.1", "/usr/lib/libm.so.6"])
    assert differing([reference], [other]) == [
        ("libnccl", "/usr/lib/libnccl.so.2.20", "/host/lib/libnccl.so.2.27"),
        ("libfabric", "not loaded", "/host/lib/libfabric.so.1"),
    ]


def test_other_libraries_are_counted():
    reference, other = (header(libraries=[f"/lib/lib{i}.so" for i in range(num)]) for num in (3, 5))
    assert differing([reference], [other]) == [("other libraries", "3 files", "5 files")]


def test_variables_that_differ_in_each_launch_are_left_out():
    reference = header(variables={"NCCL_NET": "Socket", "MASTER_PORT": "1", "SLURM_JOB_ID": "7"})
    other = header(variables={"OMP_NUM_THREADS": "4", "MASTER_PORT": "2", "SLURM_JOB_ID": "8"})
    assert differing([reference], [other]) == [
        ("variable NCCL_NET", "Socket", "not set"),
        ("variable OMP_NUM_THREADS", "not set", "4"),
    ]


def test_what_only_one_side_knows_is_no_difference_and_is_named():
    assert differing([header(driver="580.1")], [header(driver=None)]) == [(NOT_KNOWN, "nothing", "driver")]
    assert differing([header()], [header() | {"environment": None}])[0][:2] == (NOT_KNOWN, "nothing")
    [(name, reference, other)] = differing([header()], [])
    assert (name, reference) == (NOT_KNOWN, "nothing")
    versions = {"commit", "torch", "torchvision", "python version", "kernel"}
    machine = {"CPU", "cores per host", "threads per rank", "hosts"}
    assert set(other.split(", ")) == versions | machine | {"libraries", "settings", "variables"}


def test_stacks_differ_in_image_and_binds_and_none_is_an_answer():
    cells = [typed(cell_of(stack)) for stack in ("contained", "bound")]
    assert differing([header()], [header()], cells=([cells[0]], [cells[1]])) == [("binds", "none", "/opt/lib:/host")]


def test_stacks_differ_in_what_they_set_also_where_ranks_record_no_variables():
    """Ranks of programs have an empty list of variables; one recorded by ranks is not repeated."""
    one, other = (cell_of(stack) for stack in ("contained", "contained"))
    one["spec"]["stack"] |= {"env": {"MY_FACTOR": "1.0", "MY_KEY": "a"}, "prologue": [{"module": "cuda/12.4"}]}
    other["spec"]["stack"] |= {"env": {"MY_FACTOR": "1.25", "MY_KEY": "b", "OMP_NUM_THREADS": "2"}}
    one, other = typed(one), typed(other)
    sides = [[header(variables={})], [header(variables={"OMP_NUM_THREADS": "2"})]]
    assert differing(*sides, cells=([one], [other])) == [
        ("prologue", "cuda/12.4", "none"),
        ("variable MY_FACTOR", "1.0", "1.25"),
        ("variable MY_KEY", "sha256:ca978112", "sha256:3e23e816"),  # of a and b
        ("variable OMP_NUM_THREADS", "not set", "2"),
    ]


def test_stacks_differ_in_what_their_scripts_hold():
    stack = CELL["spec"]["stack"]
    stacks = [stack, *(stack | {"scripts": {"python": digest}} for digest in ("1f", "2e"))]
    without, *cells = (Cell("a", CELL["spec"] | {"stack": stack}) for stack in stacks)
    assert differing([], [], cells=([cells[0]], [cells[1]])) == [("scripts", "python=1f", "python=2e")]
    assert differing([], [], cells=([cells[0]], [without])) == [("scripts", "python=1f", "none")]


def test_long_lists_of_values_are_cut():
    hosts = [{"host": f"n{i}", "ranks": [i], "devices": ["cpu"]} for i in range(5)]
    found = {name: (a, b) for name, a, b in differing([header(hosts=hosts)], [header(hosts=hosts[:1])])}
    assert (re.findall(r"n\d|\d more", found["hosts"][0]), found["hosts"][1]) == (["n0", "n1", "3 more"], "n0")


def test_a_hostile_value_stays_one_line():
    assert differing([header(torch="2.1\nfaster: all")], [header(torch="2.2")])[0][1].count("\n") == 0


def test_what_differs_in_every_stack_is_said_once():
    versions = (("contained", "2.1", "3"), ("bound", "2.1", "2")), (("contained", "2.2", "3"), ("bound", "2.2", "3"))
    campaigns = [
        facts_of([header(torch=torch, driver=driver) | {"stack": stack} for stack, torch, driver in of], [])
        for of in versions
    ]
    assert [(d.name, d.reference, d.other) for d in differences_by_stack(*campaigns)] == [
        ("torch", "2.1", "2.2"), ("driver (stack bound)", "2", "3"),
    ]  # fmt: skip
    assert differences_by_stack(campaigns[0][:0], campaigns[1]) is None


def test_headers_are_read_without_the_lines_behind_and_bad_ones_are_left_out(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(json.dumps(header()).encode() + b"\n\xff torn")
    (tmp_path / "b.jsonl").write_text('{"kind": "launch"}\n', encoding="utf-8")
    assert [found["launch"] for found in read_headers(tmp_path, pd.DataFrame({"launch": ["a", "b", "gone"]}))] == [
        "n01g02-0-l000-a00"
    ]
