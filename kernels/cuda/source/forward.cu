// Flash attention, forward (the chapter, listing 26.3): output and LSE of a tile of queries of one head, from
// tiles of keys that ascend. Each of four warps holds 16 queries, their scores, weights and numerators in
// mma fragments.
//
// grid:   (query_len / 64, rounded up; query heads; batch * splits); block: 128 threads
// shared: 8 (HEAD_DIM + 8) BLOCK_KEYS bytes, dynamic, and 128 (HEAD_DIM + 8) more where HEAD_DIM is 256
#include "softmax.cuh"
#include "tile.cuh"

using T = ELEMENT;

enum : int {
    BLOCK_QUERIES = WARPS * WARP_ROWS,
    // Fewer where numerators of 256 columns leave few registers for scores.
    BLOCK_KEYS = HEAD_DIM <= 128 ? 64 : 32,
    KEY_TILE = BLOCK_KEYS * TILE_STRIDE,
    // Whether queries stay in registers, or are read from shared memory again for every tile of keys.
    QUERIES_STAY = HEAD_DIM <= 128,
    QUERY_OPERANDS = QUERIES_STAY ? HEAD_DIM / 16 : 1,
    // Blocks that registers must leave room for on one multiprocessor: as many as do not spill.
    RESIDENT_BLOCKS = HEAD_DIM <= 64 ? 3 : 2,
};
static_assert(!QUERIES_STAY || BLOCK_QUERIES <= BLOCK_KEYS, "queries pass through a stage of the keys");

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
    // Neither end falls from query to query, nor rises by more than one key: where some row sees a key, the
    // rows together see all keys between these two and no others.
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

// Scores in base two. Each is rounded before m is subtracted from it: a fused multiply-add would leave the
// greatest score with a residue (FAS:fwd.score.scale).
__device__ __forceinline__ void scale_scores(float (&scores)[BLOCK_KEYS / 8][4], const Scaling& scaling) {
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
}

// Invisible keys are selected away, whatever their score (FAS:fwd.special.invisible).
__device__ __forceinline__ void hide_keys(float (&scores)[BLOCK_KEYS / 8][4], const Visible (&visible)[2],
                                          int first_key) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int first = visible[half].first - first_key - threadIdx.x % 4 * 2;
        const unsigned count = max(visible[half].past - visible[half].first, 0);
#pragma unroll
        for (int keys = 0; keys < BLOCK_KEYS / 8; ++keys)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if (static_cast<unsigned>(keys * 8 + i - first) >= count) scores[keys][2 * half + i] = minus_infinity();
    }
}

// m' = max(m, max s), l' = e^(m - m') l + sum e^(s - m'), n' = e^(m - m') n, and the scores become the weights
// e^(s - m') (FAS:fwd.online.absorb; the chapter, equation 26.2).
__device__ __forceinline__ void absorb(OnlineRow (&rows)[2], float (&numerators)[HEAD_DIM / 8][4],
                                       float (&scores)[BLOCK_KEYS / 8][4]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float greatest = minus_infinity();
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

// Whether some entry is infinite or NaN: 0 times it is NaN, and 0 of all others.
__device__ __forceinline__ bool some_not_finite(const float (&numerators)[HEAD_DIM / 8][4]) {
    float zero = 0.0f;
#pragma unroll
    for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
        for (int i = 0; i < 4; ++i) zero = fmaf(numerators[columns][i], 0.0f, zero);
    return zero != 0.0f;
}

// Two adjacent entries of a row, as far as there are `entries`.
__device__ __forceinline__ void store_pair(T* row, int column, float left, float right, int entries, bool aligned) {
    if (aligned) {
        if (column < entries) *reinterpret_cast<unsigned*>(row + column) = Element<T>::pack(left, right);
    } else {
        if (column < entries) row[column] = Element<T>::from(left);
        if (column + 1 < entries) row[column + 1] = Element<T>::from(right);
    }
}

// Unrounded results of a split, dense (FAS:fwd.split.merge).
__device__ __forceinline__ void store_pair(float* row, int column, float left, float right, int entries, bool) {
    if (column < entries) row[column] = left;
    if (column + 1 < entries) row[column + 1] = right;
}

// o = n / l, rounded to the output's type, for one of this lane's two rows; 0 where no key was seen
// (FAS:fwd.softmax.empty-row).
template <typename Output>
__device__ __forceinline__ void store_row(const Params& p, Output* row, const float (&numerators)[HEAD_DIM / 8][4],
                                          int half, float normalizer) {
    const float inverse = normalizer == 0.0f ? 0.0f : 1.0f / normalizer;
#pragma unroll
    for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
        store_pair(row, columns * 8 + threadIdx.x % 4 * 2, numerators[columns][2 * half] * inverse,
                   numerators[columns][2 * half + 1] * inverse, p.value_dim, p.aligned);
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
flash_forward(const __grid_constant__ Params p) {
    extern __shared__ __align__(16) unsigned char shared[];
    T* const key_tiles = reinterpret_cast<T*>(shared);
    T* const value_tiles = key_tiles + 2 * KEY_TILE;

    const int first_query = blockIdx.x * BLOCK_QUERIES, head = blockIdx.y;
    const int batch = blockIdx.z / p.splits, split = blockIdx.z % p.splits;
    const int key_head = head / (p.query_heads / p.key_heads);
    const T* const query = rows_of<T>(p.query, batch, head, p.query_offsets);
    const T* const key = rows_of<T>(p.key, batch, key_head, p.key_offsets);
    const T* const value = rows_of<T>(p.value, batch, key_head, p.key_offsets);
    const Scaling scaling(p);

    const KeyTiles tiles = tiles_of(p, batch, split, first_query);
    const int warp_row = threadIdx.x / 32 * WARP_ROWS;
    // The two queries of which this lane holds columns.
    const int lane_row = threadIdx.x % 32 / 4;
    const int queries[2] = {first_query + warp_row + lane_row, first_query + warp_row + lane_row + 8};
    const Visible visible[2] = {visible_keys(p, batch, queries[0]), visible_keys(p, batch, queries[1])};

    // Tiles of keys alternate between two stages. Queries that stay in registers pass through the stage of
    // keys that the first tile leaves free.
    const auto stage_of = [](int tile) { return (tile & 1) * KEY_TILE; };
    T* const query_tile = QUERIES_STAY ? key_tiles + stage_of(tiles.first + 1) : value_tiles + 2 * KEY_TILE;
    const auto load_keys_and_values = [&](int tile) {
        const int first_key = tile * BLOCK_KEYS, stage = stage_of(tile);
        load_tile<BLOCK_KEYS>(key_tiles + stage, key, p.key.row_stride, first_key, tiles.from, tiles.to, p.head_dim,
                              p.aligned);
        load_tile<BLOCK_KEYS>(value_tiles + stage, value, p.value.row_stride, first_key, tiles.from, tiles.to,
                              p.value_dim, p.aligned);
        commit_copies();
    };

    OnlineRow rows[2];
    float numerators[HEAD_DIM / 8][4];

    // A second time, with care, where the first finds a numerator that is no finite number.
#pragma unroll 1
    for (bool careful = false;; careful = true) {
        rows[0] = rows[1] = OnlineRow();
#pragma unroll
        for (int columns = 0; columns < HEAD_DIM / 8; ++columns)
#pragma unroll
            for (int i = 0; i < 4; ++i) numerators[columns][i] = 0.0f;

        unsigned query_operands[QUERY_OPERANDS][4];
        if (tiles.first < tiles.past) {
            load_tile<BLOCK_QUERIES>(query_tile, query, p.query.row_stride, first_query, 0, used_queries(p, batch),
                                     p.head_dim, p.aligned);
            load_keys_and_values(tiles.first);
            wait_copies<0>();
            __syncthreads();
            if (QUERIES_STAY) {
#pragma unroll
                for (int depth = 0; depth < QUERY_OPERANDS; ++depth)
                    load_a(query_operands[depth], shared_address(query_tile), warp_row, depth * 16);
                __syncthreads();
            }
        }

#pragma unroll 1
        for (int tile = tiles.first; tile < tiles.past; ++tile) {
            // Its stage is free: all have passed the barrier after the last use.
            if (tile + 1 < tiles.past) load_keys_and_values(tile + 1);

            const int first_key = tile * BLOCK_KEYS, stage = stage_of(tile);
            if (careful) set_special_values_apart(numerators, value_tiles + stage, first_key, visible);

            int seen[2];
#pragma unroll
            for (int half = 0; half < 2; ++half)
                seen[half] = min(visible[half].past, first_key + BLOCK_KEYS) - max(visible[half].first, first_key);
            // A tile of which no query of the warp sees a key changes nothing (FAS:fwd.online.masked-block).
            if (__any_sync(0xffffffff, max(seen[0], seen[1]) > 0)) {
                float scores[BLOCK_KEYS / 8][4] = {};
                multiply_keys(scores, query_operands, shared_address(query_tile), warp_row,
                              shared_address(key_tiles + stage));
                scale_scores(scores, scaling);
                if (__any_sync(0xffffffff, min(seen[0], seen[1]) < BLOCK_KEYS)) hide_keys(scores, visible, first_key);
                absorb(rows, numerators, scores);
                multiply_values(numerators, scores, shared_address(value_tiles + stage));
            }
            wait_copies<0>();
            __syncthreads();
        }
        if (careful || !__syncthreads_or(some_not_finite(numerators))) break;
    }

    // Rows past the used ones of a member belong to the next where members follow each other.
    const int output_rows = p.query_offsets ? used_queries(p, batch) : p.query_len;
    T* const output = rows_of<T>(p.output, batch, head, p.query_offsets);
    float* const lse = p.lse + batch * p.lse_batch_stride + head * p.lse_head_stride;
    const long long first_part =
        ((static_cast<long long>(split) * p.batch + batch) * p.query_heads + head) * p.query_len;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = queries[half];
        const float normalizer = rows[half].whole_normalizer();
        const float row_lse = rows[half].lse(normalizer);
        const bool writes_lse = threadIdx.x % 4 == 0 && row < p.query_len;
        if (p.splits > 1) {
            float* const part = p.split_output + (first_part + row) * p.value_dim;
            if (row < p.query_len) store_row(p, part, numerators, half, normalizer);
            if (writes_lse) p.split_lse[first_part + row] = row_lse;
        } else {
            if (row < output_rows) store_row(p, output + row * p.output.row_stride, numerators, half, normalizer);
            if (writes_lse) lse[row] = row_lse;
        }
    }
}
