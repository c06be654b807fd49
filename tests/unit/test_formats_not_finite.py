"""Numbers of JSON that are not finite: refused where they are used, and nowhere else."""

import re

import pytest
from formats_files import ALL, NEEDS, read_text, run_script, text_of

from regatta.compare.campaigns import read_campaign
from regatta.core.errors import UserError
from regatta.formats.base import Options

JSON = [name for name in ALL if name.endswith((".json", ".jsonl", ".log"))]
VALUES = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "null", '[NaN, {"a": Infinity}]']
# A value that is read, as the file has it, and how a message names it.
USED = [
    ("ddp-2x4.json", "0.023112154", r"measurements\[0\]"),
    ("ddp-2x4.json", '"batch_size": 32', "batch_size"),
    ("nccl-summary.json", '"iterations": 20', "iterations"),
    ("nccl-per-iteration.json", '"ngpus":1', "ngpus"),
    ("suite-4gpu.json", '"time_ms": 0.0883', "time_ms"),
    ("suite-4gpu.json", '"world_size": 4', "world_size"),
    ("rccl-mpi.json", '"time": 40.0', "time"),
    ("superbench.jsonl", '"nccl-bw:default/allreduce_1048576_time:0": 40.0', "allreduce_1048576_time"),
    ("mlperf.log", '"time_ms": 1745926100010', "time_ms"),
    ("mlperf.log", '"key": "global_batch_size", "value": 16', "global_batch_size"),
    ("mlperf.log", '"value": "llama2_70b_lora"', "submission_benchmark"),
]


def with_unused(text: str, value: str) -> str:
    """Return JSON in which each object has one key more."""
    return re.sub(r"\{(?=\s*\")", f'{{"loss_of_another_key": {value}, ', text)


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", JSON)
def test_a_number_that_no_reader_uses_may_be_anything(name, value):
    if name in ("suite-4gpu.json", "exported-suite.json", "exported-ddp.json"):  # in which each key is a cell
        text = text_of(name).replace("{", f'{{"another_key": {value}, ', 1)
    else:
        text = with_unused(text_of(name), value)
    options = NEEDS.get(name, Options())
    found = read_text(text, name, options)
    assert found.readings == read_text(text_of(name), name, options).readings


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(("name", "old", "key"), USED)
def test_a_number_that_is_used_must_be_finite(name, old, key, value):
    assert old in text_of(name)
    text = text_of(name).replace(old, re.sub(r'("[^"]*"|[\d.]+)$', value, old), 1)
    with pytest.raises(UserError, match=key):
        read_text(text, name, NEEDS.get(name, Options()))


EVENT = ':::MLLOG {{"time_ms": {}, "event_type": "POINT_IN_TIME", "key": "{}", "value": {}, "metadata": null}}\n'


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "null"])
def test_a_log_with_a_loss_that_is_no_number_has_its_time_to_train(tmp_path, value):
    """From 2000 to 9000 ms: 7 s."""
    lines = [
        (1000, "submission_benchmark", '"deepcam"'),
        (1001, "global_batch_size", "64"),
        (2000, "run_start", "null"),
    ]
    lines += [(3000, "eval_loss", "1.25"), (4000, "eval_loss", value), (value, "eval_time", "1"), (5000, "seed", value)]
    text = "".join(EVENT.format(*line) for line in lines if value != "null" or line[0] != value)
    stop = EVENT.format(9000, "run_stop", "null").replace('"metadata": null', '"metadata": {"status": "success"}')
    (tmp_path / "result_0.txt").write_text(text + stop)
    words = ("result_0.txt", "--nodes", 1, "--gpus-per-node", 4, "--campaign", "c")
    done = run_script("import_results.py", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = read_campaign(tmp_path / "results" / "c").measurements
    assert rows[["status", "p50_s"]].values.tolist() == [["ok", 7.0]]
