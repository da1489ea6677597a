#!/usr/bin/env python3
"""Turns the node tests of ONNX's Attention operator into files for `flashproof judge`.

    python3 onnx_attention.py DIRECTORY

Each test becomes `NAME.safetensors`: query, key, value and bias, the expected output, and the
problem that they pose, as JSON in the metadata; and `NAME.profile.json`, the precision profile of the
code that computed the expected output. `index.json` lists the tests. Needs the package `onnx` (1.23:
opsets 23 to 25) and what it needs.

The operator's words and ours:

- `is_causal` lets query i see key j when j <= i + offset, with offset the length of the past, or
  that of the valid keys less the queries, or 0. That is the bottom-right mask where the last query
  ends at the last key in use, the top-left mask where the offset is 0, and elsewhere (keys beyond the
  past that outnumber the queries) a boolean mask. Windows are counted from the same position.
- `attn_mask` is a boolean mask or a bias, broadcast from the right; keys past its end are masked.
- `nonpad_kv_seqlen` are key lengths. `softcap` comes before the mask and the bias.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import onnx
    from onnx.backend.test.case.node import collect_testcases

FORMATS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}
DTYPES = {"f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64"}


def format_of(array):
    return FORMATS[str(array.dtype)]


def pattern(mask):
    """A boolean array of four axes as the problem's JSON holds it."""
    rows = mask.reshape(-1, mask.shape[-1])
    digits = ["".join("1" if bit else "0" for bit in row) for row in rows]
    return {"shape": list(mask.shape), "rows": digits}


def four_axes(array, heads):
    """[batch, position, head x entry] as [batch, head, position, entry]."""
    if array.ndim == 4:
        return array
    batch, positions, _ = array.shape
    return array.reshape(batch, positions, heads, -1).transpose(0, 2, 1, 3)


def masked_past_its_end(mask, keys):
    """`attn_mask` with four axes and all keys."""
    missing = keys - mask.shape[-1]
    fill = False if mask.dtype == np.bool_ else -np.inf
    mask = np.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], constant_values=fill)
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def positioned(rule, offset, queries, keys, lengths):
    """A causal rule or window of ours, from position i + offset; a boolean mask where none is it.

    `rule` is {"window": {"left", "right"}}, null for an open side.
    """
    if lengths is not None or offset == keys - queries:
        alignment = "bottom-right"
    elif offset == 0:
        alignment = "top-left"
    else:
        distance = np.arange(queries)[:, None] + offset - np.arange(keys)[None, :]
        left, right = rule["window"]["left"], rule["window"]["right"]
        sees = np.ones((1, 1, queries, keys), dtype=bool)
        if left is not None:
            sees &= distance <= left
        if right is not None:
            sees &= -distance <= right
        return {"boolean": pattern(sees)}
    window = dict(rule["window"])
    if window == {"left": None, "right": 0}:
        return f"causal-{alignment}"
    return {"window": window | {"alignment": alignment}}


def profile(query, softmax_precision):
    """The roundings of the reference implementation (onnx/reference/ops/op_attention.py).

    It works in the inputs' own format throughout, but for a softmax in `softmax_precision`: query
    and key are each multiplied by the root of the scale, the weights are normalized and rounded
    before they meet the values. NumPy's exponential errs by less than 3 units in the last place
    (numpy/core/src/umath, loops_exponent_log: 2.52 in f32), its tanh by less than 4.
    """
    own = format_of(query)
    soft = own if softmax_precision is None else FORMATS[
        str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(softmax_precision)))
    ]
    # Where the softmax is wider than the scores, they and the normalized weights are rounded to the
    # inputs' format and all else is finer; counting everything in the inputs' format covers it.
    narrowest = own if soft != own else soft
    accumulation = {"ieee": {"format": narrowest, "depth": None}}
    return {
        "base": "dense",
        "arithmetic": narrowest,
        "score_accumulation": accumulation,
        "value_accumulation": accumulation,
        "score_format": narrowest,
        "weight_format": own,
        "carried_format": narrowest,
        "lse_format": "f32",
        "weights": "normalized",
        "exp_ulp": 3,
        "tanh_ulp": 4,
        # The scale, its root, the root rounded, and that twice.
        "scale_roundings": 4,
        # Query and key are rounded once each after they are multiplied by the root of the scale.
        "operand_roundings": 2,
        "division_ulp": 0.5,
    }


def converted(case):
    """Tensors, problem and profile of one node test."""
    node = case.model.graph.node[0]
    attributes = {it.name: onnx.helper.get_attribute_value(it) for it in node.attribute}
    given, expected = case.data_sets[0]
    inputs = dict(zip([name for name in node.input if name], map(np.asarray, given)))
    outputs = dict(zip([name for name in node.output if name], map(np.asarray, expected)))

    query = four_axes(inputs["Q"], attributes.get("q_num_heads"))
    key, value = (four_axes(inputs[name], attributes.get("kv_num_heads")) for name in "KV")
    past = inputs.get("past_key")
    if past is not None:
        key = np.concatenate((past, key), axis=2)
        value = np.concatenate((inputs["past_value"], value), axis=2)
    (batch, query_heads, queries, head_dim), keys = query.shape, key.shape[2]

    rules, tensors = [], {"query": query, "key": key, "value": value}
    lengths = inputs.get("nonpad_kv_seqlen")
    if lengths is not None:
        rules.append({"key-lengths": [int(length) for length in lengths]})
    offset = 0 if past is None else past.shape[2]
    sides = [attributes.get("left_window_size", -1), attributes.get("right_window_size", -1)]
    windows = [{"left": None, "right": 0}] if attributes.get("is_causal") else []
    if max(sides) >= 0:
        left, right = (side if side >= 0 else None for side in sides)
        windows.append({"left": left, "right": right})
    rules += [positioned({"window": it}, offset, queries, keys, lengths) for it in windows]

    problem = {
        "batch": batch,
        "query_heads": query_heads,
        "key_heads": key.shape[1],
        "query_len": queries,
        "key_len": keys,
        "head_dim": head_dim,
        "value_dim": value.shape[3],
        "format": format_of(query),
    }
    mask = inputs.get("attn_mask")
    if mask is not None:
        mask = masked_past_its_end(mask, keys)
        if mask.dtype == np.bool_:
            rules.append({"boolean": pattern(mask)})
        else:
            problem["bias"] = {"shape": list(mask.shape), "format": format_of(mask)}
            tensors["bias"] = mask
    if "scale" in attributes:
        problem["scale"] = {"value": attributes["scale"]}
    if attributes.get("softcap", 0) > 0:
        problem["softcap"] = {"cap": attributes["softcap"]}
    problem["mask"] = rules
    tensors["output"] = four_axes(outputs["Y"], query_heads)
    return tensors, problem, profile(query, attributes.get("softmax_precision"))


def safetensors(tensors, problem):
    """The bytes of a safetensors file."""
    header = {"__metadata__": {"problem": json.dumps(problem)}}
    data = b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": DTYPES[format_of(array)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases("Attention")
    # Every test comes a second time as the graph of simpler operators that the node stands for.
    nodes = [case for case in cases if case.model.graph.node[0].op_type == "Attention"]
    tests = []
    for case in nodes:
        tensors, problem, declared = converted(case)
        (directory / f"{case.name}.safetensors").write_bytes(safetensors(tensors, problem))
        opset = case.model.opset_import[0].version
        (directory / f"{case.name}.profile.json").write_text(json.dumps(declared))
        tests.append({"name": case.name, "opset": opset})
    index = {"onnx": onnx.__version__, "tests": tests}
    (directory / "index.json").write_text(json.dumps(index, indent=1))


if __name__ == "__main__":
    main()
