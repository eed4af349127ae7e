"""What instructions compute, written from the pages `docs/s2train*.md` alone; see `page_simulator`."""

import numpy as np

from tests.backend_s2train.page_operation import (
    Array,
    Numbers,
    Operation,
    channel_sums,
    exponential,
    logarithm,
    rows,
    shifted,
    single,
    words,
)

CONV, LINEAR, ELTWISE, POOL, COPY, UPDATE, LOSS, FILL = range(1, 9)
RELU, MASK_WRITE, MASK_READ, ADD, ADD_SINGLE, BN_FORWARD, BN_BACKWARD, BN_BACKWARD_2 = (1 << bit for bit in range(8))
POOL_2, POOL_4, POINTER_WRITE, POINTER_READ, DROPOUT, SOFTMAX_CE, BN_TRAIN, PRUNE = (1 << bit for bit in range(8, 16))
ACCUMULATE_IN, ACCUMULATE_OUT = 1, 2


def results(o: Operation) -> dict[str, Array]:
    """What goes into the slots that are written, and others, which are not there."""
    if o.opcode in (COPY, FILL):
        return {"dst0": o.given["src0"] if o.opcode == COPY else np.zeros_like(o.given["dst0"])}
    if o.opcode == UPDATE:
        return update(o.numbers, o.given["src0"], o.given)
    if o.opcode == LOSS:
        return loss(o, o.given["src0"]) if o.flags & SOFTMAX_CE else softmax(o.given["src0"])
    if o.opcode == POOL:
        return pool(o)
    if o.opcode in (CONV, LINEAR) and o.stage >= 2:
        dw = weight_gradient(o)
        dw = pruned(o, dw) if o.flags & PRUNE else dw
        return {"dst0": dw} if o.stage == 2 else update(o.numbers, dw, o.given)
    sums = o.given["src0"] if o.opcode == ELTWISE else product(o)
    if o.splitting & ACCUMULATE_OUT:
        return {"dst0": sums}
    if o.flags & SOFTMAX_CE:
        return loss(o, normalized(sums, bn_rows(o)) if o.flags & BN_FORWARD else sums)
    return after_backward(o, sums) if o.stage == 1 else after_forward(o, sums)


def begun(o: Operation, *shape: int) -> Array:
    return o.given["aux"].reshape(shape) if o.splitting & ACCUMULATE_IN else np.zeros(shape, single)


def product(o: Operation) -> Array:
    """Sums of a convolution, forward or backward."""
    g = o.g
    part = slice(*g.channels) if g.channels != (0, 0) else slice(None)
    if o.stage == 0:
        x = o.given["src0"].reshape(g.n, g.ci, g.hi, g.wi)[:, part]
        w = o.given["src1"].reshape(g.co, -1, g.kh, g.kw)
        source, step, origin, total = x, g.stride, (-g.pads[0], -g.pads[1]), begun(o, g.n, g.co, g.ho, g.wo)
    else:
        dy = o.given["src0"].reshape(g.n, g.co, g.ho, g.wo)[:, part]
        source = np.zeros((*dy.shape[:2], (g.ho - 1) * g.stride[0] + 1, (g.wo - 1) * g.stride[1] + 1), single)
        source[:, :, :: g.stride[0], :: g.stride[1]] = dy
        w = o.given["src1"].reshape(g.groups, -1, g.ci // g.groups, g.kh, g.kw)
        w = w.swapaxes(1, 2)[..., ::-1, ::-1].reshape(g.ci, -1, g.kh, g.kw)
        origin = g.pads[0] - (g.kh - 1) * g.dilation[0], g.pads[1] - (g.kw - 1) * g.dilation[1]
        step, total = (1, 1), begun(o, g.n, g.ci, g.hi, g.wi)
    outputs, inner = w.shape[:2]
    for r in range(g.kh):
        for c in range(inner):
            for s in range(g.kw):
                at = origin[0] + r * g.dilation[0], origin[1] + s * g.dilation[1]
                tap = shifted(source, at, step, total.shape[2:])
                for m in range(outputs):
                    total[:, m] += tap[:, m // (outputs // g.groups) * inner + c] * w[m, c, r, s]
    return total


def weight_gradient(o: Operation) -> Array:
    g = o.g
    dy = o.given["src0"].reshape(g.n, g.co, g.ho, g.wo)
    if "src1" not in o.given:
        total = begun(o, g.co)
        for n, i, j in np.ndindex(g.n, g.ho, g.wo):
            total += dy[n, :, i, j]
        return total
    x = o.given["src1"].reshape(g.n, g.ci, g.hi, g.wi)
    x = x[:, slice(*g.channels)] if g.channels != (0, 0) else x
    inner = x.shape[1] // g.groups
    total = begun(o, g.co, inner, g.kh, g.kw)
    for r, s in np.ndindex(g.kh, g.kw):
        tap = shifted(x, (r * g.dilation[0] - g.pads[0], s * g.dilation[1] - g.pads[1]), g.stride, (g.ho, g.wo))
        for n, i, j in np.ndindex(g.n, g.ho, g.wo):
            for m in range(g.co):
                q = m // (g.co // g.groups)
                total[m, :, r, s] += tap[n, q * inner : (q + 1) * inner, i, j] * dy[n, m, i, j]
    return total


# ---- the post-processing unit ----


def normalized(y: Array, bn: Array) -> Array:
    mean, rstd, scale, shift = rows(bn, y)
    return (y - mean) * rstd * scale + shift


def bn_rows(o: Operation) -> Array:
    if "bn1" not in o.given:
        return o.given["bn0"]
    mean, var = o.given["bn1"]
    return np.stack([mean, single(1) / np.sqrt(var + single(o.numbers.epsilon)), *o.given["bn0"][2:]])


def after_forward(o: Operation, y: Array) -> dict[str, Array]:
    flags, made = o.flags, dict[str, Array]()
    if flags & BN_TRAIN:
        count = single(y.size // y.shape[1])
        mean = channel_sums(y) / count
        centred = y - rows(mean[None], y)[0]
        var = channel_sums(centred * centred) / count
        made["dst1"] = np.stack([mean, single(1) / np.sqrt(var + single(o.numbers.epsilon))])
        if "bn1" in o.given:
            momentum = o.numbers.momentum
            made["bn1"] = o.given["bn1"] * single(momentum) + np.stack([mean, var]) * single(1 - momentum)
        y = normalized(y, np.concatenate([made["dst1"], o.given["bn0"][2:]]))
    if flags & BN_FORWARD:
        y = normalized(y, bn_rows(o))
    if flags & ADD:
        y = y + o.given["res"].reshape(y.shape)
    if flags & RELU:
        y = np.where(y <= 0, single(0), y)
    y = y.astype(np.float16).astype(single)
    made["mask"] = y > 0
    if flags & (POOL_2 | POOL_4):
        k = 4 if flags & POOL_4 else 2
        n, c, h, w = y.shape
        tiles = y.reshape(n, c, h // k, k, w // k, k).swapaxes(3, 4).reshape(n, c, h // k, w // k, k * k)
        made["ptr"] = tiles.argmax(-1)
        y = np.take_along_axis(tiles, made["ptr"][..., None], -1)[..., 0]
    if flags & DROPOUT:
        made["aux"] = words(o, y.shape) >= round((1.0 - o.numbers.keep) * 2.0**32)
        y = np.where(made["aux"], y * o.numbers.factor, single(0))
    return {**made, "dst0": y}


def after_backward(o: Operation, g: Array) -> dict[str, Array]:
    flags, given = o.flags, o.given
    if flags & POINTER_READ:
        k = 4 if flags & POOL_4 else 2
        n, c, h, w = g.shape
        tiles = np.where(given["ptr"].reshape(g.shape)[..., None] == np.arange(k * k), g[..., None], single(0))
        g = tiles.reshape(n, c, h, w, k, k).swapaxes(3, 4).reshape(n, c, h * k, w * k)
    if flags & ADD:
        g = g + given["res"].reshape(g.shape)
    if flags & ADD_SINGLE:
        _, rstd, scale, _ = rows(given["aux" if flags & BN_BACKWARD_2 else "bn1"], g)
        g = g + given["res"].reshape(g.shape) * (single(1) / rstd / scale)
    if flags & DROPOUT:
        g = np.where(given["aux"].reshape(g.shape), g * o.numbers.factor, single(0))
    if flags & MASK_READ:
        g = np.where(given["mask"].reshape(g.shape), g, single(0))
    if flags & BN_TRAIN:
        mean, rstd = rows(given["bn1"], g)
        scale, count = rows(given["bn0"], g)[2], single(g.size // g.shape[1])
        standard = (given["src1"].reshape(g.shape) - mean) * rstd
        s0, s1 = channel_sums(g), channel_sums(g * standard)
        mean0, mean1 = rows(np.stack([s0 / count, s1 / count]), g)
        return {"dst0": scale * rstd * (g - mean0 - standard * mean1), "dst1": np.stack([s1, s0])}
    made = {"dst0": g, "dst1": g}
    for flag, slot, norm in ((BN_BACKWARD, "dst0", "bn0"), (BN_BACKWARD_2, "dst1", "bn1")):
        if flags & flag:
            _, rstd, scale, _ = rows(given[norm], g)
            made[slot] = g * rstd * scale
    return made


# ---- loss, update, pools, random numbers ----
def loss(o: Operation, logits: Array) -> dict[str, Array]:
    labels = o.given["aux"].reshape(-1)
    counts, labels = labels >= 0, np.maximum(labels, 0)
    z = logits.reshape(len(labels), -1)
    z = z - z.max(1, keepdims=True)
    n, p, total, mean = len(z), exponential(z), np.zeros((len(z), 1), single), single(0)
    for k in range(z.shape[1]):
        total[:, 0] += p[:, k]
    for each in (logarithm(total[:, 0]) - z[np.arange(n), labels])[counts]:
        mean += each
    d = p / total
    d[np.arange(n), labels] -= single(1)
    some = counts.sum()
    d = np.where(counts[:, None], d * single(o.numbers.scale / max(some, 1)), single(0))
    return {"dst0": d, "dst1": np.array([mean / single(some)])}


def softmax(logits: Array) -> dict[str, Array]:
    z = logits.reshape(len(logits), -1)
    p, total = exponential(z - z.max(1, keepdims=True)), np.zeros((len(z), 1), single)
    for k in range(z.shape[1]):
        total[:, 0] += p[:, k]
    return {"dst0": p / total}


def update(h: Numbers, gradient: Array, given: dict[str, Array]) -> dict[str, Array]:
    """Nothing where it is left out."""
    if not np.isfinite(gradient).all():
        return {}
    w = given["dst1"] if "dst1" in given else given["dst0"]
    g = gradient.reshape(w.shape) / single(h.scale)
    if single(h.decay):
        g = g + single(h.decay) * w
    v = single(h.momentum) * given["aux"].reshape(w.shape) + g if "aux" in given else g
    w = w - single(h.rate) * (g + single(h.momentum) * v if h.nesterov else v)
    return {"dst0": w, "dst1": w, "aux": v}


def pool(o: Operation) -> dict[str, Array]:
    g, (k, s, p) = o.g, o.g.pool
    source = o.given["src0"].reshape(g.n, g.ci, *((g.ho, g.wo) if o.stage else (g.hi, g.wi)))
    result = np.zeros((g.n, g.ci, *((g.hi, g.wi) if o.stage else (g.ho, g.wo))), single)
    taps = np.zeros((g.n, g.ci, g.ho, g.wo), int)
    inside: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for i, j, a, b in np.ndindex(g.ho, g.wo, k, k):
        row, column = i * s + a - p, j * s + b - p
        if 0 <= row < g.hi and 0 <= column < g.wi:
            inside.setdefault((i, j), []).append((a * k + b, row, column))
    if o.stage == 0:
        for (i, j), places in inside.items():
            values = np.stack([source[:, :, row, column] for _, row, column in places], -1)
            best = values.argmax(-1)
            taps[:, :, i, j] = np.array([tap for tap, _, _ in places])[best]
            if o.flags & POINTER_WRITE:
                result[:, :, i, j] = np.take_along_axis(values, best[..., None], -1)[..., 0]
                continue
            for n in range(len(places)):
                result[:, :, i, j] += values[..., n]
            result[:, :, i, j] /= single(len(places))
        return {"dst0": result, "ptr": taps}
    for number in range(k * k):
        for (i, j), places in inside.items():
            for tap, row, column in places:
                if tap != number:
                    continue
                dy = source[:, :, i, j]
                if o.flags & POINTER_READ:
                    share = np.where(o.given["ptr"].reshape(source.shape)[:, :, i, j] == tap, dy, single(0))
                else:
                    share = dy / single(len(places))
                result[:, :, row, column] += share
    return {"dst0": result}


def pruned(o: Operation, g: Array) -> Array:
    t, size = single(o.numbers.threshold), np.abs(g.astype(np.float64))
    if not t > 0:
        return g
    chosen = words(o, g.shape) / 2.0**32 < size / np.float64(t)
    return np.where(np.abs(g) < t, np.where(chosen, np.copysign(t, g), single(0)), g)
