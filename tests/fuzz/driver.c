/* Runs programs of a table on buffers from standard input; writes what they gave to standard output.
 *
 * Every buffer has its exact size, so that a sanitizer sees one byte too many, and begins where its element type just
 * allows. Results and the arena start as NaN. Every program runs twice: what the first run left must not matter. */
#define _POSIX_C_SOURCE 200112L
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int program(const void *const *inputs, void *const *outputs, void *arena);
#include "table.h" /* the array `programs` of all of them */

static uint64_t number(void)
{
    uint64_t found;
    if (fread(&found, sizeof found, 1, stdin) != 1)
        exit(0);
    return found;
}

/* Where `bytes` bytes begin, `skew` behind a multiple of 64; `*block` is to be freed. */
static void *buffer(size_t bytes, size_t skew, void **block)
{
    *block = NULL;
    if (posix_memalign(block, 64, bytes + skew ? bytes + skew : 1))
        abort();
    memset(*block, 0xff, bytes + skew);
    return (unsigned char *)*block + skew;
}

static void fill(void *place, size_t bytes)
{
    if (bytes && fread(place, 1, bytes, stdin) != bytes)
        abort();
}

/* Reads: index, inputs (bytes, skew, content), outputs (bytes, skew, 0 or 1 + the input it shares), bytes of the arena,
 * sizes that they depend on, by which the program tells them.
 * Writes: index, status, content of the outputs. */
int main(void)
{
    for (;;) {
        uint64_t index = number(), ins = number(), outs, k, arena_bytes, status;
        void **blocks, **in, **keep, **out, **first, *arena, *arena_block;
        size_t *in_bytes, *out_bytes, *shared;
        in_bytes = malloc((ins + 1) * sizeof *in_bytes);
        in = malloc((ins + 1) * sizeof *in);
        keep = malloc((ins + 1) * sizeof *keep);
        blocks = malloc((ins + 1) * sizeof *blocks);
        for (k = 0; k < ins; k++) {
            size_t skew;
            in_bytes[k] = number();
            skew = number();
            in[k] = buffer(in_bytes[k], skew, &blocks[k]);
            fill(in[k], in_bytes[k]);
            keep[k] = malloc(in_bytes[k] + 1);
            memcpy(keep[k], in[k], in_bytes[k]);
        }
        outs = number();
        out_bytes = malloc((outs + 1) * sizeof *out_bytes);
        out = malloc((outs + 1) * sizeof *out);
        first = malloc((outs + 1) * sizeof *first);
        shared = malloc((outs + 1) * sizeof *shared);
        {
            void **own = malloc((outs + 1) * sizeof *own);
            for (k = 0; k < outs; k++) {
                size_t skew;
                out_bytes[k] = number();
                skew = number();
                shared[k] = number();
                out[k] = shared[k] ? in[shared[k] - 1] : buffer(out_bytes[k], skew, &own[k]);
                if (shared[k])
                    own[k] = NULL;
                first[k] = malloc(out_bytes[k] + 1);
            }
            arena_bytes = number();
            {
                int64_t sizes[16];
                uint64_t count = number();
                for (k = 0; k < count; k++) {
                    uint64_t size = number();
                    sizes[k % 16] = (int64_t)size;
                }
                if (arenas[index])
                    arena_bytes = arenas[index](sizes);
            }
            arena = buffer(arena_bytes, 0, &arena_block);
            status = (uint64_t)programs[index]((const void *const *)in, out, arena);
            for (k = 0; k < outs; k++) {
                memcpy(first[k], out[k], out_bytes[k]);
                if (!shared[k])
                    memset(out[k], 0xff, out_bytes[k]);
            }
            for (k = 0; k < ins; k++)
                memcpy(in[k], keep[k], in_bytes[k]);
            if (status == 0)
                status = (uint64_t)programs[index]((const void *const *)in, out, arena);
            for (k = 0; k < outs; k++)
                if (status == 0 && memcmp(first[k], out[k], out_bytes[k]))
                    status = 100; /* the second run gave something else */
            for (k = 0; k < ins; k++) {
                size_t j, written = 0;
                for (j = 0; j < outs; j++)
                    written |= shared[j] == k + 1;
                if (status == 0 && !written && memcmp(in[k], keep[k], in_bytes[k]))
                    status = 101; /* an input was written to */
            }
            fwrite(&index, sizeof index, 1, stdout);
            fwrite(&status, sizeof status, 1, stdout);
            for (k = 0; k < outs; k++) {
                if (out_bytes[k])
                    fwrite(first[k], 1, out_bytes[k], stdout);
                free(first[k]);
                free(own[k]);
            }
            fflush(stdout);
            free(own);
        }
        for (k = 0; k < ins; k++) {
            free(blocks[k]);
            free(keep[k]);
        }
        free(arena_block);
        free(in_bytes), free(in), free(keep), free(blocks), free(out_bytes), free(out), free(first), free(shared);
    }
}
