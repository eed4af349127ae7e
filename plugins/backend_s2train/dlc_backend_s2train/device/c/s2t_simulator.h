/* A simulated board: the five functions of s2t_board.h over a pipe to a command, `dlc board` by default. */
#ifndef S2T_SIMULATOR_H
#define S2T_SIMULATOR_H

#include "s2t_board.h"

/* Start the command in a shell; 0: that failed. What it gives is the board of the five functions. */
void *s2t_open(const char *command);
/* End it. */
void s2t_close(void *board);
/* Why the last function gave a status, as text. */
const char *s2t_problem(const void *board);

#endif
