// What the backward entries share: tiles in shared memory, their products, and the gradient of a score
// (FAS:bwd.probability.*, FAS:bwd.score.gradient).
#pragma once
#include "tile.cuh"

enum : int {
    // A block keeps OWN rows (keys, or queries), and passes over the other side OTHER rows at a time.
    OWN = WARPS * WARP_ROWS,
    OTHER = HEAD_DIM <= 64 ? 64 : 32,
    OWN_ENTRIES = OWN * TILE_STRIDE,
    OTHER_ENTRIES = OTHER * TILE_STRIDE,
};
constexpr float LOG2_E = 1.4426950408889634f;

// sum += a b^T for WARP_ROWS rows of `a` from `row` on and all OTHER rows of `b`.
__device__ __forceinline__ void multiply_rows(float (&sum)[OTHER / 8][4], const ELEMENT* a, int row,
                                              const ELEMENT* b) {
    const unsigned a_tile = shared_address(a), b_tile = shared_address(b);
#pragma unroll
    for (int k = 0; k < HEAD_DIM; k += 16) {
        unsigned left[4];
        load_a(left, a_tile, row, k);
#pragma unroll
        for (int n = 0; n < OTHER / 16; n++) {
            unsigned right[4];
            load_b_transposed(right, b_tile, n * 16, k);
            multiply_add<ELEMENT>(sum[2 * n], left, right[0], right[1]);
            multiply_add<ELEMENT>(sum[2 * n + 1], left, right[2], right[3]);
        }
    }
}

template <typename T> struct Exponent;
template <> struct Exponent<__half> { enum : unsigned { BITS = 0x7c00 }; };
template <> struct Exponent<__nv_bfloat16> { enum : unsigned { BITS = 0x7f80 }; };

// Two entries, each replaced by zero where it is NaN or infinite.
__device__ __forceinline__ unsigned finite_or_zero(unsigned pair) {
    const unsigned exponent = Exponent<ELEMENT>::BITS;
    const unsigned low = (pair & exponent) == exponent ? 0 : pair & 0xffff;
    const unsigned high = (pair >> 16 & exponent) == exponent ? 0 : pair & 0xffff0000;
    return high | low;
}

// sum += a b for 16 rows of `b` from `row` on and COLUMNS columns from `column` on. With `only_finite`,
// entries of b that are not finite count as zero: a row of a that has zeros for them is not to become NaN.
template <int COLUMNS>
__device__ __forceinline__ void multiply_columns(float (&sum)[COLUMNS / 8][4], const unsigned (&a)[4],
                                                 const ELEMENT* b, int row, int column, bool only_finite) {
    const unsigned b_tile = shared_address(b);
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) {
        unsigned right[4];
        load_b(right, b_tile, row, column + n * 16);
        if (only_finite)
#pragma unroll
            for (int i = 0; i < 4; i++) right[i] = finite_or_zero(right[i]);
        multiply_add<ELEMENT>(sum[2 * n], a, right[0], right[1]);
        multiply_add<ELEMENT>(sum[2 * n + 1], a, right[2], right[3]);
    }
}

// 16 columns of a result, rounded once to ELEMENT, as the left operand of a product.
__device__ __forceinline__ void round_operand(unsigned (&a)[4], const float (&left)[4], const float (&right)[4]) {
    a[0] = Element<ELEMENT>::pack(left[0], left[1]);
    a[1] = Element<ELEMENT>::pack(left[2], left[3]);
    a[2] = Element<ELEMENT>::pack(right[0], right[1]);
    a[3] = Element<ELEMENT>::pack(right[2], right[3]);
}

// What a query row brings to all of its keys.
struct Row {
    float lse;    // in base two
    float delta;  // D less the gradient of the LSE
    int first, past;
};

// A row past those in use sees no key.
__device__ __forceinline__ Row row_of(const Params& p, int batch, int head, int query) {
    if (query >= used_queries(p, batch)) return {0.f, 0.f, 0, 0};
    const float lse = p.lse[batch * p.lse_batch_stride + head * p.lse_head_stride + query];
    const float delta = p.delta[(static_cast<long long>(batch) * p.query_heads + head) * p.query_len + query];
    const Visible keys = visible_keys(p, batch, query);
    return {lse * LOG2_E, delta, keys.first, keys.past};
}

// Whether some query of first <= query < past does not see some key of first_key <= key < past_key.
__device__ __forceinline__ bool hides_keys(const Params& p, int batch, int first, int past, int first_key,
                                           int past_key) {
    return past > used_queries(p, batch) || visible_keys(p, batch, past - 1).first > first_key ||
           visible_keys(p, batch, first).past < past_key;
}

// From dot products to P and dS. One branch a tile, not one an entry, asks for the softcap.
struct Score {
    float factor;  // scale log2(e); with a softcap, scale / cap
    float cap;     // cap log2(e); 0: none

    __device__ __forceinline__ explicit Score(const Params& p)
        : factor(p.softcap > 0.f ? p.scale / p.softcap : p.scale * LOG2_E), cap(p.softcap * LOG2_E) {}

    // From <q, k> and dP = <dO, v> to the probability P = e^(s - L) and the gradient of the scaled product,
    // dS = P (dP - D) (FAS:bwd.probability.recompute, FAS:bwd.score.gradient), times the slope of the softcap
    // (FAS:bwd.softcap.slope). A hidden key has neither, whatever its row holds (FAS:bwd.probability.mask).
    template <bool CAPPED>
    __device__ __forceinline__ void differentiate(float& product, float& gradient, float lse, float delta,
                                                  bool visible) const {
        float score = product * factor, slope = 1.f;
        if (CAPPED) {
            const float tanh = tanhf(score);
            score = tanh * cap;
            slope = 1.f - tanh * tanh;
        }
        const float probability = exp2_approx(score - lse);
        gradient = visible ? probability * (gradient - delta) * slope : 0.f;
        product = visible ? probability : 0.f;
    }
};

// Writes 16 rows of a gradient from row `first` on, times `factor` and rounded to ELEMENT; rows from
// `rows` on and entries from `width` on are not the tensor's.
__device__ __forceinline__ void store_gradient(const float (&sum)[HEAD_DIM / 8][4], float factor, ELEMENT* to,
                                               long long stride, int first, int rows, int width, bool aligned) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first + lane / 4 + 8 * half;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; n++) {
            const int entry = n * 8 + lane % 4 * 2;
            const float left = sum[n][2 * half] * factor, right = sum[n][2 * half + 1] * factor;
            ELEMENT* at = to + row * stride + entry;
            if (aligned) {
                if (entry < width) *reinterpret_cast<unsigned*>(at) = Element<ELEMENT>::pack(left, right);
            } else {
                if (entry < width) at[0] = Element<ELEMENT>::from(left);
                if (entry + 1 < width) at[1] = Element<ELEMENT>::from(right);
            }
        }
    }
}
