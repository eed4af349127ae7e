"""`dlc train` from outside: what it says, writes and returns. The program is a few lines of NumPy."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from dlc.base.diagnostics import ExitCode
from dlc.cli.frame import run as run_command
from tests.cli.conftest import Dlc, steady
from tests.cli.test_terminal import environment
from tests.conftest import Golden
from tests.tools import TERMINAL
from tests.training.linear import Linear, blobs, save

ROOT = Path(__file__).parent.parent.parent


def calm(text: str) -> str:
    """Without what depends on the machine's speed."""
    return re.sub(r"\d+\.\d s, [\d,]+ rows/s", "<speed>", steady(text))


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch) -> list[Linear]:
    """Data files and a directory `out` whose program is the last of the returned list."""
    programs = [Linear()]
    Path("out").mkdir()
    save("train.npz", **blobs(30))
    save("test.npz", **blobs(11, seed=1))

    def load(directory: Path, registry: object, *, max_memory: object = None) -> Linear:
        del directory, registry
        programs[-1].reset()
        return programs[-1]

    monkeypatch.setattr("dlc.runtime.loading.load", load)
    return programs


def test_transcript(dlc: Dlc, golden: Golden) -> None:
    line = "train out --data train.npz --validation-data test.npz --epochs 3 --export t.onnx --log l.csv --html c.html"
    ran = dlc(*line.split())
    golden("train/all.txt", calm(ran.transcript()))
    assert ran.code == 0
    assert all(Path(name).stat().st_size for name in ("t.onnx", "l.csv", "c.html", "out/checkpoint.ckpt"))
    again = dlc(*line.split(), "--epochs", 5, "--resume", "--keep", "best")
    golden("train/resumed.txt", calm(again.transcript()))


def test_quiet(dlc: Dlc) -> None:
    ran = dlc("train", "out", "--data", "train.npz", "--validation", "0.2", "-q", "--epochs", 2)
    assert ran.err == ""
    assert re.fullmatch(
        r"trained: 2 epochs, 12 steps, loss [\d.]+, validation loss [\d.]+, accuracy [\d.]+ %\n"
        r"(best: .*\n)?checkpoint: out/checkpoint.ckpt\n",
        ran.out,
    )


def test_document(dlc: Dlc) -> None:
    found = dlc("train", "out", "--data", "train.npz", "--validation", "0.2", "--epochs", 2, "--json").document
    assert (found["schema"], found["ok"], found["ending"], found["steps"]) == ("dlc.train/1", True, "done", 12)
    assert found["rows"] == {"training": 24, "validation": 6, "batch": 4}
    assert [e["epoch"] for e in found["epochs"]] == [1, 2]
    assert set(found["epochs"][0]["validation"]) == {"loss", "accuracy"}
    json.dumps(found, allow_nan=False)


def test_the_same_seed_gives_the_same_run(dlc: Dlc) -> None:
    def losses(*more: object) -> list[float]:
        line = ("train", "out", "--data", "train.npz", "--validation", "0.2", "--epochs", 2, "--fresh", "--json")
        epochs = dlc(*line, *more).document["epochs"]
        return [x for e in epochs for x in (e["loss"], e["validation"]["loss"])]

    assert losses() == losses("--seed", 0)
    assert losses() != losses("--seed", 1)
    assert losses("--seed", 3) == losses("--seed", 3)
    assert losses("--no-shuffle")[0] != losses()[0]


def test_resume_takes_the_settings_of_the_run(dlc: Dlc) -> None:
    line = ("train", "out", "--data", "train.npz", "--validation", "0.2", "-q", "--export", "w.bin")
    assert dlc(*line, "--seed", 7, "--no-shuffle", "--epochs", 4).code == 0
    whole = Path("w.bin").read_bytes()
    assert dlc(*line, "--seed", 7, "--no-shuffle", "--steps", 8, "--fresh").code == 0
    assert Path("w.bin").read_bytes() != whole
    assert dlc(*line, "--resume", "--epochs", 4).code == 0
    assert Path("w.bin").read_bytes() == whole


@pytest.mark.parametrize("limit", ["--epochs 4", "--epochs 1", "--steps 9"])
def test_resume_tells_that_nothing_is_left_to_do(dlc: Dlc, limit: str) -> None:
    line = ("train", "out", "--data", "train.npz", "-q")
    assert dlc(*line, "--epochs", 4).out.startswith("trained: 4 epochs, 28 steps, loss ")
    before = Path("out/checkpoint.ckpt").read_bytes()
    ran = dlc(*line, "--resume", "--export", "w.bin", *limit.split())
    first, second, *rest = ran.out.splitlines()
    assert first.startswith("nothing to do: 4 epochs, 28 steps are complete, loss ")
    assert second == "--epochs and --steps count all runs together: increase them to continue"
    assert rest[-1] == "model: w.bin" and Path("w.bin").stat().st_size
    assert (ran.code, ran.err) == (0, "") and Path("out/checkpoint.ckpt").read_bytes() == before


def test_resume_tells_that_patience_is_at_its_end(dlc: Dlc) -> None:
    line = ("train", "out", "--data", "train.npz", "-q", "--patience", 1, "--epochs", 500)
    done = dlc(*line).out.partition(",")[0].removeprefix("trained: ")
    first, second, *_ = dlc(*line, "--resume").out.splitlines()
    assert first.startswith(f"nothing to do: {done}, ")
    assert second == "no better loss for 1 epoch"


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_checkpoint_of_an_earlier_run_is_not_replaced(dlc: Dlc, golden: Golden, quiet: tuple[str, ...]) -> None:
    line = ("train", "out", "--data", "train.npz", "--epochs", 1, *quiet)
    assert dlc(*line).code == 0
    before = Path("out/checkpoint.ckpt").read_bytes()
    ran = dlc(*line)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    golden("train/checkpoint_exists.txt", ran.err)
    assert Path("out/checkpoint.ckpt").read_bytes() == before and len(list(Path("out").iterdir())) == 1


@pytest.mark.parametrize("quiet", [(), ("-q",)])
def test_a_run_that_begins_anew_keeps_the_checkpoint_of_the_earlier_one(dlc: Dlc, quiet: tuple[str, ...]) -> None:
    line = ("train", "out", "--data", "train.npz", "--epochs", 1, *quiet)
    assert dlc(*line).code == 0
    before = Path("out/checkpoint.ckpt").read_bytes()
    assert dlc("train", "out", "--data", "absent.npz", "--fresh").code == ExitCode.USAGE
    assert [p.name for p in Path("out").iterdir()] == ["checkpoint.ckpt"]
    message = "note[kept]: the checkpoint of an earlier run is kept as out/checkpoint.{}.ckpt, once"
    for k in (1, 2):
        ran = dlc(*line, "--fresh", "--seed", k)
        assert ran.code == 0 and message.format(k) in ran.err
    assert Path("out/checkpoint.1.ckpt").read_bytes() == before
    kept = {p.name: p.read_bytes() for p in Path("out").iterdir()}
    assert len(kept) == len(set(kept.values())) == 3
    assert dlc(*line, "--resume", "--checkpoint", "out/checkpoint.1.ckpt").out.startswith("nothing to do: 1 epoch")


def test_a_run_that_fails_before_its_first_checkpoint_leaves_the_earlier_one(dlc: Dlc, place: list[Linear]) -> None:
    line = ("train", "out", "--data", "train.npz", "--epochs", 1)
    assert dlc(*line).code == 0
    before = Path("out/checkpoint.ckpt").read_bytes()
    place[0].fails_at = 2
    assert dlc(*line, "--fresh").code == ExitCode.MODEL
    assert {p.name: p.read_bytes() for p in Path("out").iterdir()} == {"checkpoint.ckpt": before}


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--checkpoint c.dlc", "bad-option", ["call it c.ckpt"]),
        ("--resume --fresh", "no-effect", ["leave one of the two out"]),
        ("--resume", "bad-checkpoint", ["has the name that dlc 0.1 gave", "mv out/checkpoint.dlc out/checkpoint.ckpt"]),
    ],
)
def test_names_of_checkpoints(dlc: Dlc, line: str, code: str, words: list[str]) -> None:
    assert dlc("train", "out", "--data", "train.npz", "--epochs", 1, "-q").code == 0
    content = Path("out/checkpoint.ckpt").read_bytes()
    Path("out/checkpoint.ckpt").rename("out/checkpoint.dlc")
    ran = dlc("train", "out", "--data", "train.npz", *line.split())
    assert ran.code == ExitCode.USAGE and f"error[{code}]" in ran.err
    assert all(word in ran.err for word in words)
    assert {p.name: p.read_bytes() for p in Path("out").iterdir()} == {"checkpoint.dlc": content}


@pytest.mark.parametrize("name", ["checkpoint.ckpt", "checkpoint.dlc"])
def test_a_checkpoint_is_shown(dlc: Dlc, golden: Golden, name: str) -> None:
    line = ("train", "out", "--data", "train.npz", "--validation-data", "test.npz", "-q", "--keep", "best")
    assert dlc(*line, "--steps", 17).code == 0
    Path("out/checkpoint.ckpt").rename(name)
    golden("train/show.txt", re.sub(r"(checkpoint +).*", r"\1<file>", dlc("show", name).out))
    found = json.loads(dlc("show", name, "--json").out)
    assert (found["kind"], len(found["epochs"]), found["step"]) == ("checkpoint", 2, 3)
    assert dlc("show", name, "--text").code == ExitCode.USAGE
    if name.endswith(".dlc"):
        assert "is a checkpoint of dlc train, which is not a graph in text" in dlc("build", name, "-o", "c").err


def broken(how: str) -> None:
    path = Path("out/checkpoint.ckpt")
    content = path.read_bytes()
    path.write_bytes({"cut": content[:-9], "flipped": content[:99] + b"?" + content[100:], "text": b"hello"}[how])


BAD = {
    "no_data": "",
    "keep": "--data train.npz --keep all",
    "validations": "--data train.npz --validation 0.1 --validation-data test.npz",
    "fraction": "--data train.npz --validation 1.5",
    "export_nowhere": "--data train.npz --export no/where/t.onnx",
    "log_is_directory": "--data train.npz --log out",
    "export_over_data": "--data train.npz --export ./train.npz",
    "log_over_named_data": "--data x=x.npy --log x.npy",
    "export_over_checkpoint": "--data train.npz --checkpoint c.ckpt --export c.ckpt",
    "export_to_device": "--data train.npz --export /dev/null",
    "absent": "--data absent.npz",
    "csv": "--data train.csv",
    "nothing_to_resume": "--data train.npz --resume",
    "few_rows": "--data few.npz",
    "all_validation": "--data few.npz --validation 0.9",
    "labels": "--data labels.npz",
    "nan": "--data nan.npz",
    "shapes": "--data shapes.npz",
    "names": "--data names.npz",
    "validation_labels": "--data train.npz --validation-data labels.npz",
    "epochs": "--data train.npz --epochs 0",
}


@pytest.mark.parametrize("name", BAD)
def test_refused(dlc: Dlc, golden: Golden, name: str) -> None:
    save("few.npz", **blobs(3))
    save("labels.npz", **{**blobs(30), "y": np.arange(30) % 4})
    x = blobs(30)["x"]
    x[17, 0, 1] = np.nan
    save("nan.npz", **{**blobs(30), "x": x})
    save("shapes.npz", x=np.zeros((30, 8, 8), np.uint8), y=np.zeros((30, 10)))
    save("names.npz", images=x, labels=np.zeros(30))
    before = {str(p) for p in Path().rglob("*")}
    ran = dlc("train", "out", *BAD[name].split())
    golden(f"train/bad_{name}.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE
    assert {str(p) for p in Path().rglob("*")} == before


@pytest.mark.parametrize("how", ["cut", "flipped", "text"])
def test_a_damaged_checkpoint(dlc: Dlc, golden: Golden, how: str) -> None:
    assert dlc("train", "out", "--data", "train.npz", "-q", "--epochs", 1).code == 0
    broken(how)
    content = Path("out/checkpoint.ckpt").read_bytes()
    ran = dlc("train", "out", "--data", "train.npz", "--resume")
    golden(f"train/checkpoint_{how}.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE
    assert Path("out/checkpoint.ckpt").read_bytes() == content


def test_a_checkpoint_of_another_run(dlc: Dlc, golden: Golden, place: list[Linear]) -> None:
    assert dlc("train", "out", "--data", "train.npz", "-q", "--epochs", 1).code == 0
    ran = dlc("train", "out", "--data", "test.npz", "--resume", "--seed", 4)
    golden("train/checkpoint_other_run.txt", calm(ran.transcript()))
    place.append(Linear(classes=4))
    ran = dlc("train", "out", "--data", "train.npz", "--resume")
    golden("train/checkpoint_other_program.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE


def test_a_loss_that_is_not_finite(dlc: Dlc, golden: Golden, place: list[Linear]) -> None:
    place[0].fails_at = 10
    line = ("train", "out", "--data", "train.npz", "--log", "l.csv")
    ran = dlc(*line)
    golden("train/not_finite.txt", calm(ran.transcript()))
    assert ran.code == ExitCode.MODEL
    assert Path("l.csv").read_text().count("\nstep,") == 9
    found = dlc(*line, "--fresh", "--json").document
    assert (found["ok"], found["ending"], len(found["epochs"])) == (False, "failed", 1)
    assert [d["code"] for d in found["diagnostics"]][-1] == "not-finite"


def test_a_program_that_does_not_learn(dlc: Dlc, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(directory: Path, registry: object, *, max_memory: object = None) -> object:
        return object()

    monkeypatch.setattr("dlc.runtime.loading.load", load)
    golden("train/no_training.txt", dlc("train", "out", "--data", "train.npz").transcript())
    golden("train/no_directory.txt", dlc("train", "absent", "--data", "train.npz").transcript())


CHILD = """
    import sys, time
    from pathlib import Path
    import dlc.runtime.loading
    from dlc.cli.frame import run
    from tests.training.linear import Linear

    program = Linear()

    def slow():
        Path("started").touch()
        time.sleep(0.1)

    program.on_step = slow
    dlc.runtime.loading.load = lambda *_, **__: program
    sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("document", [False, True])
def test_interrupted(dlc: Dlc, number: signal.Signals, document: bool) -> None:
    """Everything is written; going on gives what an uninterrupted run gives, bit for bit."""
    line = ["train", "out", "--data", "train.npz", "--export", "w.bin", "--log", "l.csv", "--html", "c.html"]
    assert dlc(*line, "-q", "--epochs", 4).code == 0
    whole, log = Path("w.bin").read_bytes(), Path("l.csv").read_text()
    for name in ("w.bin", "l.csv", "c.html", "out/checkpoint.ckpt"):
        Path(name).unlink()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), *line, "--epochs", "1000", *(["--json"] if document else [])],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    while not Path("started").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.INTERRUPTED, err
    assert "Traceback" not in out + err
    if document:
        found = json.loads(out)
        assert (found["ok"], found["exit_code"], found["ending"]) == (False, 130, "interrupted")
    else:
        assert out.startswith("interrupted: ")
        assert re.search(r"interrupted after epoch \d, step \d; all files are written", err)
        assert "--resume continues from out/checkpoint.ckpt" in err
    assert all(Path(name).exists() for name in ("w.bin", "l.csv", "c.html", "out/checkpoint.ckpt"))
    steps = Path("l.csv").read_text().count("\nstep,")
    assert 1 <= steps < 28
    assert dlc(*line, "-q", "--epochs", 4, "--resume").code == 0
    assert Path("w.bin").read_bytes() == whole
    assert Path("l.csv").read_text() == log


@pytest.mark.needs(TERMINAL)
def test_a_bar_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    code = textwrap.dedent(CHILD).replace("0.1", "0.05")
    command = [sys.executable, "-c", code, "train", "out", "--data", "train.npz", "--epochs", "3"]
    more = {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "COLUMNS": "150"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment(**more))
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert re.search(r"epoch 2, step \d of 7: loss [\d.e-]+, mean [\d.e-]+, \d+ rows/s", text)
    assert "\u2501" in text  # the bar
    assert re.search(r"epoch 3 of 3: loss [\d.]+ \([\d.]+ s, \d+ rows/s\)", text)


def test_help_is_light() -> None:
    """NumPy and the loop come when there is something to train."""
    code = "import sys\nfrom dlc.cli.frame import run\nrun(['train', '--help'])\nassert 'numpy' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


def test_run_in_process_restores_signals() -> None:
    held = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert run_command(["train", "out", "--data", "train.npz", "-q", "--epochs", "1"]) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == held
