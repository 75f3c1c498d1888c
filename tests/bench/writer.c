// A worker that writes BENCH_BYTES bytes, lines of 64 in blocks of 64 KiB, and tells as worker.c does when it starts and is done.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char block[64 << 10];

static void tell(int events, const char *kind) {
    struct timespec now;
    char line[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%s %d %lld\n", kind, getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
    if (write(events, line, length) != length) _exit(99);
}

int main(void) {
    int events = open(getenv("BENCH_EVENTS"), O_WRONLY | O_CLOEXEC);
    memset(block, 'x', sizeof block);
    for (unsigned at = 63; at < sizeof block; at += 64) block[at] = '\n';
    alarm(120); // whatever becomes of the benchmark
    tell(events, "start");
    for (long long left = atoll(getenv("BENCH_BYTES")); left > 0;) {
        ssize_t count = write(1, block, sizeof block);
        if (count < 0) return 98;
        left -= count;
    }
    tell(events, "done");
    return 0;
}
