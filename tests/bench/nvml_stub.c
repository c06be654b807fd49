/* A libnvidia-ml.so.1 for tests. NVML_STUB chooses what it does: normal (default), errors, hang, crash, counting,
   unavailable. Compiled with -DOLD it has the names of old drivers; with -DBARE only nvmlInit and the clock. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int nvmlReturn_t;
typedef struct device *nvmlDevice_t;
typedef struct {
    unsigned long long referenceTime, violationTime;
} nvmlViolationTime_t;

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, GPU_IS_LOST = 15 };
static unsigned long long calls; /* of the clock: one for each reading */

static int is(const char *mode) {
    const char *chosen = getenv("NVML_STUB");
    return chosen != NULL && strcmp(chosen, mode) == 0;
}

static nvmlReturn_t result(void) {
    if (is("errors"))
        return NOT_SUPPORTED;
    if (is("lost"))
        return GPU_IS_LOST;
    return SUCCESS;
}

#if defined(OLD) || defined(BARE)
nvmlReturn_t nvmlInit(void) {
#else
nvmlReturn_t nvmlInit_v2(void) {
#endif
    if (is("hang"))
        sleep(600);
    if (is("crash"))
        abort();
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    *device = (nvmlDevice_t)0x1234;
    return strcmp(uuid, "GPU-1") == 0 ? SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    if (device != (nvmlDevice_t)0x1234 || type != 1)
        return NOT_FOUND;
    calls += 1;
    if (is("crash later") && calls > 1)
        abort();
    if (is("hang later") && calls > 1)
        sleep(600);
    *mhz = is("unavailable") ? 0xffffffffu : 2000 - 10 * (unsigned)calls; /* 1990, 1980, ... */
    return result();
}

#ifndef BARE
nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius) {
    (void)device;
    *celsius = 40 + (unsigned)calls + (unsigned)sensor; /* 41, 42, ... */
    return result();
}

#ifdef OLD
nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatt) {
#else
nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatt) {
#endif
    (void)device;
    *milliwatt = 699500;
    return result();
}

#ifdef OLD
nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *bits) {
#else
nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *bits) {
#endif
    (void)device;
    *bits = calls == 2 ? 0x4 : calls == 3 ? 0x40 | 0x1000 : 0x1; /* power cap, then heat and an unknown one */
    return result();
}

nvmlReturn_t nvmlDeviceGetViolationStatus(nvmlDevice_t device, int policy, nvmlViolationTime_t *time) {
    (void)device;
    time->referenceTime = 1000;
    time->violationTime = 100 * (unsigned)(policy + 1) * calls; /* power 100, heat 200, board limit 400 per reading */
    return result();
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter, unsigned long long *number) {
    (void)device;
    *number = counter != 0 ? 0 : type == 0 ? 5 + calls : 7; /* volatile: one more corrected error per reading */
    return type == 1 && is("no ecc") ? NOT_SUPPORTED : result();
}
#endif
