// The floor: launcher N PROGRAM starts N programs, each in a process group of its own, waits, and ends all when one fails.
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>

extern char **environ;

int main(int count, char **words) {
    int n = atoi(words[1]), status, failed = 0;
    pid_t *pids = calloc(n, sizeof *pids), pid;
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    for (int i = 0; i < n; i++)
        if (posix_spawn(&pids[i], words[count - 1], 0, &attributes, words + count - 1, environ)) return 1;
    while ((pid = wait(&status)) > 0) {
        if (failed || !status) continue;
        failed = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        for (int i = 0; i < n; i++)
            if (pids[i] != pid) kill(-pids[i], SIGTERM);
    }
    return failed;
}
