"""A flashproof worker in numpy: dense attention and its gradients, row by row (../PROTOCOL.md)."""
import json
import sys
import numpy as np

# numpy's own f32 exp and log err by up to 2.52 and 3.83 ulp (loops_exponent_log.dispatch.c.src).
PROFILE = {"base": "dense", "exp_ulp": 3, "log": {"absolute": 0, "ulp": 4}}
HELLO = {"protocol": 1, "name": "numpy " + np.__version__, "operations": ["forward", "backward"],
         "profiles": {"f64": PROFILE, "f32": PROFILE, "f16": PROFILE, "bf16": PROFILE}}
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # bf16: its bits

def attention(query, key, value, scale, problem):
    """Output and LSE from arrays [batch, head, position, dimension]."""
    output = np.zeros((*query.shape[:3], value.shape[3]), query.dtype)  # a row without keys: 0,
    lse = np.full(query.shape[:3], -np.inf, query.dtype)  # and minus infinity
    group = query.shape[1] // key.shape[1]  # query heads to a key head
    for b, h, i in np.ndindex(lse.shape):
        if n := keys_seen(problem, b, i):  # a key past n may hold NaN, and 0 * NaN is no 0
            score = scale * (key[b, h // group, :n] @ query[b, h, i])
            weight = np.exp(score - score.max())
            output[b, h, i] = (weight / weight.sum()) @ value[b, h // group, :n]
            lse[b, h, i] = score.max() + np.log(weight.sum())
    return output, lse

def keys_seen(problem, b, i):  # under these rules they are the first ones
    lengths = [rule["key-lengths"][b] for rule in problem["mask"] if "key-lengths" in rule]
    used = min([problem["key_len"], *lengths])
    ends = {"causal-top-left": i + 1, "causal-bottom-right": i + 1 + used - problem["query_len"]}
    return max(0, min([used, *(ends[rule] for rule in ends if rule in problem["mask"])]))

def gradients(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """Gradients of query, key and value, from output and LSE as the forward pass stored them."""
    d_query, d_key, d_value = np.zeros_like(query), np.zeros_like(key), np.zeros_like(value)
    group = query.shape[1] // key.shape[1]
    for b, h, i in np.ndindex(lse.shape):
        row, seen = (b, h, i), (b, h // group, slice(keys_seen(problem, b, i)))
        weight = np.exp(scale * (key[seen] @ query[row]) - lse[row])
        delta = d_output[row] @ output[row] - d_lse[row]
        d_score = weight * (value[seen] @ d_output[row] - delta)
        d_query[row] = d_score @ key[seen]
        d_key[seen] += np.outer(d_score, query[row])  # sums over its query heads, too
        d_value[seen] += np.outer(weight, d_output[row])
    return scale * d_query, scale * d_key, d_value

def answer(request):
    problem = request["problem"]
    for rule in problem["mask"]:
        if rule not in ("causal-top-left", "causal-bottom-right") and "key-lengths" not in rule:
            return {"unsupported": f"mask rule {rule}"}
    precise = np.float64 if problem["format"] == "f64" else np.float32
    source, target = tensors(request["inputs"], "r"), tensors(request["outputs"], "r+")
    arrays = [widen(source[name]).astype(precise) for name in ("query", "key", "value")]
    output, lse = attention(*arrays, precise(request["scale"]), problem)
    target["output"][...] = narrow(output) if problem["format"] == "bf16" else output
    target["lse"][...] = lse
    return backward(arrays, source, target, request) if request["op"] == "backward" else {"ok": True}

def backward(arrays, source, target, request):
    d_lse = source.get("lse_gradient", np.zeros_like(target["lse"]))
    stored = target["output"], target["lse"], source["output_gradient"], d_lse
    arrays = *arrays, *(widen(array).astype(arrays[0].dtype) for array in stored)
    found = gradients(*arrays, arrays[0].dtype.type(request["scale"]), request["problem"])
    for name, gradient in zip(("query_gradient", "key_gradient", "value_gradient"), found):
        bf16 = request["problem"]["format"] == "bf16"
        target[name][...] = narrow(gradient) if bf16 else gradient
    return {"ok": True}

def tensors(path, mode):  # arrays over a safetensors file: to assign to one is to write the file
    raw = np.memmap(path, np.uint8, mode)
    start = 8 + int(raw[:8].view("<u8")[0])
    return {name: raw[start:][slice(*t["data_offsets"])].view(TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(bytes(raw[8:start])).items()}

def widen(x):
    return (x.astype("<u4") << 16).view("<f4") if x.dtype == "<u2" else x

def narrow(x):  # to the bits of bf16, to nearest, ties to even; NaN has no neighbours
    return np.where(np.isnan(x), 0x7FC0, x.view("<u4") + 0x7FFF + (x.view("<u4") >> 16 & 1) >> 16)

if __name__ == "__main__":
    for request in map(json.loads, sys.stdin):
        reply = HELLO if request["op"] == "hello" else {"id": request["id"], **answer(request)}
        print(json.dumps(reply), flush=True)
