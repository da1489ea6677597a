#!/usr/bin/env python3
"""Writes gradient.json: gradients of attention computed by mpmath, independently of this project.

    pip install mpmath && python3 gradient.py > gradient.json

Numbers are written as decimal strings: inputs as the shortest one that names the double, results
with DIGITS significant digits, of a computation with ten times as many. Tensors are flat,
[batch, head, position, dimension] in row-major order; a bias is [batch, head, query, key], of its own
shape, and sinks are [head].
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


def used(p, batch):
    """Queries and keys of a batch member that are in use."""
    queries, keys = p["query_len"], p["key_len"]
    for rule in p["mask"]:
        if isinstance(rule, dict):
            queries = min(queries, rule.get("query-lengths", {batch: queries})[batch])
            keys = min(keys, rule.get("key-lengths", {batch: keys})[batch])
    return queries, keys


def at(pattern, place):
    """The truth value of a pattern at [batch, head, query, key], axes of extent 1 broadcast."""
    b, h, q, k = (0 if extent == 1 else x for extent, x in zip(pattern["shape"], place))
    return pattern["rows"][(b * pattern["shape"][1] + h) * pattern["shape"][2] + q][k] == "1"


def sees(p, batch, head, query, key):
    queries, keys = used(p, batch)
    if key >= keys or query >= queries:
        return False
    own = query + keys - queries
    for rule in p["mask"]:
        if rule == "causal-top-left" and key > query:
            return False
        if rule == "causal-bottom-right" and key > own:
            return False
        if isinstance(rule, dict) and "window" in rule:
            left, right = (rule["window"][side] for side in ("left", "right"))
            if left is not None and key < own - left or right is not None and key > own + right:
                return False
        if isinstance(rule, dict) and "boolean" in rule and not at(rule["boolean"], (batch, head, query, key)):
            return False
    return True


def slope(p, head):
    """The ALiBi slope of a head, by the published recipe for any number of heads."""
    given = p["alibi"]["slopes"]
    if given != "standard":
        return mpf(given["given"][head])
    power = 2 ** (p["query_heads"].bit_length() - 1)
    of = lambda n, i: mpf(2) ** (mpf(-8 * (i + 1)) / n)
    exact = of(power, head) if head < power else of(2 * power, 2 * (head - power))
    return mpf(fit(exact, "f32"))


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


class Bias:
    """A bias tensor, axes of extent 1 broadcast; zero everywhere where there is none."""

    def __init__(self, p, entries):
        self.shape = p["bias"]["shape"] if "bias" in p else [1, 1, 1, 1]
        self.entries = [mpf(entry) for entry in entries or [0]]

    def place(self, place):
        flat = 0
        for extent, index in zip(self.shape, place):
            flat = flat * extent + (0 if extent == 1 else index)
        return flat

    def __getitem__(self, place):
        return self.entries[self.place(place)]

    def add(self, place, x):
        self.entries[self.place(place)] += x


def scored(p, x, addend):
    """The score of a scaled product, and its derivatives by the product and by the addend."""
    if "softcap" not in p:
        return x + addend, mpf(1), mpf(1)
    cap = mpf(p["softcap"]["cap"])
    after = p["softcap"].get("order") == "after-bias"
    y = (x + addend if after else x) / cap
    slope = mpmath.sech(y) ** 2
    score = cap * mpmath.tanh(y)
    return (score, slope, slope) if after else (score + addend, slope, mpf(1))


def gradients(p, inputs, upstream, lse_gradient):
    """Gradients by the chain rule from the definition of attention, one query at a time."""
    scale = p.get("scale", "inverse-sqrt-head-dim")
    tau = 1 / mpmath.sqrt(p["head_dim"]) if scale == "inverse-sqrt-head-dim" else mpf(scale["value"])
    batch, hq, hk, n, m = (p[k] for k in ("batch", "query_heads", "key_heads", "query_len", "key_len"))
    d, dv = p["head_dim"], p["value_dim"]
    query, key, value, bias, sink = inputs
    q, k, v = Table(hq, n, d, query), Table(hk, m, d, key), Table(hk, m, dv, value)
    d_o = Table(hq, n, dv, upstream)
    d_q, d_k, d_v = Table(hq, n, d, [0] * len(query)), Table(hk, m, d, [0] * len(key)), Table(hk, m, dv, [0] * len(value))
    bias = Bias(p, bias)
    d_bias, d_sink = Bias(p, [0] * len(bias.entries)), [mpf(0)] * hq
    for b in range(batch):
        queries, in_use = used(p, b)
        for h in range(hq):
            kh = h // (hq // hk)
            for r in range(n):
                here = (b, h, r)
                g = mpf(lse_gradient[(b * hq + h) * n + r]) if lse_gradient else mpf(0)
                keys = [i for i in range(m)
                        if sees(p, b, h, r, i) and bias[b, h, r, i] != mpf("-inf")]
                logits = [] if "sink" not in p else [mpf(0) if p["sink"] == "zero" else mpf(sink[h])]
                if not keys:
                    # With a sink the LSE is its logit; the output is zero.
                    d_sink[h] += g if logits and r < queries else 0
                    continue
                alibi = lambda i: 0 if "alibi" not in p else -slope(p, h) * abs(
                    (r if p["alibi"].get("alignment") == "top-left" else r + in_use - queries) - i)
                scores = [scored(p, tau * inner(q[here], k[b, kh, i]), bias[b, h, r, i] + alibi(i))
                          for i in keys]
                top = max([score for score, _, _ in scores] + logits)
                weights = [mpmath.exp(score - top) for score, _, _ in scores]
                total = mpmath.fsum(weights + [mpmath.exp(logit - top) for logit in logits])
                kept = [1 if "dropout" not in p else
                        p["dropout"]["scale"] * at(p["dropout"]["keep"], (b, h, r, i)) for i in keys]
                output = [mpmath.fsum(w * z * v[b, kh, i][j] for w, z, i in zip(weights, kept, keys)) / total
                          for j in range(dv)]
                for w, z, (_, by_product, by_addend), i in zip(weights, kept, scores, keys):
                    there = (b, kh, i)
                    share = w / total
                    # d o_j / d s = share (z v_j - o_j), d L / d s = share
                    by_score = share * (g + mpmath.fsum(
                        u * (z * x - o) for u, x, o in zip(d_o[here], v[there], output)))
                    d_q.add(here, k[there], tau * by_score * by_product)
                    d_k.add(there, q[here], tau * by_score * by_product)
                    d_v.add(there, d_o[here], share * z)
                    d_bias.add((b, h, r, i), by_score * by_addend)
                for logit in logits:
                    # d o_j / d logit = -share o_j, d L / d logit = share
                    d_sink[h] += mpmath.exp(logit - top) / total * (g - inner(d_o[here], output))
    return [d_q.entries, d_k.entries, d_v.entries, d_bias.entries, d_sink]


def case(label, p, lse_format, query, key, value, upstream, lse_gradient, bias=None, sink=None):
    results = gradients(p, (query, key, value, bias, sink), upstream, lse_gradient)
    text = lambda x: mpmath.nstr(x, DIGITS, min_fixed=0, max_fixed=0)
    exact = lambda entries: entries and [repr(float(x)) for x in entries]
    outcome = {name: [text(x) for x in entries]
               for name, entries in zip(("d_query", "d_key", "d_value", "d_bias", "d_sink"), results)}
    extra = {"bias": exact(bias), "sink": exact(sink)}
    for name, entries in (("bias", bias), ("sink", sink)):
        if entries is None:
            del outcome[f"d_{name}"], extra[name]
    return {
        "name": label,
        "problem": p,
        "lse_format": lse_format,
        "query": exact(query),
        "key": exact(key),
        "value": exact(value),
        **extra,
        "output_gradient": exact(upstream),
        "lse_gradient": exact(lse_gradient),
        **outcome,
    }


def drawn(label, p, spread=1.0, lse_format="f32", with_lse=True, hidden=0):
    """Random inputs; the bias hides as many of its entries as asked for, and holds one f32 or f16 minimum."""
    generator = random.Random(f"{SEED} {label}")
    count = lambda *names: int(mpmath.fprod(p[name] for name in names))
    normal = lambda n, s, name: [fit(generator.gauss(0, s), name) for _ in range(n)]
    name = p["format"]
    tensors = (
        normal(count("batch", "query_heads", "query_len", "head_dim"), spread, name),
        normal(count("batch", "key_heads", "key_len", "head_dim"), spread, name),
        normal(count("batch", "key_heads", "key_len", "value_dim"), 1.0, name),
        normal(count("batch", "query_heads", "query_len", "value_dim"), 1.0, name),
        normal(count("batch", "query_heads", "query_len"), 1.0, lse_format) if with_lse else None,
    )
    bias = sink = None
    if "bias" in p:
        bias = normal(int(mpmath.fprod(p["bias"]["shape"])), 1.0, p["bias"]["format"])
        for place in generator.sample(range(len(bias)), hidden):
            bias[place] = float("-inf")
        if hidden:
            lowest = {"f32": -(2.0**128 - 2.0**104), "f16": -65504.0}[p["bias"]["format"]]
            bias[next(i for i, x in enumerate(bias) if x != float("-inf"))] = lowest
    if isinstance(p.get("sink"), dict):
        sink = normal(p["query_heads"], 1.0, p["sink"]["logits"])
    return case(label, p, lse_format, *tensors, bias, sink)


def pattern(shape, generator):
    """Truth values, three of four true."""
    rows = shape[0] * shape[1] * shape[2]
    return {"shape": shape,
            "rows": ["".join("0111"[generator.randrange(4)] for _ in range(shape[3])) for _ in range(rows)]}


def modified():
    """Every modification of scores and weights, alone and with the others."""
    generator = random.Random(SEED)
    shape = problem(batch=2, query_heads=2, key_heads=1, query_len=3, key_len=5, head_dim=3, value_dim=2)
    full = [2, 2, 3, 5]
    for extents in (full, [1, 2, 3, 5], [2, 1, 1, 5], [1, 1, 3, 1], [1, 1, 1, 1]):
        yield drawn(f"bias of shape {extents}", {**shape, "bias": {"shape": extents, "format": "f32"}})
    yield drawn("bias with hidden keys and a finite minimum",
                {**shape, "bias": {"shape": [1, 2, 3, 5], "format": "f16"}}, hidden=9)
    yield drawn("bias that hides keys under a causal mask, bf16 inputs",
                {**shape, "format": "bf16", "mask": ["causal-bottom-right"],
                 "bias": {"shape": [2, 1, 3, 5], "format": "f32"}}, hidden=6)
    for order in ("before-bias", "after-bias"):
        cap = {"cap": 1.5, "order": order}
        yield drawn(f"softcap {order}", {**shape, "softcap": cap})
        yield drawn(f"softcap {order} with bias", {**shape, "softcap": cap, "bias": {"shape": [1, 1, 3, 5], "format": "f32"}},
                    2.0, hidden=4)
        yield drawn(f"softcap {order}, saturated",
                    {**shape, "format": "bf16", "softcap": {"cap": 0.5, "order": order}}, 6.0)
    yield drawn("alibi, three heads", {**shape, "query_heads": 3, "alibi": {"slopes": "standard"}})
    yield drawn("alibi, slopes given, top-left",
                {**shape, "alibi": {"slopes": {"given": [0.25, -1.5]}, "alignment": "top-left"}})
    yield drawn("sinks", {**shape, "sink": {"logits": "f32"}})
    yield drawn("the off-by-one softmax", {**shape, "sink": "zero"})
    yield drawn("sinks and rows without keys",
                {**shape, "sink": {"logits": "bf16"}, "mask": ["causal-bottom-right", {"key-lengths": [5, 2]}]})
    yield drawn("sinks and padded queries",
                {**shape, "sink": {"logits": "f32"}, "mask": [{"query-lengths": [1, 3]}, "causal-bottom-right"]})
    yield drawn("dropout", {**shape, "dropout": {"scale": 1.25, "keep": pattern(full, generator)}})
    yield drawn("dropout, no LSE gradient",
                {**shape, "dropout": {"scale": 2.0, "keep": pattern([1, 2, 3, 5], generator)}}, with_lse=False)
    yield drawn("a mask of each head", {**shape, "mask": [{"boolean": pattern([1, 2, 3, 5], generator)}]})
    yield drawn("a window", {**shape, "mask": [{"window": {"left": 1, "right": 0}}]})
    for order in ("before-bias", "after-bias"):
        for lowest in (0, 5):
            yield drawn(f"everything, softcap {order}, {lowest} keys hidden", {
                **shape, "query_heads": 4, "key_heads": 2, "format": "f16", "scale": {"value": -0.75},
                "mask": [{"window": {"left": 2, "right": 1}}, {"boolean": pattern([2, 4, 1, 5], generator)}],
                "softcap": {"cap": 2.5, "order": order}, "bias": {"shape": [1, 4, 3, 5], "format": "f16"},
                "alibi": {"slopes": "standard"}, "sink": {"logits": "f32"},
                "dropout": {"scale": 1.25, "keep": pattern([2, 1, 3, 5], generator)}}, 1.5, hidden=lowest)


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
    yield from modified()


print(f'{{"digits": {DIGITS}, "mpmath": "{mpmath.__version__}", "cases": [')
print(",\n".join(json.dumps(each) for each in cases()))
print("]}")
