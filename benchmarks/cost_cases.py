"""Small files that describe much work, drawn at random: models, graphs, kernels, configurations, op packs, tunings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

from onnx import TensorProto, helper

LARGEST: Final = 4096
"""Bytes of a file."""
Files = Mapping[str, bytes]
Case = tuple[Files, list[str]]
"""Files of a directory, and the arguments of dlc."""
BUILD: Final = ["-t", "c{lib=none}", "-o", "out", "-q"]
_FLOAT, _INT = TensorProto.FLOAT, TensorProto.INT64


def case(seed: int) -> tuple[str, Case]:
    """The case of a seed, and the name of its kind."""
    rng = random.Random(seed)
    name = rng.choice(list(KINDS))
    while True:
        files, arguments = KINDS[name](rng)
        if all(len(content) <= LARGEST for content in files.values()):
            return name, (files, arguments)


def size(rng: random.Random) -> int:
    """A size: ordinary, large, or absurd."""
    return rng.choice([1, 2, 3, 7, 64, 1000, 1 << rng.randrange(10, 20), 1 << rng.randrange(20, 45), (1 << 62) - 1])


def few(rng: random.Random) -> int:
    """A size whose products stay small."""
    return rng.choice([1, 2, 3, 4, 8, 16, 100])


def _ints(name: str, values: list[int]) -> Any:
    return helper.make_tensor(name, _INT, [len(values)], values)


def _model(nodes: list[Any], shape: list[Any], outputs: list[str], inits: list[Any], functions: Any = ()) -> Case:
    x = helper.make_tensor_value_info("x", _FLOAT, shape)
    y = [helper.make_tensor_value_info(name, _FLOAT, None) for name in outputs]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", [x], y, inits)
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    model.ir_version = 8
    return {"m.onnx": model.SerializeToString()}, ["build", "m.onnx", *BUILD]


def chain(rng: random.Random) -> Case:
    """Constants and inputs of any size through ops that make them larger, or that are quadratic in something."""
    inits, nodes, value = [], [], "x"
    shape = [size(rng) if rng.random() < 0.3 else few(rng) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.6:
        inits.append(_ints("shape", [size(rng) if rng.random() < 0.6 else few(rng) for _ in shape]))
        nodes.append(helper.make_node("ConstantOfShape", ["shape"], ["c"]))
        value = "c"
    for k in range(rng.randrange(1, 25)):
        new = f"v{k}"
        op = rng.choice(list(_OPS))
        more, attributes = _OPS[op](rng, len(shape))
        names = []
        for at, values in enumerate(more):
            inits.append(_ints(f"i{k}_{at}", values))
            names.append(f"i{k}_{at}")
        inputs = (
            [value, value]
            if op in ("Add", "Mul", "MatMul")
            else [value] * rng.choice([2, 30, 300])
            if op == "Concat"
            else [value, *names]
        )
        if op == "Pad":
            inputs = [value, names[0]]
        if op == "Where":
            nodes.append(helper.make_node("Greater", [value, "x"], [f"b{k}"]))
            inputs = [f"b{k}", value, "x"]
        nodes.append(helper.make_node(op, inputs, [new, *([f"t{k}"] if op == "TopK" else [])], **attributes))
        value = new
    if rng.random() < 0.5:
        nodes.append(helper.make_node("Add", ["x", value], ["y"]))
        value = "y"
    return _model(nodes, shape, [value], inits)


def _shape_ops(rng: random.Random, rank: int) -> list[int]:
    return [size(rng) if rng.random() < 0.4 else few(rng) for _ in range(rank)]


_MODES: Final = ["constant", "reflect", "edge"]
_OPS: Final[Mapping[str, Callable[[random.Random, int], tuple[list[list[int]], dict[str, Any]]]]] = {
    **{op: lambda _r, _n: ([], {}) for op in ("Cos", "Exp", "Relu", "Erf", "Transpose", "Add", "Mul", "MatMul")},
    "Where": lambda _r, _n: ([], {}),
    **{op: lambda _r, _n: ([], {"axis": -1}) for op in ("Softmax", "LogSoftmax", "LpNormalization")},
    "Concat": lambda _r, _n: ([], {"axis": 0}),
    "Tile": lambda r, n: ([_shape_ops(r, n)], {}),
    "Expand": lambda r, n: ([_shape_ops(r, n)], {}),
    "Reshape": lambda r, n: ([[-1] + [few(r) for _ in range(n - 1)]], {}),
    "Pad": lambda r, n: ([[size(r) if r.random() < 0.3 else 1 for _ in range(2 * n)]], {"mode": r.choice(_MODES)}),
    "TopK": lambda r, _n: ([[few(r)]], {"axis": -1}),
    "CumSum": lambda _r, _n: ([[0]], {}),
    "Gather": lambda r, _n: ([[0] * r.choice([1, 50])], {}),
    "ReduceMean": lambda _r, _n: ([], {"keepdims": 1}),
    "AveragePool": lambda r, n: ([], {"kernel_shape": _shape_ops(r, max(1, n - 2))}),
    "MaxPool": lambda r, n: ([], {"kernel_shape": _shape_ops(r, max(1, n - 2))}),
    "LRN": lambda r, _n: ([], {"size": size(r)}),
    "DepthToSpace": lambda r, _n: ([], {"blocksize": few(r)}),
    "Det": lambda _r, _n: ([], {}),
    "GlobalLpPool": lambda r, _n: ([], {"p": few(r)}),
}  # fmt: skip


def many(rng: random.Random) -> Case:
    """As many nodes and results as fit, with or without sharing: chains, doubling, differences."""
    ops = rng.sample(["Add", "Mul", "Sub", "Max", "Div", "Pow", "Mod"], 2)
    count, nodes = rng.randrange(20, 140), []
    for k in range(count):
        a, b = f"v{k - 1}" if k else "x", f"v{rng.randrange(k)}" if k else "x"
        nodes.append(helper.make_node(rng.choice(ops), [a, rng.choice([a, b, "x"])], [f"v{k}"]))
    outputs = [f"v{k}" for k in range(count) if rng.random() < rng.choice([0.02, 1.0])] or [f"v{count - 1}"]
    shape = rng.choice([[4], [few(rng), size(rng)], ["n" * rng.choice([1, 300]), 4], ["a", "b", "c"]])
    return _model(nodes, shape, outputs, [])


def loops(rng: random.Random) -> Case:
    """Loops, scans and branches inside of each other."""
    depth, trips = rng.randrange(1, 10), [rng.choice([2, 3, 8, 40, 1000, 1 << 40]) for _ in range(10)]
    ops = [rng.choice(["Add", "Mul", "Cos", "Concat"]) for _ in range(10)]

    def node(level: int, value: str, result: str) -> list[Any]:
        if level == depth:
            op, inputs = ops[level], [value] if ops[level] == "Cos" else [value, value]
            return [helper.make_node(op, inputs, [result], **({"axis": 0} if op == "Concat" else {}))]
        names = [f"{part}{level}" for part in ("k", "c", "v", "d", "r")]
        inner = node(level + 1, names[2], names[4])
        body = helper.make_graph(
            [helper.make_node("Identity", [names[1]], [names[3]]), *inner],
            f"b{level}",
            [
                helper.make_tensor_value_info(names[0], _INT, []),
                helper.make_tensor_value_info(names[1], TensorProto.BOOL, []),
                helper.make_tensor_value_info(names[2], _FLOAT, None),
            ],
            [
                helper.make_tensor_value_info(names[3], TensorProto.BOOL, []),
                helper.make_tensor_value_info(names[4], _FLOAT, None),
            ],
        )
        count = helper.make_node("Constant", [], [f"m{level}"], value=helper.make_tensor("", _INT, [], [trips[level]]))
        return [count, helper.make_node("Loop", [f"m{level}", "", value], [result], body=body)]

    return _model(node(0, "x", "y"), [few(rng)], ["y"], [])


def functions(rng: random.Random) -> Case:
    """Functions that call the next one several times."""
    depth, times = rng.randrange(2, 14), rng.choice([2, 3, 6])
    found = []
    for level in range(depth):
        target, domain = (f"f{level + 1}", "own") if level + 1 < depth else ("Exp", "")
        nodes = [
            helper.make_node(
                target, ["a" if k == 0 else f"t{k - 1}"], ["b" if k == times - 1 else f"t{k}"], domain=domain
            )
            for k in range(times)
        ]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        found.append(helper.make_function("own", f"f{level}", ["a"], ["b"], nodes, opsets))
    return _model([helper.make_node("f0", ["x"], ["y"], domain="own")], [few(rng)], ["y"], [], found)


def layers(rng: random.Random) -> Case:
    """Layers with a size of the attacker's choice: weights that are expanded, windows, recurrent layers."""
    inits, nodes = [_ints("s", [size(rng), few(rng), *(size(rng) if rng.random() < 0.4 else 3 for _ in range(2))])], []
    nodes.append(helper.make_node("ConstantOfShape", ["s"], ["w"]))
    op = rng.choice(
        ["Conv", "ConvTranspose", "LSTM", "GRU", "Gemm", "Einsum", "Resize", "GridSample", "NonMaxSuppression"]
    )
    attributes: dict[str, Any] = {}
    inputs = ["x", "w"]
    match op:
        case "Conv" | "ConvTranspose":
            attributes = {"pads": [few(rng)] * 4, "group": few(rng), "dilations": [few(rng), size(rng)]}
        case "LSTM" | "GRU":
            attributes, inputs = {"hidden_size": size(rng)}, ["x", "w", "w"]
        case "Einsum":
            attributes = {
                "equation": rng.choice(["abcd,efgh->abcdefgh", "abcd,dcba->", "abcd,efgh->", "aabb,cdef->abcdef"])
            }
        case "Resize":
            inits.append(_ints("to", [1, 1, size(rng), size(rng)]))
            inputs, attributes = ["x", "", "", "to"], {"mode": rng.choice(["nearest", "linear", "cubic"])}
    nodes.append(helper.make_node(op, inputs, ["y"], **attributes))
    rank = 3 if op in ("LSTM", "GRU") else 4
    return _model(nodes, [size(rng) if rng.random() < 0.3 else few(rng) for _ in range(rank)], ["y"], inits)


def text(rng: random.Random) -> Case:
    """Graphs in dlc's own text."""
    shape = ",".join(str(size(rng) if rng.random() < 0.4 else few(rng)) for _ in range(rng.randrange(1, 3)))
    lines = [f'graph(%0 "x": f32[{shape}]) {{']
    for k in range(1, rng.randrange(3, 120)):
        a, b = rng.randrange(k), rng.randrange(k)
        lines.append(f"  %{k} = {rng.choice(['add', 'mul', 'sub', 'maximum'])}(%{a}, %{rng.choice([b, k - 1])})")
    lines += [f'  return %{len(lines) - 1} "y"', "}"]
    body = "x" if rng.random() < 0.5 else _deep(rng, "p0[i]", rng.choice([10, 150, 400]))
    graph = "\n".join(lines)
    if body != "x":
        graph = f"kernel @k(f32[{size(rng)}]) -> (f32[{few(rng)}]) {{\n  r0[i] = {body}\n}}\n" + (
            'graph(%0 "x": f32[4]) {\n  %1 = @k(%0)\n  return %1 "y"\n}'
        )
    return {"m.dlc": graph.encode()}, ["build", "m.dlc", *BUILD]


def _deep(rng: random.Random, leaf: str, depth: int) -> str:
    way = rng.randrange(4)
    match way:
        case 0:
            return "(" * depth + leaf + ")" * depth
        case 1:
            return "max(" * depth + leaf + ", 0.0)" * depth
        case 2:
            return " + ".join([leaf] * depth)
        case _:
            return "exp(" * depth + leaf + ")" * depth


def kernel(rng: random.Random) -> Case:
    """Programs in the kernel language."""
    n, rank = size(rng) if rng.random() < 0.5 else few(rng), rng.randrange(1, 5)
    index = ",".join("ijkl"[:rank])
    dims = ",".join([str(n)] * rank)
    read = rng.choice(
        [
            f"A[{index}]",
            f"(A[{index}] * {rng.randrange(9)}.5)",
            "A[" + ",".join("ijkl"[k] + "*2+m" for k in range(rank)) + "]",
        ]
    )
    terms = _deep(rng, read, rng.choice([1, 3, 40, 120]))
    statements = "\n".join(f"    B[{index}] = {terms};" for _ in range(rng.choice([1, 1, 2, 8])))
    content = f"kernel k(A: float[{dims}]) -> (B: float[{dims}]) {{\n{statements}\n}}\n"
    gradient = ["--grad", "A"] if rng.random() < 0.4 else []
    return {"m.kernel": content.encode()}, ["build", "m.kernel", *gradient, *BUILD]


def config(rng: random.Random) -> Case:
    """Configurations: pipelines of pipelines, deep lists, long names."""
    model = {"m.dlc": b'graph(%0 "x": f32[4]) {\n  %1 = relu(%0)\n  return %1 "y"\n}\n'}
    depth, times = rng.randrange(2, 60), rng.randrange(1, 6)
    lines = ["[pipeline]"]
    lines += [f"p{k} = {json.dumps([f'p{k + 1}'] * times)}" for k in range(depth)]
    lines += [f'p{depth} = "simplify"', "[target.t]", 'backend = "c{lib=none}"', 'pipeline = "p0"']
    found = "\n".join(lines)
    match rng.randrange(5):
        case 0:
            deep = rng.randrange(10, 1900)
            found = f"a = {'[' * deep}{']' * deep}"
        case 1:
            found = "a" + ".a" * rng.randrange(10, 1900) + " = 1"
        case 2:
            deep = rng.randrange(3, 500)
            found = '[target.t]\nbackend = "' + "c{a=" * deep + "1" + "}" * deep + '"'
        case 3:
            found = "[pipeline]\n" + "\n".join(f'p{k}="simplify,fuse,p{k + 1}"' for k in range(rng.randrange(150)))
    return {**model, "dlc.toml": found.encode()}, ["build", "m.dlc", "-t", "t", "-o", "out", "-q"]


def _square(k: int) -> str:
    return f"      t{k}[i] = t{k - 1}[i] * t{k - 1}[i] + t{k - 1}[i]"


def pack(rng: random.Random) -> Case:
    """Op packs: deep YAML, aliases, long formulas, sizes."""
    model = {"m.dlc": b'graph(%0 "x": f32[4]) {\n  %1 = own(%0)\n  return %1 "y"\n}\n'}
    n = size(rng)
    define = rng.choice([
        f"y[i] = sum[k<{n}](x[i] * k)",
        "y[i] = " + _deep(rng, "x[i]", rng.choice([3, 100, 300])),
        f"y[i<{n}] = x[i % 4]",
        "\n".join(["      t0[i] = x[i]", *(_square(k) for k in range(1, rng.randrange(2, 60)))]),
    ])  # fmt: skip
    if define.startswith(" "):
        last = define.count("\n")
        define = f"|\n{define}\n      y[i] = t{last}[i]"
    else:
        define = json.dumps(define)
    head = 'pack: own\ndoc: "Own."\nops:\n  - op: own\n    doc: "Own."\n    operands: {x: "float[N]"}\n'
    content = f"{head}    define: {define}\n"
    match rng.randrange(4):
        case 0:
            deep = rng.randrange(10, 1900)
            content = f"pack: {'[' * deep}{']' * deep}"
        case 1:
            lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
            lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 8)}]" for k in range(1, rng.randrange(2, 30))]
            content = "\n".join([*lines, content])
    return {**model, "own.ops.yaml": content.encode()}, ["build", "m.dlc", "--ops", "own.ops.yaml", *BUILD]


def tune(rng: random.Random) -> Case:
    """Files of tuned schedules."""
    model = {"m.dlc": b'graph(%0 "x": f32[4]) {\n  %1 = relu(%0)\n  return %1 "y"\n}\n'}
    deep = rng.randrange(3, 900)
    content = rng.choice([
        f"format = {'[' * deep}{']' * deep}",
        'format = "dlc-tune/1"\n' + "[[kernel]]\n" * (deep // 3),
        "x" * deep + " = " + "9" * deep,
        'format = "dlc-tune/1"\n[[kernel]]\nschedule = "' + "tiles{a=" * (deep // 4) + "1" + "}" * (deep // 4) + '"',
    ])  # fmt: skip
    return {**model, "t.toml": content.encode()}, ["build", "m.dlc", "--tune", "t.toml", *BUILD]


def mutated(rng: random.Random) -> Case:
    """The bytes of another case with some changed."""
    files, arguments = KINDS[rng.choice(["chain", "many", "loops", "functions", "layers", "text", "kernel", "pack"])](
        rng
    )
    name = rng.choice(list(files))
    content = bytearray(files[name])
    for _ in range(rng.randrange(1, 12)):
        at = rng.randrange(len(content))
        match rng.randrange(3):
            case 0:
                content[at] = rng.randrange(256)
            case 1:
                content[at:at] = content[at : at + rng.randrange(1, 60)]
            case _:
                content[at:at] = str(size(rng)).encode()
    return {**files, name: bytes(content)}, arguments


KINDS: Final[Mapping[str, Callable[[random.Random], Case]]] = {
    "chain": chain,
    "many": many,
    "loops": loops,
    "functions": functions,
    "layers": layers,
    "text": text,
    "kernel": kernel,
    "config": config,
    "pack": pack,
    "tune": tune,
    "mutated": mutated,
}
"""Name → generator."""
