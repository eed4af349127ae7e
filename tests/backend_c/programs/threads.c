/* A program for several threads: the same bits however many there are, whoever runs them, and whoever else calls.
 *
 * POOL is OWN, OPENMP or CALLER. FORK: a child process calls, too. Says nothing.
 */
#define _POSIX_C_SOURCE 200809L
#include "net.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN 1
#define OPENMP 2
#define CALLER 3
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { CALLERS = 2, ROUNDS = 20 };
static float in[CALLERS][NET_INPUT_0_SIZE], want[CALLERS][NET_OUTPUT_0_SIZE];

/* One call with an arena of its own, all of which is rubbish before. */
static void call(int number, float *out)
{
    void *arena = NULL;
    CHECK(posix_memalign(&arena, NET_ARENA_ALIGN, NET_ARENA_BYTES) == 0);
    memset(arena, 0xff, NET_ARENA_BYTES);
    CHECK(net_call(in[number], out, arena) == NET_OK);
    free(arena);
}

static void compare(int number)
{
    float *out = (float *)malloc(NET_OUTPUT_0_BYTES);
    CHECK(out != NULL);
    call(number, out);
    CHECK(memcmp(out, want[number], NET_OUTPUT_0_BYTES) == 0);
    free(out);
}

static void *several(void *number)
{
    int k;
    for (k = 0; k < ROUNDS; ++k) {
        compare(*(int *)number);
    }
    return NULL;
}

static void at_once(void)
{
    pthread_t threads[CALLERS];
    int numbers[CALLERS], k;
    for (k = 0; k < CALLERS; ++k) {
        numbers[k] = k;
        CHECK(pthread_create(&threads[k], NULL, several, &numbers[k]) == 0);
    }
    for (k = 0; k < CALLERS; ++k) {
        CHECK(pthread_join(threads[k], NULL) == 0);
    }
}

static void in_a_child(void)
{
#ifdef FORK
    int status = 1;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        compare(0);
        exit(0); /* as other programs do: the library is told */
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    compare(0);
#endif
}

#if POOL == CALLER
static int loops;

static void backwards(void *context, void (*body)(void *, size_t), size_t count, void *user)
{
    CHECK(user == (void *)want && count >= 1 && count <= NET_THREADS);
    ++loops;
    while (count-- > 0) {
        body(context, count);
    }
}

struct range {
    void *context;
    void (*body)(void *, size_t);
    size_t k;
};

static void *run(void *range)
{
    struct range *const r = (struct range *)range;
    r->body(r->context, r->k);
    return NULL;
}

/* A thread for each. */
static void together(void *context, void (*body)(void *, size_t), size_t count, void *user)
{
    pthread_t threads[NET_THREADS];
    struct range ranges[NET_THREADS];
    size_t k;
    (void)user;
    for (k = 0; k < count; ++k) {
        ranges[k].context = context;
        ranges[k].body = body;
        ranges[k].k = k;
        CHECK(pthread_create(&threads[k], NULL, run, &ranges[k]) == 0);
    }
    for (k = 0; k < count; ++k) {
        CHECK(pthread_join(threads[k], NULL) == 0);
    }
}
#endif

int main(void)
{
    int k, n;
    for (n = 0; n < CALLERS; ++n) {
        for (k = 0; k < NET_INPUT_0_SIZE; ++k) {
            in[n][k] = (float)((k * (n + 3)) % 17) / 17.0f;
        }
    }
#if POOL == OWN
    CHECK(net_threads_start(1) == 1);
#endif
    for (n = 0; n < CALLERS; ++n) {
        call(n, want[n]);
    }
#if POOL == OWN
    for (n = 1; n <= NET_THREADS; n = n < 4 ? n + 1 : 2 * n) {
        CHECK(net_threads_start((unsigned)n) == (unsigned)n);
        compare(n % CALLERS);
        compare(0);
    }
    for (k = 0; k < 5; ++k) {
        net_threads_stop();
        net_threads_stop();
        compare(0); /* starts them again */
    }
    in_a_child();
    at_once();
    net_threads_stop();
    at_once(); /* both may be the first */
    in_a_child();
#elif POOL == OPENMP
    compare(0);
    at_once();
#ifdef FORK
#error "OpenMP's threads do not outlive a fork"
#endif
    in_a_child();
#else
    net_set_parallel_for(backwards, want);
    compare(0);
    CHECK(loops > 0);
    net_set_parallel_for(together, NULL);
    compare(1);
    at_once();
    net_set_parallel_for(NULL, NULL);
    loops = 0;
    compare(0);
    CHECK(loops == 0);
    in_a_child();
#endif
    return 0;
}
