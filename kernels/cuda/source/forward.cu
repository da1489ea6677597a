// Flash attention, forward (the chapter, listing 26.3): output and LSE of a tile of queries of one head, from
// tiles of keys that ascend. Each of four warps holds 16 queries, their scores, weights and numerators in
// mma fragments.
//
// grid:   (tiles of queries, query heads, batch * splits); block: 128 threads
// shared: 2 (HEAD_DIM + 8) (BLOCK_QUERIES + 4 BLOCK_KEYS) bytes, dynamic
#include "softmax.cuh"
#include "tile.cuh"

using T = ELEMENT;

enum : int {
    BLOCK_QUERIES = WARPS * WARP_ROWS,
    // Fewer where numerators of 256 columns leave few registers for scores.
    BLOCK_KEYS = HEAD_DIM <= 128 ? 64 : 32,
    KEY_TILE = BLOCK_KEYS * TILE_STRIDE,
    // Whether queries stay in registers, or are read again for every tile of keys.
    QUERIES_STAY = HEAD_DIM <= 128,
    QUERY_OPERANDS = QUERIES_STAY ? HEAD_DIM / 16 : 1,
};

// Some tiles of keys: `first` to `past - 1`, counted from key 0; and the keys that a query of the block sees,
// `from` to `to - 1`.
struct KeyTiles {
    int first, past;
    int from, to;
};

// The tiles that this split takes of those in which a query of the block sees a key.
__device__ __forceinline__ KeyTiles tiles_of(const Params& p, int batch, int split, int first_query) {
    const int last_query = min(first_query + BLOCK_QUERIES, used_queries(p, batch)) - 1;
    if (last_query < first_query) return {0, 0, 0, 0};
    // Neither end falls from query to query, so no key between the two is seen by none but where all rows
    // are empty.
    const int from = visible_keys(p, batch, first_query).first, to = visible_keys(p, batch, last_query).past;
    if (from >= to) return {0, 0, 0, 0};
    const int first = from / BLOCK_KEYS, past = (to + BLOCK_KEYS - 1) / BLOCK_KEYS;
    const int share = (past - first + p.splits - 1) / p.splits;
    return {first + split * share, min(past, first + (split + 1) * share), from, to};
}

// Scores of a warp's queries, 16 by BLOCK_KEYS, before scaling: Q K^T.
__device__ __forceinline__ void multiply_keys(float (&scores)[BLOCK_KEYS / 8][4],
                                              const unsigned (&queries)[QUERY_OPERANDS][4],
                                              unsigned query_tile, int first_row, unsigned key_tile) {
#pragma unroll
    for (int depth = 0; depth < HEAD_DIM / 16; ++depth) {
        unsigned a[4];
        if constexpr (QUERIES_STAY)
            for (int i = 0; i < 4; ++i) a[i] = queries[depth][i];
        else
            load_a(a, query_tile, first_row, depth * 16);
#pragma unroll
        for (int keys = 0; keys < BLOCK_KEYS / 16; ++keys) {
            unsigned b[4];
            load_b_transposed(b, key_tile, keys * 16, depth * 16);
            multiply_add<T>(scores[2 * keys], a, b[0], b[1]);
            multiply_add<T>(scores[2 * keys + 1], a, b[2], b[3]);
        }
    }
}

// Numerators of a warp's queries, 16 by HEAD_DIM: adds P V, with the weights rounded to T (FAS:num.profile.standard).
__device__ __forceinline__ void multiply_values(float (&numerators)[HEAD_DIM / 8][4],
                                                const float (&weights)[BLOCK_KEYS / 8][4], unsigned value_tile) {
#pragma unroll
    for (int keys = 0; keys < BLOCK_KEYS / 16; ++keys) {
        const float(&left)[4] = weights[2 * keys], (&right)[4] = weights[2 * keys + 1];
        const unsigned a[4] = {Element<T>::pack(left[0], left[1]), Element<T>::pack(left[2], left[3]),
                               Element<T>::pack(right[0], right[1]), Element<T>::pack(right[2], right[3])};
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 16; ++columns) {
            unsigned b[4];
            load_b(b, value_tile, keys * 16, columns * 16);
            multiply_add<T>(numerators[2 * columns], a, b[0], b[1]);
            multiply_add<T>(numerators[2 * columns + 1], a, b[2], b[3]);
        }
    }
}

__device__ __forceinline__ bool not_finite(T value) { return !(fabsf(Element<T>::to(value)) <= 3.4028235e38f); }

// A weight of 0 does not hide a NaN or an infinity: 0 times it is NaN in the row of every query of the product,
// also those that do not see the key (FAS:fwd.special.invisible). So these values become 0 in the tile,
// and NaN in the numerators of the rows that do see them (FAS:fwd.special.nan, FAS:fwd.special.infinity).
__device__ __forceinline__ void set_special_values_apart(float (&numerators)[HEAD_DIM / 8][4], T* value_tile,
                                                         int first_key, const Visible (&visible)[2]) {
    const int lane_column = threadIdx.x % 4 * 2;
#pragma unroll 1
    for (int row = 0; row < BLOCK_KEYS; ++row) {
        const int key = first_key + row;
        const bool seen[2] = {visible[0].first <= key && key < visible[0].past,
                              visible[1].first <= key && key < visible[1].past};
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                if (seen[i / 2] && not_finite(value_tile[row * TILE_STRIDE + columns * 8 + lane_column + i % 2]))
                    numerators[columns][i] = __int_as_float(0x7fffffff);
    }
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < KEY_TILE; i += BLOCK_THREADS)
        if (i % TILE_STRIDE < HEAD_DIM && not_finite(value_tile[i])) value_tile[i] = Element<T>::from(0.0f);
    __syncthreads();
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS) flash_forward(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const query_tile = reinterpret_cast<T*>(shared);
    T* const key_tiles = query_tile + BLOCK_QUERIES * TILE_STRIDE;
    T* const value_tiles = key_tiles + 2 * KEY_TILE;

    const int first_query = blockIdx.x * BLOCK_QUERIES, head = blockIdx.y;
    const int batch = blockIdx.z / p.splits, split = blockIdx.z % p.splits;
    const int key_head = head / (p.query_heads / p.key_heads);
    const T* const query = rows_of<T>(p.query, batch, head, p.query_offsets);
    const T* const key = rows_of<T>(p.key, batch, key_head, p.key_offsets);
    const T* const value = rows_of<T>(p.value, batch, key_head, p.key_offsets);

    const KeyTiles tiles = tiles_of(p, batch, split, first_query);
    const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * WARP_ROWS;
    // This lane's two queries, and the first of its two columns of every eight.
    const int queries[2] = {first_query + warp_row + lane / 4, first_query + warp_row + lane / 4 + 8};
    const int lane_column = lane % 4 * 2;
    const Visible visible[2] = {visible_keys(p, batch, queries[0]), visible_keys(p, batch, queries[1])};
    const Scaling scaling(p);

    const auto load_keys_and_values = [&](int tile) {
        const int first_key = tile * BLOCK_KEYS, stage = (tile & 1) * KEY_TILE;
        load_tile<BLOCK_KEYS>(key_tiles + stage, key, p.key.row_stride, first_key, tiles.from, tiles.to,
                              p.head_dim, p.aligned);
        load_tile<BLOCK_KEYS>(value_tiles + stage, value, p.value.row_stride, first_key, tiles.from, tiles.to,
                              p.value_dim, p.aligned);
        commit_copies();
    };

    OnlineRow rows[2];
    float numerators[HEAD_DIM / 8][4];

    // A second time, with care, where the first finds a result that is no finite number.
#pragma unroll 1
    for (bool careful = false;; careful = true) {
        rows[0] = rows[1] = OnlineRow();
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
            for (int i = 0; i < 4; ++i) numerators[columns][i] = 0.0f;

        if (tiles.first < tiles.past) {
            load_tile<BLOCK_QUERIES>(query_tile, query, p.query.row_stride, first_query, 0, used_queries(p, batch),
                                     p.head_dim, p.aligned);
            load_keys_and_values(tiles.first);
            wait_copies<0>();
        }
        __syncthreads();

        unsigned query_operands[QUERY_OPERANDS][4];
        if (QUERIES_STAY && tiles.first < tiles.past)
#pragma unroll
            for (int depth = 0; depth < QUERY_OPERANDS; ++depth)
                load_a(query_operands[depth], shared_address(query_tile), warp_row, depth * 16);

#pragma unroll 1
        for (int tile = tiles.first; tile < tiles.past; ++tile) {
            // The other stage is free: all have passed the barrier after its last use.
            if (tile + 1 < tiles.past) load_keys_and_values(tile + 1);

            const int first_key = tile * BLOCK_KEYS, stage = (tile & 1) * KEY_TILE;
            if (careful) set_special_values_apart(numerators, value_tiles + stage, first_key, visible);

            int seen[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                seen[half] = min(visible[half].past, first_key + BLOCK_KEYS) - max(visible[half].first, first_key);
            const bool all_seen = __all_sync(0xffffffff, min(seen[0], seen[1]) == BLOCK_KEYS);

            // A tile of which no query of the warp sees a key changes nothing (FAS:fwd.online.masked-block).
            if (__any_sync(0xffffffff, max(seen[0], seen[1]) > 0)) {
                float scores[BLOCK_KEYS / 8][4] = {};
                multiply_keys(scores, query_operands, shared_address(query_tile), warp_row,
                              shared_address(key_tiles + stage));

                // Scores in base two. Each is rounded before m is subtracted from it: in a fused
                // multiply-add, m itself would be left with a residue (FAS:fwd.score.scale).
                if (scaling.cap == 0.0f) {
#pragma unroll
                    for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
#pragma unroll
                        for (int i = 0; i < 4; ++i) scores[keys][i] = __fmul_rn(scores[keys][i], scaling.factor);
                } else {
#pragma unroll
                    for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            scores[keys][i] = __fmul_rn(scaling.cap, tanhf(scores[keys][i] * scaling.factor));
                }
                // Invisible keys are selected away, whatever their score (FAS:fwd.special.invisible).
                if (!all_seen) {
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int from = visible[half].first - first_key - lane_column;
                        const unsigned count = max(visible[half].past - visible[half].first, 0);
#pragma unroll
                        for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
#pragma unroll
                            for (int i = 0; i < 2; ++i)
                                if (static_cast<unsigned>(keys * 8 + i - from) >= count)
                                    scores[keys][2 * half + i] = minus_infinity();
                    }
                }

                // m' = max(m, max s), l' = e^(m - m') l + sum e^(s - m'), n' = e^(m - m') n + sum e^(s - m') v
                // (FAS:fwd.online.absorb; the chapter, equation 26.2).
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float greatest = scores[0][2 * half];
#pragma unroll
                    for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
                        greatest = fmaxf(greatest, fmaxf(scores[keys][2 * half], scores[keys][2 * half + 1]));
                    const float factor = rows[half].raise(greatest);
                    const float reference = rows[half].reference();
#pragma unroll
                    for (int columns = 0; columns < HEAD_DIM / 8; ++columns) {
                        numerators[columns][2 * half] *= factor;
                        numerators[columns][2 * half + 1] *= factor;
                    }
#pragma unroll
                    for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
#pragma unroll
                        for (int i = 2 * half; i < 2 * half + 2; ++i) {
                            scores[keys][i] = exp2_approx(scores[keys][i] - reference);
                            rows[half].normalizer += scores[keys][i];
                        }
                }
                multiply_values(numerators, scores, shared_address(value_tiles + stage));
            }
            wait_copies<0>();
            __syncthreads();
        }

        // 0 times a number is 0 where it is finite, and NaN elsewhere.
        float zero = 0.0f;
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
            for (int i = 0; i < 4; ++i) zero = fmaf(numerators[columns][i], 0.0f, zero);
        if (careful || !__syncthreads_or(zero != 0.0f)) break;
    }

    // o = n / l, L = m + ln l (FAS:fwd.lse); 0 and -inf where no key was seen (FAS:fwd.softmax.empty-row).
    // Rows past the used ones of a member belong to the next where members follow each other.
    const int output_rows = p.query_offsets ? used_queries(p, batch) : p.query_len;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = queries[half];
        const float normalizer = rows[half].whole_normalizer();
        const float inverse = normalizer == 0.0f ? 0.0f : 1.0f / normalizer;
        const float lse = rows[half].lse(normalizer);
        if (row >= p.query_len) continue;
        if (p.splits > 1) {
            // FAS:fwd.split.merge: each split is finished by itself, and not rounded to T.
            const long long part =
                ((static_cast<long long>(split) * p.batch + batch) * p.query_heads + head) * p.query_len + row;
            float* const output = p.split_output + part * p.value_dim;
#pragma unroll
            for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
                for (int i = 0; i < 2; ++i)
                    if (columns * 8 + lane_column + i < p.value_dim)
                        output[columns * 8 + lane_column + i] = numerators[columns][2 * half + i] * inverse;
            if (lane_column == 0) p.split_lse[part] = lse;
            continue;
        }
        if (lane_column == 0) p.lse[batch * p.lse_batch_stride + head * p.lse_head_stride + row] = lse;
        if (row >= output_rows) continue;
        T* const output = rows_of<T>(p.output, batch, head, p.query_offsets) + row * p.output.row_stride;
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 8; ++columns) {
            const int column = columns * 8 + lane_column;
            const float left = numerators[columns][2 * half] * inverse, right = numerators[columns][2 * half + 1] * inverse;
            if (p.aligned) {
                if (column < p.value_dim) *reinterpret_cast<unsigned*>(output + column) = Element<T>::pack(left, right);
            } else {
                if (column < p.value_dim) output[column] = Element<T>::from(left);
                if (column + 1 < p.value_dim) output[column + 1] = Element<T>::from(right);
            }
        }
    }
}
