"""A sound pack, and packs with a fault each."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.op_packs.document import parse_document
from dlc.op_packs.load import Pack, pack_of

SOUND: str = """\
pack: demo
ops:
  - op: scale
    doc: y = x · factor + shift, per channel, the last dimension.
    operands: {x: "float[..., C]", shift: "float[C] = 0.0"}
    attrs: {factor: {type: float, default: 2.0, low: 0}}
    define: |
      y[..., c] = x[..., c] * factor + shift[c]
    onnx: [{domain: org.demo, name: Scale, rename: {factor: by}}]
    examples:
      - {x: [1.0, 2.0], shift: [0.5, 0.0], y: [2.5, 4.0]}

  - op: pool
    doc: y = the sum of blocks of `size` elements.
    operands: {x: "float[N, W]"}
    attrs: {size: {type: int, low: 1}}
    require: ["W % size == 0"]
    define: |
      y[n, i<W//size] = sum[k<size](x[n, i*size + k])
    examples:
      - {x: [[1.0, 2.0, 3.0, 4.0]], size: 2, y: [[3.0, 7.0]]}

  - op: gate
    doc: y = x · sigmoid(b).
    operands: {x: float, b: float}
    compose: "x * sigmoid(b)"
    gradient:
      x: "dy * sigmoid(b)"
      b: "dy * x * sigmoid(b) * (1.0 - sigmoid(b))"
    examples:
      - {x: [2.0], b: [0.0], y: [1.0]}
"""


def pack(text: str = SOUND, name: str = "demo.ops.yaml") -> Pack:
    """The pack of a text. Raises DlcError."""
    return pack_of(parse_document(text.encode(), name))


def changed(*pairs: str) -> str:
    """The sound pack with texts in it replaced: old, new, old, new…"""
    text = SOUND
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert text.count(old) >= 1, old
        text = text.replace(old, new, 1)
    return text


MALFORMED: Mapping[str, str] = {
    # ---- the file
    "empty": "",
    "not a mapping": "- 1\n- 2\n",
    "not yaml": "pack: demo\nops: [\n",
    "a tag": changed("pack: demo", "pack: !!python/name:os.system demo"),
    "an alias": changed("pack: demo", "pack: &p demo\ndoc: *p"),
    "a key twice": changed("pack: demo", "pack: demo\npack: demo"),
    "two documents": SOUND + "---\npack: other\n",
    "too deep": "pack: " + "[" * 40 + "]" * 40 + "\n",
    "another version": changed("pack: demo", 'pack: demo\nrequires: ">=9.0"'),
    # ---- the schema
    "no pack": changed("pack: demo\n", ""),
    "no ops": "pack: demo\nops: []\n",
    "unknown key": changed("    define: |\n      y[...,", "    defne: |\n      y[...,"),
    "unknown key of an attribute": changed("low: 0", "lowest: 0"),
    "a name with a capital": changed("op: scale", "op: Scale"),
    "a number for a text": changed("doc: y = the sum of blocks of `size` elements.", "doc: 7"),
    "unknown kind of attribute": changed("{type: int, low: 1}", "{type: integer, low: 1}"),
    "no examples": changed("    examples:\n      - {x: [2.0], b: [0.0], y: [1.0]}\n", ""),
    # ---- names
    "an op twice": changed("op: pool", "op: scale"),
    "an op of the core": changed("pack: demo", "pack: reduce", "op: pool", "op: sum"),
    "a reserved name": changed("{x: float, b: float}", "{x: float, shape: float}"),
    "a name of two things": changed("attrs: {factor:", "attrs: {x:"),
    "an operand that cannot be left out": changed(
        'shift: "float[C] = 0.0"}', 'shift: "float[C] = 0.0", z: "float[C]"}'
    ),
    # ---- types
    "no such element type": changed('"float[N, W]"', '"flaot[N, W]"'),
    "a dimension in lower case": changed('"float[N, W]"', '"float[n, W]"'),
    "a default out of bounds": changed("default: 2.0, low: 0", "default: -2.0, low: 0"),
    # ---- mathematics
    "neither define nor compose": changed('    compose: "x * sigmoid(b)"\n', ""),
    "define and compose of different types": changed(
        'compose: "x * sigmoid(b)"', 'define: "y[...] = x[...] * b[...]"\n    compose: "cast(x * sigmoid(b), to=i32)"'
    ),
    "syntax": changed("* factor + shift[c]", "* factor + + shift[c]"),
    "unknown name": changed("* factor + shift[c]", "* facter + shift[c]"),
    "wrong number of subscripts": changed("x[n, i*size + k]", "x[i*size + k]"),
    "no rest": changed("x[..., c] * factor", "x[c] * factor"),
    "an unused attribute": changed("* factor + shift[c]", "* 2.0 + shift[c]"),
    "an unused operand": changed("* factor + shift[c]", "* factor"),
    "a reduction inside": changed("= sum[k<size](x[n, i*size + k])", "= 1.0 + sum[k<size](x[n, i*size + k])"),
    "another result": changed("y[n, i<W//size]", "z[n, i<W//size]"),
    "an extent of elements": changed("k<size](", "k<x[n, i]]("),
    "an extent that nothing says": changed("i<W//size]", "i]"),
    "outside of a tensor": changed("x[n, i*size + k]", "x[n, i*size + k + 1]"),
    "a condition that is not one": changed("W % size == 0", "W % size =="),
    # ---- compositions and gradients
    "no such op": changed("x * sigmoid(b)", "x * sigmoyd(b)"),
    "no such attribute": changed("x * sigmoid(b)", "x * softmax(b, axes=0)"),
    "too many operands": changed("x * sigmoid(b)", "sigmoid(x, b)"),
    "a circle": changed('compose: "x * sigmoid(b)"', 'compose: "x * demo_gate(b, x)"'),
    "a gradient of something else": changed('      b: "dy', '      c: "dy'),
    "a gradient of another shape": changed(
        'x: "dy * sigmoid(b)"', 'x: "reduce_sum(dy * sigmoid(b), axes=(0,), keep=false)"'
    ),
    "a gradient in another form": changed(
        '    gradient:\n      x: "dy * sigmoid(b)"\n      b: "dy * x * sigmoid(b) * (1.0 - sigmoid(b))"\n',
        "    gradient: dy\n",
    ),
    # ---- examples and ONNX
    "an example of another shape": changed("y: [[3.0, 7.0]]", "y: [3.0, 7.0]"),
    "an example that does not fit": changed("x: [[1.0, 2.0, 3.0, 4.0]]", "x: [[1.0, 2.0, 3.0]]"),
    "an example without a value": changed("{x: [2.0], b: [0.0], y: [1.0]}", "{x: [2.0], y: [1.0]}"),
    "a ragged example": changed("x: [[1.0, 2.0, 3.0, 4.0]]", "x: [[1.0, 2.0], [3.0]]"),
    "an example of nothing": changed("{x: [2.0], b: [0.0], y: [1.0]}", "{x: [2.0], b: [0.0], y: [1.0], z: 1}"),
    "an attribute of another type": changed("size: 2, y", "size: 2.5, y"),
    "renames nothing": changed("rename: {factor: by}", "rename: {fractor: by}"),
    "an operator twice": changed("    compose:", "    onnx: [{domain: org.demo, name: Scale}]\n    compose:"),
}
