/* A computer in place of the board: the same program prints to the terminal. */
#include "board.h"

#include <stdio.h>

void put_text(const char *text)
{
    fputs(text, stdout);
}

void put_number(long number)
{
    printf("%ld", number);
}

void put_decimal(float number)
{
    printf("%.3f", (double)number);
}
