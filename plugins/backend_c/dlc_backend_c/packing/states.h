/* States of the search: opened and bounded, changed by a branch, divided into parts, and undone. */
#ifndef DLC_PACKING_STATES_H
#define DLC_PACKING_STATES_H

#include "sections.h"

static void undo(search *s, const state *now)
{
    while (s->change_count > now->changes) {
        const change *last = &s->changes[--s->change_count];
        s->buffers[last->buffer].least = last->least;
        s->buffers[last->buffer].banned = last->banned;
        s->buffers[last->buffer].rank = last->rank;
    }
}

static void note(search *s, int number)
{
    change *next = &s->changes[s->change_count++];
    next->buffer = number;
    next->rank = s->buffers[number].rank;
    next->least = s->buffers[number].least;
    next->banned = s->buffers[number].banned;
}

static int make_room(search *s, long more)
{
    long room = s->change_room;
    change *larger_room;
    if (s->change_count + more <= room)
        return 1;
    while (room < s->change_count + more)
        room *= 2;
    if (room > CHANGES_MAX)
        return 0;
    larger_room = realloc(s->changes, (size_t)room * sizeof *larger_room);
    if (!larger_room)
        return 0;
    s->changes = larger_room;
    s->change_room = room;
    return 1;
}

static int is_passed(const buffer *b, const state *now)
{
    return b->least == b->banned || b->least < now->past || (b->least == now->past && b->rank <= now->past_rank);
}

/* Ranks of what a part has left: by lifetime, by area and by the most bytes that are live beside a buffer, in one of
 * three orders of importance. What was passed over with the ranks before stays so. */
static void rank_part(search *s, state *now)
{
    int k, at;
    for (k = now->begin; k < now->end; ++k)
        for (at = s->buffers[s->order[k]].first; at < s->buffers[s->order[k]].end; ++at)
            s->sections[at].total = 0;
    for (k = now->begin; k < now->end; ++k)
        for (at = s->buffers[s->order[k]].first; at < s->buffers[s->order[k]].end; ++at)
            s->sections[at].total += s->buffers[s->order[k]].size;
    for (k = now->begin; k < now->end; ++k) {
        buffer *b = &s->buffers[s->order[k]];
        ranking *rank = &s->ranks[k];
        double length = (double)(b->death - b->birth), area = length * (double)b->size;
        int64_t total = 0;
        for (at = b->first; at < b->end; ++at)
            total = larger(total, s->sections[at].total);
        note(s, s->order[k]);
        if (is_passed(b, now))
            b->banned = b->least;
        rank->first = s->kind ? (double)total : length;
        rank->second = s->kind == 2 ? length : area;
        rank->third = s->kind == 2 ? area : s->kind ? length : (double)total;
        rank->buffer = s->order[k];
    }
    qsort(s->ranks + now->begin, (size_t)(now->end - now->begin), sizeof *s->ranks, compare_rankings);
    for (k = now->begin; k < now->end; ++k)
        s->buffers[s->ranks[k].buffer].rank = k;
    now->past_rank = -1;
}

/* Which buffers of a state were passed over, the bounds that follow from single buffers, and its key: 0 if refuted. */
static int judge_buffers(search *s, state *now, int64_t *base)
{
    int64_t lowest = NONE, least_top = NONE;
    uint64_t first = 1, second = 2;
    int k;
    for (k = now->begin; k < now->end; ++k) {
        buffer *b = &s->buffers[s->order[k]];
        uint64_t word;
        b->passed = is_passed(b, now);
        if (!b->passed && b->least < lowest)
            lowest = b->least;
        if (b->least + b->size < least_top)
            least_top = b->least + b->size;
        word = mixed(((uint64_t)b->least << 1 | (uint64_t)b->passed) + mixed((uint64_t)s->order[k] + 1));
        first += word;
        second += mixed(word ^ UINT64_C(0x9e3779b97f4a7c15));
    }
    now->key[0] = first;
    now->key[1] = second;
    now->least_top = least_top;
    *base = lowest;
    return lowest < least_top; /* nothing is above NONE */
}

/* The bounds that follow from what is left in every section: 0 if one is above the capacity. `base`: the least offset at
 * which anything will be placed. */
static int judge_sections(search *s, const state *now, int64_t base)
{
    int k, at, first = s->section_count, end = 0;
    for (k = now->begin; k < now->end; ++k) {
        const buffer *b = &s->buffers[s->order[k]];
        first = b->first < first ? b->first : first;
        end = b->end > end ? b->end : end;
    }
    for (at = first; at < end; ++at) {
        section *x = &s->sections[at];
        x->top = x->second = x->low = NONE;
        x->total = 0;
        x->who = -1;
    }
    for (k = now->begin; k < now->end; ++k) {
        buffer *b = &s->buffers[s->order[k]];
        int64_t top;
        b->low = larger(b->least, base);
        top = b->low + b->size;
        for (at = b->first; at < b->end; ++at) {
            section *x = &s->sections[at];
            if (top < x->top) {
                x->second = x->top;
                x->top = top;
                x->who = s->order[k];
            } else if (top < x->second) {
                x->second = top;
            }
            x->total += b->size;
        }
        s->work += b->end - b->first;
    }
    for (k = now->begin; k < now->end; ++k) {
        buffer *b = &s->buffers[s->order[k]];
        if (b->passed) {
            int64_t under = NONE; /* the least end of another that it could come to lie upon */
            for (at = b->first; at < b->end; ++at) {
                const section *x = &s->sections[at];
                int64_t top = x->who == s->order[k] ? x->second : x->top;
                under = top < under ? top : under;
            }
            if (under > s->capacity - b->size)
                return 0;
            b->low = larger(b->low, under);
        }
        for (at = b->first; at < b->end; ++at)
            if (b->low < s->sections[at].low)
                s->sections[at].low = b->low;
    }
    for (at = first; at < end; ++at)
        if (s->sections[at].total && s->sections[at].low > s->capacity - s->sections[at].total)
            return 0;
    return 1;
}

/* A new state on top of the path: 0 if it is refuted at once. */
static int open_state(search *s, int parent, int begin, int end)
{
    state *now = &s->states[s->depth++];
    const uint64_t *known;
    int64_t base;
    now->begin = begin;
    now->end = end;
    now->parent = parent;
    now->past = s->states[parent].past;
    now->past_rank = s->states[parent].past_rank;
    now->parts = s->cut_count;
    now->count = now->part = 0;
    if (!parent || s->states[parent].count > 1)
        rank_part(s, now);
    now->changes = s->change_count;
    if (!judge_buffers(s, now, &base))
        return 0;
    known = s->table[now->key[0] & s->mask];
    if (known[0] == now->key[0] && known[1] == now->key[1])
        return 0;
    return judge_sections(s, now, base);
}

/* The position in `order` of the buffer to branch on next, or -1. */
static int next_branch(const search *s, const state *now)
{
    int64_t offset = now->least_top;
    int k, rank = 0, found = -1;
    for (k = now->begin; k < now->end; ++k) {
        const buffer *b = &s->buffers[s->order[k]];
        if (b->least > offset || b->least >= now->least_top || (b->least == offset && b->rank > rank))
            continue;
        if (is_passed(b, now))
            continue;
        offset = b->least;
        rank = b->rank;
        found = k;
    }
    return found;
}

/* Place the buffer at a position of `order`, which moves to the end of the state's range: 0 if one is left no room. */
static int place(search *s, state *now, int at)
{
    int placed = s->order[at], k;
    buffer *b = &s->buffers[placed];
    int64_t top = b->least + b->size;
    now->past = b->offset = b->least;
    now->past_rank = b->rank;
    s->order[at] = s->order[now->end - 1];
    s->order[now->end - 1] = placed;
    for (k = now->begin; k < now->end - 1; ++k) {
        buffer *other = &s->buffers[s->order[k]];
        if (other->least >= top || other->end <= b->first || other->first >= b->end)
            continue;
        if (other->size > s->capacity - top)
            return 0;
        note(s, s->order[k]);
        other->least = top;
    }
    return 1;
}

/* How many of `count` ascending numbers are at most `value`. */
static int at_most(const int *numbers, int count, int value)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (numbers[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The sections that no buffer of [begin, end) in `order` shares with the one before, ascending: how many. */
static int find_cuts(search *s, int begin, int end, int *cuts)
{
    int k, at, first = s->section_count, last = 0, crossing = 0, count = 0;
    for (k = begin; k < end; ++k) {
        const buffer *b = &s->buffers[s->order[k]];
        first = b->first < first ? b->first : first;
        last = b->end > last ? b->end : last;
    }
    for (at = first; at < last; ++at)
        s->sections[at].crossing = 0;
    for (k = begin; k < end; ++k) {
        const buffer *b = &s->buffers[s->order[k]];
        if (b->first + 1 < b->end) {
            ++s->sections[b->first + 1].crossing;
            if (b->end < last)
                --s->sections[b->end].crossing;
        }
    }
    for (at = first + 1; at < last; ++at) {
        crossing += s->sections[at].crossing;
        if (!crossing)
            cuts[count++] = at;
    }
    return count;
}

/* Divide what a state has left, up to `end` of `order`, where no buffer crosses from a section to the next: the parts
 * follow each other in `order`, and `cuts` gets two entries for each, where it begins and ends. */
static void divide(search *s, state *now, int end)
{
    int k, part, *cuts = s->scratch, *copy = cuts + s->n + 1, *starts = copy + s->n + 1;
    int count = find_cuts(s, now->begin, end, cuts);
    now->parts = s->cut_count;
    now->count = now->part = 0;
    memcpy(copy, s->order + now->begin, (size_t)(end - now->begin) * sizeof *copy);
    memset(starts, 0, ((size_t)count + 1) * sizeof *starts);
    for (k = now->begin; k < end; ++k)
        ++starts[at_most(cuts, count, s->buffers[s->order[k]].first)];
    for (part = 0, k = now->begin; part <= count; ++part) {
        int size = starts[part];
        starts[part] = k;
        if (size) { /* in some sections nothing is left */
            s->cuts[s->cut_count++] = k;
            s->cuts[s->cut_count++] = k += size;
            ++now->count;
        }
    }
    for (k = 0; count && k < end - now->begin; ++k)
        s->order[starts[at_most(cuts, count, s->buffers[copy[k]].first)]++] = copy[k];
}

#endif
