"""Directories that bring a prepared cache along, and caches that were altered: whether a command ever loads their code.

    python benchmarks/foreign_cache.py --tries 100

The attacker builds a model, puts another library in place of the program's, which leaves a file when it is loaded, and
corrects all digests. Each try gives the victim such a cache in one of several forms (records without a MAC, with the
attacker's, with one that names the victim's key, the victim's own cache altered, …) by one of several ways (a
`dlc.toml` that is not trusted, one that is, `--cache-dir`, the variable), and runs `dlc run` or `dlc build` and
`dlc run`. The library must never be loaded, and the command has to end well, or with code 2 where the file is not
trusted. As a control the attacker has the victim's key at the beginning and in the end: then the library is loaded.
Exit status 0 means so.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

from dlc.cache import LocalStore, Record
from dlc.cache.own_key import OwnKey
from dlc.cache.record import Mac
from dlc.cache.upkeep import records
from dlc.cli.frame import run
from tests.session.building import SMALL, conv_net, save

EVIL = """
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) { FILE *f = fopen("%s", "w"); if (f) fclose(f); }
"""
TARGET = "c{flags=-O0}"


@dataclass(frozen=True)
class Field:
    """Where it all happens."""

    place: Path
    choose: random.Random

    @property
    def marker(self) -> Path:
        """What the library leaves."""
        return self.place / "loaded"

    def state(self, who: str) -> Path:
        return self.place / who

    def key(self, who: str) -> OwnKey:
        return OwnKey.of((self.state(who) / "dlc" / "cache.key").read_bytes())

    def command(self, who: str, words: list[str], directory: Path, **variables: str) -> int:
        """The exit code of a command of somebody in a directory."""
        pid = os.fork()
        if pid == 0:
            status = 70
            try:
                os.environ.update(
                    {
                        "XDG_STATE_HOME": str(self.state(who)),
                        "XDG_CACHE_HOME": str(self.place / f"{who}-home"),
                        **variables,
                    }
                )
                os.chdir(directory)
                log = os.open(self.place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                status = run(words)
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def poisoned(cache: Path, library: bytes) -> list[Record]:
    """The records of a cache; those of programs have the other library, which is in the cache now. Digests agree."""
    store = LocalStore(cache)
    found: list[Record] = []
    for record in [r for _, r in records(store)]:
        outputs = dict(record.outputs)
        if name := next((n for n in outputs if n.startswith("file/") and n.endswith(".so")), None):
            digest = hashlib.sha256(library).hexdigest()
            store.put(digest, library)
            outputs[name] = digest
            if "file/manifest.json" in outputs:
                manifest = json.loads(store.get(outputs["file/manifest.json"]) or b"")
                manifest["files"][name.removeprefix("file/")] |= {"sha256": digest, "bytes": len(library)}
                content = json.dumps(manifest).encode()
                outputs["file/manifest.json"] = hashlib.sha256(content).hexdigest()
                store.put(outputs["file/manifest.json"], content)
            record = replace(record, outputs=tuple(outputs.items()))
        found.append(record)
    store.close()
    return found


Form = Callable[[Field, Record], Record]


def bare(field: Field, record: Record) -> Record:
    """Without a MAC, as an older dlc made it."""
    del field
    return replace(record, mac=None)


def theirs(field: Field, record: Record) -> Record:
    """With the attacker's."""
    return field.key("attacker").marked(record)


def renamed(field: Field, record: Record) -> Record:
    """With the attacker's MAC that says to be of the victim's key."""
    mac = field.key("attacker").marked(record).mac
    assert mac is not None
    return replace(record, mac=Mac(field.key("victim").name, mac.value))


def kept(field: Field, record: Record) -> Record:
    """With the MAC that the victim's record had before it was altered."""
    del field
    return record


def guessed(field: Field, record: Record) -> Record:
    """With random digits."""
    return replace(record, mac=Mac(field.key("victim").name, field.choose.randbytes(32).hex()))


FORMS: tuple[Form, ...] = (bare, theirs, renamed, kept, guessed)
WAYS = ("untrusted", "trusted", "flag", "variable")


def prepared(field: Field, who: str, form: Form, library: bytes) -> Path:
    """A directory with a model and a prepared cache, of a cache that was whose."""
    place = Path(tempfile.mkdtemp(dir=field.place))
    shutil.copy(field.place / "net.onnx", place)
    shutil.copy(field.place / "x.npy", place)
    shutil.copytree(field.place / f"{who}-cache", place / "cache")
    store = LocalStore(place / "cache")
    for record in poisoned(place / "cache", library):
        store.put(record.key.digest, form(field, record).to_bytes(), "record")
    store.close()
    return place


def attack(field: Field, form: Form, way: str, command: str, who: str, library: bytes) -> tuple[bool, int]:
    """Whether the library was loaded, and the exit code."""
    place = prepared(field, who, form, library)
    field.marker.unlink(missing_ok=True)
    more: list[str] = []
    variables: dict[str, str] = {}
    if way in ("untrusted", "trusted"):
        (place / "dlc.toml").write_text('[cache]\ndir = "cache"\n')
        more += ["--trust-config"] * (way == "trusted")
    elif way == "flag":
        more += ["--cache-dir", "cache"]
    else:
        variables["DLC_CACHE_DIR"] = str(place / "cache")
    if command == "run":
        status = field.command("victim", ["run", "net.onnx", "x.npy", "-t", TARGET, *more], place, **variables)
    else:
        status = field.command(
            "victim", ["build", "net.onnx", "-q", "-t", TARGET, "-o", "out", *more], place, **variables
        )
        status = status or field.command("victim", ["run", "out", "x.npy"], place)
    shutil.rmtree(place)
    return field.marker.exists(), status


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tries", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dlc-foreign-") as folder:
        field = Field(Path(folder), random.Random(options.seed))
        save(conv_net(SMALL), field.place / "net.onnx")
        np.save(field.place / "x.npy", np.ones((1, 3, 32, 32), np.float32))
        (field.place / "evil.c").write_text(EVIL % field.marker)
        built = field.place / "evil.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", built, field.place / "evil.c"], check=True)
        library = built.read_bytes()
        for who in ("attacker", "victim"):
            for words in (["build", "-q", "-o", str(field.place / f"{who}-out")], ["run", "x.npy"]):
                line = [words[0], "net.onnx", *words[1:], "-t", TARGET, "--cache-dir", f"{who}-cache"]
                assert field.command(who, line, field.place) == 0, (field.place / "log.txt").read_text()

        def owned(field: Field, record: Record) -> Record:
            return field.key("victim").marked(record)

        controls = 0
        totals: Counter[str] = Counter()
        for command in ("run", "build"):
            controls += attack(field, owned, "flag", command, "attacker", library)[0]
        for number in range(options.tries):
            form, way = FORMS[number % len(FORMS)], WAYS[number // len(FORMS) % len(WAYS)]
            command = field.choose.choice(("run", "build"))
            who = "victim" if form is kept else "attacker"
            loaded, status = attack(field, form, way, command, who, library)
            wanted = 2 if way == "untrusted" else 0
            totals["done"] += 1
            if totals["done"] % 20 == 0:
                print(f"{totals['done']} done", flush=True)
            totals["loaded"] += loaded
            totals["ended otherwise"] += status != wanted
            if loaded or status != wanted:
                print(f"{number}: {form.__name__} {way} {command}: loaded {loaded}, exit {status}")
        for command in ("run", "build"):
            controls += attack(field, owned, "flag", command, "attacker", library)[0]
        print(
            f"{options.tries} foreign or altered caches, seed {options.seed}: code loaded from {totals['loaded']}, "
            f"{totals['ended otherwise']} commands ended otherwise than they should; "
            f"with the victim's key {controls} of 4 loaded"
        )
    return 0 if not totals["loaded"] and not totals["ended otherwise"] and controls == 4 else 1


if __name__ == "__main__":
    sys.exit(main())
