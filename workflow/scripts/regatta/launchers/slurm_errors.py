"""Classify errors of sbatch: which are temporary, and which a user must fix.

The texts are those of Slurm 20 to 26 (slurm_errno.c), strerror(3), munge, and sites' job submit plugins, which print
additional lines. The last line of sbatch decides, unless it does not state the cause.
"""

import re
from typing import Literal

ErrorKind = Literal["permanent", "temporary", "limit"]  # limit: on the number of jobs, until some of them end

NO_ID = "sbatch printed no job id"  # but may have submitted the job
LAST_LINE = re.compile(r"\b(?:submission|submit\S*|allocation|allocate) (?:failed|failure): *(.+)", re.IGNORECASE)
TEMPORARY = re.compile(
    # the controller: network, name resolution, load
    r"Unable to contact slurm|Zero Bytes were|Unexpected message received|Message (?:send|receive) failure|"
    r"Communication \w+ failure|Insane message length|Header lengths are longer|missing socket|"
    r"(?:in|out)going file descriptor|(?:Read|Write) would block|timed[ -]?out|no answer within|"
    r"Connection (?:rejected|forced closed|refused|reset|aborted)|No route to host|Network is (?:unreachable|down)|"
    r"Host is down|Broken pipe|endpoint is not connected|connection abort|Cannot assign requested address|"
    r"Operation now in progress|Interrupted system call|Resource temporarily unavailable|Cannot allocate memory|"
    r"No buffer space|Too many open files|Stale (?:NFS )?file handle|Device or resource busy|Text file busy|"
    r"Unable to resolve|name resolution|Name or service not known|Unknown host|Host name lookup|"
    r"SRV lookup failed|failed to fetch config|establish (?:a )?(?:configuration|control)|"
    r"Can't find (?:an )?address|can't be reached now|I/O error writing script|Unable to create job record|"
    r"job queue full|MaxJobCount|Rate limit|backup controller|standby mode|ended by signal|"
    # authentication: munged restarts, brief clock skew
    r"authentication error|Invalid authentication credential|credential (?:expired|replayed)|Cannot unpack credential|"
    r"(?:Expired|Replayed|Rewound) credential|Token Generation failed|Error generating job credential|"
    r"Munge (?:en|de)code failed|Unable to authenticate|"
    # the database
    r"Unable to connect to database|Database connection|slurm_persist_conn|"
    # resources
    r"Requested nodes are busy|currently unavailable|presently disabled|"
    r"submissions? (?:\w+ ){0,3}(?:disabled|suspended|paused)|"
    r"not usable now|(?:reservation|ports) (?:is|are) in use|inactive or drain|in DOWN state|"
    r"down, drained or reserved|attempts deferred|Waiting for burst buffer|still running|powered up nodes|"
    r"temporarily (?:unable|un\w+|disabled|closed|suspended|down|limited)|"
    r"(?<![/'\"])maintenance(?![/'\"])|"  # no name, and no address of a page
    r"(?:try|retry|submit|resubmit)(?: again)?(?: in (?:a|\d+)\b| later| momentarily| shortly)|"
    r"too many requests|please (?:re)?try again\.?$",
    re.IGNORECASE | re.MULTILINE,
)
NUM_OF_OTHERS = (
    r"(?:\d|number of|more|many) ?(?:node|core|cpu|gpu|task|min|hour)|(?:node|core|cpu|gpu|task) count|size|--[a-z]"
)
JOB_LIMIT = re.compile(
    r"SubmitJob|MaxJobs|GrpJobs|JobsAccrue|job submit limit(?!, user)|"
    rf"^(?!.*(?:{NUM_OF_OTHERS})).*(?:"  # a line about the number of jobs, in the words of a site
    r"number of (?:\w+ ){0,3}jobs|too many (?:\w+ ){0,3}jobs|\bmax\w* jobs|\bjobs? (?:per user|limit)\b|"
    r"(?:submitted|queued|pending|running|simultaneous|active|concurrent) jobs|"
    r"(?:only|limit of|than|have|most) (?:one|two|\d+) (?:\w+ ){0,2}jobs?\b)",
    re.IGNORECASE | re.MULTILINE,
)
POLICY = "violates accounting/QOS policy"  # the last line for all kinds of limits
OTHER_LIMIT = re.compile(  # on the size of a request or on a budget: waiting does not help
    r"\b(?:QOS|Assoc|Part)\w*(?:Max|Min|Grp|Not|Invalid)\w+|\bMax\w+PerAccount|number of (?!jobs)\w+s\b|"
    r"exceed|exhaust|budget|balance|insufficient|expired|invalid|"
    r"not (?:allowed|permitted|authori[sz]ed|enough)|too (?:long|large|big)|wall ?(?:time|clock)|time ?limit",
    re.IGNORECASE,
)
# Last lines without a cause: when a submit plugin rejects a job, the lines before state it; or the number was lost.
OF_PLUGIN = re.compile(
    r"Unspecified error|Access/permission denied|presently disabled|Generic error|No error", re.IGNORECASE
)
# Command-line errors contain the user's values, which may match other patterns.
COMMAND_LINE = re.compile(
    r"^(?:sbatch: )?(?:error: |fatal: )?(?:invalid|unrecognized|unknown|no cluster|bad)\b", re.I | re.M
)


def kind_of_error(message: str) -> ErrorKind:
    """Return whether sbatch may accept the same job later, judging by its output."""
    if message.startswith(NO_ID):
        return "temporary"
    last = ([*LAST_LINE.finditer(message)] or [None])[-1]
    if last is None:
        if COMMAND_LINE.search(message):
            return "permanent"
        return "limit" if JOB_LIMIT.search(message) else "temporary" if TEMPORARY.search(message) else "permanent"
    cause, before = last[1], message[: last.start()]
    if POLICY in cause:
        is_other = OTHER_LIMIT.search(before) and not JOB_LIMIT.search(before)
        return "permanent" if is_other and not TEMPORARY.search(before) else "limit"
    if OF_PLUGIN.search(cause):
        if JOB_LIMIT.search(before):
            return "limit"
        cause = f"{before}\n{cause}"
    return "temporary" if TEMPORARY.search(cause) else "permanent"
