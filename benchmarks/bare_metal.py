"""Images for a Cortex-M4 without an operating system, run by qemu-system-arm, and what they take.

Instructions are counted by the SysTick timer: with `-icount shift=0` an instruction takes a nanosecond of the machine's
time. The stack is filled with a pattern first, so that the deepest use shows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

CC = "arm-none-eabi-gcc"
FLAGS = (
    *("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-std=gnu99", "-ffp-contract=fast"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffunction-sections", "-fdata-sections", "-w"),
)
STACK = 3 << 20
"""Bytes that the image keeps for its stack: more than any program has, so that what it uses is measured."""
TICK = 40
"""Instructions in a tick of the timer, which counts at 25 MHz."""

# 4 MiB each of flash and RAM, as mps2-an386 has them.
_LINK = """\
ENTRY(start)
MEMORY { FLASH (rx) : ORIGIN = 0, LENGTH = 4M  RAM (rwx) : ORIGIN = 0x20000000, LENGTH = 4M }
SECTIONS {
  .text : { KEEP(*(.vectors)) *(.text*) *(.rodata*) . = ALIGN(4); } > FLASH
  .ARM.exidx : { *(.ARM.exidx*) } > FLASH
  .data : { data_start = .; *(.data*) . = ALIGN(4); data_end = .; } > RAM AT > FLASH
  data_from = LOADADDR(.data);
  .bss : { bss_start = .; *(.bss*) *(COMMON) . = ALIGN(8); bss_end = .; } > RAM
  stack_end = ORIGIN(RAM) + LENGTH(RAM);
}
"""
_START = """\
#include <stdint.h>
#include <string.h>
extern uint32_t data_start, data_end, data_from, bss_start, bss_end, stack_end;
int run(const float *x, float *y);
static float x[INPUT], y[OUTPUT];
static volatile unsigned wraps;
static void call(int op, const void *what)
{
    register int r0 __asm__("r0") = op;
    register const void *r1 __asm__("r1") = what;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}
static void put(const char *name, uint32_t v)
{
    char text[12];
    int k;
    call(4, name);
    for (k = 0; k < 8; k++, v <<= 4)
        text[k] = "0123456789abcdef"[v >> 28];
    text[8] = '\\n';
    text[9] = 0;
    call(4, text);
}
#define CTRL (*(volatile uint32_t *)0xE000E010)
#define LOAD (*(volatile uint32_t *)0xE000E014)
#define NOW (*(volatile uint32_t *)0xE000E018)
static void tick(void) { wraps++; }
void start(void);
__attribute__((noinline)) static uint64_t timed(int times)
{
    wraps = 0;
    LOAD = 0xffffff;
    NOW = 0;
    CTRL = 7;
    while (times--)
        if (run(x, y) != 0)
            put("failed ", 1);
    CTRL = 5;
    return (uint64_t)wraps * 0x1000000 + (0xffffff - NOW);
}
void main_(void)
{
    uint32_t seed = 1, k;
    uint32_t *const deepest = &stack_end - STACK_BYTES / 4;
    for (k = 0; k < INPUT; k++) {
        seed = seed * 1664525u + 1013904223u;
        x[k] = (float)(int32_t)seed * (1.0f / 2147483648.0f);
    }
    for (uint32_t *p = deepest; p < &k - 64; p++)
        *p = 0xa5a5a5a5u;
    uint32_t *const from = __builtin_frame_address(0);
    uint64_t once = timed(1);
    for (k = 0; deepest[k] == 0xa5a5a5a5u; k++)
        ;
    put("stack ", (uint32_t)((char *)from - (char *)(deepest + k)));
    uint64_t twice = timed(2);
    put("ticks ", (uint32_t)(twice - once));
    for (k = 0; k < OUTPUT; k++) {
        uint32_t bits;
        memcpy(&bits, &y[k], 4);
        put("y ", bits);
    }
    static const uint32_t exit_[2] = {0x20026, 0};
    call(0x20, exit_);
    call(0x18, (void *)0x20026);
    for (;;)
        ;
}
void start(void)
{
    *(volatile uint32_t *)0xE000ED88 |= 0xf << 20; /* the floating-point unit */
    __asm__ volatile("dsb; isb");
    memcpy(&data_start, &data_from, (char *)&data_end - (char *)&data_start);
    memset(&bss_start, 0, (char *)&bss_end - (char *)&bss_start);
    main_();
}
static void fault(void) { put("fault ", 0); call(0x18, (void *)0x20024); for (;;) ; }
__attribute__((section(".vectors"), used)) static const void *const vectors[16] = {
    &stack_end, start, fault, fault, fault, fault, fault, 0, 0, 0, 0, fault, 0, 0, fault, tick };
"""
_NOTHING = "int run(const float *x, float *y) { y[0] = x[0]; return 0; }\n"


@dataclass(frozen=True)
class Taken:
    """What a program takes on a Cortex-M4.

    Attributes:
        flash: Bytes of code and constants, without those of the image that measures.
        ram: Bytes of variables besides inputs and outputs, and of the stack as far as it was used.
        stack: Bytes of stack that were used.
        instructions: Of one run, to 40.
        result: What it computed.
    """

    flash: int
    ram: int
    stack: int
    instructions: int
    result: np.ndarray[tuple[int], np.dtype[np.float32]]


def inputs(count: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """What images compute with: numbers from -1 to 1."""
    seed, found = 1, np.empty(count, np.uint32)
    for k in range(count):
        seed = (seed * 1664525 + 1013904223) % (1 << 32)
        found[k] = seed
    return (found.view(np.int32).astype(np.float32) * np.float32(2**-31)).astype(np.float32)


def taken(folder: Path, sources: Sequence[Path], adapter: str, sizes: tuple[int, int], level: str) -> Taken:
    """Build and run an image of a program.

    Args:
        folder: Where files are written.
        sources: The C files of the program.
        adapter: Text of C that defines `int run(const float *x, float *y)`.
        sizes: Elements of the input and the output.
        level: The compiler's optimisation, as -O2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    empty = _linked(folder, "empty", (), _NOTHING, sizes, level)
    image = _linked(folder, "image", sources, adapter, sizes, level)
    command = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "null"]
    command += ["-icount", "shift=0", "-semihosting-config", "enable=on,target=native", "-kernel", str(image)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, stdin=subprocess.DEVNULL)
    words = [line.split() for line in (done.stdout + done.stderr).splitlines()]
    numbers = {w[0]: int(w[1], 16) for w in words if len(w) == 2 and w[0] in ("stack", "ticks", "failed", "fault")}
    if "ticks" not in numbers or "failed" in numbers or "fault" in numbers:
        raise RuntimeError(f"{image} did not run: {done.stdout[-300:]}{done.stderr[-300:]}")
    result = np.array([int(w[1], 16) for w in words if len(w) == 2 and w[0] == "y"], np.uint32).view(np.float32)
    (flash, ram), (flash0, ram0) = _size(image), _size(empty)
    return Taken(flash - flash0, ram - ram0 + numbers["stack"], numbers["stack"], numbers["ticks"] * TICK, result)


def _linked(folder: Path, name: str, sources: Sequence[Path], adapter: str, sizes: tuple[int, int], level: str) -> Path:
    (folder / "image.ld").write_text(_LINK)
    (folder / f"{name}_start.c").write_text(_START)
    (folder / f"{name}_run.c").write_text(adapter)
    image = folder / f"{name}.elf"
    files = [folder / f"{name}_start.c", folder / f"{name}_run.c", *sources]
    given = [f"-DINPUT={sizes[0]}", f"-DOUTPUT={sizes[1]}", f"-DSTACK_BYTES={STACK}", f"-I{folder}"]
    given += [f"-I{s.parent}" for s in sources]
    link = ["-nostartfiles", "-Wl,--gc-sections", f"-T{folder / 'image.ld'}", "-specs=nano.specs", "-specs=nosys.specs"]
    subprocess.run([CC, *FLAGS, level, *given, *map(str, files), *link, "-lm", "-o", str(image)], check=True)
    return image


def _size(image: Path) -> tuple[int, int]:
    """Bytes of flash and of RAM."""
    done = subprocess.run(["arm-none-eabi-size", str(image)], capture_output=True, text=True, check=True)
    text, data, bss = map(int, done.stdout.splitlines()[1].split()[:3])
    return text + data, data + bss
