/* Whether buffers with fixed lifetimes fit into a memory of a given size: a complete branch and bound.
 *
 * Buffers are placed upwards. In a placement that cannot be pushed down any further, every buffer lies at 0 or where
 * the highest of those below it ends; in the order of (offset, rank) each therefore lies at the least offset that those
 * before it allow. Only such *canonical* placements are searched (Moffitt, MiniMalloc, ASPLOS 2023), each of them once:
 *
 *   state      the buffers that are not placed yet, the least offset of each, and which of them were passed over
 *   branch     the next buffer in the order of (least offset, rank), at its least offset
 *   passed     a buffer whose turn went by must come to lie higher than its least offset: upon one that is not placed
 *   hatless    nothing begins where one that is not placed could end: that one would lie below, so another branch has it
 *   sections   in every section (a set of buffers that are live at one step, and no larger set) the least offset of all
 *              that are left plus the sum of their sizes is at most the capacity
 *   parts      where no buffer that is left crosses from some section to the next, the two sides are searched apart, each
 *              with ranks that follow from what is left there
 *   refuted    a state that was refuted is not searched again. States are known by 128 bits of hash: of 10^9 states two
 *              are confused with a probability below 10^-20
 *
 * The search starts again with other ranks and twice the branches as long as its budget lasts; what was refuted stays so.
 * Results depend on the arguments only. Memory grows with the buffers and with the pairs of them that are live together,
 * up to a limit; nothing recurses.
 */
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

/* ---- sections and ranks ---------------------------------------------------------------------------------------- */

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

/* ---- states ---------------------------------------------------------------------------------------------------- */

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

/* ---- the search ------------------------------------------------------------------------------------------------ */

/* The state on top is refuted: note it, and go back to the one whose branch led there. */
static void refute(search *s)
{
    state *now = &s->states[s->depth - 1], *parent = &s->states[now->parent];
    uint64_t *known = s->table[now->key[0] & s->mask];
    known[0] = now->key[0];
    known[1] = now->key[1];
    undo(s, parent);
    s->depth = now->parent + 1;
    s->cut_count = parent->parts;
}

/* Open the next part of the state at `at`; where it has none left, of the one before it. 0: there is none at all. */
static int go_on(search *s, int at)
{
    for (; at >= 0; at = s->states[at].parent) {
        state *now = &s->states[at];
        if (now->part < now->count) {
            const int *cut = &s->cuts[now->parts + 2 * now->part++];
            s->depth = at + 1;
            s->cut_count = now->parts + 2 * now->count;
            if (!open_state(s, at, cut[0], cut[1]))
                refute(s);
            return 1;
        }
    }
    return 0;
}

/* One search from the start, of so many branches and until so much work is done. */
static int search_ranked(search *s, int64_t branches, int64_t work)
{
    state *root = &s->states[0];
    int k;
    s->change_count = 0;
    for (k = 0; k < s->n; ++k) {
        s->order[k] = k;
        s->buffers[k].least = 0;
        s->buffers[k].banned = -1;
    }
    if (!make_room(s, 2 * (long)s->n))
        return OUT_OF_MEMORY;
    s->depth = 1;
    s->cut_count = 0;
    root->parent = -1;
    root->begin = 0;
    root->end = s->n;
    root->past = 0;
    root->past_rank = -1;
    root->changes = 0;
    divide(s, root, s->n);
    if (!go_on(s, 0))
        return PACKED;
    while (s->depth > 1) {
        state *now = &s->states[s->depth - 1];
        int at = next_branch(s, now);
        if (at < 0) {
            refute(s);
            continue;
        }
        if (branches-- <= 0 || s->work >= work)
            return OUT_OF_WORK;
        if (*s->stop)
            return STOPPED;
        if (!make_room(s, 2 * (long)s->n)) /* to place one, and to rank the next part */
            return OUT_OF_MEMORY;
        s->work += now->end - now->begin;
        if (!place(s, now, at)) {
            undo(s, now);
            continue;
        }
        now->parts = s->cut_count;
        now->count = now->part = 0;
        if (now->end - 1 > now->begin)
            divide(s, now, now->end - 1);
        if (!go_on(s, s->depth - 1))
            return PACKED;
    }
    return REFUTED;
}

static int search_all(search *s, int64_t work)
{
    int64_t branches = 2 * (int64_t)s->n;
    for (;; branches *= 2)
        for (s->kind = 0; s->kind < RANKINGS; ++s->kind) {
            int found = search_ranked(s, branches, work);
            if (found != OUT_OF_WORK || s->work >= work)
                return found;
        }
}

/* Whether buffers fit, and where. A buffer of `size[k]` bytes is live at the steps [birth[k], death[k]).
 *
 * Sizes are above 0 and at most `capacity`, which is at most 2^61, and so is the sum of what is live at a step; births
 * are below deaths. `work` is what may be inspected, buffers and the sections of each, and gets what was, which may be a
 * little more. A `*stop` that another thread sets ends the search soon.
 *
 * Returns PACKED with `offsets` set, REFUTED if the buffers do not fit, OUT_OF_WORK, STOPPED, or OUT_OF_MEMORY. */
int dlc_pack(int n, const int64_t *birth, const int64_t *death, const int64_t *size, int64_t capacity, int64_t *work,
             const volatile int *stop, int64_t *offsets);

int dlc_pack(int n, const int64_t *birth, const int64_t *death, const int64_t *size, int64_t capacity, int64_t *work,
             const volatile int *stop, int64_t *offsets)
{
    size_t room = (size_t)n + 1;
    int64_t *births = calloc(room, sizeof *births), *deaths = calloc(room, sizeof *deaths);
    search s;
    int k, found = OUT_OF_MEMORY;
    memset(&s, 0, sizeof s);
    s.n = n;
    s.capacity = capacity;
    s.stop = stop;
    s.mask = (UINT64_C(1) << (n + 2 < TABLE_BITS ? n + 2 : TABLE_BITS)) - 1; /* of few buffers there are few states */
    s.change_room = 1024;
    s.ranks = calloc(room, sizeof *s.ranks);
    s.scratch = calloc(3 * room, sizeof *s.scratch);
    s.buffers = calloc(room, sizeof *s.buffers);
    s.sections = calloc(room, sizeof *s.sections);
    s.states = calloc(room + 1, sizeof *s.states);
    s.order = calloc(room, sizeof *s.order);
    s.cuts = calloc(4 * room, sizeof *s.cuts);
    s.table = calloc((size_t)s.mask + 1, sizeof *s.table);
    s.changes = calloc((size_t)s.change_room, sizeof *s.changes);
    if (births && deaths && s.ranks && s.scratch && s.buffers && s.sections && s.states && s.order && s.cuts && s.table &&
        s.changes) {
        for (k = 0; k < n; ++k) {
            s.buffers[k].birth = birth[k];
            s.buffers[k].death = death[k];
            s.buffers[k].size = size[k];
        }
        s.section_count = find_sections(s.buffers, n, births, deaths);
        for (k = 0; k < n; ++k) {
            s.buffers[k].first = position(births, s.section_count, birth[k]);
            s.buffers[k].end = position(births, s.section_count, death[k]);
        }
        found = n ? search_all(&s, *work) : PACKED;
        *work = s.work;
        for (k = 0; found == PACKED && k < n; ++k)
            offsets[k] = s.buffers[k].offset;
    }
    free(births);
    free(deaths);
    free(s.ranks);
    free(s.scratch);
    free(s.buffers);
    free(s.sections);
    free(s.states);
    free(s.order);
    free(s.cuts);
    free(s.table);
    free(s.changes);
    return found;
}
