// Merges the splits of each row by their LSE (FAS:fwd.split.merge, FAS:fwd.merge.partials):
// L = ln sum e^(L_k), o = sum e^(L_k - L) o_k. A warp takes a row.
//
// grid: (query_len / 4, rounded up; query heads, batch); block: 128 threads
#include "instructions.cuh"
#include "params.cuh"

using T = ELEMENT;

enum : int { BLOCK_THREADS = 128, ROWS_AT_ONCE = BLOCK_THREADS / 32 };

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) flash_merge(const __grid_constant__ Params p) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * ROWS_AT_ONCE + threadIdx.x / 32;
    const int head = blockIdx.y, batch = blockIdx.z;
    if (row >= p.query_len) return;
    const long long place = (static_cast<long long>(batch) * p.query_heads + head) * p.query_len + row;
    const long long rows = static_cast<long long>(p.batch) * p.query_heads * p.query_len;
    const float minus_infinity = __int_as_float(0xff800000), log2_e = 1.4426950408889634f;

    float maximum = minus_infinity;
    for (int split = 0; split < p.splits; ++split) maximum = fmaxf(maximum, p.split_lse[split * rows + place]);
    // Of a split that saw no key, nothing but its LSE counts: e^(-inf + inf) is NaN where all are such.
    float sum = 0.0f;
    for (int split = 0; split < p.splits; ++split) {
        const float part_lse = p.split_lse[split * rows + place];
        if (part_lse != minus_infinity) sum += exp2_approx((part_lse - maximum) * log2_e);
    }
    float* const lse = p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride;
    if (lane == 0) lse[row] = sum == 0.0f ? minus_infinity : maximum + logf(sum);

    // Rows past the used ones of a member belong to the next where members follow each other.
    if (p.query_offsets && row >= used_queries(p, batch)) return;
    T* const output = rows_of<T>(p.output, batch, head, p.query_offsets) + row * p.output.row_stride;
    for (int column = lane; column < p.value_dim; column += 32) {
        float numerator = 0.0f;
        for (int split = 0; split < p.splits; ++split) {
            const float part_lse = p.split_lse[split * rows + place];
            const float part = p.split_output[(split * rows + place) * p.value_dim + column];
            if (part_lse != minus_infinity) numerator += exp2_approx((part_lse - maximum) * log2_e) * part;
        }
        // 0 where no split saw a key (FAS:fwd.softmax.empty-row).
        output[column] = Element<T>::from(sum == 0.0f ? 0.0f : numerator / sum);
    }
}
