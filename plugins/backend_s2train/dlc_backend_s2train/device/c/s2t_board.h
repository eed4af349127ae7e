/* What a board provides to a driver that dlc wrote: memory, registers and a start. Every function gives 0 or a status.
   docs/s2train-host.md describes the registers. */
#ifndef S2T_BOARD_H
#define S2T_BOARD_H

#include <stddef.h>
#include <stdint.h>

enum { S2T_MEMORY = 0, S2T_REGISTERS = 1 };

/* Put bytes into memory, or 32-bit registers, little-endian. */
int s2t_write(void *board, int space, uint64_t address, const void *data, size_t size);
/* Take bytes from there. */
int s2t_read(void *board, int space, uint64_t address, void *data, size_t size);
/* The operation in the registers begins. */
int s2t_start(void *board);
/* Until it has ended. */
int s2t_wait(void *board);
/* Cycles since the device was switched on. */
uint64_t s2t_time(void *board);

#endif
