"""`python -m dlc.driver.exec_backend.schema > docs/exec-backend.schema.json`: the JSON Schema of the messages."""

from __future__ import annotations

import json
import sys

from dlc.driver.exec_backend.form import json_schema
from dlc.driver.exec_backend.protocol import VERSION, Request, Response


def schema_text() -> str:
    """The JSON Schema: a line of what an executable reads or writes is valid."""
    schema = json_schema(Response, Request)
    title = {"title": f"Messages between dlc and an executable backend, version {VERSION}"}
    return json.dumps({"$schema": schema.pop("$schema"), **title, **schema}, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
