"""What a flashproof worker in numpy needs of the protocol (../PROTOCOL.md): files, formats, layouts."""
import json
import sys

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}  # bf16: its bits


def serve(hello, answer):
    """Answers requests until they end."""
    for request in map(json.loads, sys.stdin):
        reply = hello if request["op"] == "hello" else {"id": request["id"], **answer(request)}
        print(json.dumps(reply), flush=True)


def tensors(path, mode):
    """Arrays over a safetensors file: to assign to one is to write the file."""
    raw = np.memmap(path, np.uint8, mode)
    start = 8 + int(raw[:8].view("<u8")[0])
    return {name: raw[start:][slice(*t["data_offsets"])].view(TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in json.loads(bytes(raw[8:start])).items()}


def widen(x):
    """The numbers of an array that may hold the bits of bf16."""
    return (x.astype("<u4") << 16).view("<f4") if x.dtype == "<u2" else x


def narrow(x):
    """The bits of bf16, to nearest, ties to even; NaN has no neighbours."""
    return np.where(np.isnan(x), 0x7FC0, x.view("<u4") + 0x7FFF + (x.view("<u4") >> 16 & 1) >> 16)


def write(target, values):
    """Rounds to the target's format, once."""
    with np.errstate(over="ignore", invalid="ignore"):
        target[...] = narrow(values.astype("<f4")) if target.dtype == "<u2" else values


def used(problem, what, b):
    """How many of a batch member's "query" or "key" positions no length rule cuts off."""
    lengths = [rule[f"{what}-lengths"][b] for rule in problem["mask"] if f"{what}-lengths" in rule]
    return min([problem[f"{what}_len"], *lengths])


def member(array, problem, name, b):
    """Batch member b of a tensor as [head, position, entry], wherever the layout puts it."""
    if array.ndim == 4:  # it stands as ever
        return array[b]
    if name == "lse" and array.ndim == 3:
        return array[b, :, :, None]
    (kind, layout), = problem["layout"].items()
    what = "key" if name in ("key", "value") else "query"
    heads = problem[f"{what}_heads"]
    entries = {"output": problem["value_dim"], "value": problem["value_dim"], "lse": 1}.get(
        name, problem["head_dim"])
    if kind == "strided":
        return strided(array, layout[name], (heads, problem[f"{what}_len"], entries), b)
    if kind == "ragged":
        start, count = layout[f"{what}_starts"][b], used(problem, what, b)
        if name == "lse":
            return array.reshape(heads, -1)[:, start:start + count, None]
        return array.reshape(-1, heads, entries)[start:start + count].swapaxes(0, 1)
    pages = array.reshape(layout["pages"], layout["page_size"], heads, entries)
    rows = pages[np.array(layout["block_table"][b], int)].reshape(-1, heads, entries)
    return rows[:problem["key_len"]].swapaxes(0, 1)


def strided(array, strides, shape, b):
    if 0 in shape:
        return np.zeros(shape, array.dtype)
    batch, *rest = strides["strides"]
    size = array.itemsize
    first = array[strides["offset"] + b * batch:]
    return np.lib.stride_tricks.as_strided(first, shape, [stride * size for stride in rest])
