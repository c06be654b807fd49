"""What the GPUs of a launch are called, and which arithmetic torch lets them use: columns of measurements.csv."""

SETTINGS = ("allow_tf32_matmul", "allow_tf32_cudnn")


def device_of(header: dict) -> dict[str, object]:
    """Return the columns of a launch file's first line. gpu: the name that all its GPUs bear, unknown where they differ."""
    environment = header.get("environment") or {}
    gpus, settings = environment.get("gpus"), environment.get("settings")
    told = [gpu.get("name") if isinstance(gpu, dict) else None for gpu in gpus] if isinstance(gpus, list) else []
    names = {name if isinstance(name, str) else None for name in told}
    [name] = names if len(names) == 1 else [None]
    settings = settings if isinstance(settings, dict) else {}
    allowed = {setting: settings.get(setting) for setting in SETTINGS}
    return {
        "gpu": name,
        **{setting: value if isinstance(value, bool) else None for setting, value in allowed.items()},
    }
