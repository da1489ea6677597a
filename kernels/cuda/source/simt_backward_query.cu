// dQ in f32, without tensor cores: a block keeps a tile of queries and passes over the keys that they
// see, recomputing probabilities from the LSE (FAS:bwd.probability.recompute).
//
// Variants: ELEMENT float, HEAD_DIM. Grid: (query_len / BLOCK_QUERIES rounded up, query_heads, batch).
#include "simt.cuh"

constexpr int BLOCK_QUERIES = HEAD_DIM > 64 ? 32 : 64;
constexpr int BLOCK_KEYS = 32;
constexpr int ROWS = BLOCK_QUERIES / GROUPS;
constexpr int SCORES = BLOCK_KEYS / LANES;

extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_backward_query(const __grid_constant__ Params p) {
    extern __shared__ float4 memory[];
    float* const query_tile = reinterpret_cast<float*>(memory);
    float* const gradient_tile = query_tile + BLOCK_QUERIES * STRIDE;
    float* const key_tile = gradient_tile + BLOCK_QUERIES * STRIDE;
    float* const value_tile = key_tile + BLOCK_KEYS * STRIDE;
    float* const weight_tile = value_tile + BLOCK_KEYS * STRIDE;

    const int batch = blockIdx.z, head = blockIdx.y;
    const int key_head = head / (p.query_heads / p.key_heads);
    const int first_query = blockIdx.x * BLOCK_QUERIES;
    const int used = used_queries(p, batch);
    const int past_query = min(first_query + BLOCK_QUERIES, used);
    const bool aligned = p.aligned != 0;

    load_tile<BLOCK_QUERIES>(query_tile, rows_of<const float>(p.query, batch, head, p.query_offsets),
                             p.query.row_stride, p.head_dim, first_query, first_query, past_query, aligned);
    load_tile<BLOCK_QUERIES>(gradient_tile, rows_of<const float>(p.output_gradient, batch, head, p.query_offsets),
                             p.output_gradient.row_stride, p.value_dim, first_query, first_query, past_query, aligned);

    // The keys that some query of the block sees.
    const int begin = max(visible_keys(p, batch, first_query).first, 0);
    const int past = first_query < past_query ? visible_keys(p, batch, past_query - 1).past : 0;

    const int first_row = group() * ROWS;
    const int counted = past_query - first_query - first_row;
    float* const weights = weight_tile + first_row * (BLOCK_KEYS + 4);
    const ScoreMap map(p);
    const float* lse = p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride;
    const float* delta = p.delta + (static_cast<long long>(batch) * p.query_heads + head) * p.query_len;
    const float* key = rows_of<const float>(p.key, batch, key_head, p.key_offsets);
    const float* value = rows_of<const float>(p.value, batch, key_head, p.key_offsets);

    Visible visible[ROWS];
    float row_lse[ROWS], row_delta[ROWS], sum[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_query + first_row + r;
        visible[r] = visible_keys(p, batch, row);
        row_lse[r] = row < past_query ? lse[row] * LOG2_E : 0.0f;
        row_delta[r] = row < past_query ? delta[row] : 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) sum[r][c] = 0.0f;
    }

#pragma unroll 1
    for (int first_key = begin / BLOCK_KEYS * BLOCK_KEYS; first_key < past; first_key += BLOCK_KEYS) {
        // Nobody reads the last tile any more.
        __syncthreads();
        load_tile<BLOCK_KEYS>(key_tile, key, p.key.row_stride, p.head_dim, first_key, begin, past, aligned);
        load_tile<BLOCK_KEYS>(value_tile, value, p.value.row_stride, p.value_dim, first_key, begin, past, aligned);
        commit_copies();
        wait_copies<0>();
        __syncthreads();

        unsigned seen[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) seen[r] = positions(visible[r].first - first_key, visible[r].past - first_key);
        const Sight sight = sight_of(seen, counted, positions(begin - first_key, past - first_key));
        if (!sight.any) continue;

        // P = e^(S - L) and dP = dO V^T.
        float weight[ROWS][SCORES], change[ROWS][SCORES];
        dot_rows(weight, query_tile + first_row * STRIDE, key_tile, p.head_dim);
        dot_rows(change, gradient_tile + first_row * STRIDE, value_tile, p.value_dim);
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int c = 0; c < SCORES; c++) {
                const ScoreMap::Score score = map.of(weight[r][c]);
                // dS = P (dP - D), times the slope of the softcap; zero for what the query does not see
                // (FAS:bwd.score.gradient, FAS:bwd.softcap.slope, FAS:bwd.probability.mask).
                const float product =
                    exp2_approx(score.value - row_lse[r]) * (change[r][c] - row_delta[r]) * score.slope;
                weight[r][c] = seen[r] >> (lane() + c * LANES) & 1 ? product : 0.0f;
            }
        stage_weights<BLOCK_KEYS>(weights, weight);
        __syncwarp();
        // dQ += dS K, scaled at the end (FAS:bwd.query.scale).
        add_seen_products<BLOCK_KEYS>(sum, weights, key_tile, seen, sight);
    }
    // A block that sees no keys leaves its copies unread.
    wait_copies<0>();

    // Padding has zero gradients (FAS:bwd.output.written); where members follow each other, what is past
    // the last row belongs to the next member.
    const int written = p.query_offsets ? used : p.query_len;
    float* query_gradient = rows_of<float>(p.query_gradient, batch, head, p.query_offsets);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_query + first_row + r;
        if (row < written)
            store_row(query_gradient + row * p.query_gradient.row_stride, sum[r], p.scale, row >= past_query,
                      p.head_dim, aligned);
    }
}
