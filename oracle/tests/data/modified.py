#!/usr/bin/env python3
"""Writes modified.json: rows of attention with score modifications, computed with nothing but Python's
own decimal arithmetic, independently of this project and of MPFR.

    python3 modified.py > modified.json

Numbers are written as decimal strings: inputs as the shortest one that names the double, results with
DIGITS significant digits, of a computation with ten times as many. Decimal's exp and ln round
correctly, and every binary number is a decimal one, so nothing but the last digits is ever lost.
"""
import decimal
import json
import random
from decimal import Decimal
from math import frexp

DIGITS = 50
SEED = 26
decimal.setcontext(decimal.Context(prec=10 * DIGITS, Emin=-(10**15), Emax=10**15))

BITS = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}


def fit(x, name):
    """A value of the format near x, whose exponent is inside every format's range."""
    mantissa, exponent = frexp(x)
    return round(mantissa * 2 ** BITS[name]) * 2.0 ** (exponent - BITS[name])


def tanh(y):
    power = (2 * y).exp()
    return (power - 1) / (power + 1)


def score(row, key, place):
    """The score of a key by the definition."""
    dot = sum(Decimal(q) * Decimal(k) for q, k in zip(row["query"], key))
    scale = row["scale"]
    x = dot / Decimal(len(key)).sqrt() if scale == "inverse-sqrt-head-dim" else dot * Decimal(scale)
    added = Decimal(0)
    if "bias" in row:
        added += Decimal(row["bias"][place])
    if "slope" in row:
        # The only query stands at the position of the last key.
        added -= Decimal(row["slope"]) * (len(row["keys"]) - 1 - place)
    if "cap" not in row:
        return x + added
    cap = Decimal(row["cap"])
    return cap * tanh(x / cap) + added if row["order"] == "before-bias" else cap * tanh((x + added) / cap)


def answer(row):
    """Output and LSE of the only query by the definition."""
    visible = [i for i in range(len(row["keys"])) if row.get("bias", [0.0] * (i + 1))[i] != float("-inf")]
    scores = {i: score(row, row["keys"][i], i) for i in visible}
    sink = [Decimal(row["sink"])] if "sink" in row else []
    largest = max([*scores.values(), *sink])
    weights = {i: (s - largest).exp() for i, s in scores.items()}
    normalizer = sum([*weights.values(), *((t - largest).exp() for t in sink)])
    factor = lambda i: Decimal(row["dropout"] if row["keep"][i] else 0) if "dropout" in row else Decimal(1)
    output = [
        sum((weights[i] * factor(i) * Decimal(row["values"][i][j]) for i in visible), Decimal(0)) / normalizer
        for j in range(len(row["values"][0]))
    ]
    return output, largest + normalizer.ln()


def text(x):
    with decimal.localcontext() as context:
        context.prec = DIGITS
        return f"{+x:e}"


def case(name, row):
    output, lse = answer(row)
    show = lambda x: x if isinstance(x, (str, bool)) else [show(y) for y in x] if isinstance(x, list) else repr(x)
    shown = {field: show(value) for field, value in row.items()}
    return {"name": name, **shown, "output": [text(x) for x in output], "lse": text(lse)}


def drawn(name, form, keys, head_dim, value_dim, **modifications):
    generator = random.Random(f"{SEED} {name}")
    vector = lambda n, s=1.0: [fit(generator.gauss(0, s), form) for _ in range(n)]
    row = {
        "format": form,
        "scale": "inverse-sqrt-head-dim",
        "query": vector(head_dim, 2.0),
        "keys": [vector(head_dim, 2.0) for _ in range(keys)],
        "values": [vector(value_dim) for _ in range(keys)],
    }
    for field, value in modifications.items():
        row[field] = value(generator) if callable(value) else value
    return case(name, row)


def biases(count, form):
    return lambda generator: [fit(generator.gauss(0, 3), form) for _ in range(count)]


def kept(count):
    return lambda generator: [generator.random() < 0.7 for _ in range(count)]


def cases():
    least = -3.4028234663852886e38
    yield drawn("a bias", "bf16", 17, 8, 3, bias_format="f32", bias=biases(17, "f32"))
    yield drawn("a bias with a rational scale", "f32", 9, 16, 2, bias_format="bf16", bias=biases(9, "bf16"))
    yield drawn("a bias that hides keys", "f32", 5, 3, 2, bias_format="f32",
                bias=[float("-inf"), 0.5, float("-inf"), -1.25, 2.0])
    yield drawn("the least finite biases", "f32", 4, 3, 2, bias_format="f32",
                bias=[least, 0.5, least, least / 2])
    yield drawn("a row of the least finite bias", "f16", 4, 5, 2, bias_format="f32", bias=[least] * 4)
    yield drawn("linear biases", "bf16", 33, 64, 2, slope=0.0625)
    yield drawn("linear biases with a slope of f32", "f32", 12, 7, 2, slope=0.7071067690849304)
    for order in ["before-bias", "after-bias"]:
        for cap in [30.0, 1.0, 0.125]:
            yield drawn(f"a softcap of {cap}, {order}", "f32", 9, 8, 2, cap=cap, order=order,
                        bias_format="f32", bias=biases(9, "f32"))
        yield drawn(f"a softcap in f64, {order}", "f64", 9, 40, 2, cap=50.0, order=order, slope=0.5)
    yield drawn("a sink", "bf16", 9, 8, 3, sink_format="f32", sink=1.75)
    yield drawn("a sink far above", "f64", 9, 8, 3, sink_format="f32", sink=20.0)
    yield drawn("a sink far below", "f64", 9, 9, 3, sink_format="f64", sink=-300.0)
    yield drawn("a sink and an irrational scale", "f32", 9, 5, 3, sink_format="bf16", sink=-0.5)
    yield drawn("dropout", "bf16", 17, 8, 3, dropout=1.1111111640930176, keep=kept(17))
    yield drawn("dropout in f64", "f64", 9, 8, 3, dropout=2.0, keep=kept(9))
    for form in BITS:
        yield drawn(f"all of them in {form}", form, 13, 12, 3, bias_format="f32", bias=biases(13, "f32"),
                    slope=0.25, cap=20.0, order="before-bias", sink_format="f32", sink=0.625,
                    dropout=2.0, keep=kept(13))


print(f'{{"digits": {DIGITS}, "cases": [')
print(",\n".join(json.dumps(each) for each in cases()))
print("]}")
