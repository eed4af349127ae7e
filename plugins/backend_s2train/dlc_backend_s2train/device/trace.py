"""The estimated times of a run as a trace for chrome://tracing and Perfetto: a thread for each unit.

A cycle is shown as a microsecond. Format: "Trace Event Format" of the Chromium project, complete events.
"""

from __future__ import annotations

import json
from typing import Any

from dlc_backend_s2train.cost.estimate import estimate
from dlc_backend_s2train.cost.report import LANES, spans
from dlc_backend_s2train.isa.text import print_v2
from dlc_backend_s2train.program import Program


def trace(program: Program, name: str, begin: int, end: int) -> bytes:
    """The trace of instructions `begin` to before `end`, as JSON.

    Raises:
        DlcError: as `estimate` does.
    """
    threads = {lane: number for number, lane in enumerate(("instruction", *LANES))}
    events: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": name}},
        *(
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": lane}}
            for lane, tid in threads.items()
        ),
    ]
    for cost in estimate(program, None, begin, end):
        title = f"{cost.number}: {cost.title}"
        said = {
            "instruction": print_v2(program.instructions[cost.number]),
            "result": cost.result,
            "bytes in": cost.traffic.inward,
            "bytes out": cost.traffic.outward,
            "MACs": cost.macs,
            "bound": cost.times.bound if cost.times.total else "",
        }
        lanes = {"instruction": (0.0, float(cost.times.total)), **spans(cost.times)}
        for lane, (first, last) in lanes.items():
            place = {"pid": 0, "tid": threads[lane], "ts": cost.start + first, "dur": last - first}
            events.append({"name": title, "cat": lane, "ph": "X", **place, "args": said})
    shown = {"unit": "1 microsecond is 1 cycle", "times": "estimated, see docs/s2train-costs.md"}
    return json.dumps({"traceEvents": events, "otherData": shown}).encode()
