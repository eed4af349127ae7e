"""Random texts: bytes, words of the language in any order, and valid texts with changes."""

from __future__ import annotations

import json
import random

_WORDS = """
A<4>[i] B<4,4>[i,j] [ ] ( ) < <1> > , ; = + - * / // % 1 0 3.5 1e9 i j k max[k]( sum select( exp( kernel f( -> { }
A: f32[4] # and or not == != <= >= alpha<1> B A A[i] 99999999999 min( f32( true I<3>[i] é \x00 @ %4 "x" i+1 9-i 2*i
"""
WORDS = tuple(_WORDS.split())

VALID = (
    "A<8,8>[i,j] = (B<10,8>[i,j] + B<10,8>[i+1,j] + B<10,8>[i+2,j]) / 3.0;",
    "A<2,8,5,5>[n,k,p,q] = A[n,k,p,q] + B<2,16,7,7>[n,c,p+r,q+s] * C<8,16,3,3>[k,c,r,s];",
    "A<4>[i] = alpha<1> * (B<4,5>[i,k] * C<5>[k]); A[i] = A[i] - beta<1> // 2 % 3;",
    "S<4,5>[i,j] = exp(B<4,5>[i,j] - max[k](B[i,k])) / sum[k](exp(B[i,k]));",
    "A<9>[i] = select(i > 0 and not i == 4, B<9>[i-1], -1); A[2*i] = C<9>[8-i];",
    "kernel f(X: f32[4,5], I: i32[6], n: int) -> (Y: f32[6,5], n: int) {\n"
    "  Y[p,j] = X[I[p],j] * f32(n); # take\n  n = n / 2;\n}",
)  # fmt: skip


def text(rng: random.Random) -> bytes:
    """A text of one of the kinds."""
    kind = rng.random()
    if kind < 0.2:
        return rng.randbytes(rng.randrange(80))
    if kind < 0.3:
        return "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(80))).encode()
    if kind < 0.6:
        start = rng.choice(("", "A<4>[i] = ", "kernel f(A: f32[4]) -> (B: f32[4]) { B[i] = "))
        body = rng.choice(("", " ")).join(rng.choices(WORDS, k=rng.randrange(1, 24)))
        return (start + body + rng.choice(("", ";", "; }"))).encode()
    return changed(rng.choice(VALID), rng).encode()


def changed(valid: str, rng: random.Random) -> str:
    """A valid text with a few characters replaced by others of their kind, or with parts deleted, doubled, replaced."""
    for _ in range(rng.randrange(1, 4)):
        a = rng.randrange(len(valid) + 1)
        if rng.random() < 0.6:
            a = rng.choice([k for k, c in enumerate(valid) if c.isalnum()] or [0])
            new, b = rng.choice("0123456789" if valid[a : a + 1].isdigit() else "ABCijkpqrs"), a + 1
        else:
            b = min(len(valid), a + rng.randrange(1, 6))
            new = rng.choice(("", valid[a:b] * 2, rng.choice(WORDS), str(rng.randrange(12)), rng.choice(VALID)[a:b]))
        valid = valid[:a] + new + valid[b:]
    return valid


def case(rng: random.Random) -> bytes:
    """A JSON case around a random text, now and then with something else wrong."""
    names = ("A", "B", "C", "I", "alpha", "")
    found: dict[str, object] = {
        "name": "fuzz",
        "ins": rng.sample(names, rng.randrange(4)),
        "outs": rng.sample(names, rng.randrange(1, 3)),
        "data_type": rng.choice(("float", "double", "int", "bool")),
        "kernel": text(rng).decode("latin-1"),
    }
    if rng.random() < 0.3:
        found["grad_to"] = rng.sample(names, rng.randrange(3))
    if rng.random() < 0.1:
        found[rng.choice(list(found))] = rng.choice((None, 3, [], {}, "x", [3]))
    data = json.dumps(found).encode()
    return data if rng.random() < 0.9 else data[: rng.randrange(len(data))]
