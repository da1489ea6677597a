// What the f32 kernels share: tiles in shared memory, and products of tiles by fused multiply-adds.
//
// A block has THREADS threads. LANES neighbouring threads share ROWS rows of a tile of results, of
// which each holds every LANES-th column (of scores), or WIDTH adjacent columns in LANES * WIDTH (of
// outputs). A warp holds the rows of two such groups, so what it stages for itself needs no barrier of
// the block.
#pragma once
#include "instructions.cuh"
#include "params.cuh"
#include "score.cuh"

constexpr int THREADS = 128;
constexpr int LANES = 16;
constexpr int GROUPS = THREADS / LANES;

// Floats from one row of a tile to the next: rows one apart lie four banks apart.
constexpr int STRIDE = HEAD_DIM + 4;
constexpr int WIDTH = HEAD_DIM % (4 * LANES) == 0 ? 4 : 2;
constexpr int CHUNKS = HEAD_DIM / (LANES * WIDTH);
constexpr int COLUMNS = CHUNKS * WIDTH;

constexpr unsigned WARP = 0xffffffff;

// Adjacent floats, read and written at once.
template <int COUNT>
struct alignas(COUNT * sizeof(float)) Floats {
    float at[COUNT];
};

template <int COUNT>
__device__ __forceinline__ Floats<COUNT> load(const float* from) {
    return *reinterpret_cast<const Floats<COUNT>*>(from);
}

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int group() { return threadIdx.x / LANES; }

// The first of this thread's columns of one chunk.
__device__ __forceinline__ int column(int chunk) { return (chunk * LANES + lane()) * WIDTH; }

// Copies rows first .. first + ROWS into a tile. What lies outside of rows begin .. past, and behind the
// entries of a row, is not read: the tile has zeros there.
template <int ROWS>
__device__ __forceinline__ void load_tile(float* tile, const float* rows, long long row_stride, int entries,
                                          int first, int begin, int past, bool aligned) {
#pragma unroll 1
    for (int row = group(); row < ROWS; row += GROUPS) {
        const float* from = rows + (first + row) * row_stride;
        float* to = tile + row * STRIDE;
        const int count = first + row >= begin && first + row < past ? entries : 0;
#pragma unroll
        for (int part = 0; part < HEAD_DIM; part += 4 * LANES) {
            const int entry = part + 4 * lane();
            if (entry >= HEAD_DIM) continue;
            if (aligned) {
                copy_async_16(to + entry, entry < count ? from + entry : rows, entry < count);
            } else {
                Floats<4> read;
#pragma unroll
                for (int i = 0; i < 4; i++) read.at[i] = entry + i < count ? from[entry + i] : 0.0f;
                *reinterpret_cast<Floats<4>*>(to + entry) = read;
            }
        }
    }
}

// sum[r][c] = <row r of a, row lane + c LANES of b>; a begins at this thread's first row.
template <int ROWS, int SCORES>
__device__ __forceinline__ void dot_rows(float (&sum)[ROWS][SCORES], const float* a, const float* b, int entries) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < SCORES; c++) sum[r][c] = 0.0f;
#pragma unroll 1
    for (int entry = 0; entry < entries; entry += 4) {
        Floats<4> y[SCORES];
#pragma unroll
        for (int c = 0; c < SCORES; c++) y[c] = load<4>(b + (lane() + c * LANES) * STRIDE + entry);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Floats<4> x = load<4>(a + r * STRIDE + entry);
#pragma unroll
            for (int c = 0; c < SCORES; c++)
#pragma unroll
                for (int i = 0; i < 4; i++) sum[r][c] = fmaf(x.at[i], y[c].at[i], sum[r][c]);
        }
    }
}

// Which of the (at most 32) inner positions of a tile a row sees, one bit each.
__device__ __forceinline__ unsigned positions(int begin, int past) {
    begin = max(begin, 0);
    const int count = min(past, 32) - begin;
    return count > 0 ? WARP >> (32 - count) << begin : 0;
}

// What the rows of a warp see of a tile together.
struct Sight {
    unsigned any;  // positions that some row sees
    bool all;      // whether every row sees all that the tile holds
};

// Of this thread's rows the first `counted` are in use. `present`: the positions that are not zero-filled.
template <int ROWS>
__device__ __forceinline__ Sight sight_of(const unsigned (&seen)[ROWS], int counted, unsigned present) {
    unsigned any = 0;
    bool all = true;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        any |= seen[r];
        all = all && (r >= counted || seen[r] == present);
    }
    return {__reduce_or_sync(WARP, any), __all_sync(WARP, all) != 0};
}

// sum[r] += sum over positions i of weights[r][i] * row i of values; SELECT: over those that row r sees.
// Weights of what it does not see are zero, but 0 * NaN is not (FAS:fwd.special.invisible).
template <bool SELECT, int POSITIONS, int ROWS>
__device__ __forceinline__ void add_products(float (&sum)[ROWS][COLUMNS], const float* weights, const float* values,
                                             const unsigned (&seen)[ROWS], int begin, int past) {
    constexpr int STEP = SELECT ? 1 : 4;
#pragma unroll 1
    for (int position = begin; position < past; position += STEP) {
        Floats<STEP> weight[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) weight[r] = load<STEP>(weights + r * (POSITIONS + 4) + position);
#pragma unroll
        for (int i = 0; i < STEP; i++)
#pragma unroll
            for (int chunk = 0; chunk < CHUNKS; chunk++) {
                const Floats<WIDTH> value = load<WIDTH>(values + (position + i) * STRIDE + column(chunk));
#pragma unroll
                for (int r = 0; r < ROWS; r++)
#pragma unroll
                    for (int w = 0; w < WIDTH; w++) {
                        float& to = sum[r][chunk * WIDTH + w];
                        const float added = fmaf(weight[r].at[i], value.at[w], to);
                        to = !SELECT || seen[r] >> (position + i) & 1 ? added : to;
                    }
            }
    }
}

template <int POSITIONS, int ROWS>
__device__ __forceinline__ void add_seen_products(float (&sum)[ROWS][COLUMNS], const float* weights,
                                                  const float* values, const unsigned (&seen)[ROWS], Sight sight) {
    const int begin = (__ffs(sight.any) - 1) & ~3, past = 32 - __clz(sight.any);
    if (sight.all)
        add_products<false, POSITIONS>(sum, weights, values, seen, begin, past);
    else
        add_products<true, POSITIONS>(sum, weights, values, seen, begin, past);
}

// Stages this thread's share of weights [row][position] for its warp.
template <int POSITIONS, int ROWS, int SCORES>
__device__ __forceinline__ void stage_weights(float* weights, const float (&from)[ROWS][SCORES]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++)
#pragma unroll
        for (int c = 0; c < SCORES; c++) weights[r * (POSITIONS + 4) + lane() + c * LANES] = from[r][c];
}

// Writes this thread's columns of a row, as far as the row goes.
__device__ __forceinline__ void store_row(float* row, const float (&from)[COLUMNS], float factor, bool zero,
                                          int entries, bool aligned) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        Floats<WIDTH> written;
#pragma unroll
        for (int w = 0; w < WIDTH; w++) written.at[w] = zero ? 0.0f : from[chunk * WIDTH + w] * factor;
        if (aligned) {
            if (column(chunk) < entries) *reinterpret_cast<Floats<WIDTH>*>(row + column(chunk)) = written;
        } else {
#pragma unroll
            for (int w = 0; w < WIDTH; w++)
                if (column(chunk) + w < entries) row[column(chunk) + w] = written.at[w];
        }
    }
}
