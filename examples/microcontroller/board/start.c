/* Start-up of a Cortex-M4 without an operating system, and a serial port: what a board's package provides. */
#include "board.h"

#include <stdint.h>
#include <string.h>

extern uint32_t data_start[], data_end[], data_from[], bss_start[], bss_end[], stack_end[];
int main(void);

#define CPACR (*(volatile uint32_t *)0xE000ED88)
#define UART_DATA (*(volatile uint32_t *)0x40004000)
#define UART_STATE (*(volatile uint32_t *)0x40004004)
#define UART_CONTROL (*(volatile uint32_t *)0x40004008)
#define UART_DIVIDER (*(volatile uint32_t *)0x40004010)

static void put(char c)
{
    while (UART_STATE & 1u) {
    }
    UART_DATA = (uint32_t)(unsigned char)c;
}

void put_text(const char *text)
{
    while (*text != '\0')
        put(*text++);
}

void put_number(long number)
{
    char digits[24];
    size_t at = sizeof digits - 1;
    unsigned long rest = number < 0 ? -(unsigned long)number : (unsigned long)number;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest != 0);
    if (number < 0)
        put('-');
    put_text(digits + at);
}

void put_decimal(float number)
{
    const long thousandths = (long)(number * 1000.0f + (number < 0 ? -0.5f : 0.5f));
    const long size = thousandths < 0 ? -thousandths : thousandths;
    if (thousandths < 0)
        put('-');
    put_number(size / 1000);
    put('.');
    put((char)('0' + size / 100 % 10));
    put((char)('0' + size / 10 % 10));
    put((char)('0' + size % 10));
}

/* Semihosting: the debugger or simulator does what register r0 says. */
void stop(int failed)
{
    static uint32_t reason[2];
    register uint32_t r0 __asm__("r0") = 0x20; /* SYS_EXIT_EXTENDED */
    register const void *r1 __asm__("r1") = reason;
    reason[0] = 0x20026; /* ADP_Stopped_ApplicationExit */
    reason[1] = (uint32_t)failed;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    for (;;) {
    }
}

static void fault(void)
{
    put_text("fault\n");
    stop(2);
}

void start(void);
void start(void)
{
    CPACR |= 0xfu << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n\tisb");
    memcpy(data_start, data_from, (size_t)((char *)data_end - (char *)data_start));
    memset(bss_start, 0, (size_t)((char *)bss_end - (char *)bss_start));
    UART_DIVIDER = 16;
    UART_CONTROL = 1;
    stop(main());
}

typedef void handler(void);
__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    handler *handlers[15];
} vectors = { stack_end, { start, fault, fault, fault, fault, fault } };
