"""What a stack itself sets, as text: image, variables, options of the launcher, and prologue."""

import hashlib
import re

from regatta.core.text import one_line
from regatta.launchers import STACK_KEYS
from regatta.model.frozen import FrozenCampaign, Stack

SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
MOST_FACTS = 3  # of a stack in a line


def shown_variable(name: str, value: object) -> str:
    """Return the value of a variable as one line; of one that may be a secret, a short hash."""
    text = str(value)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:8]}" if SECRET.search(name) else one_line(text)


def stack_facts(stack: Stack) -> list[str]:
    """Return what a stack sets: `image 3f2a1c9d`, `MY_FACTOR=1.25`, `srun --mpi=pmix`, `prologue cuda/12.4`."""
    settings = stack.settings
    found = [f"image {one_line(settings['image_id'])[:8]}"] if settings.get("image_id") else []
    found += [f"{name}={shown_variable(name, value)}" for name, value in (settings.get("env") or {}).items()]
    found += [f"{key} {one_line(' '.join(settings[key]))}" for key in STACK_KEYS if settings.get(key)]
    return found + ([f"prologue {prologue}"] if (prologue := prologue_text(stack)) else [])


def prologue_text(stack: Stack) -> str:
    """Return the steps before each rank of a stack; empty without any."""
    return "; ".join(one_line(" ".join(map(str, step.values()))) for step in stack.settings.get("prologue") or ())


def own_facts(campaign: FrozenCampaign) -> dict[str, list[str]]:
    """Return for each stack what distinguishes it: what not all stacks set; of one stack, what the cluster does not."""
    facts = {cell.stack.name: stack_facts(cell.stack) for cell in campaign.cells}
    sets = [set(of) for of in facts.values()]
    if len(sets) == 1:
        cluster = {key: campaign.cluster.get(key) for key in ("env", "prologue", *STACK_KEYS)}
        sets.append(set(stack_facts(Stack("", cluster))))
    common = set.intersection(*sets) if sets else set()
    return {name: [fact for fact in of if fact not in common] for name, of in facts.items()}


def facts_text(facts: list[str]) -> str:
    """Return the first facts of a stack, and how many more there are."""
    shown = facts if len(facts) <= MOST_FACTS else facts[: MOST_FACTS - 1]
    return ", ".join(shown) + (f" and {len(facts) - len(shown)} more" if len(shown) < len(facts) else "")


def text_without_secrets(campaign: FrozenCampaign) -> str:
    """Return the text of the campaign file with hashes instead of the values of variables that may be secrets."""
    text = campaign.text
    for stack in {cell.stack.name: cell.stack for cell in campaign.cells}.values():
        for name, value in (stack.settings.get("env") or {}).items():
            if SECRET.search(name) and value:
                at = re.compile(rf"({re.escape(name)}['\"]?\s*:\s*['\"]?){re.escape(str(value))}")
                text = at.sub(lambda found, name=name, value=value: found[1] + shown_variable(name, value), text)
    return text
