/* A stand-in for the NVIDIA driver's library, with as many GPUs as it is told.
 *
 * FAKE_NVML_DEVICES     the number of GPUs; "no-driver" for a driver that is not loaded
 * FAKE_NVML_PARTITIONS  partitions (MIG devices) per GPU, none if unset
 * FAKE_NVML_MARKER      a file that is created when the library is loaded
 * FAKE_NVML_BUSY        processes that compute on GPU 1, as "4711,4712"; the second one's memory is not known
 *
 * GPU 3 has the UUID GPU-00000003-..., its partition 1 has MIG-00000003-0001-....
 * Without the variables the macros of the same names count. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef FAKE_NVML_DEVICES
#define FAKE_NVML_DEVICES "0"
#endif
#ifndef FAKE_NVML_BUSY
#define FAKE_NVML_BUSY ""
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

/* As in nvml.h, from which the layouts are: GPU 3 is at 0000:43:00.0. */
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char address[32]; };
struct process { unsigned pid; unsigned long long memory; unsigned instance, compute_instance; };

int nvmlDeviceGetPciInfo_v3(handle device, struct pci *pci) {
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x40 + number(device) / 100 - 1;
    snprintf(pci->legacy, sizeof pci->legacy, "0000:%02X:00.0", pci->bus);
    snprintf(pci->address, sizeof pci->address, "00000000:%02X:00.0", pci->bus);
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(handle device, unsigned *count, struct process *processes) {
    struct process all[] = {{0, 3ull << 30, ~0u, ~0u}, {0, ~0ull, ~0u, ~0u}};
    int busy = sscanf(setting("FAKE_NVML_BUSY", FAKE_NVML_BUSY), "%u,%u", &all[0].pid, &all[1].pid);
    unsigned space = *count;
    *count = busy > 0 && number(device) == 200 ? busy : 0;
    if (*count > space) return INSUFFICIENT_SIZE;
    if (processes) memcpy(processes, all, *count * sizeof *all);
    return SUCCESS;
}
