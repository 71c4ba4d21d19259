/* The driver's management library (libnvidia-ml.so.1) of a machine that a text file describes, for tests without a GPU.
 *
 * The file is named by NVML_SCENE and read again at every call, so that a test can change the machine meanwhile. One line
 * each:
 *   driver VERSION CUDA     the driver's version, and CUDA's as 1000 * major + 10 * minor
 *   error NUMBER            the library cannot be initialized
 *   gpu KEY=VALUE ...       a GPU, in the order of NVML's indices; keys: see struct Gpu
 *   slice KEY=VALUE ...     a MIG slice of the GPU before it
 *   process GPU PID         a process that computes on a GPU
 * Calls follow nvml.h, versions of functions as nvidia-ml-py calls them. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 6, INSUFFICIENT_SIZE,
       DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, UNKNOWN = 999 };
enum { MAX_GPUS = 64, MAX_PROCESSES = 64 };

typedef struct {
    char uuid[96], name[96], pci[32];
    char lost[16];           /* "open": its handle cannot be had; "query": every other call fails */
    char denied[8];          /* "yes": counted, but not accessible to this container */
    long long memory, used;  /* bytes */
    long long ecc, uncorrected, uncorrected_ever; /* ecc -1: not supported */
    long long remapped, pending, failed;
    long long temperature, throttle, power, clock, busy, width, width_max, links, compute;
    long long replays, crc;  /* PCIe replays; CRC errors of its NVLinks, of flits and of data each */
    long long persistence, mode; /* mode: NVML_COMPUTEMODE_* */
    int parent;              /* index of the GPU that this is a slice of, or -1 */
} Gpu;

typedef struct {
    char driver[32];
    int cuda, gpus, slices, processes, error;
    Gpu gpu[MAX_GPUS], slice[MAX_GPUS];
    int process_gpu[MAX_PROCESSES], process_pid[MAX_PROCESSES];
} Scene;

static Scene scene;
static const int SLICES_FROM = 1000;

static int text(const char *word, const char *key, char *to, size_t size) {
    size_t length = strlen(key);
    if (strncmp(word, key, length) != 0 || word[length] != '=') return 0;
    snprintf(to, size, "%s", word + length + 1);
    for (char *it = to; *it; it++) if (*it == '~') *it = ' ';  /* words hold no spaces */
    return 1;
}

static int number(const char *word, const char *key, long long *to) {
    char value[32];
    if (!text(word, key, value, sizeof value)) return 0;
    *to = strtoll(value, NULL, 0);
    return 1;
}

static void parse_gpu(Gpu *gpu, char *words) {
    for (char *word = strtok(words, " \n"); word; word = strtok(NULL, " \n")) {
        int known = text(word, "uuid", gpu->uuid, sizeof gpu->uuid) || text(word, "name", gpu->name, sizeof gpu->name) ||
                    text(word, "pci", gpu->pci, sizeof gpu->pci) || text(word, "lost", gpu->lost, sizeof gpu->lost) ||
                    text(word, "denied", gpu->denied, sizeof gpu->denied) || number(word, "memory", &gpu->memory) ||
                    number(word, "used", &gpu->used) || number(word, "ecc", &gpu->ecc) ||
                    number(word, "uncorrected", &gpu->uncorrected) ||
                    number(word, "uncorrected_ever", &gpu->uncorrected_ever) ||
                    number(word, "remapped", &gpu->remapped) || number(word, "pending", &gpu->pending) ||
                    number(word, "failed", &gpu->failed) || number(word, "temperature", &gpu->temperature) ||
                    number(word, "throttle", &gpu->throttle) || number(word, "power", &gpu->power) ||
                    number(word, "clock", &gpu->clock) || number(word, "busy", &gpu->busy) ||
                    number(word, "width", &gpu->width) || number(word, "width_max", &gpu->width_max) ||
                    number(word, "links", &gpu->links) || number(word, "compute", &gpu->compute) ||
                    number(word, "replays", &gpu->replays) || number(word, "crc", &gpu->crc) ||
                    number(word, "persistence", &gpu->persistence) || number(word, "mode", &gpu->mode);
        if (!known) {
            fprintf(stderr, "NVML_SCENE: unknown word %s\n", word);
            abort();
        }
    }
}

static int refresh(void) {
    char line[1024];
    const char *path = getenv("NVML_SCENE");
    FILE *file = path ? fopen(path, "r") : NULL;
    memset(&scene, 0, sizeof scene);
    if (!file) return DRIVER_NOT_LOADED;
    while (fgets(line, sizeof line, file)) {
        char *rest = strchr(line, ' ');
        if (!rest) continue;
        *rest++ = '\0';
        if (!strcmp(line, "driver")) sscanf(rest, "%31s %d", scene.driver, &scene.cuda);
        if (!strcmp(line, "error")) scene.error = atoi(rest);
        if (!strcmp(line, "gpu") && scene.gpus < MAX_GPUS) {
            scene.gpu[scene.gpus].parent = -1;
            parse_gpu(&scene.gpu[scene.gpus++], rest);
        }
        if (!strcmp(line, "slice") && scene.slices < MAX_GPUS) {
            scene.slice[scene.slices].parent = scene.gpus - 1;
            parse_gpu(&scene.slice[scene.slices++], rest);
        }
        if (!strcmp(line, "process") && scene.processes < MAX_PROCESSES) {
            sscanf(rest, "%d %d", &scene.process_gpu[scene.processes], &scene.process_pid[scene.processes]);
            scene.processes++;
        }
    }
    fclose(file);
    return scene.error;
}

/* Handles are indices plus one, those of slices from SLICES_FROM. */
static Gpu *find(void *handle, int *result) {
    long index = (long)(intptr_t)handle - 1;
    Gpu *gpu = NULL;
    if ((*result = refresh()) != SUCCESS) return NULL;
    if (index >= SLICES_FROM && index - SLICES_FROM < scene.slices) gpu = &scene.slice[index - SLICES_FROM];
    else if (index >= 0 && index < scene.gpus) gpu = &scene.gpu[index];
    if (!gpu) *result = INVALID_ARGUMENT;
    else if (!strcmp(gpu->lost, "query") || !strcmp(gpu->lost, "open")) *result = GPU_IS_LOST;
    return gpu;
}

#define PHYSICAL(handle)                                             \
    int result;                                                      \
    Gpu *gpu = find(handle, &result);                                \
    if (result != SUCCESS) return result;                            \
    if (gpu->parent >= 0) return NOT_SUPPORTED /* of a slice, the driver tells little */

int nvmlInitWithFlags(unsigned flags) { (void)flags; return refresh(); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int error) {
    switch (error) {
    case SUCCESS: return "Success";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case GPU_IS_LOST: return "GPU is lost";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "%s", scene.driver);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { *version = scene.cuda; return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    int result = refresh();
    *count = (unsigned)scene.gpus;
    return result;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    int result = refresh();
    if (result != SUCCESS) return result;
    if (index >= (unsigned)scene.gpus) return INVALID_ARGUMENT;
    if (!strcmp(scene.gpu[index].denied, "yes")) return NO_PERMISSION;
    if (!strcmp(scene.gpu[index].lost, "open")) return GPU_IS_LOST;
    *handle = (void *)(intptr_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    int result = refresh();
    if (result != SUCCESS) return result;
    for (int index = 0; index < scene.gpus; index++)
        if (!strcmp(scene.gpu[index].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2((unsigned)index, handle);
    for (int index = 0; index < scene.slices; index++)
        if (!strcmp(scene.slice[index].uuid, uuid)) {
            *handle = (void *)(intptr_t)(SLICES_FROM + index + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length) {
    int result;
    Gpu *gpu = find(handle, &result);
    if (result == SUCCESS) snprintf(name, length, "%s", gpu->name);
    return result;
}

/* The driver keeps UUID and PCI address of a GPU that fell off the bus after its handle was opened. */
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length) {
    int result;
    Gpu *gpu = find(handle, &result);
    if (!gpu) return result;
    snprintf(uuid, length, "%s", gpu->uuid);
    return SUCCESS;
}

typedef struct {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

int nvmlDeviceGetPciInfo_v3(void *handle, Pci *pci) {
    int result;
    Gpu *gpu = find(handle, &result);
    if (!gpu) return result;
    if (gpu->parent >= 0) gpu = &scene.gpu[gpu->parent];
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *handle, unsigned long long *memory) {
    int result;
    Gpu *gpu = find(handle, &result);
    if (result != SUCCESS) return result;
    memory[0] = (unsigned long long)gpu->memory;
    memory[1] = (unsigned long long)(gpu->memory - gpu->used);
    memory[2] = (unsigned long long)gpu->used;
    return SUCCESS;
}

int nvmlDeviceGetEccMode(void *handle, unsigned *current, unsigned *pending) {
    PHYSICAL(handle);
    if (gpu->ecc < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)gpu->ecc;
    return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(void *handle, unsigned type, unsigned counter, unsigned long long *count) {
    PHYSICAL(handle);
    if (gpu->ecc <= 0) return NOT_SUPPORTED;
    *count = type == 0 ? 0 : (unsigned long long)(counter == 0 ? gpu->uncorrected : gpu->uncorrected_ever);
    return SUCCESS;
}

int nvmlDeviceGetRemappedRows(void *handle, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                              unsigned *failed) {
    PHYSICAL(handle);
    *corrected = 0;
    *uncorrected = (unsigned)gpu->remapped;
    *pending = (unsigned)gpu->pending;
    *failed = (unsigned)gpu->failed;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending) {
    PHYSICAL(handle);
    *current = *pending = 0;
    for (int index = 0; index < scene.slices; index++)
        if (&scene.gpu[scene.slice[index].parent] == gpu) *current = *pending = 1;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count) {
    PHYSICAL(handle);
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **slice) {
    unsigned seen = 0;
    PHYSICAL(handle);
    for (int it = 0; it < scene.slices; it++)
        if (&scene.gpu[scene.slice[it].parent] == gpu && seen++ == index) {
            *slice = (void *)(intptr_t)(SLICES_FROM + it + 1);
            return SUCCESS;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, void *processes) {
    struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } *to = processes;
    unsigned found = 0, room = *count;
    PHYSICAL(handle);
    for (int it = 0; it < scene.processes; it++) {
        if (&scene.gpu[scene.process_gpu[it]] != gpu) continue;
        if (processes && found < room) {
            memset(&to[found], 0, sizeof *to);
            to[found].pid = (unsigned)scene.process_pid[it];
        }
        found++;
    }
    *count = found;
    return found > room || (found && !processes) ? INSUFFICIENT_SIZE : SUCCESS;
}

#define NUMBER(function, expression) \
    int function(void *handle, unsigned *value) { PHYSICAL(handle); *value = (unsigned)(expression); return SUCCESS; }

NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, gpu->width)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, gpu->width_max)
NUMBER(nvmlDeviceGetPowerUsage, gpu->power * 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, 700 * 1000)
NUMBER(nvmlDeviceGetPersistenceMode, gpu->persistence)
NUMBER(nvmlDeviceGetComputeMode, gpu->mode)

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons) {
    PHYSICAL(handle);
    *reasons = (unsigned long long)gpu->throttle;
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    PHYSICAL(handle);
    *celsius = (unsigned)gpu->temperature;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(void *handle, unsigned clock, unsigned *megahertz) {
    (void)clock;
    PHYSICAL(handle);
    *megahertz = (unsigned)gpu->clock;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, unsigned *rates) {
    PHYSICAL(handle);
    for (int it = 0; it < scene.slices; it++)
        if (&scene.gpu[scene.slice[it].parent] == gpu) return NOT_SUPPORTED; /* with MIG enabled */
    rates[0] = rates[1] = (unsigned)gpu->busy;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
    struct timespec now;
    PHYSICAL(handle);
    clock_gettime(CLOCK_MONOTONIC, &now);
    *millijoules = (unsigned long long)((double)gpu->power * 1e3 * ((double)now.tv_sec + (double)now.tv_nsec / 1e9));
    return SUCCESS;
}

int nvmlDeviceGetPcieThroughput(void *handle, unsigned counter, unsigned *kibibytes) {
    PHYSICAL(handle);
    *kibibytes = 1000 + counter;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    PHYSICAL(handle);
    *major = (int)gpu->compute / 10;
    *minor = (int)gpu->compute % 10;
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(void *handle, unsigned link, unsigned *active) {
    PHYSICAL(handle);
    if (gpu->links < 0 || link >= 18) return INVALID_ARGUMENT;
    *active = (long long)link < gpu->links;
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(void *handle, void *other, unsigned *level) {
    PHYSICAL(handle);
    (void)other;
    *level = 50;
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(void *handle, void *other, unsigned capability, unsigned *status) {
    PHYSICAL(handle);
    (void)other;
    *status = capability == 2 && gpu->links <= 0;
    return SUCCESS;
}

int nvmlDeviceGetPcieReplayCounter(void *handle, unsigned *replays) {
    PHYSICAL(handle);
    *replays = (unsigned)gpu->replays;
    return SUCCESS;
}

typedef struct {
    unsigned field, scope;
    long long timestamp, latency;
    unsigned type;
    int result;
    union { double real; unsigned long long whole; } value;
} Field;

int nvmlDeviceGetFieldValues(void *handle, int count, Field *fields) {
    struct timespec now;
    PHYSICAL(handle);
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (int it = 0; it < count; it++) {
        fields[it].result = gpu->links > 0 ? SUCCESS : NOT_SUPPORTED;
        fields[it].value.whole = (unsigned long long)now.tv_sec * 1000;
        if (fields[it].field == 38 || fields[it].field == 45) fields[it].value.whole = (unsigned long long)gpu->crc;
        if (fields[it].field == 52 || fields[it].field == 59) fields[it].value.whole = 0;
    }
    return SUCCESS;
}
