// A stand-in for the SPANK plugins Pyxis, CSCS's Container Engine and uenv, which tests cannot install. It has their
// options, callbacks, environment rules and error messages; enter_image.py makes the mounts. plugstack.conf names both:
//   required PLUGIN PYTHON ENTER_IMAGE
// As in Pyxis, tasks join the container's mount namespace in task_init, and errors of its start are reported there.
// As in uenv, slurmstepd unshares its mount namespace in init_post_opt, and UENV_MOUNT_LIST alone carries the images.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <slurm/slurm.h>
#include <slurm/spank.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis, 1)

enum { IMAGE, MOUNTS, WORKDIR, NAME, ENV, ENVIRONMENT, UENV, VIEW, PASSTHROUGH, NUM_OPTIONS = 16 };
static const char *const names[NUM_OPTIONS] = {
    "container-image", "container-mounts", "container-workdir", "container-name", "container-env", // as PYXIS_... too
    "environment", "uenv", "view", "uenv-passthrough",
    "container-mount-home", "no-container-mount-home", "no-container-entrypoint", "no-container-remap-root", // no value
    "container-remap-root", "container-writable", "container-readonly"};
static char *given[NUM_OPTIONS]; // values of the options, "" of those without
static char answer[1 << 16];     // of enter_image.py: records that end with NUL, the last one empty
static int container = -1;       // its mount namespace

static int take_option(int i, const char *value, int remote) {
    (void)remote;
    if (given[i] && value && strcmp(given[i], value) && (i == IMAGE || i == WORKDIR || i == NAME)) {
        slurm_error("pyxis: --%s specified multiple times", names[i]);
        return -1;
    }
    free(given[i]);
    given[i] = strdup(value ? value : "");
    return 0;
}

int slurm_spank_init(spank_t sp, int ac, char **av) {
    (void)ac, (void)av;
    for (int i = 0; i < NUM_OPTIONS; i++) {
        int has_value = i <= PASSTHROUGH;
        char *shown = has_value ? "VALUE" : NULL;
        struct spank_option option = {(char *)names[i], shown, "stand-in", has_value, i, take_option};
        if (spank_option_register(sp, &option)) return -1;
    }
    return 0;
}

// ---- In srun, sbatch and salloc: uenv turns its options into variables of the tasks.

static int check_images(const char *list, const char *message) {
    char *copy = strdup(list);
    for (char *item = strtok(copy, ","); item; item = strtok(NULL, ",")) {
        struct stat found;
        char *image = strndup(item, strcspn(item, ":"));
        if (stat(image, &found) || !S_ISREG(found.st_mode)) {
            const char *problem = "is not a regular file";
            slurm_error("%sinvalid squashfs mount %s - invalid squashfs %s (%s)", message, item, image, problem);
            return -1;
        }
    }
    return 0;
}

static int set_variables(void) {
    for (int i = MOUNTS; i <= WORKDIR; i++)
        if (given[i] && !given[IMAGE] && !given[NAME] && !getenv("PYXIS_CONTAINER_IMAGE")) // tasks run on the host
            slurm_error("pyxis: ignoring --%s because neither --container-image nor --container-name is set", names[i]);
    const char *word = given[PASSTHROUGH] ? given[PASSTHROUGH] : spank_context() == S_CTX_LOCAL ? "use" : "disable";
    const char *inherited = getenv("UENV_MOUNT_LIST");
    if (!given[UENV]) {
        if (given[VIEW]) {
            slurm_error("the uenv --view=%s argument is set, but the --uenv argument was not", given[VIEW]);
            return -1;
        }
        if (!inherited) return 0;
        if (!strcmp(word, "ignore")) return unsetenv("UENV_MOUNT_LIST");
        if (!strcmp(word, "use")) return check_images(inherited, "invalid UENV_MOUNT_LIST: ");
        slurm_error("Calling sbatch/salloc from inside a uenv session is disabled by default.");
        return -1;
    }
    char *has_mount = strchr(given[UENV], ':'), *list, *path;
    if (asprintf(&list, "%s%s", given[UENV], has_mount ? "" : ":/user-environment") < 0) return -1;
    if (check_images(list, "")) return -1;
    setenv("UENV_MOUNT_LIST", list, 1);
    if (!given[VIEW]) return 0;
    if (asprintf(&path, "%s/env/%s/bin:%s", strchr(list, ':') + 1, given[VIEW], getenv("PATH")) < 0) return -1;
    return setenv("PATH", path, 1);
}

// ---- In slurmstepd

static const char *find(char **environment, const char *start) {
    for (; environment && *environment; environment++)
        if (!strncmp(*environment, start, strlen(start))) return *environment;
    return NULL;
}

static int run_helper(spank_t sp, char **environment, char **av) {
    char *argv[NUM_OPTIONS + 6] = {av[0], "-I", av[1]}, *minimal[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
    char **script;
    int n = 3, to[2], from[2], num_words;
    uint32_t step = 0;
    uid_t uid = 0;
    spank_get_item(sp, S_JOB_STEPID, &step);
    spank_get_item(sp, S_JOB_UID, &uid);
    if (asprintf(&argv[n++], "uid=%u", uid) < 0) return -1;
    if (step == SLURM_BATCH_SCRIPT && !spank_get_item(sp, S_JOB_ARGV, &num_words, &script) &&
        asprintf(&argv[n++], "script=%s", script[0]) < 0)
        return -1;
    for (int i = 0; i < NUM_OPTIONS; i++)
        if (given[i] && asprintf(&argv[n++], "%s=%s", names[i], given[i]) < 0) return -1;

    posix_spawn_file_actions_t actions;
    pid_t pid;
    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC)) return -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to[0], 0);
    posix_spawn_file_actions_adddup2(&actions, from[1], 1);
    if (posix_spawn(&pid, av[0], &actions, NULL, argv, minimal)) return -1;
    close(to[0]), close(from[1]);
    for (; environment && *environment; environment++) dprintf(to[1], "%s%c", *environment, 0);
    dprintf(to[1], "%c", 0);

    size_t length = 0;
    ssize_t got;
    while (length < sizeof(answer) && (got = read(from[0], answer + length, sizeof(answer) - length)) > 0) {
        length += (size_t)got;
        if (!answer[length - 1] && (length == 1 || !answer[length - 2])) break;
    }
    waitpid(pid, NULL, 0); // its first process; the second serves FUSE until slurmstepd exits, which closes to[1]
    for (char *record = answer; *record; record += strlen(record) + 1) {
        char path[32];
        if (*record == 'x') slurm_error("%s", record + 1);
        if (*record == 'x') return -1;
        if (*record != 'n') continue;
        snprintf(path, sizeof(path), "/proc/%s/ns/mnt", record + 1);
        container = open(path, O_RDONLY | O_CLOEXEC);
    }
    dprintf(to[1], "\n");
    close(from[0]);
    return length ? 0 : -1;
}

int slurm_spank_init_post_opt(spank_t sp, int ac, char **av) {
    if (spank_context() == S_CTX_LOCAL || spank_context() == S_CTX_ALLOCATOR) return set_variables();
    if (spank_context() != S_CTX_REMOTE || ac < 2) return 0;
    char **environment = NULL;
    spank_get_item(sp, S_JOB_ENV, &environment);
    int has_uenv = find(environment, "UENV_MOUNT_LIST=") != NULL;
    int has_container = given[IMAGE] || given[NAME] || given[ENVIRONMENT];
    has_container |= find(environment, "PYXIS_CONTAINER_IMAGE=") != NULL;
    if (!has_uenv && !has_container) return 0;
    if (has_uenv && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL))) {
        slurm_error("Failed to unshare the mount namespace");
        return -1;
    }
    return run_helper(sp, environment, av);
}

static int set_capabilities(uint32_t wanted) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{wanted, wanted, 0}, {0, 0, 0}};
    return (int)syscall(SYS_capset, &header, data);
}

// The task becomes its user before task_init, where Pyxis has the capabilities of the container's user namespace. The
// stand-in has none, so the task keeps those of root until then.
int slurm_spank_task_init_privileged(spank_t sp, int ac, char **av) {
    (void)sp, (void)ac, (void)av;
    return container < 0 ? 0 : prctl(PR_SET_KEEPCAPS, 1);
}

int slurm_spank_task_init(spank_t sp, int ac, char **av) {
    (void)ac, (void)av;
    const char *workdir = "/";
    int has_failed = 0, task = 0;
    spank_get_item(sp, S_TASK_ID, &task);
    for (char *record = answer; *record; record += strlen(record) + 1) {
        char kind = *record, *name = strndup(record + 1, strcspn(record + 1, "=")), task_value[32];
        const char *value = record + 1 + strlen(name) + 1;
        if (kind == 'e' && !task) slurm_error("%s", record + 1);
        if (kind == 'e') has_failed = 1;
        if (kind == 'w') workdir = record + 1;
        if (kind == '-') spank_unsetenv(sp, name);
        if (kind == '=' || kind == '?') spank_setenv(sp, name, value, kind == '=');
        if (kind == 'c' && !spank_getenv(sp, value, task_value, sizeof(task_value)))
            spank_setenv(sp, name, task_value, 1);
        free(name);
    }
    if (has_failed && task) slurm_error("pyxis: container was not started successfully by another task");
    if (has_failed) return -1;
    if (container < 0) return 0;
    uint32_t needed = 1 << CAP_SYS_ADMIN | 1 << CAP_SYS_CHROOT;
    if (set_capabilities(needed) || setns(container, CLONE_NEWNS) || set_capabilities(0)) {
        slurm_error("pyxis: couldn't join mount namespace: %s", strerror(errno));
        return -1;
    }
    if (chdir(workdir)) {
        slurm_error("pyxis: couldn't chdir to %s: %s", workdir, strerror(errno));
        return -1;
    }
    return 0;
}
