"""The numpy worker with one fault, named by the argument: what the suite must catch.

Run as `faulty.py FAULT`; `faulty.py` alone prints the faults' names.
"""
import json
import os
import sys
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np

import flashproof_worker as wire
import numpy_scores as rows
import numpy_worker as worker

correct_attention, correct_gradients = worker.attention, worker.gradients
correct_visible, correct_scores, correct_sinks = rows.visible, rows.scores, rows.sinks
correct_member = wire.member

# Keys that the faulty online softmax takes at once, and queries between which a narrow sum is stored.
BLOCK = 16

# Keys of a tile of the faulty backward pass, which fills up the last one.
TILE = 128


@contextmanager
def patched(module, name, function):
    """A function of a module is another one for a while."""
    correct = getattr(module, name)
    setattr(module, name, function)
    try:
        yield
    finally:
        setattr(module, name, correct)


def changed(x, **fields):
    return SimpleNamespace(**{**vars(x), **fields})


# Faults of forward arithmetic: a well-formed answer with wrong numbers.

def drop_key(x):
    """One row, the last, does not see the key in the middle of those that it should see."""
    last = x.problem["batch"] - 1, x.query.shape[0] - 1, x.query.shape[1] - 1

    def visible(x, h, i):
        seen = correct_visible(x, h, i)
        if (x.b, h, i) == last and seen.sum() > 1:
            seen[np.flatnonzero(seen)[seen.sum() // 2]] = False
        return seen

    with patched(rows, "visible", visible):
        return correct_attention(x)


def skip_rescale(x):
    """Online softmax whose normalizer is rescaled when the maximum moves, and whose numerator is not."""
    output, lse = correct_attention(x)
    for h, i in np.ndindex(lse.shape):
        seen, scores, _ = worker.scores(x, h, i)
        peak, normalizer, numerator = -np.inf, 0, np.zeros_like(output[h, i])
        for start in range(0, len(seen), BLOCK):
            keys, score = seen[start:start + BLOCK], scores[start:start + BLOCK]
            before, peak = peak, max(peak, score.max())
            weight = np.exp(score - peak)
            normalizer = normalizer * np.exp(before - peak) + weight.sum()
            numerator += weight @ x.value[h // worker.group(x), keys]
        if len(seen):
            output[h, i], lse[h, i] = numerator / normalizer, peak + np.log(normalizer)
    return output, lse


def lse_base_2(x):
    """The LSE is in base 2, and declared as natural."""
    output, lse = correct_attention(x)
    return output, lse / lse.dtype.type(np.log(2))


# Faults of scores, in both passes.

def causal_top_left(x, h, i):
    """A causal mask is aligned top-left where bottom-right is asked."""
    mask = ["causal-top-left" if rule == "causal-bottom-right" else rule for rule in x.problem["mask"]]
    return correct_visible(changed(x, problem={**x.problem, "mask": mask}), h, i)


def window_plus_one(x, h, i):
    """A sliding window reaches one key further to the left."""
    def widened(rule):
        if "window" not in rule or rule["window"]["left"] is None:
            return rule
        return {"window": {**rule["window"], "left": rule["window"]["left"] + 1}}

    mask = [widened(rule) for rule in x.problem["mask"]]
    return correct_visible(changed(x, problem={**x.problem, "mask": mask}), h, i)


def mask_head0(x, h, i):
    """A boolean mask is applied to query head 0 alone."""
    mask = [rule for rule in x.problem["mask"] if h == 0 or "boolean" not in rule]
    return correct_visible(changed(x, problem={**x.problem, "mask": mask}), h, i)


def alibi_exponent(rule, heads):
    """The slopes are those of a power of two of heads, whatever their number."""
    return np.float32(2.0 ** (-8 * np.arange(1, heads + 1) / heads))


def sink_per_split(x, h):
    """A sink is counted once for each of two splits."""
    return 2 * correct_sinks(x, h)


def softcap_after_mask(x, h, i):
    """The softcap comes after the mask: a hidden key in use scores -cap, and no minus infinity."""
    if not x.problem.get("softcap"):
        return correct_scores(x, h, i)
    cap = x.query.dtype.type(x.problem["softcap"]["cap"])
    seen, score, slope = correct_scores(x, h, i)
    hidden = np.setdiff1d(np.arange(wire.used(x.problem, "key", x.b)), seen)
    score = np.append(score, np.full(len(hidden), -cap))
    return np.append(seen, hidden), score, np.append(slope, np.zeros_like(hidden, slope.dtype))


# Faults of layout.

def assume_packed(array, problem, name, b):
    """Strides are ignored: a buffer is taken for a contiguous tensor."""
    if array.ndim != 1 or "strided" not in problem.get("layout", {}):
        return correct_member(array, problem, name, b)
    what = "key" if name in ("key", "value") else "query"
    heads, entries = problem[f"{what}_heads"], problem["head_dim" if name in ("query", "key") else "value_dim"]
    shape = problem["batch"], heads, problem[f"{what}_len"], entries
    start = problem["layout"]["strided"][name]["offset"]
    dense = array[start:start + np.prod(shape)]
    missing = np.prod(shape) - len(dense)
    return (np.append(dense, array[:missing]) if missing else dense).reshape(shape)[b]


# Faults of backward arithmetic, after a right forward pass. Each takes what `gradients` does: a batch
# member, output, LSE, the gradients of these two, and the sums of the gradients of bias and sink.

def no_delta(x, output, *rest):
    """dS = P dP, without D."""
    return correct_gradients(x, np.zeros_like(output), *rest)


def delta_stale(x, output, *rest):
    """D comes from the output of the previous row, and that of the first row from the last."""
    return correct_gradients(x, np.roll(output, 1, axis=1), *rest)


def dlse_ignored(x, output, lse, d_output, d_lse, *sums):
    """The gradient of the LSE is taken for zero."""
    return correct_gradients(x, output, lse, d_output, np.zeros_like(d_lse), *sums)


def dk_unscaled(x, *rest):
    """The scale is in the scores and in dQ, and not in dK."""
    d_query, d_key, d_value = correct_gradients(x, *rest)
    return d_query, d_key / x.scale, d_value


def dq_zero(x, *rest):
    """dQ is never computed."""
    return np.zeros_like(x.query), *correct_gradients(x, *rest)[1:]


def dkv_overwrite(x, output, lse, d_output, d_lse, *sums):
    """The query heads of a group overwrite one another's dK and dV: the last one's are left."""
    everything = correct_gradients(x, output, lse, d_output, d_lse, *sums)
    others = np.arange(len(x.query)) % worker.group(x) != worker.group(x) - 1

    def visible(x, h, i):
        return correct_visible(x, h, i) & ~others[h]

    unused = [None if total is None else np.zeros_like(total) for total in sums]
    with patched(rows, "visible", visible):
        last = correct_gradients(x, output, lse, d_output, d_lse, *unused)
    return everything[0], *last[1:]


def mask_shift(*arguments):
    """The backward mask ends one key before the forward mask."""
    def visible(x, h, i):
        seen = correct_visible(x, h, i)
        if x.problem["mask"] and seen.any():
            seen[np.flatnonzero(seen)[-1]] = False
        return seen

    with patched(rows, "visible", visible):
        return correct_gradients(*arguments)


def bwd_pad_zero(x, output, lse, d_output, d_lse, *sums):
    """A row's last tile is filled up with keys and values of zeros: unmasked, they score 0."""
    d_query, d_key, d_value = correct_gradients(x, output, lse, d_output, d_lse, *sums)
    for h, i in np.ndindex(lse.shape):
        seen = worker.scores(x, h, i)[0]
        end = seen[-1] + 1 if len(seen) else 0
        if end % TILE:
            padding = h // worker.group(x), slice(end, end + TILE - end % TILE)
            weight = np.exp(-lse[h, i])
            d_score = weight * (d_lse[h, i] - d_output[h, i] @ output[h, i])
            d_query[h, i] += d_score * 0  # no change, unless the weight overflowed
            d_key[padding] += x.scale * d_score * x.query[h, i]
            d_value[padding] += weight * d_output[h, i]
    return d_query, d_key, d_value


def dv_bf16_acc(x, output, lse, d_output, *rest):
    """dV is stored in bf16 between blocks of queries, and not declared so."""
    d_query, d_key, d_value = correct_gradients(x, output, lse, d_output, *rest)
    d_value = np.zeros_like(d_value)
    for h, i in np.ndindex(lse.shape):
        seen, score, _ = worker.scores(x, h, i)
        head, keep = d_value[h // worker.group(x)], worker.kept(x, h, i, seen)
        head[seen] += np.outer(np.exp(score - lse[h, i]) * keep, d_output[h, i])
        if (i + 1) % BLOCK == 0:
            head[...] = wire.widen(wire.narrow(head.astype("<f4")).astype("<u2"))
    return d_query, d_key, d_value


def dropout_post_p(*arguments):
    """dS comes from P after dropout, and from dP before it."""
    def score_gradient(weight, keep, d_weight, delta):
        return weight * keep * (d_weight - delta)

    with patched(worker, "score_gradient", score_gradient):
        return correct_gradients(*arguments)


def no_tanh_prime(*arguments):
    """The slope of the softcap is left out."""
    def scores(x, h, i):
        seen, score, slope = rows.scores(x, h, i)
        return seen, score, np.ones_like(slope)

    with patched(worker, "scores", scores):
        return correct_gradients(*arguments)


def dbias_no_reduce(*arguments):
    """What shares an entry of the bias overwrites its gradient: the last one's is left."""
    def add_bias_gradient(d_bias, x, h, i, seen, d_score):
        row = d_bias[rows.at(d_bias.shape, x.b, h, i)]
        row[seen if len(row) > 1 else np.zeros_like(seen)] = d_score

    with patched(worker, "add_bias_gradient", add_bias_gradient):
        return correct_gradients(*arguments)


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
    return replace(request, output=lambda output: wire.widen(output).astype(np.float64))


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
    return replace(request, value_gradient=lambda gradient: wire.widen(gradient).astype(np.float64))


def missing_gradient(request):
    return replace(request, key_gradient=lambda _: None)


def unwritten_gradient(request):
    poison = np.array(wire.tensors(request["outputs"], "r")["key_gradient"])
    return replace(request, key_gradient=lambda _: poison)


def writes_cotangents(request):
    return write_input(request, "output_gradient")


def write_input(request, name):
    """Answers, and changes every element of an input."""
    reply = worker.answer(request)
    wire.tensors(request["inputs"], "r+")[name].view(np.uint8)[...] ^= 1
    return reply


def replace(request, **changes):
    """Puts a new file in the place of the outputs file, with what `changes` make of its tensors."""
    worker.answer(request)
    tensors = {name: np.array(x) for name, x in wire.tensors(request["outputs"], "r").items()}
    tensors.update((name, change(tensors.get(name))) for name, change in changes.items())
    names = {np.dtype(stored): name for name, stored in wire.TYPES.items()}
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


# What replaces which function of which module. Where a module has imported it, it is replaced there.
ARITHMETIC = {
    "drop-key": [(worker, "attention", drop_key)],
    "skip-rescale": [(worker, "attention", skip_rescale)],
    "lse-base-2": [(worker, "attention", lse_base_2)],
    "causal-top-left": [(rows, "visible", causal_top_left)],
    "window-plus-one": [(rows, "visible", window_plus_one)],
    "mask-head0": [(rows, "visible", mask_head0)],
    "alibi-exponent": [(rows, "slopes", alibi_exponent)],
    "sink-per-split": [(worker, "sinks", sink_per_split)],
    "softcap-after-mask": [(worker, "scores", softcap_after_mask)],
    "assume-packed": [(worker, "member", assume_packed)],
    **{name: [(worker, "gradients", function)] for name, function in by_name(
        no_delta, delta_stale, dlse_ignored, dk_unscaled, dq_zero, dkv_overwrite, mask_shift,
        bwd_pad_zero, dv_bf16_acc, dropout_post_p, no_tanh_prime, dbias_no_reduce).items()},
}
CONDUCT = by_name(
    crash, hang, not_json, not_an_answer, wrong_id, reports_error, wrong_shape, wrong_dtype,
    missing_output, extra_output, truncated_output, unwritten_output, non_finite_output, writes_inputs)
BACKWARD_CONDUCT = by_name(
    wrong_gradient_shape, wrong_gradient_dtype, missing_gradient, unwritten_gradient, writes_cotangents)


def main():
    fault = sys.argv[1] if len(sys.argv) == 2 else None
    faults = {**ARITHMETIC, **CONDUCT, **BACKWARD_CONDUCT}
    if fault not in faults:
        sys.exit(f"usage: faulty.py {' | '.join(faults)}")
    for replacement in ARITHMETIC.get(fault, []):
        setattr(*replacement)
    forward = CONDUCT.get(fault, worker.answer)
    answers = {"forward": forward, "backward": BACKWARD_CONDUCT.get(fault, forward), "merge": forward}
    for request in map(json.loads, sys.stdin):
        reply = worker.HELLO
        if request["op"] in answers:
            reply = {"id": request["id"], **answers[request["op"]](request)}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
