// Tiles: some rows of a tensor in shared memory, padded with zeros where there is nothing to read.
#pragma once
#include "instructions.cuh"
#include "params.cuh"

// Enumerators, because a constant gets a variable of its own in the PTX.
enum : int {
    BLOCK_THREADS = 128,
    WARPS = BLOCK_THREADS / 32,
    // Rows of a warp's sum, and entries that 16 bytes hold.
    WARP_ROWS = 16,
    COPY_ENTRIES = 8,
    // Entries from one row of a tile to the next. 16 bytes more than the row make it an odd multiple of
    // 16 bytes, so the eight rows that ldmatrix reads at once lie in different banks.
    TILE_STRIDE = HEAD_DIM + COPY_ENTRIES,
    // Threads that copy one row: as many as divide it into pieces of 16 bytes evenly.
    ROW_THREADS = HEAD_DIM % 64 == 0 ? 8 : 4,
    ROWS_AT_ONCE = BLOCK_THREADS / ROW_THREADS,
};
static_assert(TILE_STRIDE / COPY_ENTRIES % 2 == 1, "rows of a tile share banks");

// Rows `first` to `first + ROWS - 1` of a tensor into a tile, by the whole block: what lies outside of
// rows `from` to `past - 1`, or past `entries`, becomes zero and is never read (FAS:fwd.tiled.tail).
// Complete for this thread's part after `commit_copies` and `wait_copies`, for the block's after a barrier.
template <int ROWS, typename T>
__device__ __forceinline__ void load_tile(T* tile, const T* rows, long long row_stride, int first, int from,
                                          int past, int entries, bool aligned) {
    static_assert(sizeof(T) == 2 && ROWS % ROWS_AT_ONCE == 0, "a tile of 16-bit entries, copied evenly");
    const unsigned present = max(past - from, 0);
    if (aligned) {
        const int row = threadIdx.x / ROW_THREADS, column = threadIdx.x % ROW_THREADS * COPY_ENTRIES;
        const T* source = rows + (first + row) * row_stride + column;
        T* target = tile + row * TILE_STRIDE + column;
#pragma unroll
        for (int step = 0; step < ROWS; step += ROWS_AT_ONCE) {
            const bool row_present = static_cast<unsigned>(first + row + step - from) < present;
#pragma unroll
            for (int across = 0; across < HEAD_DIM; across += ROW_THREADS * COPY_ENTRIES)
                copy_async_16(target + step * TILE_STRIDE + across, source + across,
                              row_present && column + across < entries);
            source += ROWS_AT_ONCE * row_stride;
        }
    } else {
#pragma unroll 1
        for (int i = threadIdx.x; i < ROWS * HEAD_DIM; i += BLOCK_THREADS) {
            const int row = i / HEAD_DIM, column = i % HEAD_DIM;
            const bool entry_present = static_cast<unsigned>(first + row - from) < present && column < entries;
            tile[row * TILE_STRIDE + column] =
                entry_present ? rows[(first + row) * row_stride + column] : Element<T>::from(0.0f);
        }
    }
}

// Fragments (PTX ISA, mma.m16n8k16). Lane `i` holds rows i / 4 and i / 4 + 8 of a 16x8 sum, and of each
// columns 2 (i % 4) and the next. Addresses are in bytes of shared memory.

__device__ __forceinline__ unsigned tile_address(unsigned tile, int row, int column) {
    return tile + (row * TILE_STRIDE + column) * 2;
}

// The 16x16 operand `a` that a tile holds from (row, column) on.
__device__ __forceinline__ void load_a(unsigned (&a)[4], unsigned tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices(a, tile_address(tile, lane % 16, lane / 16 * 8) + tile_address(0, row, column));
}

// Two operands `b` of 16x8, (b[0], b[1]) and (b[2], b[3]), for a product with the tile's transpose: their
// columns are the tile's rows from `row` on, their rows the tile's columns from `column` on.
__device__ __forceinline__ void load_b_transposed(unsigned (&b)[4], unsigned tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices(b, tile_address(tile, lane / 16 * 8 + lane % 8, lane / 8 % 2 * 8) + tile_address(0, row, column));
}

// Two operands `b` of 16x8, (b[0], b[1]) and (b[2], b[3]), for a product with the tile as it is: from
// (row, column) on, the second eight columns after the first.
__device__ __forceinline__ void load_b(unsigned (&b)[4], unsigned tile, int row, int column) {
    const int lane = threadIdx.x % 32;
    load_matrices_transposed(b, tile_address(tile, lane % 16, lane / 16 * 8) + tile_address(0, row, column));
}
