"""Free memory: the least of what the machine has and of what every control group around the process has left."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlc.base.free_memory import free_memory

MACHINE = {"proc/meminfo": "MemTotal:       4000 kB\nMemAvailable:   2000 kB\nHugePages_Free:        0\n"}
SECOND = {
    **MACHINE,
    "proc/self/cgroup": "0::/outer/inner\n",
    "sys/fs/cgroup/outer/memory.max": "1000000\n",
    "sys/fs/cgroup/outer/memory.current": "400000\n",
    "sys/fs/cgroup/outer/memory.stat": "anon 300000\ninactive_file 50000\n",
    "sys/fs/cgroup/outer/inner/memory.max": "max\n",
    "sys/fs/cgroup/outer/inner/memory.current": "399000\n",
}
FIRST = {
    **MACHINE,
    "proc/self/cgroup": "9:name=systemd:/\n4:memory,hugetlb:/own\n3:cpu,cpuacct:/own\n",
    "sys/fs/cgroup/memory/own/memory.limit_in_bytes": "500000\n",
    "sys/fs/cgroup/memory/own/memory.usage_in_bytes": "600000\n",
}


@pytest.mark.parametrize(
    ("files", "free"),
    [
        (MACHINE, 2_048_000),
        (SECOND, 650_000),
        (FIRST, 0),
        ({**SECOND, "proc/self/cgroup": "what is this\n"}, 2_048_000),
    ],
)
def test_free_memory(tmp_path: Path, files: Mapping[str, str], free: int) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert free_memory(tmp_path) == free


def test_systems_that_do_not_tell(tmp_path: Path) -> None:
    assert free_memory(tmp_path) == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < free_memory() <= free_memory(tmp_path)
