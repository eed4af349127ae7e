"""Stores past the caches as C: whole vectors where they are aligned, 16 bytes at a time where only these are.

Processors collect neighbouring stores until a line is full, which they write without having read it; a vector of 64
bytes is a line. The instruction keeps no order with other stores; the functions that use it end with one that makes
them visible to other threads.
"""

from __future__ import annotations

from typing import Final

from dlc.kernel.loops.program import Stmt, Store, walk_stmts

END: Final = "dlc_stored_past"
"""What a function calls after such stores."""
ENDING: Final = f"""\
/* What was stored past the caches comes before what is stored next. */
DLC_INLINE void {END}(void)
{{
#if defined(__SSE2__)
    __builtin_ia32_sfence();
#endif
}}
"""
VECTOR: Final = """\
/* For what is not read again soon. */
DLC_INLINE void dlc_store_past_@V(void *p, @V x)
{
#if defined(__SSE2__)
    typedef float part __attribute__((vector_size(16)));
    union { @V all; part parts[@B / 16]; } v;
    int k;
#if defined(@WITH)
    if ((uintptr_t)p % @B == 0) {
        __asm__("vmovntps %1, %0" : "=m"(*(@V_any *)p) : "v"(x));
        return;
    }
#endif
    if ((uintptr_t)p % 16 == 0) {
        v.all = x;
        for (k = 0; k < @B / 16; ++k) {
#if defined(__clang__)
            __builtin_nontemporal_store(v.parts[k], (part *)p + k);
#else
            __builtin_ia32_movntps((float *)p + 4 * k, v.parts[k]);
#endif
        }
        return;
    }
#endif
    *(@V_any *)p = x;
}
"""


def stores_past(body: tuple[Stmt, ...]) -> bool:
    """Whether statements have such stores."""
    return any(isinstance(s, Store) and s.past for s in walk_stmts(body))
