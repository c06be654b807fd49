"""The sessions of Regatta's modules. Snakemake reads the rules again for each `use rule` of a module."""

from collections.abc import Sequence

from regatta.campaign.module_config import name_of_module
from regatta.command_line import is_retry_requested
from regatta.core.errors import UserError, ending_on_user_errors
from regatta.job_resources import check_set_resources
from regatta.launchers import launcher_of
from regatta.workflow import MEASURING, Session

_sessions: dict[str, Session] = {}  # by campaign, which is planned and locked once


def session_of(workflow, argv: Sequence[str], config: object) -> Session:
    """Return the session of the rules that are read now: in a module, that of its campaign."""
    if workflow.modifier.is_main_snakefile():
        return Session(workflow, argv, {})
    with ending_on_user_errors():
        name = name_of_module(config)
        if name not in _sessions:
            _sessions[name] = Session(workflow, argv, config)
        elif _sessions[name].config != config:
            raise UserError(f"Two modules of Regatta have a campaign '{name}'. Rename one.")
        session = _sessions[name]
        session.rename_rules()
        if session.plan:
            _check_import(session)
    return session


def _check_import(session: Session) -> None:
    """Raise UserError if the rules that are imported now do not fit the plan."""
    rules, modifier = [session.rules[name] for name in MEASURING], session.workflow.modifier
    launcher = launcher_of(session.plan.campaign.cluster)
    check_set_resources(session.workflow.resource_settings, launcher.jobs, rules)
    if not session.is_retry and is_retry_requested(session.options, session.rules["measure"]):
        raise UserError(f"--forcerun {session.rules['measure']}: import this rule before the others of the module.")
    changed = [name for name in MEASURING if name in (modifier.rule_whitelist or ())]
    if launcher.submits and changed and modifier.ruleinfo_overwrite and modifier.ruleinfo_overwrite.resources:
        remedy = f"Remove it, and use --set-resources {session.rules[changed[0]]}:NAME=VALUE, or the cluster file."
        raise UserError(f"`use rule {changed[0]} ... with: resources:` would replace the number of nodes. {remedy}")
