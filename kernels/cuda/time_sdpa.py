"""Times PyTorch's scaled_dot_product_attention on the current GPU, forward and backward.

Prints a table in Markdown: the median of REPEATS runs, each between two CUDA events, after WARM_UP
runs that do not count; inputs may be in the cache. Operations are 4 batch heads length^2 head_dim
forward and 2.5 times that backward, and half of it under a causal mask, as FlashAttention counts them.
"""

import statistics
import sys

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as error:
    sys.exit(f"time_sdpa.py: {error}")

WARM_UP = 5
REPEATS = 20
# Tokens of all members together, and width of all heads together.
TOKENS = 16384
WIDTH = 2048
LENGTHS = (512, 2048, 8192)
HEAD_DIMS = (64, 128)
BACKENDS = {
    torch.float16: SDPBackend.FLASH_ATTENTION,
    torch.bfloat16: SDPBackend.FLASH_ATTENTION,
    torch.float32: SDPBackend.EFFICIENT_ATTENTION,
}


def milliseconds(work):
    times = []
    for repeat in range(WARM_UP + REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        end.synchronize()
        if repeat >= WARM_UP:
            times.append(start.elapsed_time(end))
    return statistics.median(times)


def measure(element, length, head_dim, causal):
    """Milliseconds forward and backward, and operations forward."""
    batch, heads = TOKENS // length, WIDTH // head_dim
    shape = (batch, heads, length, head_dim)
    query, key, value, gradient = (
        torch.randn(shape, device="cuda", dtype=element, requires_grad=True) for _ in range(4)
    )
    with sdpa_kernel(BACKENDS[element]):
        def attend():
            return scaled_dot_product_attention(query, key, value, is_causal=causal)

        with torch.no_grad():
            forward = milliseconds(attend)
        output = attend()
        backward = milliseconds(lambda: torch.autograd.grad(
            output, (query, key, value), gradient.detach(), retain_graph=True))
    return forward, backward, 4 * batch * heads * length**2 * head_dim / (2 if causal else 1)


def main():
    if not torch.cuda.is_available():
        sys.exit("time_sdpa.py: torch finds no GPU")
    torch.manual_seed(1)
    print(f"\ntorch {torch.__version__}, {torch.cuda.get_device_name()}, seed 1\n")
    print("| element | backend | batch x heads x length x head dim | causal"
          " | forward ms | TFLOP/s | backward ms | TFLOP/s |")
    print("|---|---|---|---|--:|--:|--:|--:|")
    for element, backend in BACKENDS.items():
        for length in LENGTHS:
            for head_dim in HEAD_DIMS:
                for causal in (False, True):
                    shape = f"{TOKENS // length} x {WIDTH // head_dim} x {length} x {head_dim}"
                    row = [str(element).removeprefix("torch."), backend.name.lower(), shape,
                           "yes" if causal else "no"]
                    try:
                        forward, backward, operations = measure(element, length, head_dim, causal)
                    except RuntimeError as error:
                        row += [f"refused: {str(error).splitlines()[0]}", "", "", ""]
                    else:
                        row += [f"{forward:.3f}", f"{operations / forward / 1e9:.1f}",
                                f"{backward:.3f}", f"{2.5 * operations / backward / 1e9:.1f}"]
                    print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
