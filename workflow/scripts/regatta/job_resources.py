"""What the jobs of the rules `measure` and `preflight` request, as resources of Snakemake.

A value of --set-resources beats the cluster file, which beats --default-resources. What decides the ranks of a cell
comes from the campaign and the cluster file alone.
"""

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import replace

from snakemake.resources import Resources

from regatta.core.errors import UserError
from regatta.launchers import launcher_of
from regatta.launchers.base import Geometry, Jobs

NAMES = ("nodes", "runtime", "longest", "most_jobs", "options")  # of each launcher that submits
Place = Callable[[object], tuple[Geometry, float, list]]  # of wildcards: place, minutes, groups of nodes to avoid


def refused_by(jobs: Jobs, name: str) -> str | None:
    """Return the keys that decide a resource which nothing else may set, or None."""
    return next((keys for pattern, keys in jobs.refused_resources.items() if re.fullmatch(pattern, name)), None)


def check_set_resources(settings, jobs: Jobs, rules: Iterable[str]) -> None:
    """Raise UserError if --set-resources or --set-threads of one of these rules differs from what is planned."""
    for rule in rules:
        if rule in settings.overwrite_threads and (keys := refused_by(jobs, "cpus_per_task")):
            raise UserError(f"--set-threads {rule} is refused, because it follows from {keys}. Edit that instead.")
        for name in settings.overwrite_resources.get(rule, {}):
            if keys := refused_by(jobs, name):
                why = f"is refused, because it follows from {keys}"
                raise UserError(f"--set-resources {rule}:{name} {why}. Edit that, and remove the option.")


def ignored_defaults(settings, jobs: Jobs) -> list[str]:
    """Return the names in --default-resources, except Snakemake's, that have no effect on what is measured."""
    usual = Resources.default("full")
    given = settings._parsed_default_resources.items()
    return [name for name, value in given if refused_by(jobs, name) and usual.get(name).raw != value.raw]


def of_site(settings, rule: str, cluster: dict) -> dict:
    """Return a cluster with the constant values of the command line, for checks before any job is known."""

    def constant(resources: Resources, name: str) -> object:
        return None if resources.get(name).is_evaluable() else resources.get(name).value

    return _with_requests(settings, rule, cluster, constant)


def resources_of_jobs(workflow, rule: str, most_jobs: int | None, jobs: Jobs, place: Place) -> dict[str, Callable]:
    """Return functions, which Snakemake calls for each job and attempt.

    nodes: counted by --resources nodes. runtime, longest: minutes. most_jobs: in the queue, 0 for no limit. options: of
    the scheduler, quoted for a shell. The others are those of other executors for this scheduler.
    """
    settings = workflow.resource_settings
    latest: tuple[object, dict] = (None, {})  # Snakemake asks for all resources of a job in a row

    def of_job(wildcards, **known) -> dict:
        def value(resources: Resources, name: str) -> object:
            return resources.get(name).evaluate(wildcards, **known).value

        geometry, minutes, avoid = place(wildcards)
        geometry = replace(geometry, cluster=_with_requests(settings, rule, geometry.cluster, value))
        cluster, attempt = geometry.cluster, known["attempt"]
        runtime = value(_set_resources(settings, rule), "runtime") or jobs.walltime_minutes(cluster, minutes, attempt)
        options = jobs.options(geometry, minutes, avoid, attempt, runtime)
        return {
            "nodes": geometry.nodes,
            "runtime": runtime,
            "longest": cluster["max_walltime_minutes"],
            "most_jobs": most_jobs or 0,
            "options": shlex.join(options),
            **{name: cluster[key] for name, key in jobs.resource_keys.items()},
            **jobs.resources(geometry, options),
        }

    def function(name: str) -> Callable:
        def of_name(wildcards, **known):  # known: input, threads, attempt and others, which an expression may use
            nonlocal latest
            found, key = latest, (str(wildcards), known["attempt"])
            if name == NAMES[0] or found[0] != key:
                found = latest = (key, of_job(wildcards, **known))
            return found[1].get(name)

        return of_name

    return {name: function(name) for name in (*NAMES, *jobs.resource_keys, *jobs.resource_names)}


def _set_resources(settings, rule: str) -> Resources:
    return settings._parsed_overwrite_resources.get(rule) or Resources()


def _with_requests(settings, rule: str, cluster: dict, value: Callable[[Resources, str], object]) -> dict:
    given, default = _set_resources(settings, rule), settings._parsed_default_resources
    keys = launcher_of(cluster).jobs.resource_keys
    found = {key: value(given, name) or cluster[key] or value(default, name) for name, key in keys.items()}
    return cluster | {key: word if word is None else str(word) for key, word in found.items()}
