/* A stand-in for the NVIDIA driver's library, with as many GPUs as it is told.
 *
 * FAKE_NVML_DEVICES     the number of GPUs; "no-driver" for a driver that is not loaded
 * FAKE_NVML_PARTITIONS  partitions (MIG devices) per GPU, none if unset
 * FAKE_NVML_MARKER      a file that is created when the library is loaded
 * FAKE_NVML_USERS       processes that compute on them: "GPU:PID:MIB" each, with blanks between them and `?`
 *                       for memory that is not known
 *
 * GPU 3 has the UUID GPU-00000003-..., its partition 1 has MIG-00000003-0001-....
 * Without the variables the macros of the same names count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_NVML_DEVICES
#define FAKE_NVML_DEVICES "0"
#endif
#ifndef FAKE_NVML_USERS
#define FAKE_NVML_USERS ""
#endif
#ifndef FAKE_NVML_PARTITIONS
#define FAKE_NVML_PARTITIONS "0"
#endif

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

/* A handle is a number that is never null: 100 for GPU 0, 101 for its partition 0, 200 for GPU 1. */
typedef char *handle;
static unsigned number(handle device) { return (unsigned)(device - (char *)0); }
static handle numbered(unsigned gpu, unsigned within) { return (char *)0 + 100 * (gpu + 1) + within; }

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}
static const char *devices(void) { return setting("FAKE_NVML_DEVICES", FAKE_NVML_DEVICES); }
static unsigned partitions(void) { return atoi(setting("FAKE_NVML_PARTITIONS", FAKE_NVML_PARTITIONS)); }

__attribute__((constructor)) static void loaded(void) {
    const char *marker = getenv("FAKE_NVML_MARKER");
    if (marker) fclose(fopen(marker, "w"));
}

int nvmlInit(void) { return strcmp(devices(), "no-driver") == 0 ? DRIVER_NOT_LOADED : SUCCESS; }
int nvmlInit_v2(void) { return nvmlInit(); }
int nvmlShutdown(void) { return SUCCESS; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = atoi(devices());
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *device) {
    if (index >= (unsigned)atoi(devices())) return INVALID_ARGUMENT;
    *device = numbered(index, 0);
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(handle device, unsigned *count) {
    (void)device;
    *count = 7;
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle device, unsigned index, handle *partition) {
    if (index >= partitions()) return NOT_FOUND;
    *partition = numbered(number(device) / 100 - 1, index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(handle device, char *uuid, unsigned length) {
    unsigned gpu = number(device) / 100 - 1, within = number(device) % 100;
    int written = within == 0
        ? snprintf(uuid, length, "GPU-%08x-0000-4000-8000-000000000000", gpu)
        : snprintf(uuid, length, "MIG-%08x-%04x-5000-8000-000000000000", gpu, within - 1);
    return written < (int)length ? SUCCESS : INSUFFICIENT_SIZE;
}

/* Every GPU has 80 GiB; one with a process is busy for 90 percent of the time, another for none.
 * The layouts are those of nvml.h. */
#define MIB (1024ull * 1024)
#define UNKNOWN (~0ull)

struct memory { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; };
struct utilization { unsigned gpu, memory; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };

/* The processes of a GPU, as many as there are; the first `room` of them are filled in. */
static unsigned users(handle device, struct process *found, unsigned room) {
    unsigned gpu = number(device) / 100 - 1, count = 0, on, pid;
    const char *rest = setting("FAKE_NVML_USERS", FAKE_NVML_USERS);
    char memory[16];
    for (int length; sscanf(rest, " %u:%u:%15[0-9?]%n", &on, &pid, memory, &length) == 3; rest += length) {
        if (on != gpu) continue;
        if (count < room) found[count] = (struct process){pid, *memory == '?' ? UNKNOWN : atoi(memory) * MIB, ~0u, ~0u};
        count++;
    }
    return count;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process *found) {
    unsigned room = *count;
    *count = users(device, found, room);
    return *count <= room ? SUCCESS : INSUFFICIENT_SIZE;
}

int nvmlDeviceGetMemoryInfo_v2(handle device, struct memory *memory) {
    struct process found[64];
    unsigned count = users(device, found, 64);
    memory->total = 80 * 1024 * MIB;
    memory->used = 0;
    for (unsigned nth = 0; nth < count && nth < 64; nth++) {
        if (found[nth].memory != UNKNOWN) memory->used += found[nth].memory;
    }
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(handle device, struct utilization *utilization) {
    utilization->gpu = users(device, NULL, 0) > 0 ? 90 : 0;
    utilization->memory = 0;
    return SUCCESS;
}

int nvmlDeviceGetName(handle device, char *name, unsigned length) {
    (void)device;
    snprintf(name, length, "Make-believe H200");
    return SUCCESS;
}

/* GPU 3 is at 0000:43:00.0. */
int nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x40 + number(device) / 100 - 1;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "580.65.06");
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13010;
    return SUCCESS;
}
