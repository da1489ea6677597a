"""The numpy worker with one fault, named by the argument: what the suite must catch.

Run as `faulty.py FAULT`; `faulty.py` alone prints the faults' names.
"""
import json
import os
import sys
import time

import numpy as np

import numpy_worker as worker

correct_attention, correct_keys_seen = worker.attention, worker.keys_seen
correct_gradients = worker.gradients

# Keys that the faulty online softmax takes at once, and queries between which a narrow sum is stored.
BLOCK = 16

# Keys of a tile of the faulty backward pass, which fills up the last one.
TILE = 128


# Faults of forward arithmetic: a well-formed answer with wrong numbers.

def drop_key(query, key, value, scale, problem):
    """One row, the last, does not see the key in the middle of those that it should see."""
    output, lse = correct_attention(query, key, value, scale, problem)
    b, h, i = (extent - 1 for extent in lse.shape)
    seen = worker.keys_seen(problem, b, i) if lse.size else 0
    if seen > 1:
        kept = np.delete(np.arange(seen), seen // 2)
        alone = {"query_len": 1, "key_len": len(kept), "mask": []}
        row = correct_attention(query[b:, h:, i:], key[b:, -1:, kept], value[b:, -1:, kept], scale, alone)
        output[b, h, i], lse[b, h, i] = row[0][0, 0, 0], row[1][0, 0, 0]
    return output, lse


def skip_rescale(query, key, value, scale, problem):
    """Online softmax whose normalizer is rescaled when the maximum moves, and whose numerator is not."""
    output = np.zeros((*query.shape[:3], value.shape[3]), query.dtype)
    lse = np.full(query.shape[:3], -np.inf, query.dtype)
    group = query.shape[1] // key.shape[1]
    for b, h, i in np.ndindex(lse.shape):
        seen = worker.keys_seen(problem, b, i)
        peak, normalizer = query.dtype.type(-np.inf), query.dtype.type(0)
        for start in range(0, seen, BLOCK):
            block = slice(start, min(start + BLOCK, seen))
            score = scale * (key[b, h // group, block] @ query[b, h, i])
            before, peak = peak, max(peak, score.max())
            weight = np.exp(score - peak)
            normalizer = normalizer * np.exp(before - peak) + weight.sum()
            output[b, h, i] += weight @ value[b, h // group, block]
        if seen:
            output[b, h, i] /= normalizer
            lse[b, h, i] = peak + np.log(normalizer)
    return output, lse


def lse_base_2(query, key, value, scale, problem):
    """The LSE is in base 2, and declared as natural."""
    output, lse = correct_attention(query, key, value, scale, problem)
    return output, lse / lse.dtype.type(np.log(2))


def causal_top_left(problem, b, i):
    """A causal mask is aligned top-left where bottom-right is asked."""
    mask = ["causal-top-left" if rule == "causal-bottom-right" else rule for rule in problem["mask"]]
    return correct_keys_seen({**problem, "mask": mask}, b, i)


# Faults of backward arithmetic, after a right forward pass. Each takes what `gradients` does: query,
# key, value, output, LSE, the gradients of these two, scale and problem.

def no_delta(query, key, value, output, *rest):
    """dS = P dP, without D."""
    return correct_gradients(query, key, value, np.zeros_like(output), *rest)


def delta_stale(query, key, value, output, *rest):
    """D comes from the output of the previous row, and that of the first row from the last."""
    return correct_gradients(query, key, value, np.roll(output, 1, axis=2), *rest)


def dlse_ignored(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """The gradient of the LSE is taken for zero."""
    rest = np.zeros_like(d_lse), scale, problem
    return correct_gradients(query, key, value, output, lse, d_output, *rest)


def dk_unscaled(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """The scale is in the scores and in dQ, and not in dK."""
    rest = output, lse, d_output, d_lse, scale.dtype.type(1), problem
    return correct_gradients(query, scale * key, value, *rest)


def dq_zero(query, *rest):
    """dQ is never computed."""
    return np.zeros_like(query), *correct_gradients(query, *rest)[1:]


def dkv_overwrite(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """The query heads of a group overwrite one another's dK and dV: the last one's are left."""
    last = slice(query.shape[1] // key.shape[1] - 1, None, query.shape[1] // key.shape[1])
    rest = output[:, last], lse[:, last], d_output[:, last], d_lse[:, last], scale, problem
    d_query = correct_gradients(query, key, value, output, lse, d_output, d_lse, scale, problem)[0]
    return d_query, *correct_gradients(query[:, last], key, value, *rest)[1:]


def mask_shift(*arguments):
    """The backward mask ends one key before the forward mask."""
    def keys_seen(problem, b, i):
        return max(0, correct_keys_seen(problem, b, i) - bool(problem["mask"]))

    worker.keys_seen = keys_seen
    try:
        return correct_gradients(*arguments)
    finally:
        worker.keys_seen = correct_keys_seen


def bwd_pad_zero(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """A row's last tile is filled up with keys and values of zeros: unmasked, they score 0."""
    arguments = query, key, value, output, lse, d_output, d_lse, scale, problem
    d_query, d_key, d_value = correct_gradients(*arguments)
    group = query.shape[1] // key.shape[1]
    for b, h, i in np.ndindex(lse.shape):
        seen = worker.keys_seen(problem, b, i)
        if seen % TILE:
            padding = b, h // group, slice(seen, seen + TILE - seen % TILE)
            weight = np.exp(-lse[b, h, i])
            d_score = weight * (d_lse[b, h, i] - d_output[b, h, i] @ output[b, h, i])
            d_query[b, h, i] += d_score * 0  # no change, unless the weight overflowed
            d_key[padding] += scale * d_score * query[b, h, i]
            d_value[padding] += weight * d_output[b, h, i]
    return d_query, d_key, d_value


def dv_bf16_acc(query, key, value, output, lse, d_output, d_lse, scale, problem):
    """dV is stored in bf16 between blocks of queries, and not declared so."""
    arguments = query, key, value, output, lse, d_output, d_lse, scale, problem
    d_query, d_key, _ = correct_gradients(*arguments)
    d_value, group = np.zeros_like(value), query.shape[1] // key.shape[1]
    for b, h, i in np.ndindex(lse.shape):
        head, seen = d_value[b, h // group], worker.keys_seen(problem, b, i)
        score = scale * (key[b, h // group, :seen] @ query[b, h, i])
        head[:seen] += np.outer(np.exp(score - lse[b, h, i]), d_output[b, h, i])
        if (i + 1) % BLOCK == 0:
            head[...] = worker.widen(worker.narrow(head.astype("<f4")).astype("<u2"))
    return d_query, d_key, d_value


# Faults of conduct: each takes a request and gives a reply, as the worker's `answer` does.

def crash(request):
    print("out of registers", file=sys.stderr, flush=True)
    os._exit(3)


def hang(request):
    time.sleep(3600)


def not_json(request):
    print("all is well", flush=True)
    return {"ok": True}


def not_an_answer(request):
    return {"ok": False}


def wrong_id(request):
    return {"id": request["id"] + 1, **worker.answer(request)}


def reports_error(request):
    return {"error": "out of registers"}


def wrong_shape(request):
    return replace(request, output=lambda output: output[..., :-1])


def wrong_dtype(request):
    return replace(request, output=lambda output: worker.widen(output).astype(np.float64))


def missing_output(request):
    return replace(request, output=lambda _: None)


def extra_output(request):
    return replace(request, weights=lambda _: np.zeros(1, np.float32))


def truncated_output(request):
    os.truncate(request["outputs"], os.path.getsize(request["outputs"]) - 1)
    return {"ok": True}


def unwritten_output(request):
    return {"ok": True}


def non_finite_output(request):
    return replace(request, lse=lambda lse: np.full_like(lse, np.inf))


def writes_inputs(request):
    return write_input(request, "key")


# Those of conduct that show in a backward pass alone.

def wrong_gradient_shape(request):
    return replace(request, query_gradient=lambda gradient: gradient[..., :-1])


def wrong_gradient_dtype(request):
    return replace(request, value_gradient=lambda gradient: worker.widen(gradient).astype(np.float64))


def missing_gradient(request):
    return replace(request, key_gradient=lambda _: None)


def unwritten_gradient(request):
    poison = np.array(worker.tensors(request["outputs"], "r")["key_gradient"])
    return replace(request, key_gradient=lambda _: poison)


def writes_cotangents(request):
    return write_input(request, "output_gradient")


def write_input(request, name):
    """Answers, and changes every element of an input."""
    reply = worker.answer(request)
    worker.tensors(request["inputs"], "r+")[name].view(np.uint8)[...] ^= 1
    return reply


def replace(request, **changes):
    """Puts a new file in the place of the outputs file, with what `changes` make of its tensors."""
    worker.answer(request)
    tensors = {name: np.array(x) for name, x in worker.tensors(request["outputs"], "r").items()}
    tensors.update((name, change(tensors.get(name))) for name, change in changes.items())
    names = {np.dtype(stored): name for name, stored in worker.TYPES.items()}
    header, data = {}, b""
    for name, x in tensors.items():
        if x is not None:
            end = len(data) + x.nbytes
            header[name] = {"dtype": names[x.dtype], "shape": x.shape, "data_offsets": [len(data), end]}
            data += x.tobytes()
    text = json.dumps(header).encode()
    with open(request["outputs"], "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + data)
    return {"ok": True}


def by_name(*functions):
    return {function.__name__.replace("_", "-"): function for function in functions}


FORWARD = {
    "drop-key": {"attention": drop_key},
    "skip-rescale": {"attention": skip_rescale},
    "lse-base-2": {"attention": lse_base_2},
    "causal-top-left": {"keys_seen": causal_top_left},
}
BACKWARD = by_name(
    no_delta, delta_stale, dlse_ignored, dk_unscaled, dq_zero, dkv_overwrite, mask_shift, bwd_pad_zero,
    dv_bf16_acc)
CONDUCT = by_name(
    crash, hang, not_json, not_an_answer, wrong_id, reports_error, wrong_shape, wrong_dtype,
    missing_output, extra_output, truncated_output, unwritten_output, non_finite_output, writes_inputs)
BACKWARD_CONDUCT = by_name(
    wrong_gradient_shape, wrong_gradient_dtype, missing_gradient, unwritten_gradient, writes_cotangents)


def main():
    fault = sys.argv[1] if len(sys.argv) == 2 else None
    faults = {**FORWARD, **BACKWARD, **CONDUCT, **BACKWARD_CONDUCT}
    if fault not in faults:
        sys.exit(f"usage: faulty.py {' | '.join(faults)}")
    for name, function in FORWARD.get(fault, {}).items():
        setattr(worker, name, function)
    worker.gradients = BACKWARD.get(fault, worker.gradients)
    forward = CONDUCT.get(fault, worker.answer)
    answers = {"forward": forward, "backward": BACKWARD_CONDUCT.get(fault, forward)}
    for request in map(json.loads, sys.stdin):
        reply = worker.HELLO
        if request["op"] in answers:
            reply = {"id": request["id"], **answers[request["op"]](request)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
