/* The serial port of the board mps2-an386, and the end of a program that a simulator runs. */
#ifndef BOARD_H
#define BOARD_H

#ifdef __cplusplus
extern "C" {
#endif

void put_text(const char *text);
void put_number(long number);
/* With three digits behind the point. */
void put_decimal(float number);
/* Ends the simulation; a board without a debugger stops here. */
void stop(int failed);

#ifdef __cplusplus
}
#endif

#endif
