"""The campaign of a module: in another workflow, `config` of the module is the campaign, and Regatta reads a copy."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import yaml

from regatta.core.errors import UserError

FOLDER = Path(".snakemake/regatta")  # of Snakemake's files in the folder where it runs; a dry run writes it too


def name_of_module(config: object) -> str:
    """Return the name of the campaign that is a module's config. Raises UserError if it cannot be one."""
    if not isinstance(config, Mapping) or not config:
        remedy = "Write `config: config`, or `config: config['regatta']`."
        raise UserError(f"The module of Regatta needs a campaign as its config. {remedy}")
    return str(config.get("name"))


def written_config(config: Mapping) -> Path:
    """Write the config of a module as a campaign file, unless it is there, and return its path.

    Its relative paths are those of a campaign file in the folder where Snakemake runs.
    """
    campaign = _plain(config)
    cluster, entries = campaign.get("cluster"), campaign.get("benchmarks")
    if isinstance(cluster, str) and "/" not in cluster and os.path.isfile(cluster):
        raise UserError(f"cluster = '{cluster}' in the config of Regatta's module is not a name. Write './{cluster}'.")
    for owner in (campaign, *(entries if isinstance(entries, list) else ())):
        for key in ("cluster", "benchmark"):  # relative to the campaign's file; all others to the current folder
            if isinstance(owner, dict) and _is_relative(owner.get(key)):
                owner[key] = os.path.abspath(owner[key])
    try:
        text = yaml.safe_dump(campaign, sort_keys=False, allow_unicode=True)
    except yaml.YAMLError as error:
        raise UserError(f"The config of Regatta's module is not plain data: {' '.join(map(str, error.args))}") from None
    name = re.sub(r"[^\w-]", "_", name_of_module(config))[:100]
    path = FOLDER / f"{name}.yaml"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return path


def _is_relative(text: object) -> bool:
    is_path = isinstance(text, str) and ("/" in text or text.endswith(".py"))
    return is_path and not text.startswith(("/", "~", "$"))


def _plain(value: object) -> object:
    """Return a value in YAML's types: Snakemake's may be subclasses of them."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, str) else value
