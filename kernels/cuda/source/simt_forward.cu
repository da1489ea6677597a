// The forward pass in f32, without tensor cores: scores tile by tile, softmax with a running maximum
// (the chapter, listing 26.3), no row of scores ever whole.
//
// Variants: ELEMENT float, HEAD_DIM. Grid: (query_len / BLOCK_QUERIES rounded up, query_heads,
// batch * splits). Keys are taken in tiles of BLOCK_KEYS from key 0 on, ascending; a split takes a
// contiguous range of them and leaves an output and an LSE of its own.
#include "simt.cuh"

constexpr int BLOCK_QUERIES = HEAD_DIM > 128 ? 32 : 64;
constexpr int BLOCK_KEYS = HEAD_DIM > 128 ? 16 : 32;
constexpr int ROWS = BLOCK_QUERIES / GROUPS;
constexpr int SCORES = BLOCK_KEYS / LANES;

extern "C" __global__ void __launch_bounds__(THREADS, 1) flash_forward(const __grid_constant__ Params p) {
    extern __shared__ float4 memory[];
    float* const query_tile = reinterpret_cast<float*>(memory);
    float* const key_tile = query_tile + BLOCK_QUERIES * STRIDE;
    float* const value_tile = key_tile + BLOCK_KEYS * STRIDE;
    float* const weight_tile = value_tile + BLOCK_KEYS * STRIDE;
    Visible* const visible = reinterpret_cast<Visible*>(weight_tile + BLOCK_QUERIES * (BLOCK_KEYS + 4));

    const int batch = blockIdx.z % p.batch, split = blockIdx.z / p.batch, head = blockIdx.y;
    const int key_head = head / (p.query_heads / p.key_heads);
    const int first_query = blockIdx.x * BLOCK_QUERIES;
    const int used = used_queries(p, batch);
    const int past_query = min(first_query + BLOCK_QUERIES, used);
    const bool aligned = p.aligned != 0;

    // The keys that some query of the block sees, and the tiles of them that are this split's.
    const int begin = max(visible_keys(p, batch, first_query).first, 0);
    const int past = first_query < past_query ? visible_keys(p, batch, past_query - 1).past : 0;
    int tile = begin / BLOCK_KEYS;
    int past_tile = begin < past ? (past + BLOCK_KEYS - 1) / BLOCK_KEYS : tile;
    const int share = (past_tile - tile + p.splits - 1) / p.splits;
    tile += split * share;
    past_tile = min(past_tile, tile + share);

    for (int row = threadIdx.x; row < BLOCK_QUERIES; row += THREADS) {
        const Visible all = visible_keys(p, batch, first_query + row);
        visible[row] = {max(all.first, tile * BLOCK_KEYS), min(all.past, past_tile * BLOCK_KEYS)};
    }

    const float* query = rows_of<const float>(p.query, batch, head, p.query_offsets);
    const float* key = rows_of<const float>(p.key, batch, key_head, p.key_offsets);
    const float* value = rows_of<const float>(p.value, batch, key_head, p.key_offsets);
    const auto load_keys = [&](int index) {
        load_tile<BLOCK_KEYS>(key_tile, key, p.key.row_stride, p.head_dim, index * BLOCK_KEYS, begin, past, aligned);
        commit_copies();
    };
    if (tile < past_tile) {
        load_tile<BLOCK_QUERIES>(query_tile, query, p.query.row_stride, p.head_dim, first_query, first_query,
                                 past_query, aligned);
        load_keys(tile);
    }
    __syncthreads();

    const int first_row = group() * ROWS;
    const int counted = past_query - first_query - first_row;
    float* const weights = weight_tile + first_row * (BLOCK_KEYS + 4);
    const ScoreMap map(p);

    // m in base two, this thread's part of l, and the numerators of its columns (equation 26.2).
    float greatest[ROWS], normalizer[ROWS], numerator[ROWS][COLUMNS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        greatest[r] = -infinity();
        normalizer[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) numerator[r][c] = 0.0f;
    }

#pragma unroll 1
    for (; tile < past_tile; tile++) {
        const int first_key = tile * BLOCK_KEYS;
        // The keys have arrived, and nobody reads the last tile's values any more.
        wait_copies<0>();
        __syncthreads();
        load_tile<BLOCK_KEYS>(value_tile, value, p.value.row_stride, p.value_dim, first_key, begin, past, aligned);
        commit_copies();

        unsigned seen[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Visible row = visible[first_row + r];
            seen[r] = positions(row.first - first_key, min(row.past - first_key, BLOCK_KEYS));
        }
        const unsigned present = positions(begin - first_key, min(past - first_key, BLOCK_KEYS));
        const Sight sight = sight_of(seen, counted, present);
        if (sight.any) {
            float score[ROWS][SCORES];
            dot_rows(score, query_tile + first_row * STRIDE, key_tile, p.head_dim);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                // Hidden keys are selected away, whatever their score (FAS:fwd.special.invisible).
                float row_greatest = greatest[r];
#pragma unroll
                for (int c = 0; c < SCORES; c++) {
                    const float x = map.of(score[r][c]).value;
                    score[r][c] = seen[r] >> (lane() + c * LANES) & 1 ? x : -infinity();
                    row_greatest = fmaxf(row_greatest, score[r][c]);
                }
#pragma unroll
                for (int distance = LANES / 2; distance > 0; distance /= 2)
                    row_greatest = fmaxf(row_greatest, __shfl_xor_sync(WARP, row_greatest, distance));

                // The maximum moved: what was summed is relative to the old one.
                if (row_greatest != greatest[r]) {
                    const float factor = exp2_approx(greatest[r] - row_greatest);
                    normalizer[r] *= factor;
#pragma unroll
                    for (int c = 0; c < COLUMNS; c++) numerator[r][c] *= factor;
                    greatest[r] = row_greatest;
                }

                // A row that has seen no key, or scores of -inf alone, has no maximum to subtract. NaN is
                // dropped by the maximum and kept by the weight (FAS:fwd.special.nan).
                const float reference = row_greatest == -infinity() ? 0.0f : row_greatest;
#pragma unroll
                for (int c = 0; c < SCORES; c++) {
                    score[r][c] = exp2_approx(score[r][c] - reference);
                    normalizer[r] += score[r][c];
                }
            }
            stage_weights<BLOCK_KEYS>(weights, score);
        }

        // The values have arrived, and nobody reads the keys any more.
        wait_copies<0>();
        __syncthreads();
        if (tile + 1 < past_tile) load_keys(tile + 1);
        if (sight.any) add_seen_products<BLOCK_KEYS>(numerator, weights, value_tile, seen, sight);
    }

    const bool partial = p.splits > 1;
    // Padding is a row without keys (FAS:mask.length.queries); where members follow each other, what is
    // past the last row belongs to the next member.
    const int written = p.query_offsets && !partial ? used : p.query_len;
    const long long rows = static_cast<long long>(p.query_heads) * p.query_len;
    const long long part = (split * p.batch + batch) * rows + static_cast<long long>(head) * p.query_len;
    float* output = partial ? p.split_output + part * p.value_dim
                            : rows_of<float>(p.output, batch, head, p.query_offsets);
    const long long row_stride = partial ? p.value_dim : p.output.row_stride;
    float* lse = partial ? p.split_lse + part
                         : p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float sum = normalizer[r];
#pragma unroll
        for (int distance = LANES / 2; distance > 0; distance /= 2)
            sum += __shfl_xor_sync(WARP, sum, distance);
        const int row = first_query + first_row + r;
        const bool empty = visible[first_row + r].first >= visible[first_row + r].past;
        // o = numerator / l, L = m + ln l; 0 and -inf without keys (FAS:fwd.softmax.empty-row).
        if (row < written)
            store_row(output + row * row_stride, numerator[r], 1.0f / sum, empty, p.value_dim, aligned);
        if (row < p.query_len && lane() == 0) lse[row] = empty ? -infinity() : fmaf(greatest[r], LN_2, logf(sum));
    }
}
