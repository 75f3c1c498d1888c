// A worker that tells when things happen to it, in nanoseconds of CLOCK_MONOTONIC: a line "KIND PID TIME" into the
// FIFO named by BENCH_EVENTS at its start and at SIGTERM. SIGUSR1 makes it fail with 7, SIGUSR2 succeed; with BENCH_ONCE
// it prints its line and succeeds at once.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int events;

static void tell(const char *kind) {
    struct timespec now;
    char line[80];
    clock_gettime(CLOCK_MONOTONIC, &now);
    int length = snprintf(line, sizeof line, "%s %d %lld\n", kind, getpid(), now.tv_sec * 1000000000LL + now.tv_nsec);
    if (write(events, line, length) != length) _exit(99);
}

static void react(int signal) {
    if (signal == SIGTERM) tell("term"), _exit(143);
    if (signal == SIGUSR1) tell("fail"), _exit(7);
    _exit(0);
}

int main(void) {
    events = open(getenv("BENCH_EVENTS"), O_WRONLY | O_CLOEXEC);
    signal(SIGTERM, react), signal(SIGUSR1, react), signal(SIGUSR2, react);
    alarm(120); // whatever becomes of the benchmark
    tell("start");
    if (write(1, "line\n", 5) != 5) return 99;
    while (!getenv("BENCH_ONCE")) pause();
    return 0;
}
