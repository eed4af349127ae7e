/* Where the threads of a program for several threads run. Needs two processors and Linux. Says nothing. */
#define _GNU_SOURCE
#include "net.h"
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { THREADS = 3, MOST = 64 };
static float in[NET_INPUT_0_SIZE], out[NET_OUTPUT_0_SIZE], want[NET_OUTPUT_0_SIZE];
static void *arena;
static cpu_set_t all;
static int first, second; /* two processors */

static void call(void)
{
    memset(out, 0xff, sizeof out);
    CHECK(net_call(in, out, arena) == NET_OK);
    CHECK(memcmp(out, want, sizeof out) == 0);
}

/* As a service calls: the threads sleep before. */
static void call_after_a_pause(void)
{
    usleep(5000);
    call();
}

/* The threads of this process but the one that asks. */
static int workers(pid_t *ids)
{
    DIR *const tasks = opendir("/proc/self/task");
    struct dirent *entry;
    int found = 0;
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        const pid_t id = (pid_t)atoi(entry->d_name);
        if (id > 0 && id != getpid()) {
            CHECK(found < MOST);
            ids[found++] = id;
        }
    }
    closedir(tasks);
    return found;
}

static cpu_set_t affinity(pid_t id)
{
    cpu_set_t found;
    CHECK(sched_getaffinity(id, sizeof found, &found) == 0);
    return found;
}

static void pin(pid_t id, int cpu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(id, sizeof one, &one) == 0);
}

/* A call with the caller on a processor, which may use the others too. */
static void call_from(int cpu)
{
    pid_t ids[MOST];
    cpu_set_t wanted = all, found;
    int tries, number, k;
    CPU_CLR(cpu, &wanted);
    for (tries = 0; tries < 1000; ++tries) { /* a busy system moves the caller meanwhile */
        pin(0, cpu);
        CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
        call_after_a_pause();
        if (sched_getcpu() == cpu) {
            int apart = 1;
            number = workers(ids);
            CHECK(number == THREADS - 1);
            for (k = 0; k < number; ++k) {
                found = affinity(ids[k]);
                apart = apart && CPU_EQUAL(&found, &wanted);
            }
            if (apart) {
                found = affinity(0);
                CHECK(CPU_EQUAL(&found, &all));
                return;
            }
        }
    }
    CHECK(!"the threads run where the caller does");
}

/* Somebody has said where caller and workers run: apart, or all on one processor, as taskset -a and cgroups do. Calls
 * leave it so. Released again. */
static void pinned(int caller, int worker)
{
    pid_t ids[MOST];
    cpu_set_t one, found;
    const int number = workers(ids);
    int k, times;
    CPU_ZERO(&one);
    CPU_SET(worker, &one);
    for (k = 0; k < number; ++k) {
        pin(ids[k], worker);
    }
    pin(0, caller);
    for (times = 0; times < 3; ++times) {
        call_after_a_pause();
        for (k = 0; k < number; ++k) {
            found = affinity(ids[k]);
            CHECK(CPU_EQUAL(&found, &one));
        }
        found = affinity(0);
        CHECK(CPU_ISSET(caller, &found) && CPU_COUNT(&found) == 1);
    }
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    for (k = 0; k < number; ++k) {
        CHECK(sched_setaffinity(ids[k], sizeof all, &all) == 0);
    }
}

static void in_a_child(void)
{
    int status = 1;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pid_t ids[MOST];
        CHECK(workers(ids) == 0);
        CHECK(net_threads_start(THREADS) == THREADS);
        call_from(first);
        call_from(second);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void)
{
    int k;
    all = affinity(0);
    CHECK(CPU_COUNT(&all) >= 2);
    for (first = 0; !CPU_ISSET(first, &all); ++first) {
    }
    for (second = first + 1; !CPU_ISSET(second, &all); ++second) {
    }
    for (k = 0; k < NET_INPUT_0_SIZE; ++k) {
        in[k] = (float)(k % 17) / 17.0f;
    }
    CHECK(posix_memalign(&arena, NET_ARENA_ALIGN, NET_ARENA_BYTES) == 0);
    CHECK(net_threads_start(1) == 1);
    CHECK(net_call(in, want, arena) == NET_OK);
    CHECK(net_threads_start(THREADS) == THREADS);
    for (k = 0; k < 3; ++k) {
        call_from(first);
        call_from(second);
    }
    pinned(first, first);
    call_from(first);
    call_from(second);
    pinned(second, second);
    call_from(second);
    call_from(first);
    pinned(first, second);
    pinned(second, first);
    in_a_child();
    call_from(first);
    call_from(second);
    free(arena);
    return 0;
}
