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
#include "states.h"

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
