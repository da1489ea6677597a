#!/usr/bin/env python3
"""Writes gradient.json: gradients of attention computed by mpmath, independently of this project.

    pip install mpmath && python3 gradient.py > gradient.json

Numbers are written as decimal strings: inputs as the shortest one that names the double, results
with DIGITS significant digits, of a computation with ten times as many. Tensors are flat,
[batch, head, position, dimension] in row-major order.
"""
import json
import random

import mpmath
from mpmath import mp, mpf

DIGITS = 50
SEED = 26
mp.dps = 10 * DIGITS

BITS = {"f64": 53, "f32": 24, "tf32": 11, "f16": 11, "bf16": 8, "e4m3": 4, "e5m2": 3}
QUANTUM = {"f16": -24, "e4m3": -9, "e5m2": -16}


def fit(x, name):
    """The value of the format near x; exponents of the cases stay inside every format's range."""
    _, exponent = mpmath.frexp(mpf(x))
    spacing = mpf(2) ** max(exponent - BITS[name], QUANTUM.get(name, exponent - BITS[name]))
    return float(mpmath.nint(x / spacing) * spacing)


def problem(**changes):
    """A problem with one head, one batch member and a full mask, but for the changes."""
    base = dict(batch=1, query_heads=1, key_heads=1, query_len=1, key_len=1, head_dim=1,
                value_dim=1, format="f32", mask=[])
    return {**base, **changes}


def sees(p, batch, query, key):
    used = p["key_len"]
    for rule in p["mask"]:
        if isinstance(rule, dict):
            used = min(used, rule["key-lengths"][batch])
    if key >= used:
        return False
    for rule in p["mask"]:
        if rule == "causal-top-left" and key > query:
            return False
        if rule == "causal-bottom-right" and key > query + used - p["query_len"]:
            return False
    return True


class Table:
    """A tensor as a list of rows, one for each batch member, head and position."""

    def __init__(self, heads, positions, columns, entries):
        self.heads, self.positions, self.columns = heads, positions, columns
        self.entries = [mpf(entry) for entry in entries]

    def row(self, batch, head, position):
        start = ((batch * self.heads + head) * self.positions + position) * self.columns
        return slice(start, start + self.columns)

    def __getitem__(self, place):
        return self.entries[self.row(*place)]

    def add(self, place, vector, factor):
        for at, x in zip(range(*self.row(*place).indices(len(self.entries))), vector):
            self.entries[at] += factor * x


def inner(x, y):
    return mpmath.fsum(a * b for a, b in zip(x, y))


def gradients(p, query, key, value, upstream, lse_gradient):
    """Gradients by the chain rule from the definition of attention, one query at a time."""
    scale = p.get("scale", "inverse-sqrt-head-dim")
    tau = 1 / mpmath.sqrt(p["head_dim"]) if scale == "inverse-sqrt-head-dim" else mpf(scale["value"])
    batch, hq, hk, n, m = (p[k] for k in ("batch", "query_heads", "key_heads", "query_len", "key_len"))
    d, dv = p["head_dim"], p["value_dim"]
    q, k, v = Table(hq, n, d, query), Table(hk, m, d, key), Table(hk, m, dv, value)
    d_o = Table(hq, n, dv, upstream)
    d_q, d_k, d_v = Table(hq, n, d, [0] * len(query)), Table(hk, m, d, [0] * len(key)), Table(hk, m, dv, [0] * len(value))
    for b in range(batch):
        for h in range(hq):
            kh = h // (hq // hk)
            for r in range(n):
                keys = [i for i in range(m) if sees(p, b, r, i)]
                if not keys:
                    continue
                here = (b, h, r)
                g = mpf(lse_gradient[(b * hq + h) * n + r]) if lse_gradient else mpf(0)
                scores = [tau * inner(q[here], k[b, kh, i]) for i in keys]
                weights = [mpmath.exp(score - max(scores)) for score in scores]
                total = mpmath.fsum(weights)
                output = [mpmath.fsum(w * v[b, kh, i][j] for w, i in zip(weights, keys)) / total
                          for j in range(dv)]
                for w, i in zip(weights, keys):
                    there = (b, kh, i)
                    share = w / total
                    # d o_j / d s = share (v_j - o_j), d L / d s = share
                    by_score = share * (g + mpmath.fsum(
                        u * (x - o) for u, x, o in zip(d_o[here], v[there], output)))
                    d_q.add(here, k[there], tau * by_score)
                    d_k.add(there, q[here], tau * by_score)
                    d_v.add(there, d_o[here], share)
    return d_q, d_k, d_v


def case(label, p, lse_format, query, key, value, upstream, lse_gradient):
    results = gradients(p, query, key, value, upstream, lse_gradient)
    text = lambda x: mpmath.nstr(x, DIGITS, min_fixed=0, max_fixed=0)
    exact = lambda entries: entries and [repr(float(x)) for x in entries]
    return {
        "name": label,
        "problem": p,
        "lse_format": lse_format,
        "query": exact(query),
        "key": exact(key),
        "value": exact(value),
        "output_gradient": exact(upstream),
        "lse_gradient": exact(lse_gradient),
        **{name: [text(x) for x in table.entries]
           for name, table in zip(("d_query", "d_key", "d_value"), results)},
    }


def drawn(label, p, spread=1.0, lse_format="f32", with_lse=True):
    generator = random.Random(f"{SEED} {label}")
    count = lambda *names: int(mpmath.fprod(p[name] for name in names))
    normal = lambda n, s, name: [fit(generator.gauss(0, s), name) for _ in range(n)]
    name = p["format"]
    return case(
        label, p, lse_format,
        normal(count("batch", "query_heads", "query_len", "head_dim"), spread, name),
        normal(count("batch", "key_heads", "key_len", "head_dim"), spread, name),
        normal(count("batch", "key_heads", "key_len", "value_dim"), 1.0, name),
        normal(count("batch", "query_heads", "query_len", "value_dim"), 1.0, name),
        normal(count("batch", "query_heads", "query_len"), 1.0, lse_format) if with_lse else None,
    )


def cases():
    for name in BITS:
        shape = problem(format=name, query_len=3, key_len=5, head_dim=6, value_dim=2)
        yield drawn(f"normal {name}", shape, with_lse=False)
        yield drawn(f"normal {name} with an LSE gradient", shape)
    grouped = problem(format="bf16", batch=2, query_heads=6, key_heads=2, query_len=2, key_len=3,
                      head_dim=4, value_dim=2)
    yield drawn("six query heads on two key heads (levanter#449)", grouped)
    for rule in ("causal-top-left", "causal-bottom-right"):
        yield drawn(rule, problem(format="f16", query_len=5, key_len=3, head_dim=8, mask=[rule]))
        lengths = {"key-lengths": [4, 0]}
        yield drawn(f"{rule}, lengths 4 and 0",
                    problem(format="f32", batch=2, query_len=3, key_len=5, head_dim=2, mask=[lengths, rule]))
    yield drawn("scores far apart", problem(format="bf16", query_len=3, key_len=7, head_dim=64), 4.0)
    yield drawn("scores far apart f64", problem(format="f64", query_len=2, key_len=5, head_dim=40),
                4.0, "f64")
    yield drawn("head dimension 256", problem(format="f32", key_len=2, head_dim=256))
    yield drawn("one query, one key, dimension 16, inputs three times as large (flash-attention#334)",
                problem(format="f16", head_dim=16, value_dim=16), 3.0, with_lse=False)
    # Scores of -120, so that e^(0 - LSE) would overflow where padding is scored 0.
    yield case("half a tile of keys, scores -120 (pytorch#196678)",
               problem(format="f32", query_len=2, key_len=8, scale={"value": 1.0}), "f32",
               [-120.0, -119.5], [1.0] * 8, [float(i) for i in range(8)], [1.0, -0.5], None)
    yield case("a key that gets a weight of e^-200", problem(format="f64", query_len=2, key_len=3,
               scale={"value": 1.0}), "f64", [1.0, 1.5], [0.0, -200.0, 0.25], [1.0, 3.0, -2.0],
               [1.0, 0.75], [0.5, -0.25])
    yield case("values that nearly agree", problem(format="f64", key_len=3, scale={"value": 1.0}),
               "f64", [1.0], [0.5, -0.25, 0.125], [1.0, 1.0 + 2.0**-50, 1.0 - 2.0**-50], [3.0], None)
    yield case("a negative scale", problem(format="f16", query_len=2, key_len=3, head_dim=2,
               scale={"value": -0.125}), "f32", [4.0, 1.0, -2.0, 8.0],
               [3.0, 2.0, -6.0, 1.0, 5.5, 8.0], [1.0, 2.5, -3.0], [1.0, -1.0], [0.0, 2.0])


print(f'{{"digits": {DIGITS}, "mpmath": "{mpmath.__version__}", "cases": [')
print(",\n".join(json.dumps(each) for each in cases()))
print("]}")
