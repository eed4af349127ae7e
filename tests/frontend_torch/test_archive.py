"""`.pt2` files: what is read of them, by what, and what is refused."""

# pyright: basic
# PyTorch's own types are partly unknown.

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import torch
from dlc_frontend_torch.frontend import Torch

from dlc import DlcError, Graph, Report, Source
from dlc.graph import Constant, evaluate


class Small(torch.nn.Module):
    """A weight that is a view, a constant, an in-place call, a dictionary as a result."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Parameter(torch.randn(8, 6).t()[1:])
        self.shift = torch.arange(5.0)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(self.first(x)).relu_()
        y = torch.nn.functional.linear(y, self.last) + self.shift
        return {"scores": y, "best": y.argmax(-1)}


@pytest.fixture(scope="module")
def small() -> tuple[torch.nn.Module, bytes]:
    torch.manual_seed(0)
    module = Small().eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    program = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    content = BytesIO()
    torch.export.save(program, content)
    return module, content.getvalue()


def parse(content: bytes, **options: Any) -> Graph:
    return Torch(**options).parse(Source(data=content, label="small.pt2"), Report())


def test_a_program_is_read_with_its_names_and_open_sizes(small: tuple[torch.nn.Module, bytes]) -> None:
    module, content = small
    graph = parse(content)
    assert graph.names == ("scores", "best")
    assert graph.inputs[0].name == "x"
    assert graph.inputs[0].type.is_open
    named = {op.name for op in graph.ops if isinstance(op, Constant)}
    assert {"first.weight", "norm.running_mean", "last", "shift"} <= named
    assert any("first" in origin for names in graph.origins.values() for origin in names)
    fixed = parse(content, dims=("s77:5",)) if "s77" in graph.inputs[0].type.text else parse(content, input=("x:5x4",))
    x = torch.randn(5, 4)
    values = evaluate(fixed, {"x": x.numpy()})
    expected = module(x)
    np.testing.assert_allclose(values["scores"], expected["scores"].detach().numpy(), rtol=1e-5, atol=1e-6)
    assert (values["best"] == expected["best"].numpy()).all()


def test_weights_may_be_inputs(small: tuple[torch.nn.Module, bytes]) -> None:
    module, content = small
    graph = parse(content, weights="input", input=("x:2x4",))
    feeds = {name: value.detach().numpy() for name, value in module.state_dict().items()}
    feeds |= {"shift": np.arange(5.0, dtype=np.float32), "x": np.ones((2, 4), np.float32)}
    assert not any(isinstance(op, Constant) and op.name for op in graph.ops)
    values = evaluate(graph, {i.name: feeds[i.name] for i in graph.inputs})
    np.testing.assert_allclose(values["scores"], module(torch.ones(2, 4))["scores"].detach(), rtol=1e-5, atol=1e-6)


def test_reading_needs_no_pytorch(small: tuple[torch.nn.Module, bytes], tmp_path: Any) -> None:
    (tmp_path / "small.pt2").write_bytes(small[1])
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dlc import Report, Source\nfrom pathlib import Path\n"
        "from dlc_frontend_torch.frontend import Torch\n"
        f"print(Torch().parse(Source(Path({str(tmp_path / 'small.pt2')!r})), Report()).names)\n"
    )
    paths = [p for p in sys.path if p]
    env = {"PYTHONPATH": ":".join(paths), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.strip() == "('scores', 'best')", done.stderr


def changed(content: bytes, change: Callable[[str, bytes], bytes | None]) -> bytes:
    """The archive with members changed, or left out."""
    out = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            if (data := change(info.filename, old.read(info))) is not None:
                new.writestr(info.filename, data)
    return out.getvalue()


def of_model(edit: Callable[[dict[str, Any]], Any]) -> Callable[[str, bytes], bytes | None]:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("models/model.json"):
            return data
        document = json.loads(data)
        edit(document)
        return json.dumps(document).encode()

    return change


def of_weights(**fields: Any) -> Callable[[str, bytes], bytes | None]:
    def change(name: str, data: bytes) -> bytes:
        if not name.endswith("model_weights_config.json"):
            return data
        document = json.loads(data)
        document["config"]["first.weight"] |= fields
        return json.dumps(document).encode()

    return change


def without(end: str) -> Callable[[str, bytes], bytes | None]:
    return lambda name, data: None if name.endswith(end) else data


SIZE = b"Symbol('s77', positive=True, integer=True)"
EVIL = b"__import__('os').system('true')"
HOSTILE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda c: b"", "not-a-model"),
    "no zip": (lambda c: b"PK\x03\x04 nothing", "not-a-model"),
    "truncated": (lambda c: c[: len(c) // 2], "not-a-model"),
    "another zip": (lambda c: changed(c, without("model.json")), "not-a-model"),
    "no weight": (lambda c: changed(c, without("weight_0")), "not-a-model"),
    "short weight": (lambda c: changed(c, lambda n, d: d[:-4] if n.endswith("weight_0") else d), "not-a-model"),
    "a pickled weight": (lambda c: changed(c, of_weights(use_pickle=True)), "unsafe-file"),
    "a path": (lambda c: changed(c, of_weights(path_name="../../etc/passwd")), "unsafe-file"),
    "another schema": (lambda c: changed(c, of_model(lambda d: d["schema_version"].update(major=9))), "wrong-version"),
    "no graph": (lambda c: changed(c, of_model(lambda d: d["graph_module"].pop("graph"))), "not-a-model"),
    "a size that runs": (
        lambda c: changed(c, lambda n, d: d.replace(SIZE, EVIL) if n.endswith("model.json") else d),
        "not-a-model",
    ),
    "no json": (lambda c: changed(c, lambda n, d: b"[" * 99999 if n.endswith("model.json") else d), "not-a-model"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bad_files_are_refused(name: str, small: tuple[torch.nn.Module, bytes]) -> None:
    damage, code = HOSTILE[name]
    content = damage(small[1])
    assert content != small[1]
    with pytest.raises(DlcError) as caught:
        parse(content)
    assert caught.value.diagnostics[0].code == code, str(caught.value)
    assert caught.value.diagnostics[0].help


def test_every_unsupported_operator_is_reported_with_its_source_line() -> None:
    class Bad(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.linalg.svd(x)[0]
            return torch.fft.fft(y).real + torch.bernoulli(x)

    content = BytesIO()
    torch.export.save(torch.export.export(Bad(), (torch.rand(4, 4),)), content)
    with pytest.raises(DlcError) as caught:
        parse(content.getvalue())
    found = caught.value.diagnostics
    assert ["svd" in d.message for d in found].count(True) == 1
    assert any("fft" in d.message for d in found)
    assert any("random numbers" in d.message for d in found)
    assert all(d.location is not None and "test_archive.py" in d.location.source for d in found)
    assert any("torch.linalg.svd(x)" in d.source_line for d in found)


def test_writing_into_a_view_that_is_read_later_is_refused() -> None:
    class Written(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x.clone()
            y[:, 0].add_(1)
            return y

    program = torch.export.export(Written(), (torch.rand(4, 4),))
    contents = [BytesIO(), BytesIO()]
    torch.export.save(program, contents[0])
    torch.export.save(program.run_decompositions({}), contents[1])
    with pytest.raises(DlcError, match="run_decompositions"):
        parse(contents[0].getvalue())
    x = np.ones((4, 4), np.float32)
    assert evaluate(parse(contents[1].getvalue()), {"x": x})["output"][:, 0].tolist() == [2.0] * 4


BAD_OPTIONS = {
    "an unknown dimension": ({"dims": ("t:4",)}, "unknown-name"),
    "outside of the bounds": ({"input": ("x:99x4",)}, "bad-shape"),
    "a fixed dimension": ({"input": ("x:3x5",)}, "bad-shape"),
    "no input": ({"input": ("z:3x5",)}, "unknown-name"),
    "no size": ({"dims": ("s77",)}, "bad-option"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_sizes_that_do_not_fit_are_refused(name: str, small: tuple[torch.nn.Module, bytes]) -> None:
    options, code = BAD_OPTIONS[name]
    with pytest.raises(DlcError) as caught:
        parse(small[1], **options)
    assert caught.value.diagnostics[0].code == code


def test_a_result_never_has_the_name_of_an_input() -> None:
    class Same(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"x": x + 1}

    content = BytesIO()
    torch.export.save(torch.export.export(Same(), (torch.rand(2),)), content)
    assert parse(content.getvalue()).names == ("x_",)


def test_complex_inputs_are_refused() -> None:
    class Complex(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.real

    content = BytesIO()
    torch.export.save(torch.export.export(Complex(), (torch.rand(2, dtype=torch.complex64),)), content)
    with pytest.raises(DlcError):
        parse(content.getvalue())
