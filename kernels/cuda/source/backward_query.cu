// dQ = scale dS K, one block for each tile of queries of a head (FAS:bwd.query.gradient). The sum is
// carried in registers over the tiles of keys, in ascending order, so that it repeats bit for bit.
//
// grid (query_len / OWN rounded up, query_heads, batch), block BLOCK_THREADS. Shared memory, in bytes: for query
// and output gradient, and for key and value in two stages, 2 (2 OWN + 4 OTHER) TILE_STRIDE.
#include "backward.cuh"

// P and dS of a warp's queries and a tile of keys, from the products of their rows.
template <bool CAPPED>
__device__ __forceinline__ void differentiate(float (&product)[OTHER / 8][4], float (&gradient)[OTHER / 8][4],
                                              const Score& score, const Row (&rows)[2], int first_key, bool masked) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < OTHER / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const Row& row = rows[i / 2];
            const int key = first_key + n * 8 + lane % 4 * 2 + i % 2;
            const bool visible = !masked || (row.first <= key && key < row.past);
            score.differentiate<CAPPED>(product[n][i], gradient[n][i], row.lse, row.delta, visible);
        }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
flash_backward_query(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char shared[];
    ELEMENT* const query_tile = reinterpret_cast<ELEMENT*>(shared);
    ELEMENT* const gradient_tile = query_tile + OWN_ENTRIES;
    ELEMENT* const stages = gradient_tile + OWN_ENTRIES;  // keys and values of even, and of odd tiles

    // Under a causal mask later queries see more keys: the longest blocks begin first.
    const int first_query = (gridDim.x - 1 - blockIdx.x) * OWN, head = blockIdx.y, batch = blockIdx.z;
    const int key_head = head / (p.query_heads / p.key_heads);
    const int queries = used_queries(p, batch), keys = used_keys(p, batch);
    const int written = p.query_offsets ? queries : p.query_len;
    if (first_query >= written) return;

    const ELEMENT* const key_rows = rows_of<const ELEMENT>(p.key, batch, key_head, p.key_offsets);
    const ELEMENT* const value_rows = rows_of<const ELEMENT>(p.value, batch, key_head, p.key_offsets);
    const auto load_keys = [&](int tile) {
        ELEMENT* const stage = stages + tile % 2 * 2 * OTHER_ENTRIES;
        load_tile<OTHER>(stage, key_rows, p.key.row_stride, tile * OTHER, 0, keys, p.head_dim,
                         p.aligned);
        load_tile<OTHER>(stage + OTHER_ENTRIES, value_rows, p.value.row_stride, tile * OTHER, 0, keys,
                         p.value_dim, p.aligned);
        commit_copies();
    };

    // The tiles that hold what the first to the last query see.
    const int last_query = min(first_query + OWN, queries) - 1;
    int tile = 0, past_tile = 0;
    if (first_query < queries) {
        tile = visible_keys(p, batch, first_query).first / OTHER;
        past_tile = (visible_keys(p, batch, last_query).past + OTHER - 1) / OTHER;
    }
    if (tile < past_tile) {
        load_tile<OWN>(query_tile, rows_of<const ELEMENT>(p.query, batch, head, p.query_offsets),
                       p.query.row_stride, first_query, 0, queries, p.head_dim, p.aligned);
        load_tile<OWN>(gradient_tile, rows_of<const ELEMENT>(p.output_gradient, batch, head, p.query_offsets),
                       p.output_gradient.row_stride, first_query, 0, queries, p.value_dim, p.aligned);
        load_keys(tile);
    }

    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const Row rows[2] = {row_of(p, batch, head, first_query + warp * WARP_ROWS + lane / 4),
                         row_of(p, batch, head, first_query + warp * WARP_ROWS + lane / 4 + 8)};
    const Score score(p);
    float sum[HEAD_DIM / 8][4] = {};

    for (; tile < past_tile; tile++) {
        wait_copies<0>();
        __syncthreads();  // the tile is there, and nobody reads the other stage any more
        if (tile + 1 < past_tile) load_keys(tile + 1);
        const ELEMENT* const key_tile = stages + tile % 2 * 2 * OTHER_ENTRIES;
        const ELEMENT* const value_tile = key_tile + OTHER_ENTRIES;

        float product[OTHER / 8][4] = {}, gradient[OTHER / 8][4] = {};
        multiply_rows(product, query_tile, warp * WARP_ROWS, key_tile);         // Q K^T
        multiply_rows(gradient, gradient_tile, warp * WARP_ROWS, value_tile);  // dP = dO V^T

        const bool masked =
            hides_keys(p, batch, first_query, first_query + OWN, tile * OTHER, (tile + 1) * OTHER);
        if (score.cap > 0.f)
            differentiate<true>(product, gradient, score, rows, tile * OTHER, masked);
        else
            differentiate<false>(product, gradient, score, rows, tile * OTHER, masked);
#pragma unroll
        for (int n = 0; n < OTHER / 16; n++) {
            unsigned rounded[4];
            round_operand(rounded, gradient[2 * n], gradient[2 * n + 1]);
            // A key that is not finite shows in the scores of the queries that see it; here it must not
            // reach the others (FAS:bwd.special.unspecified).
            multiply_columns<HEAD_DIM>(sum, rounded, key_tile, n * 16, 0, masked);
        }
    }
    store_gradient(sum, p.scale, rows_of<ELEMENT>(p.query_gradient, batch, head, p.query_offsets),
                   p.query_gradient.row_stride, first_query + warp * WARP_ROWS, written, p.head_dim, p.aligned);
}
