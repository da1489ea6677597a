#!/usr/bin/env python3
"""Writes golden.json: rows of attention computed by mpmath, independently of this project.

    pip install mpmath && python3 golden.py > golden.json

Numbers are written as decimal strings: inputs as the shortest one that names the double, results
with DIGITS significant digits, of a computation with ten times as many.
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


def row(name, scale, query, keys, values):
    """Output and LSE of one query row by the definition."""
    tau = 1 / mpmath.sqrt(len(query)) if scale == "inverse-sqrt-head-dim" else mpf(scale)
    scores = [tau * mpmath.fsum(mpf(q) * mpf(k) for q, k in zip(query, key)) for key in keys]
    largest = max(scores)
    weights = [mpmath.exp(score - largest) for score in scores]
    normalizer = mpmath.fsum(weights)
    columns = range(len(values[0]))
    return (
        [mpmath.fsum(w * mpf(v[j]) for w, v in zip(weights, values)) / normalizer for j in columns],
        largest + mpmath.log(normalizer),
    )


def case(label, name, scale, query, keys, values):
    output, lse = row(name, scale, query, keys, values)
    text = lambda x: mpmath.nstr(x, DIGITS, min_fixed=0, max_fixed=0)
    return {
        "name": label,
        "format": name,
        "scale": scale if scale == "inverse-sqrt-head-dim" else repr(scale),
        "query": [repr(x) for x in query],
        "keys": [[repr(x) for x in key] for key in keys],
        "values": [[repr(x) for x in value] for value in values],
        "output": [text(x) for x in output],
        "lse": text(lse),
    }


def drawn(label, name, keys, head_dim, value_dim, spread=1.0):
    generator = random.Random(f"{SEED} {label}")
    vector = lambda n, s: [fit(generator.gauss(0, s), name) for _ in range(n)]
    return case(
        label,
        name,
        "inverse-sqrt-head-dim",
        vector(head_dim, spread),
        [vector(head_dim, spread) for _ in range(keys)],
        [vector(value_dim, 1.0) for _ in range(keys)],
    )


def cases():
    for name in BITS:
        yield drawn(f"normal {name}", name, 17, 8, 3)
    yield drawn("normal bf16, head dimension 72", "bf16", 33, 72, 2)
    yield drawn("normal f32, head dimension 256", "f32", 9, 256, 2)
    yield drawn("scores far apart bf16", "bf16", 17, 64, 3, 4.0)
    yield drawn("scores far apart f64", "f64", 17, 40, 3, 4.0)
    wide = [[-103.0], [56.0], [55.5], [0.0], [54.0]]
    one_hot = [[float(i == j) for j in range(5)] for i in range(5)]
    yield case("scores from -103 to 56, one-hot values", "f32", 1.0, [1.0], wide, one_hot)
    yield case("the same in f64", "f64", 1.0, [1.0], wide, one_hot)
    yield case(
        "one entry of 133120 (pytorch#121558)", "bf16", "inverse-sqrt-head-dim",
        [133120.0, 1.0], [[133120.0, 0.0], [133120.0, 1.0], [0.0, 1.0]],
        [[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]],
    )
    tiny = 2.0**-133
    yield case(
        "subnormal inputs", "bf16", "inverse-sqrt-head-dim",
        [tiny, 3 * tiny], [[tiny, tiny], [-tiny, 2 * tiny], [0.0, 5 * tiny]],
        [[tiny, 3 * tiny], [-tiny, tiny], [4 * tiny, 2.0]],
    )
    yield case(
        "values that nearly cancel", "f32", 1.0,
        [1.0], [[2.0**-20], [0.0]], [[1.0], [-1.0]],
    )
    yield case("geometric weights", "f64", -0.5, [1.0], [[float(i)] for i in range(12)],
               [[float(i)] for i in range(12)])
    yield case("an LSE near zero", "f64", 1.0, [1.0],
               [[-0.6931471805599453], [-0.6931471805599453]], [[1.0], [3.0]])
    yield case("scores in the subnormal range of f64", "f64", 5e-324,
               [1.5], [[3.0], [-7.0]], [[1.0], [2.0]])
    yield case("a negative scale", "f16", -0.125, [4.0, 1.0],
               [[3.0, 2.0], [-6.0, 1.0], [5.5, 8.0]], [[1.0, -1.0], [2.5, 0.25], [-3.0, 7.0]])


print(f'{{"digits": {DIGITS}, "mpmath": "{mpmath.__version__}", "cases": [')
print(",\n".join(json.dumps(each) for each in cases()))
print("]}")
