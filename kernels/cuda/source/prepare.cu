// The two small passes around a backward pass: D of every row before it, and the rounding of a dQ
// that was summed in f32 after it.
//
// Variants: ELEMENT. LANES threads take a row. Grid: (query_len / ROWS rounded up, query_heads, batch).
#include "instructions.cuh"
#include "params.cuh"

constexpr int ROWS = 8;  // rows of a block
constexpr int LANES = 16;

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int query_of_thread() { return blockIdx.x * ROWS + threadIdx.x / LANES; }

// The first entry of a row of scratch with `columns` entries a row.
__device__ __forceinline__ long long scratch_row(const Params& p, int batch, int head, int query, int columns) {
    return ((static_cast<long long>(batch) * p.query_heads + head) * p.query_len + query) * columns;
}

// delta = rowsum(dO O) - dLSE, in f32 (FAS:bwd.delta.rowsum, FAS:bwd.lse.gradient).
extern "C" __global__ void __launch_bounds__(ROWS * LANES) flash_delta(const __grid_constant__ Params p) {
    const int query = query_of_thread(), head = blockIdx.y, batch = blockIdx.z;
    // A row without visible keys has no gradients: its dO is not even read (FAS:bwd.empty-row.zero).
    const Visible visible = visible_keys(p, batch, query);
    const bool empty = visible.first >= visible.past;
    float sum = 0.0f;
    if (!empty) {
        const ELEMENT* output =
            rows_of<const ELEMENT>(p.output, batch, head, p.query_offsets) + query * p.output.row_stride;
        const ELEMENT* gradient = rows_of<const ELEMENT>(p.output_gradient, batch, head, p.query_offsets)
                                  + query * p.output_gradient.row_stride;
        for (int entry = lane(); entry < p.value_dim; entry += LANES)
            sum = fmaf(Element<ELEMENT>::to(gradient[entry]), Element<ELEMENT>::to(output[entry]), sum);
    }
    for (int distance = LANES / 2; distance > 0; distance /= 2)
        sum += __shfl_xor_sync(0xffffffff, sum, distance);

    if (query >= p.query_len || lane() != 0) return;
    if (!empty && p.lse_gradient)
        sum -= p.lse_gradient[batch * p.lse_batch_stride + head * p.lse_head_stride + query];
    p.delta[scratch_row(p, batch, head, query, 1)] = sum;
}

// dQ = scale * sum(dS K), rounded once to the format of dQ (FAS:bwd.query.scale).
extern "C" __global__ void __launch_bounds__(ROWS * LANES)
round_query_gradient(const __grid_constant__ Params p) {
    const int query = query_of_thread(), head = blockIdx.y, batch = blockIdx.z;
    const int used = used_queries(p, batch);
    // Padding has zero gradients (FAS:bwd.output.written); where members follow each other, what is past
    // the last row belongs to the next member.
    if (query >= (p.query_offsets ? used : p.query_len)) return;

    const float* sum = p.query_gradient_sum + scratch_row(p, batch, head, query, p.head_dim);
    ELEMENT* gradient = rows_of<ELEMENT>(p.query_gradient, batch, head, p.query_offsets)
                        + query * p.query_gradient.row_stride;
    for (int entry = lane(); entry < p.head_dim; entry += LANES)
        gradient[entry] = Element<ELEMENT>::from(query < used ? p.scale * sum[entry] : 0.0f);
}
