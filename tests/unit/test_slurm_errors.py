"""What sbatch prints when it rejects a job: whether the job is submitted again."""

import pytest

from regatta.launchers.slurm_errors import kind_of_error

FAILED = "sbatch: error: Batch job submission failed: "
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
# Texts of slurm_errno.c (26.05) and strerror(3), as the last line of sbatch.
TEMPORARY = """\
Unexpected message received
Communication connection failure
Message send failure
Message receive failure
Communication shutdown failure
Protocol authentication error
Insane message length
Can't find an address, check slurm.conf
Unexpected missing socket error
Connection rejected by handler
Connection timed out establishing
Connection timed out reading
Unable to contact slurm controller (connect failure)
Unable to contact slurm controller (receive failure)
Rate limit exceeded, please retry momentarily
Rate limit exceeded, please retry later
MaxJobCount limit reached
Unable to create job record, try again
Requested nodes are busy
I/O error writing script/environment to file
Error generating job credential
Slurm backup controller in standby mode
Controller is in standby mode, try a different controller
Requested operation is presently disabled
System submissions disabled
Licenses currently unavailable
Requested reservation not usable now
Required node not available (down, drained or reserved)
Required partition not available (inactive or drain)
Partition in DOWN state
Job can not start due to maintenance reservation.
Header lengths are longer than data received
Socket timed out on send/recv operation
Zero Bytes were transmitted or received
Invalid authentication credential
Authentication credential expired
Unable to connect to database
Connection refused
Connection timed out
Connection reset by peer
No route to host
Network is unreachable
Broken pipe
Transport endpoint is not connected
Cannot assign requested address
Resource temporarily unavailable
Operation now in progress
Interrupted system call
Cannot allocate memory
""".splitlines()
PERMANENT = """\
Requested node configuration is not available
Invalid account or account/partition combination specified
Invalid qos specification
Invalid partition name specified
Invalid user id
Invalid feature specification
Invalid generic resource (gres) specification
Invalid Trackable RESource (TRES) specification
Invalid license specification
Invalid wckey specification
Invalid node name specified
Invalid job array specification
No partition specified or system default partition
User's group not permitted to use this partition
Access/permission denied
Access denied to requested reservation
Requested reservation is invalid
Requested nodes not in this partition
More processors requested than permitted
Node count specification invalid
CPU count specification invalid
Memory required by task is not available
Memory specification can not be satisfied
Requested time limit is invalid (missing or exceeds some limit)
Time limit specification required, but not provided
Requested partition configuration not available now
Incompatible versions of client and server code
Job dependency problem
Pathname of a file, directory or other parameter too long
Unspecified error
Burst Buffer request invalid
Insufficient GRES available in allocation
No space left on device
Invalid argument
""".splitlines()

SITES_ON_JOBS = """\
You have reached the limit of 20 jobs per user
You already have 10 jobs in the queue (max 10)
Job limit reached for partition debug
Only one job per user may be in the debug queue
Only 1 job is allowed in the debug queue at a time
Too many jobs on the gpu nodes
You can only have 5 jobs in this partition
""".splitlines()
SITES_ON_REQUESTS = """\
Jobs in debug are limited to 15 minutes. Reduce the time limit and resubmit
The maximum walltime for jobs in debug is 15 minutes
GPU jobs must request at least 1 GPU; all jobs need an account
Number of cores for jobs must be a multiple of 36
Node count 64 exceeds the limit of 16 nodes for running jobs in debug
Use of more than 4 nodes requires a reservation for large running jobs
Max jobs size is 4 nodes
Do not use --comment: it is set for running jobs by the site
See https://docs.site.edu/maintenance/jobs for what is allowed
Partition 'maintenance' is for administrators
Please specify an account and try again
""".splitlines()
SITES_ON_TODAY = """\
The scheduler is being restarted. Retry in 5 minutes
No license server. Please try again.
The file system is under maintenance
Job submission is currently suspended
""".splitlines()
SIZES = """\
Job would exceed the maximum number of nodes for jobs in this qos
The maximum number of GPUs per job in this qos is 8
MaxNodePerAccount
MaxGRESPerAccount
""".splitlines()


@pytest.mark.parametrize("text", TEMPORARY)
def test_errors_that_pass(text):
    assert kind_of_error(FAILED + text) == "temporary"


@pytest.mark.parametrize("text", PERMANENT)
def test_errors_that_a_user_must_correct(text):
    assert kind_of_error(FAILED + text) == "permanent"


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        # without the last line
        ("sbatch: error: invalid partition specified: gpus", "permanent"),
        ("sbatch: error: invalid partition specified: MaxJobs Connection refused", "permanent"),
        ("sbatch: unrecognized option '--Socket timed out'\nTry \"sbatch --help\" for more information", "permanent"),
        ("sbatch: error: Memory specification can not be satisfied", "permanent"),
        ("sbatch: error: Invalid --distribution specification", "permanent"),
        ("sbatch: fatal: --mem, --mem-per-cpu, and --mem-per-gpu are mutually exclusive.", "permanent"),
        ("sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying", "temporary"),
        ("sbatch: error: Slurm job queue full, sleeping and retrying", "temporary"),
        ("sbatch: Job creation temporarily disabled, retrying", "temporary"),
        ("sbatch: no answer within 600 s", "temporary"),
        ("sbatch: ended by signal 9", "temporary"),
        ("sbatch: No such file or directory", "permanent"),
        ("", "permanent"),
        (
            "sbatch: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n"
            "sbatch: error: fetch_config: DNS SRV lookup failed\n"
            "sbatch: error: _establish_config_source: failed to fetch config\n"
            "sbatch: fatal: Could not establish a configuration source",
            "temporary",
        ),
        ("sbatch: error: get_addr_info: getaddrinfo() failed: Temporary failure in name resolution", "temporary"),
        ("sbatch: error: 'blue' can't be reached now, or it is an invalid entry for --cluster.", "temporary"),
        (
            "sbatch: error: No cluster 'blue' known by database.\nsbatch: error: 'blue' can't be reached now, or it is"
            " an invalid entry for --cluster.",
            "permanent",
        ),
        # The last line decides: earlier ones are about attempts, or are remarks of a site.
        (f"sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying\n{FAILED}Invalid qos", "permanent"),
        (f"sbatch: lua: walltime exceeds 12 h: partition set to long\n{FAILED}Socket timed out on send/recv", "temporary"),
        (f"sbatch: error: If munged is up, restart with --num-threads=10\nsbatch: error: Munge encode failed: Failed to "
         f"connect to \"/run/munge/munge.socket.2\": Connection refused\n{FAILED}Protocol authentication error", "temporary"),
        (f"{FAILED}Socket timed out on send/recv operation\n{FAILED}Invalid qos specification", "permanent"),
        # limits, by the reason before the last line
        (f"{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: QOSMaxSubmitJobPerUserLimit\n{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: AssocMaxSubmitJobLimit\n{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: AssocGrpSubmitJobsLimit\n{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: QOSGrpJobsLimit\n{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: QOSMaxWallDurationPerJobLimit\n{FAILED}{POLICY}", "permanent"),
        (f"sbatch: error: QOSMaxCpuPerUserLimit\n{FAILED}{POLICY}", "permanent"),
        (f"sbatch: error: QOSGrpGRES\n{FAILED}{POLICY}", "permanent"),
        (f"sbatch: error: AssocGrpCPUMinutesLimit\n{FAILED}{POLICY}", "permanent"),
        (f"sbatch: error: QOSMinGRES\n{FAILED}{POLICY}", "permanent"),
        (f"sbatch: error: lua: partition gpu selected\n{FAILED}{POLICY}", "limit"),
        (f"sbatch: error: Your project's budget is exhausted\n{FAILED}{POLICY}", "permanent"),
        # submit plugins of sites
        (f"sbatch: error: You must specify an account (-A) and try again\n{FAILED}Unspecified error", "permanent"),
        (f"sbatch: error: The system is in maintenance. Please try again later\n{FAILED}Unspecified error", "temporary"),
        (f"sbatch: error: job_submit failed: try again in 5 minutes\n{FAILED}Unspecified error", "temporary"),
        (f'sbatch: error: slurm_set_addr: Unable to resolve "ctld"\n{FAILED}No error', "temporary"),
        (f"sbatch: error: At most 2 queued jobs in QOS debug\n{FAILED}Unspecified error", "limit"),
        (f"sbatch: error: lua: GPU jobs need --gres\n{FAILED}Access/permission denied", "permanent"),
        ("sbatch: error: Job cost estimated at 12.80 NERSC hours, your balance is 0\nsbatch: error: Job submit/allocate"
         " failed: Unspecified error", "permanent"),
        ("--> Verifying job request is within current queue limits...FAILED\n [*] Too many simultaneous jobs in queue.\n"
         " --> Max job limits for user = 50 jobs", "limit"),
        # words of sites for a number of jobs, and for other numbers
        *((f"sbatch: error: {text}\n{FAILED}Unspecified error", "limit") for text in SITES_ON_JOBS),
        *((f"sbatch: error: {text}\n{FAILED}Unspecified error", "permanent") for text in SITES_ON_REQUESTS),
        *((f"sbatch: error: {text}\n{FAILED}Unspecified error", "temporary") for text in SITES_ON_TODAY),
        *((f"sbatch: error: {text}\n{FAILED}{POLICY}", "permanent") for text in SIZES),
    ],
)  # fmt: skip
def test_the_last_line_decides_unless_it_says_nothing(message, kind):
    assert kind_of_error(message) == kind
