"""`name{key=value …}` ↔ frozen dataclass: the only option parser of the project.

    pipeline := spec ("," spec)*
    spec     := name ["{" (key "=" value)* "}"]
    value    := word | string | spec | "()" | value "," value

`text` reads and prints the untyped form, `configurable` converts it to and from the fields of a class.
"""

from dlc.spec.configurable import Bytes, Configurable, OptionDoc, format_bytes, option, parse_bytes
from dlc.spec.span import OptionError, Span, fault
from dlc.spec.text import Spec, Value, parse_setting

__all__ = [
    "Bytes",
    "Configurable",
    "OptionDoc",
    "OptionError",
    "Span",
    "Spec",
    "Value",
    "fault",
    "format_bytes",
    "option",
    "parse_bytes",
    "parse_setting",
]
