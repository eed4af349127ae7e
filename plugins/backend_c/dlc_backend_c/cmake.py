"""What the files for CMake say beside what every template may use: targets, and the library that dlc builds."""

from __future__ import annotations

from typing import Final

from dlc_backend_c.options import Options

_TAKEN: Final = frozenset(
    (
        *("ALL_BUILD", "INSTALL", "PACKAGE", "RUN_TESTS", "ZERO_CHECK", "all", "clean", "depend", "edit_cache", "help"),
        *("install", "package", "package_source", "preinstall", "rebuild_cache", "test"),
    )
)
"""Targets that CMake has itself (policy CMP0037): no library is called so."""


def cmake_values(prefix: str, options: Options) -> dict[str, object]:
    """The names that `CMakeLists.txt.j2` and `Config.cmake.j2` use."""
    library = {"shared": f"lib{prefix}.so", "static": f"lib{prefix}.a", "none": ""}[options.lib]
    return {
        "cmake_target": f"{prefix}_model" if prefix in _TAKEN else prefix,
        "library": library,
        "library_kind": options.lib.upper(),
    }
