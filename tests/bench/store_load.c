// A worker that asks the store at MASTER_ADDR:MASTER_PORT as many of torch's clients do at once, without what those cost
// themselves: CLIENTS set and get for SECONDS, and JOINS connect and open. Prints one line of JSON.
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 8, JOINS = 512, VALUE = 100 };
static const double SECONDS = 2;

static struct sockaddr_in store;
static char opening[] = "\0\xce\xf7\x85\x3c\x0dtest"; // VALIDATE with the magic number, PING with what comes back
enum { OPENING = sizeof opening - 1, PONG = 4 };

static double now(void) {
    struct timespec it;
    clock_gettime(CLOCK_MONOTONIC, &it);
    return it.tv_sec + it.tv_nsec / 1e9;
}

static void must(int done, const char *what) {
    if (done) return;
    perror(what);
    exit(1);
}

static int begin(void) {
    int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    must(client >= 0, "socket");
    int done = connect(client, (struct sockaddr *)&store, sizeof store);
    must(done == 0 || errno == EINPROGRESS, "connect");
    return client;
}

static void watch(int epoll, int how, int client, int events) {
    struct epoll_event event = {events, {.fd = client}};
    must(epoll_ctl(epoll, how, client, &event) == 0, "epoll_ctl");
}

// Opens `count` connections at once; the time until the last one is answered, in milliseconds.
static double join(int epoll, int *clients, int count) {
    struct epoll_event ready[64];
    char pong[PONG];
    double began = now();
    for (int i = 0; i < count; i++) watch(epoll, EPOLL_CTL_ADD, clients[i] = begin(), EPOLLOUT);
    for (int answered = 0; answered < count;) {
        int some = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < some; i++) {
            int client = ready[i].data.fd;
            if (ready[i].events & EPOLLIN) {
                must(read(client, pong, PONG) == PONG, "answer");
                watch(epoll, EPOLL_CTL_DEL, client, 0);
                answered++;
            } else {
                must(write(client, opening, OPENING) == OPENING, "opening");
                watch(epoll, EPOLL_CTL_MOD, client, EPOLLIN);
            }
        }
    }
    return (now() - began) * 1e3;
}

static char *put(char *at, const char *bytes, uint64_t length) {
    memcpy(at, &length, sizeof length); // this machine's order of bytes is the protocol's
    memcpy(at + sizeof length, bytes, length);
    return at + sizeof length + length;
}

// SET, which has no answer, and GET of the same key.
static int request(char *bytes, int client) {
    char key[32], value[VALUE], *at = bytes;
    int length = snprintf(key, sizeof key, "/key %d", client);
    memset(value, 'x', VALUE);
    *at++ = 1;
    at = put(put(at, key, length), value, VALUE);
    *at++ = 3;
    return put(at, key, length) - bytes;
}

// Requests that were answered, a second.
static double ask(int epoll, int *clients) {
    struct epoll_event ready[CLIENTS];
    char bytes[512], answer[512];
    double began = now(), ended = began;
    long answered = 0;
    for (int i = 0; i < CLIENTS; i++) {
        watch(epoll, EPOLL_CTL_ADD, clients[i], EPOLLIN);
        int length = request(bytes, clients[i]);
        must(write(clients[i], bytes, length) == length, "request");
    }
    while ((ended = now()) - began < SECONDS) {
        int some = epoll_wait(epoll, ready, CLIENTS, -1);
        for (int i = 0; i < some; i++) {
            int client = ready[i].data.fd, length = request(bytes, client);
            must(read(client, answer, sizeof answer) == 8 + VALUE, "answer");
            must(write(client, bytes, length) == length, "request");
            answered += 2;
        }
    }
    return answered / (ended - began);
}

int main(void) {
    int clients[JOINS], epoll = epoll_create1(0);
    store.sin_family = AF_INET;
    store.sin_port = htons(atoi(getenv("MASTER_PORT")));
    must(inet_pton(AF_INET, getenv("MASTER_ADDR"), &store.sin_addr) == 1, "MASTER_ADDR");
    alarm(60); // whatever becomes of the benchmark
    double joined = join(epoll, clients, JOINS);
    double rate = ask(epoll, clients);
    printf("{\"%d clients, set and get/s\": %.0f, \"%d join, ms\": %.1f}\n", CLIENTS, rate, JOINS, joined);
    return 0;
}
