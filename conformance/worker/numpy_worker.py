"""A flashproof worker in numpy: dense attention and its gradients, row by row (../PROTOCOL.md)."""
from types import SimpleNamespace

import numpy as np

from flashproof_worker import member, serve, tensors, used, widen, write
from numpy_scores import RULES, at, bias_inside, group, kept, named, scores, sinks

# numpy's own f32 exp and log err by up to 2.52 and 3.83 ulp (loops_exponent_log.dispatch.c.src), and its
# tanh by 1.38 on every f32, which the profile's 2.5 covers.
PROFILE = {"base": "dense", "exp_ulp": 3, "log": {"absolute": 0, "ulp": 4}}
HELLO = {"protocol": 1, "name": "numpy " + np.__version__,
         "operations": ["forward", "backward", "merge"],
         "profiles": {"f64": PROFILE, "f32": PROFILE, "f16": PROFILE, "bf16": PROFILE}}


# One batch member x is what numpy_scores says; a row of it is query head h and query i.

def attention(x):
    """Output and LSE of each row, [head, position, entry] and [head, position]."""
    output = np.zeros((*x.query.shape[:2], x.value.shape[2]), x.query.dtype)  # a row without keys: 0,
    lse = np.full(x.query.shape[:2], -np.inf, x.query.dtype)  # and minus infinity
    for h, i in np.ndindex(lse.shape):
        seen, score, _ = scores(x, h, i)
        logits = np.append(score, sinks(x, h)).astype(score.dtype)
        if len(logits):
            weight = np.exp(logits - logits.max())
            lse[h, i] = logits.max() + np.log(weight.sum())
            weight = weight[:len(seen)] / weight.sum() * kept(x, h, i, seen)
            output[h, i] = weight @ x.value[h // group(x), seen]
    return output, lse


def gradients(x, output, lse, d_output, d_lse, d_bias, d_sink):
    """Gradients of query, key and value, from output and LSE as the forward pass stored them; adds to
    those of bias and sink."""
    d_query, d_key, d_value = np.zeros_like(x.query), np.zeros_like(x.key), np.zeros_like(x.value)
    for h, i in np.ndindex(lse.shape):
        seen, score, slope = scores(x, h, i)
        head = h // group(x)
        # upstream gradients of a row without keys may be NaN
        delta = (d_output[h, i] @ output[h, i] if len(seen) else 0) - d_lse[h, i]
        if x.sink is not None and i < used(x.problem, "query", x.b):
            d_sink[h] -= sum(np.exp(logit - lse[h, i]) for logit in sinks(x, h)) * delta
        weight, keep = np.exp(score - lse[h, i]), kept(x, h, i, seen)
        d_score = score_gradient(weight, keep, x.value[head, seen] @ d_output[h, i], delta)
        d_product = d_score * slope
        if x.bias is not None:
            add_bias_gradient(d_bias, x, h, i, seen, d_product if bias_inside(x) else d_score)
        d_query[h, i] = d_product @ x.key[head, seen]
        d_key[head, seen] += np.outer(d_product, x.query[h, i])  # sums over its query heads, too
        d_value[head, seen] += np.outer(weight * keep, d_output[h, i])
    return x.scale * d_query, x.scale * d_key, d_value


def score_gradient(weight, keep, d_weight, delta):
    return weight * (keep * d_weight - delta)


def add_bias_gradient(d_bias, x, h, i, seen, d_score):
    row = d_bias[at(d_bias.shape, x.b, h, i)]
    np.add.at(row, seen if len(row) > 1 else np.zeros_like(seen), d_score)


def answer(request):
    problem = request["problem"]
    for rule in problem["mask"]:
        if named(rule)[0] not in RULES:
            return {"unsupported": f"mask rule {rule}"}
    precise = np.float64 if problem["format"] == "f64" else np.float32
    source, target = tensors(request["inputs"], "r"), tensors(request["outputs"], "r+")
    if request["op"] == "merge":
        return merge(source, target, precise)
    if any(source[name].dtype.itemsize > np.dtype(precise).itemsize for name in source):
        return {"unsupported": "a bias or sink wider than the arithmetic"}
    shared = {name: widen(source[name]).astype(precise) for name in ("bias", "sink") if name in source}
    sums = {name: np.zeros(shared[name].shape, precise) for name in shared}
    for b in range(problem["batch"]):
        def read(name, like):
            return widen(member(source[name], problem, like, b)).astype(precise)

        query, key, value = (read(name, name) for name in ("query", "key", "value"))
        x = SimpleNamespace(query=query, key=key, value=value, bias=shared.get("bias"), problem=problem,
                            sink=shared.get("sink"), scale=precise(request["scale"]), b=b)
        stored = [member(target[name], problem, name, b) for name in ("output", "lse")]
        output, lse = attention(x)
        write(stored[0], output)
        write(stored[1], lse[..., None])
        if request["op"] == "backward":
            d_output = read("output_gradient", "output")
            d_lse = np.zeros((*lse.shape, 1), precise)
            if "lse_gradient" in source:
                d_lse = read("lse_gradient", "lse")
            output, lse = (widen(array).astype(precise) for array in stored)
            found = gradients(x, output, lse[..., 0], d_output, d_lse[..., 0],
                              sums.get("bias"), sums.get("sink"))
            for name, gradient in zip(("query", "key", "value"), found):
                stored = member(target[f"{name}_gradient"], problem, name, b)
                stored[:, gradient.shape[1]:] = 0  # keys without a page
                write(stored[:, :gradient.shape[1]], gradient)
    for name in sums if request["op"] == "backward" else []:
        write(target[f"{name}_gradient"], sums[name])
    return {"ok": True}


def merge(source, target, precise):
    """Partial results of disjoint keys into one: each weighs as much as one key of its LSE's score."""
    outputs, lses = (widen(source[name]).astype(precise) for name in ("outputs", "lses"))
    peak = np.maximum(lses.max(axis=0), np.finfo(precise).min)  # finite where no partial has keys
    weight = np.exp(lses - peak)
    total = weight.sum(axis=0)
    outputs = np.where(lses[..., None] == -np.inf, 0, outputs)  # what has no keys may hold anything
    some = np.where(total == 0, 1, total)
    write(target["output"], (weight[..., None] * outputs).sum(axis=0) / some[..., None])
    write(target["lse"], np.where(total == 0, -np.inf, peak + np.log(some)))
    return {"ok": True}


if __name__ == "__main__":
    serve(HELLO, answer)
