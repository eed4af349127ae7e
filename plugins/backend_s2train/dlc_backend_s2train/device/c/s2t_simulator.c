/* The five functions of a board over a pipe to a command; the protocol is that of docs/s2train-host.md. POSIX.

     cc -shared -fPIC s2t_simulator.c -o libs2t_simulator.so
*/
#define _POSIX_C_SOURCE 200809L
#include "s2t_simulator.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 1 << 20, FAILED = 3, TEXT = 512 };

struct board {
    FILE *requests, *replies;
    pid_t child;
    char problem[TEXT];
};

static int failed(struct board *board, const char *why)
{
    snprintf(board->problem, TEXT, "%s", why);
    return FAILED;
}

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int k = 0; k < bytes; k++)
        at[k] = (unsigned char)(value >> 8 * k);
}

static uint64_t got(const unsigned char *at, int bytes)
{
    uint64_t value = 0;
    for (int k = 0; k < bytes; k++)
        value |= (uint64_t)at[k] << 8 * k;
    return value;
}

static int request(struct board *board, char op, int space, uint64_t address, size_t size, const void *data)
{
    unsigned char head[16] = {(unsigned char)op, (unsigned char)space};
    put(head + 4, size, 4);
    put(head + 8, address, 8);
    if (fwrite(head, 1, sizeof head, board->requests) != sizeof head
        || (data && size && fwrite(data, 1, size, board->requests) != size))
        return failed(board, "the device has ended");
    return 0;
}

static int reply(struct board *board, void *data, size_t size)
{
    unsigned char head[8];
    if (fflush(board->requests) || fread(head, 1, sizeof head, board->replies) != sizeof head)
        return failed(board, "the device has ended");
    int status = (int)got(head, 4);
    size_t held = (size_t)got(head + 4, 4);
    if (!status) {
        if (held != size || (size && fread(data, 1, size, board->replies) != size))
            return failed(board, "the device gave another number of bytes");
        return 0;
    }
    size_t kept = held < TEXT ? held : TEXT - 1;
    if (status < 1 || status > FAILED || held > MOST || fread(board->problem, 1, kept, board->replies) != kept)
        return failed(board, "the device gave no reply of the protocol");
    board->problem[kept] = 0;
    for (; kept < held; kept++)
        if (fgetc(board->replies) == EOF)
            return failed(board, "the device has ended");
    return status;
}

void *s2t_open(const char *command)
{
    struct board *board = calloc(1, sizeof *board);
    int down[2], up[2];
    if (!board)
        return 0;
    if (pipe(down)) {
        free(board);
        return 0;
    }
    if (pipe(up)) {
        close(down[0]);
        close(down[1]);
        free(board);
        return 0;
    }
    signal(SIGPIPE, SIG_IGN); /* a device that ends is a status */
    fflush(0);
    board->child = fork();
    if (!board->child) {
        dup2(down[0], 0);
        dup2(up[1], 1);
        close(down[0]);
        close(down[1]);
        close(up[0]);
        close(up[1]);
        execl("/bin/sh", "sh", "-c", command ? command : "dlc board", (char *)0);
        _exit(127);
    }
    close(down[0]);
    close(up[1]);
    board->requests = fdopen(down[1], "wb");
    board->replies = fdopen(up[0], "rb");
    if (board->child < 0 || !board->requests || !board->replies) {
        s2t_close(board);
        return 0;
    }
    return board;
}

void s2t_close(void *of)
{
    struct board *board = of;
    if (!board)
        return;
    if (board->requests)
        fclose(board->requests);
    if (board->replies)
        fclose(board->replies);
    if (board->child > 0)
        waitpid(board->child, 0, 0);
    free(board);
}

const char *s2t_problem(const void *of)
{
    const struct board *board = of;
    return board->problem;
}

int s2t_write(void *board, int space, uint64_t address, const void *data, size_t size)
{
    const unsigned char *bytes = data;
    for (size_t at = 0; at < size; at += MOST) {
        size_t part = size - at < MOST ? size - at : MOST;
        int status = request(board, 'W', space, address + at, part, bytes + at);
        if (status)
            return status;
    }
    return 0;
}

int s2t_read(void *board, int space, uint64_t address, void *data, size_t size)
{
    unsigned char *bytes = data;
    for (size_t at = 0; at < size; at += MOST) {
        size_t part = size - at < MOST ? size - at : MOST;
        int status = request(board, 'R', space, address + at, part, 0);
        if (!status)
            status = reply(board, bytes + at, part);
        if (status)
            return status;
    }
    return 0;
}

int s2t_start(void *board)
{
    return request(board, 'S', 0, 0, 0, 0);
}

int s2t_wait(void *board)
{
    int status = request(board, 'E', 0, 0, 0, 0);
    return status ? status : reply(board, 0, 0);
}

uint64_t s2t_time(void *board)
{
    unsigned char held[8] = {0};
    if (request(board, 'T', 0, 0, 0, 0) || reply(board, held, sizeof held))
        return 0;
    return got(held, 8);
}
