/* The sections of an instance, and the order in which its buffers are ranked. */
#ifndef DLC_PACKING_SECTIONS_H
#define DLC_PACKING_SECTIONS_H

#include "search.h"

static int compare_steps(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

/* The first of `count` ascending steps that is not below `step`. */
static int position(const int64_t *steps, int count, int64_t step)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (steps[middle] < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The births after which some buffer dies before the next birth: there, the buffers that are live are no subset of
 * those of another step. `births` and `deaths` have room for n steps; `births` gets the result. */
static int find_sections(const buffer *buffers, int n, int64_t *births, int64_t *deaths)
{
    int k, distinct = 0, count = 0, died = 0;
    for (k = 0; k < n; ++k) {
        births[k] = buffers[k].birth;
        deaths[k] = buffers[k].death;
    }
    qsort(births, (size_t)n, sizeof *births, compare_steps);
    qsort(deaths, (size_t)n, sizeof *deaths, compare_steps);
    for (k = 0; k < n; ++k)
        if (!distinct || births[k] != births[distinct - 1])
            births[distinct++] = births[k];
    for (k = 0; k < distinct; ++k) {
        while (deaths[died] <= births[k])
            ++died;
        if (k + 1 == distinct || deaths[died] <= births[k + 1])
            births[count++] = births[k];
    }
    return count;
}

static int compare_rankings(const void *left, const void *right)
{
    const ranking *a = left, *b = right;
    if (a->first != b->first)
        return a->first > b->first ? -1 : 1;
    if (a->second != b->second)
        return a->second > b->second ? -1 : 1;
    if (a->third != b->third)
        return a->third > b->third ? -1 : 1;
    return (a->buffer > b->buffer) - (a->buffer < b->buffer);
}

#endif
