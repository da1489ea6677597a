// dV = P^T dO and dK = scale dS^T Q, one block for each tile of keys of a key head (FAS:bwd.key.scale,
// FAS:bwd.value.gradient). The sums are carried in registers over the query heads of the group and their
// tiles of queries, in ascending order, so that they repeat bit for bit (FAS:bwd.head.group-sum).
//
// grid (key_len / OWN rounded up, key_heads, batch), block BLOCK_THREADS. Shared memory, in bytes: for key
// and value, and for query and output gradient in two stages, 2 (2 OWN + 4 OTHER) TILE_STRIDE; for rows in two
// stages, 2 OTHER 16; where gradients of queries are added to, 2 OWN SCORE_STRIDE for dS^T.
#pragma once
#include "backward.cuh"

// Entries from one key of dS^T to the next, in shared memory.
enum : int { SCORE_STRIDE = OTHER + COPY_ENTRIES };

// Queries that may see a key of first_key <= key < past_key: the inverse of visible_keys.
struct Seeing {
    int first, past;
};

__device__ __forceinline__ Seeing seeing_queries(const Params& p, int batch, int first_key, int past_key) {
    const int queries = used_queries(p, batch), keys = used_keys(p, batch);
    const int shift = keys - queries;
    const int window_shift = p.window_alignment == ALIGN_BOTTOM_RIGHT ? shift : 0;
    int first = 0, past = first_key < keys ? queries : 0;
    if (p.key_starts && past_key <= p.key_starts[batch]) past = 0;
    if (p.causal != CAUSAL_NONE)
        first = max(first, first_key - (p.causal == CAUSAL_BOTTOM_RIGHT ? shift : 0));
    if (p.window_right >= 0) first = max(first, first_key - p.window_right - window_shift);
    if (p.window_left >= 0) past = min(past, past_key + p.window_left - window_shift);
    return {first, past};
}

// A tile of queries of one head, in one of two stages.
struct QueryTile {
    ELEMENT* query;
    ELEMENT* gradient;
    Row* rows;
};

// P^T and dS^T of a warp's keys and a tile of queries, from the products of their rows.
template <bool CAPPED>
__device__ __forceinline__ void differentiate(float (&product)[OTHER / 8][4], float (&gradient)[OTHER / 8][4],
                                              const Score& score, const Row* rows, int first_key, bool masked) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < OTHER / 8; n++)
#pragma unroll
        for (int column = 0; column < 2; column++) {
            const Row row = rows[n * 8 + lane % 4 * 2 + column];
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const int i = 2 * half + column, key = first_key + lane / 4 + 8 * half;
                const bool visible = !masked || (row.first <= key && key < row.past);
                score.differentiate<CAPPED>(product[n][i], gradient[n][i], row.lse, row.delta, visible);
            }
        }
}

// Adds dS K of one tile to the sum of the queries' gradients; dS^T lies in shared memory.
__device__ __forceinline__ void add_query_gradient(const Params& p, int batch, int head, int first_query,
                                                   const ELEMENT* score_gradient, const ELEMENT* key_tile,
                                                   bool masked) {
    enum : int { GROUPS = OTHER / WARP_ROWS, COLUMNS = HEAD_DIM * GROUPS / WARPS };
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int first_row = warp % GROUPS * WARP_ROWS, first_column = warp / GROUPS * COLUMNS;
    const ELEMENT* a_row = score_gradient + (lane / 16 * 8 + lane % 8) * SCORE_STRIDE + first_row + lane / 8 % 2 * 8;
    float sum[COLUMNS / 8][4] = {};
#pragma unroll
    for (int k = 0; k < OWN; k += 16) {
        unsigned a[4];
        load_matrices_transposed(a, shared_address(a_row + k * SCORE_STRIDE));
        multiply_columns<COLUMNS>(sum, a, key_tile, k, first_column, masked);
    }
    const int queries = used_queries(p, batch);
    const long long head_row = (static_cast<long long>(batch) * p.query_heads + head) * p.query_len;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int query = first_query + first_row + lane / 4 + 8 * half;
        if (query >= queries) continue;
        float* const to = p.query_gradient_sum + (head_row + query) * p.head_dim;
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int entry = first_column + n * 8 + lane % 4 * 2 + i;
                if (entry < p.head_dim) atomicAdd(to + entry, sum[n][2 * half + i]);
            }
    }
}

template <bool ADD_QUERY_GRADIENT>
__device__ __forceinline__ void key_value_gradient(const Params& p) {
    extern __shared__ __align__(16) unsigned char shared[];
    ELEMENT* const key_tile = reinterpret_cast<ELEMENT*>(shared);
    ELEMENT* const value_tile = key_tile + OWN_ENTRIES;
    ELEMENT* const stages = value_tile + OWN_ENTRIES;
    Row* const row_stages = reinterpret_cast<Row*>(stages + 4 * OTHER_ENTRIES);
    ELEMENT* const score_gradient = reinterpret_cast<ELEMENT*>(row_stages + 2 * OTHER);

    const int first_key = blockIdx.x * OWN, key_head = blockIdx.y, batch = blockIdx.z;
    const int queries = used_queries(p, batch), keys = used_keys(p, batch);
    const int written = p.key_offsets ? keys : p.key_len;
    if (first_key >= written) return;

    // Steps: the tiles of queries that see a key, in the first head of the group, in the next, ...
    const Seeing seeing = seeing_queries(p, batch, first_key, first_key + OWN);
    const int first_tile = seeing.first / OTHER;
    const int tiles = max(0, (seeing.past + OTHER - 1) / OTHER - first_tile);
    const int group = p.query_heads / p.key_heads;
    const auto head_of = [&](int step) { return key_head * group + step / tiles; };
    const auto query_of = [&](int step) { return (first_tile + step % tiles) * OTHER; };
    const auto stage_of = [&](int step) {
        ELEMENT* const stage = stages + step % 2 * 2 * OTHER_ENTRIES;
        return QueryTile{stage, stage + OTHER_ENTRIES, row_stages + step % 2 * OTHER};
    };
    // Whether LSE or delta of the row that this thread loaded is not finite. They are not where its query
    // or its upstream gradient is not, and the LSE is not where it sees no key.
    bool spoiled = false;
    const auto load_queries = [&](int step) {
        const QueryTile tile = stage_of(step);
        const int head = head_of(step), first = query_of(step);
        load_tile<OTHER>(tile.query, rows_of<const ELEMENT>(p.query, batch, head, p.query_offsets),
                         p.query.row_stride, first, 0, queries, p.head_dim, p.aligned);
        load_tile<OTHER>(tile.gradient, rows_of<const ELEMENT>(p.output_gradient, batch, head, p.query_offsets),
                         p.output_gradient.row_stride, first, 0, queries, p.value_dim, p.aligned);
        commit_copies();
        if (threadIdx.x < OTHER) {
            Row row = row_of(p, batch, head, first + threadIdx.x);
            spoiled = !isfinite(row.lse) || !isfinite(row.delta);
            if (spoiled) row.lse = __int_as_float(0x7fffffff);
            tile.rows[threadIdx.x] = row;
        }
    };

    if (tiles > 0) {
        load_tile<OWN>(key_tile, rows_of<const ELEMENT>(p.key, batch, key_head, p.key_offsets), p.key.row_stride,
                       first_key, 0, keys, p.head_dim, p.aligned);
        load_tile<OWN>(value_tile, rows_of<const ELEMENT>(p.value, batch, key_head, p.key_offsets),
                       p.value.row_stride, first_key, 0, keys, p.value_dim, p.aligned);
        load_queries(0);
    }

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Score score(p);
    float key_sum[HEAD_DIM / 8][4] = {}, value_sum[HEAD_DIM / 8][4] = {};

    for (int step = 0; step < tiles * group; step++) {
        const QueryTile tile = stage_of(step);
        wait_copies<0>();
        // The tile is there, and nobody reads the other stage any more.
        if (__syncthreads_or(spoiled)) {
            // A spoiled row is of zeros here and its probabilities are NaN: so the keys that it sees get
            // NaN, and no others do (FAS:bwd.special.unspecified, FAS:bwd.empty-row.zero).
            if (spoiled)
                for (int entry = 0; entry < HEAD_DIM; entry++) {
                    tile.query[threadIdx.x * TILE_STRIDE + entry] = Element<ELEMENT>::from(0.f);
                    tile.gradient[threadIdx.x * TILE_STRIDE + entry] = Element<ELEMENT>::from(0.f);
                }
            __syncthreads();
        }
        if (step + 1 < tiles * group) load_queries(step + 1);

        float product[OTHER / 8][4] = {}, gradient[OTHER / 8][4] = {};
        multiply_rows(product, key_tile, warp * WARP_ROWS, tile.query);        // K Q^T
        multiply_rows(gradient, value_tile, warp * WARP_ROWS, tile.gradient);  // dP^T = V dO^T

        const int first_query = query_of(step);
        const bool masked = hides_keys(p, batch, first_query, first_query + OTHER, first_key, first_key + OWN);
        if (score.cap > 0.f)
            differentiate<true>(product, gradient, score, tile.rows, first_key + warp * WARP_ROWS, masked);
        else
            differentiate<false>(product, gradient, score, tile.rows, first_key + warp * WARP_ROWS, masked);
#pragma unroll
        for (int n = 0; n < OTHER / 16; n++) {
            unsigned rounded[4];
            round_operand(rounded, product[2 * n], product[2 * n + 1]);
            multiply_columns<HEAD_DIM>(value_sum, rounded, tile.gradient, n * 16, 0, false);
            round_operand(rounded, gradient[2 * n], gradient[2 * n + 1]);
            multiply_columns<HEAD_DIM>(key_sum, rounded, tile.query, n * 16, 0, false);
            if (ADD_QUERY_GRADIENT) {
                const int key = warp * WARP_ROWS + lane / 4, query = n * 16 + lane % 4 * 2;
                ELEMENT* const to = score_gradient + key * SCORE_STRIDE + query;
#pragma unroll
                for (int i = 0; i < 4; i++)
                    *reinterpret_cast<unsigned*>(to + i % 2 * 8 * SCORE_STRIDE + i / 2 * 8) = rounded[i];
            }
        }
        if (ADD_QUERY_GRADIENT) {
            __syncthreads();
            add_query_gradient(p, batch, head_of(step), first_query, score_gradient, key_tile, masked);
        }
    }
    store_gradient(key_sum, p.scale, rows_of<ELEMENT>(p.key_gradient, batch, key_head, p.key_offsets),
                   p.key_gradient.row_stride, first_key + warp * WARP_ROWS, written, p.head_dim, p.aligned);
    store_gradient(value_sum, 1.f, rows_of<ELEMENT>(p.value_gradient, batch, key_head, p.key_offsets),
                   p.value_gradient.row_stride, first_key + warp * WARP_ROWS, written, p.value_dim, p.aligned);
}
