"""The checks of first_run.sh: what only a GPU can show, computed from its records. Standard library only.

A check is ok, fail or unknown (what it needs was not measured). On a CPU, those that need a GPU are unknown.
"""

import json
import statistics
from pathlib import Path

MAX_RATIO_PIPELINED = 1.02  # a pipelined step over a blocking one, median over records
MFU_RANGE = (0.01, 1.0)
COMPARISON_RANGE = (0.95, 1.05)  # train_step over the plain loop
SMALL, LARGE = {"batch_size": 16}, {"batch_size": 64}  # of the campaign: for fp32, and for overheads
# Others are optional: a GPU may lack ECC, a driver the durations of throttling.
COUNTERS = ("sm_clock_min_mhz", "sm_clock_max_mhz", "temperature_c", "power_limit_w", "throttle_reasons")


def read_records(results: Path) -> list[dict]:
    """Return the last record of each cell and repeat, with the environment of its launch."""
    found = {}
    for path in sorted((results / "launches").glob("*.jsonl")):
        header = {}
        for text in path.read_text(errors="replace").splitlines():
            try:
                line = json.loads(text)
                if line["kind"] == "launch":
                    header = line
                elif line["kind"] == "record":
                    record = line | {"stack": header.get("stack"), "environment": header.get("environment") or {}}
                    found[line["cell"], line["repeat"]] = record
            except (ValueError, TypeError, KeyError):  # torn by external termination, or damaged: collect.py names it
                continue
    return list(found.values())


def preflight_facts(seen: dict | None) -> dict | None:
    """Return what the preflight saw, in short."""
    if seen is None:
        return None
    backends = {entry["backend"]: entry["cause"] or "ok" for entry in seen["backends"]}
    device = seen["ranks"][0]["device"] if seen["ranks"] else None
    return {"placement": seen["placement_problems"], "backends": backends, "device": device}


def run_all(found: dict, records: list[dict], results: Path, device: str) -> list[dict]:
    """Return all checks, each with name, outcome and what was found."""
    ok = [record for record in records if record.get("status") == "ok"]
    steps = [record for record in ok if (record.get("spec") or {}).get("benchmark") == "train_step"]
    done = [guarded(check_records, records, results), guarded(check_preflight, found), guarded(check_tests, found)]
    done += [guarded(check_layout, found, name) for name in found.get("layouts", ())]
    if device == "cuda":
        done += [guarded(check, ok) for check in (check_environment, check_memory, check_settings, check_counters)]
        done += [guarded(check_pipelined, steps), guarded(check_mfu, steps, results), guarded(check_comparison, found)]
        done += [
            guarded(check_faster, steps, "bf16 is faster than fp32", model, slow, fast)
            for model, slow, fast in (
                ("lm_small", plain("fp32") | SMALL, plain("bf16") | SMALL),
                ("resnet50", plain("fp32"), plain("bf16")),
            )
        ]
        done += [
            guarded(check_faster, steps, name, model, slow, fast)
            for name, model, slow, fast in (
                ("TF32 makes matrix products faster", "lm_small", plain("fp32") | SMALL, plain("fp32", "tf32") | SMALL),
                ("TF32 makes convolutions faster", "resnet50", plain("fp32", "no_tf32"), plain("fp32")),
                (
                    "torch.compile is faster",
                    "lm_small",
                    plain("bf16") | SMALL,
                    plain("bf16") | SMALL | {"compile": True},
                ),
            )
        ]
        done += [guarded(check_overhead, steps, strategy) for strategy in ("ddp", "bucketed", "fsdp")]
    return [{"name": name, "outcome": outcome, "found": text} for name, outcome, text in done]


def guarded(check, *arguments) -> tuple[str, str, str]:
    """Return what a check found; unknown with the reason if it raises, so that one record does not end the run."""
    try:
        return check(*arguments)
    except Exception as error:  # broad: records from a GPU may have any form
        name = " ".join([check.__name__, *(word for word in arguments if isinstance(word, str))])
        return name, "unknown", f"{type(error).__name__}: {error}"


def plain(dtype: str, stack: str = "host") -> dict:
    """Return the settings of a step without strategy and options."""
    return {"dtype": dtype, "stack": stack, "strategy": "none", "compile": False, "channels_last": (None, False)}


def settings_of(record: dict) -> dict:
    return {**record["spec"]["parameters"], "stack": record["stack"]}


def matching(steps: list[dict], model: str, wanted: dict) -> list[dict]:
    found = []
    for record in steps:
        settings = settings_of(record)
        pairs = [(settings[key], value if isinstance(value, tuple) else (value,)) for key, value in wanted.items()]
        if settings["model"] == model and all(value in allowed for value, allowed in pairs):
            found.append(record)
    return found


def step_ms(records: list[dict]) -> float | None:
    """Return the median of the records' pipelined step times; None without any."""
    times = [
        statistics.median(max(of_window) for of_window in zip(*record["windows"]["elapsed_ns"], strict=True))
        / record["windows"]["steps_per_window"]
        / 1e6
        for record in records
        if record["windows"]
    ]
    return statistics.median(times) if times else None


def verdict(is_good: bool | None) -> str:
    return "unknown" if is_good is None else "ok" if is_good else "fail"


def check_records(records: list[dict], results: Path) -> tuple[str, str, str]:
    batches = [json.loads(path.read_text()) for path in results.glob("batches/*/batch.json")]
    planned = {
        (cell, launch["repeat"]) for batch in batches for launch in batch["launches"] for cell in launch["cells"]
    }
    num_ok = sum(record["status"] == "ok" for record in records)
    text = f"{num_ok} ok, {len(records) - num_ok} not ok, {len(planned) - len(records)} of {len(planned)} not measured"
    return "Every measured cell is ok", verdict(num_ok == len(records) if records else None), text


def check_preflight(found: dict) -> tuple[str, str, str]:
    facts = found["preflight"]
    if facts is None:
        return "All backends pass the preflight", "unknown", "no preflight"
    is_good = not facts["placement"] and set(facts["backends"].values()) == {"ok"}
    return "All backends pass the preflight", verdict(is_good), json.dumps(facts)


def check_tests(found: dict) -> tuple[str, str, str]:
    outcomes = [test["outcome"] for test in found["tests"]]
    counts = {name: outcomes.count(name) for name in dict.fromkeys(outcomes)}
    failed = [test["test"] for test in found["tests"] if test["outcome"] == "failed"]
    is_known = failed or "passed" in outcomes  # skipped tests show nothing
    return "Tests", verdict(not failed if is_known else None), f"{counts} {' '.join(failed)}".strip()


def check_layout(found: dict, name: str) -> tuple[str, str, str]:
    """Check the paths of several ranks on one GPU: each record as expected, results checked, no process left."""
    seen, title = found["layouts"][name], f"Layout {name}"
    if seen is None:
        return title, "unknown", "not run"
    facts = f"{len(seen['records'])} records"
    if seen["preflight"]:
        facts += f", preflight {json.dumps(seen['preflight'])}"
    wrong = seen.get("problems", ["ended early"])
    return title, verdict(not wrong), "; ".join([*wrong, facts])


def check_pipelined(steps: list[dict]) -> tuple[str, str, str]:
    """Without waiting for the device after each step, a step takes no longer: the median over records, as one may be
    noisy."""
    ratios = []
    for record in steps:
        if record["samples_ns"] and record["windows"]:
            blocking = statistics.median(max(of_step) for of_step in zip(*record["samples_ns"], strict=True)) / 1e6
            ratios.append((step_ms([record]) / blocking, record["cell"]))
    name = "A pipelined step takes no longer than a blocking one"
    if not ratios:
        return name, "unknown", "no records"
    median = statistics.median(ratio for ratio, _ in ratios)
    text = f"median {median:.3f}, at most {max(ratios)[0]:.3f} ({max(ratios)[1]})"
    return name, verdict(median <= MAX_RATIO_PIPELINED), text


def check_environment(ok: list[dict]) -> tuple[str, str, str]:
    name = "GPU, driver, CUDA, NCCL and cuDNN are named"
    if not ok:
        return name, "unknown", "no records"
    found = ok[0]["environment"]
    gpu = found["gpus"][0] if found["gpus"] else {}
    facts = {key: found[key] for key in ("driver", "cuda", "nccl", "cudnn")}
    facts |= {key: gpu.get(key) for key in ("name", "uuid", "capability", "memory_bytes")}
    facts |= {part: any(part in path for path in found["libraries"]) for part in ("libnccl", "libcudart", "libcudnn")}
    return name, verdict(all(facts.values())), json.dumps(facts)


def check_memory(ok: list[dict]) -> tuple[str, str, str]:
    """The allocator's peaks are ordered, and below what the whole device uses."""
    name, keys = (
        "Allocated <= reserved <= used memory",
        ("peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes"),
    )
    wrong = []
    for record in ok:
        values = [(record["memory"].get(key) or [None])[0] for key in keys]
        if None in values or sorted(values) != values:
            wrong.append(f"{record['cell']}: {values}")
    return name, verdict(not wrong if ok else None), "; ".join(wrong[:3]) or f"{len(ok)} records"


def check_settings(ok: list[dict]) -> tuple[str, str, str]:
    """The stacks' variables arrive at torch, and are recorded."""
    wanted = {"host": (False, True), "tf32": (True, True), "no_tf32": (False, False)}
    found = {}
    for record in ok:
        settings = record["environment"].get("settings", {})
        found[record["stack"]] = (settings.get("allow_tf32_matmul"), settings.get("allow_tf32_cudnn"))
    wrong = {stack: values for stack, values in found.items() if values != wanted.get(stack)}
    return "TF32 settings match the stacks", verdict(not wrong if found else None), json.dumps(wrong or found)


def check_counters(ok: list[dict]) -> tuple[str, str, str]:
    """The counters that every GPU has are in the record; others are listed if unknown."""
    loads = [record["host_load"] for record in ok if record.get("host_load")]
    if not loads:
        return "Counters of the GPU are recorded", "unknown", "no record has host_load"
    gpus = [entry for load in loads for entry in load.get("gpus") or []]
    unknown = {name: why for entry in gpus for name, why in (entry.get("unknown") or {}).items()}
    is_good = bool(gpus) and all(entry.get(name) is not None for entry in gpus for name in COUNTERS)
    shown = json.dumps({"first": gpus[0] if gpus else None, "unknown": unknown})
    return "Counters of the GPU are recorded", verdict(is_good), shown


def check_mfu(steps: list[dict], results: Path) -> tuple[str, str, str]:
    """FLOP/s are below the GPU's peak and not absurdly low."""
    name = "FLOP/s are plausible"
    batches = [json.loads(path.read_text()) for path in results.glob("batches/*/batch.json")]
    peaks = {(peak["device"], peak["dtype"]): peak["tflop_per_s"] for b in batches for peak in b["cluster"]["peaks"]}
    found = {}
    for record in steps:
        gpus, settings = record["environment"].get("gpus") or [{}], settings_of(record)
        math = settings["dtype"]
        allowed = record["environment"].get("settings", {})
        if math == "fp32" and (
            allowed.get("allow_tf32_matmul") or (allowed.get("allow_tf32_cudnn") and settings["image_size"])
        ):
            math = "tf32"
        peak, flops = peaks.get((gpus[0].get("name"), math)), record["values"].get("flops_per_sample")
        if peak and flops and record["windows"]:
            rate = flops * settings["batch_size"] / step_ms([record]) / 1e9
            found[f"{record['cell']} {math}"] = round(rate / peak, 3)
    if not found:
        return name, "unknown", "no peak of this GPU in the cluster file, or no records"
    is_good = all(MFU_RANGE[0] < ratio < MFU_RANGE[1] for ratio in found.values())
    return name, verdict(is_good), json.dumps(found)


def check_comparison(found: dict) -> tuple[str, str, str]:
    name, result = "train_step time matches a plain loop", found["comparison"]
    if not result:
        return name, "unknown", "not compared"
    is_good = COMPARISON_RANGE[0] <= result["ratio"] <= COMPARISON_RANGE[1]
    text = f"ratio {result['ratio']:.4f}, 95 % interval {result['low']:.4f} to {result['high']:.4f}"
    return name, verdict(is_good), text


def check_faster(steps: list[dict], name: str, model: str, slow: dict, fast: dict) -> tuple[str, str, str]:
    before, after = step_ms(matching(steps, model, slow)), step_ms(matching(steps, model, fast))
    if before is None or after is None:
        return f"{name} ({model})", "unknown", "not measured"
    return f"{name} ({model})", verdict(after < before), f"{before:.2f} ms -> {after:.2f} ms"


def check_overhead(steps: list[dict], strategy: str) -> tuple[str, str, str]:
    """Check that a strategy adds at most 50 % to the step on one GPU."""
    name = f"{strategy} on one GPU costs at most half a step (lm_small, bf16)"
    base = step_ms(matching(steps, "lm_small", plain("bf16") | LARGE))
    found = step_ms(matching(steps, "lm_small", plain("bf16") | LARGE | {"strategy": strategy}))
    if base is None or found is None:
        return name, "unknown", "not measured"
    return name, verdict(found / base < 1.5), f"{found / base:.3f} of the step without"


def text_of(found: dict) -> str:
    """Return the content of summary.txt."""
    facts = found["environment"] or {}
    lines = [f"first run on {facts.get('gpu') or found['device']}, torch {facts.get('torch')}: "
             f"{'passed' if found['passed'] else 'failed'} in {found['seconds']:.0f} s", ""]  # fmt: skip
    lines += [f"{stage['outcome']:24} {stage['seconds']:6.1f} s  {stage['name']}" for stage in found["stages"]] + [""]
    lines += [f"{check['outcome']:8} {check['name']}: {check['found']}" for check in found["checks"]] + [""]
    lines += [f"{record['status']}: {record['cell']}: {record['cause']}" for record in found["records"]["failed"]]
    lines += [f"failed: {test['test']}\n{test['reason']}" for test in found["tests"] if test["outcome"] == "failed"]
    return "\n".join(lines) + "\n"
