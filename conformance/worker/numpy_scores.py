"""The scores of a query row in numpy: which keys it sees, and what happens to their products.

x is one batch member: query, key and value [head, position, entry], bias and sink or None, scale,
problem, and its number b. h is a query head and i a query.
"""
import numpy as np

from flashproof_worker import used

RULES = {"causal-top-left", "causal-bottom-right", "key-lengths", "key-starts", "query-lengths",
         "window", "prefix", "chunked", "dilated", "documents", "boolean", "block-sparse"}


def group(x):  # query heads to a key head
    return len(x.query) // len(x.key)


def scores(x, h, i):
    """The keys that query i of head h sees, their scores, and the slopes of the softcap there."""
    seen = np.flatnonzero(visible(x, h, i))
    added = bias(x, h, i)[seen] + alibi(x, h, i)[seen]
    score, cap = x.scale * (x.key[h // group(x), seen] @ x.query[h, i]), x.problem.get("softcap")
    if not cap:
        return seen, score + added, np.ones_like(score)
    limit = score.dtype.type(cap["cap"])
    bent = np.tanh((score + added if bias_inside(x) else score) / limit)
    return seen, limit * bent + (0 if bias_inside(x) else added), 1 - bent * bent


def bias_inside(x):
    return x.problem.get("softcap", {}).get("order") == "after-bias"


def bias(x, h, i):
    keys = x.key.shape[1]
    if x.bias is None:
        return np.zeros(keys, x.query.dtype)
    row = x.bias[at(x.bias.shape, x.b, h, i)]
    return np.broadcast_to(row, x.problem["key_len"])[:keys]


def alibi(x, h, i):
    keys = np.arange(x.key.shape[1])
    if not (rule := x.problem.get("alibi")):
        return np.zeros(len(keys), x.query.dtype)
    slope = x.query.dtype.type(slopes(rule, x.problem["query_heads"])[h])
    return -slope * np.abs(position(x, i, rule) - keys).astype(x.query.dtype)


def slopes(rule, heads):
    if rule["slopes"] != "standard":
        return rule["slopes"]["given"]
    power = 1 << heads.bit_length() - 1
    exponents = [8 * (h + 1) / power for h in range(power)]
    exponents += [4 * (2 * h + 1) / power for h in range(heads - power)]
    return np.float32(2.0 ** -np.array(exponents))


def sinks(x, h):
    if x.problem.get("sink") is None:
        return []
    return [np.array(0 if x.sink is None else x.sink[h], x.query.dtype)]


def kept(x, h, i, seen):
    """What dropout multiplies the weights of these keys by."""
    if not (dropout := x.problem.get("dropout")):
        return np.ones(len(seen), x.query.dtype)
    keep = pattern(dropout["keep"], x, h, i, seen)
    return np.where(keep, x.query.dtype.type(dropout["scale"]), x.query.dtype.type(0))


def visible(x, h, i):
    """Which keys query i of head h sees: those that every rule admits, of a bias above -inf."""
    j, seen = np.arange(x.key.shape[1]), bias(x, h, i) != -np.inf
    for rule in x.problem["mask"]:
        seen = seen & admits(rule, x, h, i, j)
    return seen


def admits(rule, x, h, i, j):
    name, value = named(rule)
    b, own = x.b, position(x, i, value or {})
    match name:
        case "causal-top-left":
            return j <= i
        case "causal-bottom-right":
            return j <= own
        case "key-lengths":
            return j < value[b]
        case "key-starts":
            return j >= value[b]
        case "query-lengths":
            return np.full(len(j), i < value[b])
        case "window":
            left, right = (np.inf if value[side] is None else value[side] for side in ("left", "right"))
            return (own - left <= j) & (j <= own + right)
        case "prefix":
            return (j <= own) | (j < value["lengths"][b])
        case "chunked":
            return j // value["size"] == own // value["size"]
        case "dilated":
            return (own - j) % value["step"] == 0
        case "documents":
            return np.array(value["key"][b], int)[j] == value["query"][b][i]
        case "boolean":
            return pattern(value, x, h, i, j)
        case "block-sparse":
            block = i // value["query_block"], j // value["key_block"]
            return pattern(value["pattern"], x, h, *block)


def named(rule):
    return (rule, None) if isinstance(rule, str) else next(iter(rule.items()))


def position(x, i, rule):
    """The key at query i's own position."""
    if isinstance(rule, dict) and rule.get("alignment") == "top-left":
        return i
    return i + used(x.problem, "key", x.b) - used(x.problem, "query", x.b)


def pattern(value, x, h, i, j):
    """The truth values of keys or blocks j."""
    batch, heads, queries, keys = value["shape"]
    b, h, i = at(value["shape"], x.b, h, i)
    row = np.array(list(value["rows"][(b * heads + h) * queries + i])) == "1"
    return row[j if keys > 1 else np.zeros_like(j)]


def at(shape, *place):  # an axis of extent 1 is broadcast
    return tuple(0 if extent == 1 else index for extent, index in zip(shape, place))
