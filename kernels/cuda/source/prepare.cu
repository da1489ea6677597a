// The two small passes around a backward pass: D of every row before it, and the rounding of a dQ
// that was summed in f32 after it.
//
// Variants: ELEMENT. Each warp takes a row. Grid: (query_len / ROWS rounded up, query_heads, batch).
#include "instructions.cuh"
#include "params.cuh"

constexpr int ROWS = 4;  // rows, and warps, of a block
constexpr int LANES = 32;

// delta = rowsum(dO O) - dLSE, in f32 (FAS:bwd.delta.rowsum, FAS:bwd.lse.gradient).
extern "C" __global__ void __launch_bounds__(ROWS * LANES) flash_delta(const __grid_constant__ Params p) {
    const int lane = threadIdx.x % LANES;
    const int query = blockIdx.x * ROWS + threadIdx.x / LANES;
    const int head = blockIdx.y, batch = blockIdx.z;
    if (query >= p.query_len) return;

    // A row without visible keys has no gradients: its dO is not even read (FAS:bwd.probability.mask).
    const Visible visible = visible_keys(p, batch, query);
    float sum = 0;
    if (visible.first < visible.past) {
        const ELEMENT* output =
            rows_of<const ELEMENT>(p.output, batch, head, p.query_offsets) + query * p.output.row_stride;
        const ELEMENT* gradient = rows_of<const ELEMENT>(p.output_gradient, batch, head, p.query_offsets)
                                  + query * p.output_gradient.row_stride;
        for (int entry = lane; entry < p.value_dim; entry += LANES)
            sum += Element<ELEMENT>::to(gradient[entry]) * Element<ELEMENT>::to(output[entry]);
        for (int distance = LANES / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        if (p.lse_gradient)
            sum -= p.lse_gradient[batch * p.lse_batch_stride + head * p.lse_head_stride + query];
    }
    if (lane == 0) p.delta[(static_cast<long long>(batch) * p.query_heads + head) * p.query_len + query] = sum;
}

// dQ = scale * sum(dS K), rounded once to the format of dQ (FAS:bwd.query.gradient).
extern "C" __global__ void __launch_bounds__(ROWS * LANES)
round_query_gradient(const __grid_constant__ Params p) {
    const int lane = threadIdx.x % LANES;
    const int query = blockIdx.x * ROWS + threadIdx.x / LANES;
    const int head = blockIdx.y, batch = blockIdx.z;
    const bool used = query < used_queries(p, batch);
    // Padding has zero gradients (FAS:mask.length.queries); where members follow each other, what is
    // past the last row belongs to the next member.
    if (query >= p.query_len || !used && p.query_offsets) return;

    const float* sum = p.query_gradient_sum
                       + ((static_cast<long long>(batch) * p.query_heads + head) * p.query_len + query) * p.head_dim;
    ELEMENT* gradient = rows_of<ELEMENT>(p.query_gradient, batch, head, p.query_offsets)
                        + query * p.query_gradient.row_stride;
    for (int entry = lane; entry < p.head_dim; entry += LANES)
        gradient[entry] = Element<ELEMENT>::from(used ? p.scale * sum[entry] : 0.0f);
}
