/* What the search of placements (packing.c) knows: buffers, sections, and the states on its path. */
#ifndef DLC_PACKING_SEARCH_H
#define DLC_PACKING_SEARCH_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { REFUTED = 0, PACKED = 1, OUT_OF_WORK = 2, STOPPED = 3, OUT_OF_MEMORY = 4 };

#define RANKINGS 3
#define TABLE_BITS 20             /* of states kept, 16 bytes each */
#define CHANGES_MAX (1L << 26)    /* changes of least offsets that can be undone, 16 bytes each */
#define NONE INT64_MAX

typedef struct {
    int64_t birth, death, size;
    int64_t least;     /* the least offset that the buffers placed before allow */
    int64_t offset;    /* where it is placed */
    int64_t low;       /* a bound on its offset that holds below the present state */
    int64_t banned;    /* if it is `least`: the buffer was passed over, with other ranks than it has now */
    int first, end;    /* the sections in which it is live: [first, end) */
    int rank, passed;
} buffer;

/* What is known of a section while one state is bounded. */
typedef struct {
    int64_t top, second;    /* the two least offsets at which buffers that are left can end */
    int64_t low;            /* the least offset of those */
    int64_t total;          /* the sum of their sizes */
    int who;                /* whose end `top` is */
    int crossing;           /* how many more are live in this section and the one before, than one section earlier */
} section;

/* One state on the path: a part of the buffers, [begin, end) of `order`, and the branch that is being searched. */
typedef struct {
    int begin, end, parent;
    int64_t past, least_top;    /* branches taken so far: offset; no buffer begins at or above least_top */
    int past_rank;
    uint64_t key[2];
    long changes;               /* how many changes there were before the branch */
    int parts, count, part;     /* where its parts begin in `cuts`, how many they are, which is being searched */
} state;

/* What a buffer was before it changed. */
typedef struct {
    int buffer, rank;
    int64_t least, banned;
} change;

/* By what buffers are ranked: the largest first. */
typedef struct {
    double first, second, third;
    int buffer;
} ranking;

typedef struct {
    buffer *buffers;
    section *sections;
    state *states;
    change *changes;
    ranking *ranks;
    int *order, *cuts, *scratch;    /* scratch: room for 3 (n + 1) */
    uint64_t (*table)[2];
    uint64_t mask;
    long change_count, change_room;
    int n, section_count, depth, cut_count, kind;
    int64_t capacity, work;
    const volatile int *stop;
} search;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    x = (x ^ (x >> 32)) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ (x >> 32);
}

#endif
