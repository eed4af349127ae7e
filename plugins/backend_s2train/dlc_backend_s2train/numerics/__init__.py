"""The arithmetic of every instruction, on arrays: what the device computes, apart from where things lie.

Values are held as fp32 between memory's rounding steps; `table.ARITHMETIC` says which function an instruction has.
There are two modes, which differ in the order of long sums only. `bit-true` adds products in the device's order,
every partial sum rounded to fp32, so that results are the same bits on every machine; `fast` leaves the order to
numpy's matrix products.
"""
