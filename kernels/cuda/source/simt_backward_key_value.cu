// dK and dV in f32, without tensor cores: a block keeps a tile of keys and passes over the queries of
// every head that reads them (FAS:bwd.head.group-sum), recomputing probabilities from the LSE
// (FAS:bwd.probability.recompute).
//
// Variants: ELEMENT float, HEAD_DIM. Grid: (key_len / BLOCK_KEYS rounded up, key_heads, batch).
#include "simt.cuh"

constexpr int BLOCK_KEYS = HEAD_DIM > 64 ? 32 : 64;
constexpr int BLOCK_QUERIES = 32;  // one a thread of a warp
constexpr int ROWS = BLOCK_KEYS / GROUPS;
constexpr int SCORES = BLOCK_QUERIES / LANES;

extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_backward_key_value(const __grid_constant__ Params p) {
    extern __shared__ float4 memory[];
    float* const key_tile = reinterpret_cast<float*>(memory);
    float* const value_tile = key_tile + BLOCK_KEYS * STRIDE;
    float* const query_tile = value_tile + BLOCK_KEYS * STRIDE;
    float* const gradient_tile = query_tile + BLOCK_QUERIES * STRIDE;
    float* const weight_tile = gradient_tile + BLOCK_QUERIES * STRIDE;
    float* const lse_tile = weight_tile + BLOCK_KEYS * (BLOCK_QUERIES + 4);
    float* const delta_tile = lse_tile + BLOCK_QUERIES;
    Visible* const visible = reinterpret_cast<Visible*>(delta_tile + BLOCK_QUERIES);

    const int batch = blockIdx.z, key_head = blockIdx.y;
    const int heads = p.query_heads / p.key_heads;
    const int first_key = blockIdx.x * BLOCK_KEYS;
    const int used = used_queries(p, batch);
    const int past_key = min(first_key + BLOCK_KEYS, used_keys(p, batch));
    const bool aligned = p.aligned != 0;

    load_tile<BLOCK_KEYS>(key_tile, rows_of<const float>(p.key, batch, key_head, p.key_offsets), p.key.row_stride,
                          p.head_dim, first_key, first_key, past_key, aligned);
    load_tile<BLOCK_KEYS>(value_tile, rows_of<const float>(p.value, batch, key_head, p.key_offsets),
                          p.value.row_stride, p.value_dim, first_key, first_key, past_key, aligned);

    const int first_row = group() * ROWS;
    const int counted = past_key - first_key - first_row;
    float* const weights = weight_tile + first_row * (BLOCK_QUERIES + 4);
    const ScoreMap map(p);

    float key_sum[ROWS][COLUMNS], value_sum[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) key_sum[r][c] = value_sum[r][c] = 0.0f;

#pragma unroll 1
    for (int head = key_head * heads; head < (key_head + 1) * heads; head++) {
        const float* query = rows_of<const float>(p.query, batch, head, p.query_offsets);
        const float* gradient = rows_of<const float>(p.output_gradient, batch, head, p.query_offsets);
        const float* lse = p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride;
        const float* delta = p.delta + (static_cast<long long>(batch) * p.query_heads + head) * p.query_len;

#pragma unroll 1
        for (int first_query = 0; first_query < used; first_query += BLOCK_QUERIES) {
            const int past_query = min(first_query + BLOCK_QUERIES, used);
            // Neither end of what a query sees falls from one query to the next.
            if (visible_keys(p, batch, first_query).first >= past_key
                || visible_keys(p, batch, past_query - 1).past <= first_key)
                continue;

            // Nobody reads the last tile any more.
            __syncthreads();
            load_tile<BLOCK_QUERIES>(query_tile, query, p.query.row_stride, p.head_dim, first_query, first_query,
                                     past_query, aligned);
            load_tile<BLOCK_QUERIES>(gradient_tile, gradient, p.output_gradient.row_stride, p.value_dim, first_query,
                                     first_query, past_query, aligned);
            commit_copies();
            for (int i = threadIdx.x; i < BLOCK_QUERIES; i += THREADS) {
                const bool present = first_query + i < past_query;
                visible[i] = visible_keys(p, batch, first_query + i);
                lse_tile[i] = present ? lse[first_query + i] * LOG2_E : 0.0f;
                delta_tile[i] = present ? delta[first_query + i] : 0.0f;
            }
            wait_copies<0>();
            __syncthreads();

            // The queries that see each key: thread i of the warp answers for query i.
            unsigned seen[ROWS];
            const Visible own = visible[threadIdx.x % BLOCK_QUERIES];
            const int warp_key = first_key + (group() & ~1) * ROWS;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const int low = warp_key + r, high = low + ROWS;
                const unsigned by_low = __ballot_sync(WARP, own.first <= low && low < own.past);
                const unsigned by_high = __ballot_sync(WARP, own.first <= high && high < own.past);
                seen[r] = group() & 1 ? by_high : by_low;
            }
            const Sight sight = sight_of(seen, counted, positions(0, past_query - first_query));
            if (!sight.any) continue;

            // P = e^(S - L), zero for what a query does not see (FAS:bwd.probability.mask).
            float weight[ROWS][SCORES], slope[ROWS][SCORES];
            dot_rows(weight, key_tile + first_row * STRIDE, query_tile, p.head_dim);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < SCORES; c++) {
                    const int i = lane() + c * LANES;
                    const ScoreMap::Score score = map.of(weight[r][c]);
                    weight[r][c] = seen[r] >> i & 1 ? exp2_approx(score.value - lse_tile[i]) : 0.0f;
                    slope[r][c] = score.slope;
                }
            stage_weights<BLOCK_QUERIES>(weights, weight);
            __syncwarp();
            // dV += P^T dO (FAS:bwd.value.gradient).
            add_seen_products<BLOCK_QUERIES>(value_sum, weights, gradient_tile, seen, sight);

            // dS = P (dP - D), times the slope of the softcap (FAS:bwd.score.gradient, FAS:bwd.softcap.slope).
            float change[ROWS][SCORES];
            dot_rows(change, value_tile + first_row * STRIDE, gradient_tile, p.value_dim);
#pragma unroll
            for (int r = 0; r < ROWS; r++)
#pragma unroll
                for (int c = 0; c < SCORES; c++) {
                    const int i = lane() + c * LANES;
                    const float product = weight[r][c] * (change[r][c] - delta_tile[i]) * slope[r][c];
                    change[r][c] = seen[r] >> i & 1 ? product : 0.0f;
                }
            __syncwarp();
            stage_weights<BLOCK_QUERIES>(weights, change);
            __syncwarp();
            // dK += dS^T Q, scaled at the end (FAS:bwd.key.scale).
            add_seen_products<BLOCK_QUERIES>(key_sum, weights, query_tile, seen, sight);
        }
    }
    // A block whose keys nobody sees leaves its copies unread.
    wait_copies<0>();

    // Padding has zero gradients (FAS:bwd.output.written); where members follow each other, what is past
    // the last row belongs to the next member.
    const int written = p.key_offsets ? used_keys(p, batch) : p.key_len;
    float* key_gradient = rows_of<float>(p.key_gradient, batch, key_head, p.key_offsets);
    float* value_gradient = rows_of<float>(p.value_gradient, batch, key_head, p.key_offsets);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_key + first_row + r;
        if (row >= written) continue;
        const bool padding = row >= past_key;
        store_row(key_gradient + row * p.key_gradient.row_stride, key_sum[r], p.scale, padding, p.head_dim, aligned);
        store_row(value_gradient + row * p.value_gradient.row_stride, value_sum[r], 1.0f, padding, p.value_dim,
                  aligned);
    }
}
