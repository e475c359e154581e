/* A stand-in for NVIDIA's libnvidia-ml.so.1: the calls that the agent makes, with NVIDIA's names and layouts. Built with
 * IXML defined, it stands in for Iluvatar's libixml.so, which has some of these calls and ixmlDeviceGetHealth.
 *
 * What the devices answer stands in the file that NVML_STANDIN names, or in ANSWERS of the build, which is read at each
 * call, one answer a line:
 *
 *     3 rows_pending 1        of GPU 3, for one call's answer; "none" for what it does not support
 *     3 error 15              all calls of GPU 3 return this error; handle_error: it gives no handle
 *     * count 8               of the node; init_error: nvmlInit returns it; hang NAME: that call never returns
 *
 * Source of names, numbers and layouts: NVIDIA, NVML API reference (nvml.h); Deep-Spark/go-ixml, pkg/ixml/api.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ANSWERS
#define ANSWERS "/nonexistent"
#endif
#ifdef IXML
#define MODEL "Iluvatar BI-V150"
#else
#define MODEL "NVIDIA H100 80GB HBM3"
#endif
#define EXPORT __attribute__((visibility("default")))
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3 };
enum { NODE = -1, NONE = -2 };

typedef unsigned int uint;
typedef unsigned long long ulong64;

/* The text behind `who key`; 0 where the file has no such line. */
static int answer(int who, const char *key, char *text, size_t size) {
    const char *path = getenv("NVML_STANDIN");
    FILE *file = fopen(path ? path : ANSWERS, "r");
    char line[256], name[16], found[64], rest[128];
    int is_there = 0;
    if (!file) return 0;
    snprintf(name, sizeof name, who == NODE ? "*" : "%d", who);
    while (fgets(line, sizeof line, file)) {
        char first[16];
        if (sscanf(line, "%15s %63s %127[^\n]", first, found, rest) != 3) continue;
        if (strcmp(first, name) == 0 && strcmp(found, key) == 0) {
            snprintf(text, size, "%s", rest);
            is_there = 1; /* the last line counts */
        }
    }
    fclose(file);
    return is_there;
}

static int number(int who, const char *key, long long otherwise, long long *value) {
    char text[128];
    *value = otherwise;
    if (!answer(who, key, text, sizeof text)) return otherwise == NONE ? NOT_SUPPORTED : SUCCESS;
    if (strcmp(text, "none") == 0) return NOT_SUPPORTED;
    *value = strtoll(text, NULL, 0);
    return SUCCESS;
}

static void hang_in(const char *call) {
    char text[128];
    while (answer(NODE, "hang", text, sizeof text) && strcmp(text, call) == 0) usleep(20000);
}

static int index_of(void *device) { return (int)(long)device - 1; }
static void *device_of(int index) { return (void *)(long)(index + 1); }

static int begun(const char *call, int gpu) {
    long long error;
    hang_in(call);
    number(NODE, "driver_error", 0, &error);
    if (error) return (int)error;
    if (gpu >= 1000) return SUCCESS; /* a MIG device */
    number(gpu, "error", 0, &error);
    return (int)error;
}

#define BEGIN(call, gpu) do { int refused = begun(call, gpu); if (refused) return refused; } while (0)

static int one(const char *call, void *device, const char *key, long long otherwise, uint *value) {
    long long found;
    BEGIN(call, index_of(device));
    int status = number(index_of(device), key, otherwise, &found);
    if (status == SUCCESS) *value = (uint)found;
    return status;
}

/* Into the file that NVML_STANDIN_CALLS names: who begins, and who lets go. */
static void note(const char *call) {
    const char *path = getenv("NVML_STANDIN_CALLS");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", call);
    fclose(file);
}

static int init(void) {
    long long error;
    note("nvmlInit");
    hang_in("nvmlInit");
    number(NODE, "init_error", 0, &error);
    return (int)error;
}
#ifdef IXML
EXPORT int nvmlInit_v2(void) { return init(); }
EXPORT int ixmlDeviceGetHealth(void *device, ulong64 *health) {
    long long found;
    BEGIN("ixmlDeviceGetHealth", index_of(device));
    int status = number(index_of(device), "health", 0, &found);
    *health = (ulong64)found;
    return status;
}
#else
EXPORT int nvmlInitWithFlags(uint flags) {
    (void)flags;
    return init();
}
#endif
EXPORT int nvmlShutdown(void) {
    hang_in("nvmlShutdown");
    note("nvmlShutdown");
    return SUCCESS;
}
EXPORT const char *nvmlErrorString(int error) {
    static char text[32];
    snprintf(text, sizeof text, "error %d", error);
    return text;
}
EXPORT int nvmlSystemGetDriverVersion(char *text, uint size) {
    BEGIN("nvmlSystemGetDriverVersion", NODE);
    if (!answer(NODE, "version", text, size)) snprintf(text, size, "595.45.04");
    return SUCCESS;
}
EXPORT int nvmlDeviceGetCount_v2(uint *count) {
    long long found;
    BEGIN("nvmlDeviceGetCount", NODE);
    number(NODE, "count", 8, &found);
    *count = (uint)found;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(uint index, void **device) {
    long long error;
    hang_in("nvmlDeviceGetHandleByIndex");
    number((int)index, "handle_error", 0, &error);
    *device = device_of((int)index);
    return (int)error;
}

typedef struct {
    char legacy[16];
    uint domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} Pci;
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, Pci *pci) {
    long long bus;
    BEGIN("nvmlDeviceGetPciInfo", index_of(device));
    memset(pci, 0, sizeof *pci);
    number(index_of(device), "bus", 0x10 * (index_of(device) + 1), &bus);
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", (uint)bus & 0xff);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUUID(void *device, char *text, uint size) {
    int gpu = index_of(device);
    BEGIN("nvmlDeviceGetUUID", gpu);
    if (!answer(gpu, "uuid", text, size)) snprintf(text, size, gpu >= 1000 ? "MIG-%d" : "GPU-%d", gpu);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetName(void *device, char *text, uint size) {
    BEGIN("nvmlDeviceGetName", index_of(device));
    snprintf(text, size, "%s", MODEL);
    return SUCCESS;
}
EXPORT int nvmlDeviceGetMinorNumber(void *device, uint *minor) {
    return one("nvmlDeviceGetMinorNumber", device, "minor", index_of(device), minor);
}

#ifndef IXML
EXPORT int nvmlDeviceGetMigMode(void *device, uint *current, uint *pending) {
    int status = one("nvmlDeviceGetMigMode", device, "mig", 0, current);
    return status ? status : one("nvmlDeviceGetMigMode", device, "mig_pending", *current, pending);
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *device, uint *count) {
    return one("nvmlDeviceGetMaxMigDeviceCount", device, "mig_places", 7, count);
}
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *device, uint place, void **part) {
    uint devices;
    int status = one("nvmlDeviceGetMigDeviceHandleByIndex", device, "mig_devices", 0, &devices);
    *part = device_of(1000 + 16 * index_of(device) + (int)place);
    return status ? status : place < devices ? SUCCESS : 6;
}
EXPORT int nvmlDeviceGetGpuInstanceId(void *part, uint *id) {
    return one("nvmlDeviceGetGpuInstanceId", part, "instance", (index_of(part) - 1000) % 16 + 7, id);
}
EXPORT int nvmlDeviceGetPersistenceMode(void *device, uint *mode) {
    return one("nvmlDeviceGetPersistenceMode", device, "persistent", 1, mode);
}
#endif

typedef struct { ulong64 total, free, used; } Memory;
typedef struct { uint version; ulong64 total, reserved, free, used; } Memory2;
static int memory_of(void *device, ulong64 *total, ulong64 *available, ulong64 *used) {
    long long found;
    BEGIN("nvmlDeviceGetMemoryInfo", index_of(device));
    *total = 80ULL << 30;
    number(index_of(device), "used_bytes", 0, &found);
    *used = (ulong64)found;
    int status = number(index_of(device), "free_bytes", 80LL << 30, &found);
    *available = (ulong64)found;
    return status;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
    return memory_of(device, &memory->total, &memory->free, &memory->used);
}
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, Memory2 *memory) {
    return memory_of(device, &memory->total, &memory->free, &memory->used);
}

typedef struct { uint gpu, memory; } Utilization;
EXPORT int nvmlDeviceGetUtilizationRates(void *device, Utilization *rates) {
    return one("nvmlDeviceGetUtilizationRates", device, "busy_percent", 0, &rates->gpu);
}
typedef struct { uint version, sensor; int degrees; } Temperature;
EXPORT int nvmlDeviceGetTemperatureV(void *device, Temperature *temperature) {
    return one("nvmlDeviceGetTemperatureV", device, "temperature_c", 41, (uint *)&temperature->degrees);
}
EXPORT int nvmlDeviceGetTemperature(void *device, uint sensor, uint *degrees) {
    (void)sensor;
    return one("nvmlDeviceGetTemperature", device, "temperature_c", 41, degrees);
}
EXPORT int nvmlDeviceGetPowerUsage(void *device, uint *milliwatts) {
    return one("nvmlDeviceGetPowerUsage", device, "power_mw", 70000, milliwatts);
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *device, uint *milliwatts) {
    return one("nvmlDeviceGetEnforcedPowerLimit", device, "power_limit_mw", 700000, milliwatts);
}
EXPORT int nvmlDeviceGetClockInfo(void *device, uint clock, uint *mhz) {
    const char *call = "nvmlDeviceGetClockInfo";
    if (clock == 1) return one(call, device, "sm_clock_mhz", 1980, mhz);
    return clock == 2 ? one(call, device, "memory_clock_mhz", 2619, mhz) : INVALID_ARGUMENT;
}

#ifndef IXML
EXPORT int nvmlDeviceGetRemappedRows(void *device, uint *corrected, uint *uncorrected, uint *pending, uint *failed) {
    const char *call = "nvmlDeviceGetRemappedRows";
    *corrected = *uncorrected = 0;
    int status = one(call, device, "rows_pending", 0, pending);
    return status ? status : one(call, device, "rows_failed", 0, failed);
}
EXPORT int nvmlDeviceGetRetiredPagesPendingStatus(void *device, uint *pending) {
    return one("nvmlDeviceGetRetiredPagesPendingStatus", device, "pages_pending", NONE, pending);
}
typedef struct { uint version; ulong64 counts[11]; uint exceeded; } Sram;
EXPORT int nvmlDeviceGetSramEccErrorStatus(void *device, Sram *status) {
    return one("nvmlDeviceGetSramEccErrorStatus", device, "sram_exceeded", 0, &status->exceeded);
}
EXPORT int nvmlDeviceGetTotalEccErrors(void *device, uint type, uint counter, ulong64 *count) {
    long long found;
    BEGIN("nvmlDeviceGetTotalEccErrors", index_of(device));
    const char *uncorrected = counter ? "ecc_ever" : "ecc";
    int status = number(index_of(device), type ? uncorrected : "ecc_corrected", 0, &found);
    *count = (ulong64)found;
    return status;
}
EXPORT int nvmlDeviceGetMemoryErrorCounter(void *device, uint type, uint counter, uint location, ulong64 *count) {
    char key[32];
    long long found;
    (void)type, (void)counter;
    BEGIN("nvmlDeviceGetMemoryErrorCounter", index_of(device));
    snprintf(key, sizeof key, "ecc_at_%u", location);
    int status = number(index_of(device), key, NONE, &found);
    *count = (ulong64)found;
    return status;
}

typedef struct {
    uint fieldId, scopeId;
    long long timestamp, latencyUsec;
    uint valueType, nvmlReturn;
    ulong64 value;
} Field;
EXPORT int nvmlDeviceGetFieldValues(void *device, int count, Field *fields) {
    char key[32];
    BEGIN("nvmlDeviceGetFieldValues", index_of(device));
    for (int i = 0; i < count; i++) {
        long long found;
        snprintf(key, sizeof key, "field_%u", fields[i].fieldId);
        fields[i].nvmlReturn = (uint)number(index_of(device), key, NONE, &found);
        fields[i].valueType = 3;
        fields[i].value = (ulong64)found;
    }
    return SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkState(void *device, uint link, uint *is_active) {
    char key[32];
    uint links;
    BEGIN("nvmlDeviceGetNvLinkState", index_of(device));
    int status = one("nvmlDeviceGetNvLinkState", device, "links", 18, &links);
    if (status) return status;
    if (link >= links) return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "link_%u", link);
    return one("nvmlDeviceGetNvLinkState", device, key, 1, is_active);
}
typedef struct { uint version; unsigned char cluster[16]; uint status, clique; unsigned char state; uint health; } Fabric;
EXPORT int nvmlDeviceGetGpuFabricInfoV(void *device, Fabric *fabric) {
    const char *call = "nvmlDeviceGetGpuFabricInfoV";
    uint state;
    int refused = one(call, device, "fabric_state", NONE, &state);
    if (refused) return refused;
    fabric->state = (unsigned char)state;
    refused = one(call, device, "fabric_status", 0, &fabric->status);
    return refused ? refused : one(call, device, "fabric_health", 0, &fabric->health);
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *device, ulong64 *reasons) {
    uint found = 0;
    int status = one("nvmlDeviceGetCurrentClocksEventReasons", device, "slowdowns", 1, &found);
    *reasons = found;
    return status;
}
typedef struct { uint version; int margin; } Margin;
EXPORT int nvmlDeviceGetMarginTemperature(void *device, Margin *margin) {
    return one("nvmlDeviceGetMarginTemperature", device, "margin_c", 40, (uint *)&margin->margin);
}
#endif
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void *device, uint *width) {
    return one("nvmlDeviceGetCurrPcieLinkWidth", device, "pcie_width", 16, width);
}
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void *device, uint *width) {
    return one("nvmlDeviceGetMaxPcieLinkWidth", device, "pcie_width_max", 16, width);
}
EXPORT int nvmlDeviceGetPcieReplayCounter(void *device, uint *replays) {
    return one("nvmlDeviceGetPcieReplayCounter", device, "replays", 0, replays);
}
#ifndef IXML
EXPORT int nvmlDeviceValidateInforom(void *device) {
    long long error;
    BEGIN("nvmlDeviceValidateInforom", index_of(device));
    number(index_of(device), "inforom_error", 0, &error);
    return (int)error;
}
#endif
