/* actor -u SCRIPT [WORD...]: a worker that starts in a millisecond and does what it is told, word by word.
 *
 * Words after `@R` are for rank R only; those before any `@` are for all. After the last word it sleeps.
 *   ready=DIR     creates DIR/RANK.ready with its process number
 *   wait=MS       sleeps so long
 *   exit=CODE     exits
 *   kill=SIGNAL   sends itself a signal
 *   deaf          ignores TERM, INT, HUP and QUIT
 *   flood=LINES   writes so many lines of 300 bytes
 *   grow=MIB      touches so much memory
 *   spawn=MS      leaves an orphan that ends after so long
 *   child, orphan, group, daemon, stopped, headless, mover
 *                 leaves such a process, deaf as well; see `be`
 *   mark=FILE     has `exit` write its monotonic nanoseconds to FILE
 *   note=DIR      has SIGTERM write its monotonic nanoseconds to DIR/RANK.term, and exits then
 *   trace=PID     attaches to a process as a debugger that then stands still
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Seconds that nothing of this outlives, whoever forgets to end it. */
enum { LIFE = 100, LIFE_ON_THE_MOVE = 10 };

static const char *rank;
static int mark = -1;
static int note = -1;

static void stamp(int file) {
    struct timespec now;
    char text[32];
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long nanoseconds = now.tv_sec * 1000000000LL + now.tv_nsec;
    int length = snprintf(text, sizeof text, "%lld\n", nanoseconds);
    if (write(file, text, length) != length) abort();
}

static void on_term(int signal) {
    (void)signal;
    stamp(note);
    _exit(0);
}

static int create(const char *directory, const char *suffix) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%s", directory, rank, suffix);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0) abort();
    return file;
}

/* Whole from the start: who sees the file can read it. */
static void ready(const char *directory) {
    char from[4096], to[4096], text[32];
    int file = create(directory, "part");
    int length = snprintf(text, sizeof text, "%d\n", getpid());
    if (write(file, text, length) != length) abort();
    close(file);
    snprintf(from, sizeof from, "%s/%s.part", directory, rank);
    snprintf(to, sizeof to, "%s/%s.ready", directory, rank);
    if (rename(from, to)) abort();
}

static void sleep_for(long milliseconds) {
    struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&left, &left) && errno == EINTR);
}

static void *sleep_for_ever(void *unused) {
    for (;;) pause();
    return unused;
}

static void be_deaf(void) {
    int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    for (int at = 0; at < 4; at++) signal(signals[at], SIG_IGN);
}

/* The life of a process that this worker leaves behind. */
static void be(const char *kind) {
    pthread_t thread;
    time_t end = time(NULL) + LIFE_ON_THE_MOVE;
    alarm(LIFE);
    be_deaf();
    if (!strcmp(kind, "orphan") && fork()) _exit(0);
    if (!strcmp(kind, "group")) setpgid(0, 0);
    if (!strcmp(kind, "daemon")) setsid();
    if (!strcmp(kind, "stopped")) raise(SIGSTOP);
    if (!strcmp(kind, "headless")) { /* its first thread ends, another lives on */
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        pthread_exit(NULL);
    }
    while (!strcmp(kind, "mover")) { /* another process, group and session every millisecond */
        setsid();
        sleep_for(1);
        if (fork() > 0 || time(NULL) > end) _exit(0);
    }
    sleep_for_ever(NULL);
}

static void flood(long lines) {
    char line[300];
    for (long number = 0; number < lines; number++) {
        memset(line, 'x', sizeof line);
        line[snprintf(line, sizeof line, "rank %s line %ld ", rank, number)] = 'x';
        line[sizeof line - 1] = '\n';
        if (write(1, line, sizeof line) < 0) return;
    }
}

static void grow(long mebibytes) {
    volatile char *memory = malloc(mebibytes << 20);
    for (long at = 0; at < mebibytes << 20; at += 4096) memory[at] = 1;
}

static void trace(pid_t pid) {
    if (ptrace(PTRACE_SEIZE, pid, 0, 0) || ptrace(PTRACE_INTERRUPT, pid, 0, 0)) abort();
}

static void act(const char *word, const char *value) {
    const char *kinds[] = {"child", "orphan", "group", "daemon", "stopped", "headless", "mover"};
    long number = value ? atol(value) : 0;
    if (!strcmp(word, "ready")) return ready(value);
    if (!strcmp(word, "wait")) return sleep_for(number);
    if (!strcmp(word, "deaf")) return be_deaf();
    if (!strcmp(word, "flood")) return flood(number);
    if (!strcmp(word, "trace")) return trace(number);
    if (!strcmp(word, "kill")) { raise(number); return; }
    if (!strcmp(word, "grow")) return grow(number);
    if (!strcmp(word, "mark")) { mark = open(value, O_WRONLY | O_CREAT | O_CLOEXEC, 0644); return; }
    if (!strcmp(word, "note")) { note = create(value, "term"); signal(SIGTERM, on_term); return; }
    if (!strcmp(word, "exit")) {
        if (mark >= 0) stamp(mark);
        _exit(number);
    }
    if (!strcmp(word, "spawn")) {
        pid_t between = fork();
        if (between == 0) {
            if (fork() == 0) sleep_for(number);
            _exit(0);
        }
        waitpid(between, NULL, 0);
        return;
    }
    for (int at = 0; at < 7; at++) {
        if (!strcmp(word, kinds[at])) {
            if (fork() == 0) be(word);
            return;
        }
    }
    fprintf(stderr, "actor: what is `%s`?\n", word);
    _exit(99);
}

int main(int count, char **words) {
    int meant = 1;
    alarm(LIFE);
    rank = getenv("RANK") ? getenv("RANK") : "0";
    for (int at = 3; at < count; at++) {
        if (words[at][0] == '@') {
            meant = !strcmp(words[at] + 1, rank);
        } else if (meant) {
            char *value = strchr(words[at], '=');
            if (value) *value++ = 0;
            act(words[at], value);
        }
    }
    sleep_for_ever(NULL);
}
