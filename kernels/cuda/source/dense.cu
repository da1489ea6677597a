// The dense kernel of the chapter (listing 26.2), for comparison: it writes whole rows of scores to
// memory, reads them to make weights of them, and reads those for the product with the values.
//
// Variants: ELEMENT. Products are in f32, of tiles in shared memory; nothing depends on head_dim.
// Launches, in this order, BLOCK = TILE positions:
//   dense_scores   (key_len / BLOCK rounded up, query_len / BLOCK rounded up, batch * query_heads)
//   dense_softmax  (query_len, query_heads, batch), with key_len floats of dynamic shared memory
//   dense_output   (value_dim / BLOCK rounded up, query_len / BLOCK rounded up, batch * query_heads)
#include "instructions.cuh"
#include "params.cuh"
#include "score.cuh"

constexpr int TILE = 64;   // rows and columns of results a block
constexpr int DEPTH = 32;  // inner positions staged at a time
constexpr int LANES = 16;  // threads that share rows
constexpr int PRODUCT_THREADS = 256;
constexpr int SOFTMAX_THREADS = 128;
constexpr int ROWS = TILE / (PRODUCT_THREADS / LANES);
constexpr int COLUMNS = TILE / LANES;
constexpr unsigned WARP = 0xffffffff;

template <typename T, int COUNT>
struct alignas(COUNT * sizeof(T)) Several {
    T at[COUNT];
};

__device__ __forceinline__ Several<float, 4> load(const float* from) {
    return *reinterpret_cast<const Several<float, 4>*>(from);
}

// Part of a matrix in memory. What lies outside of rows begin .. past, and of columns up to `columns`, is
// not read but taken for zero.
template <typename T>
struct Matrix {
    const T* data;
    long long row_stride;
    int begin, past, columns;
    bool aligned;
};

// Copies ROWS_ x COLUMNS_ entries into a tile of f32 whose rows are COLUMNS_ + 4 long.
template <int ROWS_, int COLUMNS_, typename T>
__device__ __forceinline__ void load_tile(float* tile, const Matrix<T>& from, int first_row, int first_column) {
    constexpr int COUNT = 16 / sizeof(T), PARTS = COLUMNS_ / COUNT;
#pragma unroll 1
    for (int part = threadIdx.x; part < ROWS_ * PARTS; part += PRODUCT_THREADS) {
        const int row = first_row + part / PARTS, column = first_column + part % PARTS * COUNT;
        const bool present = row >= from.begin && row < from.past;
        const T* source = from.data + row * from.row_stride + column;
        float* to = tile + part / PARTS * (COLUMNS_ + 4) + part % PARTS * COUNT;
        if (from.aligned && present && column < from.columns) {
            const auto read = *reinterpret_cast<const Several<T, COUNT>*>(source);
#pragma unroll
            for (int i = 0; i < COUNT; i++) to[i] = Element<T>::to(read.at[i]);
        } else {
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                to[i] = present && column + i < from.columns ? Element<T>::to(source[i]) : 0.0f;
        }
    }
}

__device__ __forceinline__ int lane() { return threadIdx.x % LANES; }
__device__ __forceinline__ int first_row() { return threadIdx.x / LANES * ROWS; }

// The row of scores, or weights, of a query.
__device__ __forceinline__ float* scores_of(const Params& p, int batch, int head, int query) {
    return p.scores + ((static_cast<long long>(batch) * p.query_heads + head) * p.query_len + query) * p.key_len;
}

// S = scale Q K^T in base two, -inf where a key is hidden (equation 26.1).
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) dense_scores(const __grid_constant__ Params p) {
    __shared__ alignas(16) float query_tile[TILE * (DEPTH + 4)];
    __shared__ alignas(16) float key_tile[TILE * (DEPTH + 4)];
    const int batch = blockIdx.z / p.query_heads, head = blockIdx.z % p.query_heads;
    const int key_head = head / (p.query_heads / p.key_heads);
    const int first_query = blockIdx.y * TILE, first_key = blockIdx.x * TILE;
    const bool aligned = p.aligned != 0;
    const Matrix<ELEMENT> query{rows_of<const ELEMENT>(p.query, batch, head, p.query_offsets), p.query.row_stride,
                                0, used_queries(p, batch), p.head_dim, aligned};
    const Matrix<ELEMENT> key{rows_of<const ELEMENT>(p.key, batch, key_head, p.key_offsets), p.key.row_stride,
                              0, used_keys(p, batch), p.head_dim, aligned};

    float sum[ROWS][COLUMNS] = {};
#pragma unroll 1
    for (int first = 0; first < p.head_dim; first += DEPTH) {
        load_tile<TILE, DEPTH>(query_tile, query, first_query, first);
        load_tile<TILE, DEPTH>(key_tile, key, first_key, first);
        __syncthreads();
#pragma unroll 1
        for (int entry = 0; entry < DEPTH; entry += 4) {
            Several<float, 4> y[COLUMNS];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) y[c] = load(key_tile + (lane() + c * LANES) * (DEPTH + 4) + entry);
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const auto x = load(query_tile + (first_row() + r) * (DEPTH + 4) + entry);
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
#pragma unroll
                    for (int i = 0; i < 4; i++) sum[r][c] = fmaf(x.at[i], y[c].at[i], sum[r][c]);
            }
        }
        __syncthreads();
    }

    const ScoreMap map(p);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_query + first_row() + r;
        if (row >= p.query_len) continue;
        const Visible visible = visible_keys(p, batch, row);
        float* scores = scores_of(p, batch, head, row);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int column = first_key + lane() + c * LANES;
            const bool seen = column >= visible.first && column < visible.past;
            if (column < p.key_len) scores[column] = seen ? map.of(sum[r][c]).value : -infinity();
        }
    }
}

// A value of each thread, reduced over the block; `scratch` has an entry a warp.
template <typename Operation>
__device__ __forceinline__ float reduce(float value, float* scratch, Operation operation) {
    constexpr int LANES_OF_WARP = 32;
#pragma unroll
    for (int distance = LANES_OF_WARP / 2; distance > 0; distance /= 2)
        value = operation(value, __shfl_xor_sync(WARP, value, distance));
    if (threadIdx.x % LANES_OF_WARP == 0) scratch[threadIdx.x / LANES_OF_WARP] = value;
    __syncthreads();
    value = scratch[0];
#pragma unroll
    for (int warp = 1; warp < SOFTMAX_THREADS / LANES_OF_WARP; warp++) value = operation(value, scratch[warp]);
    return value;
}

// P = e^(S - m) / l in place, L = m + ln l; the row is read once and written once.
extern "C" __global__ void __launch_bounds__(SOFTMAX_THREADS) dense_softmax(const __grid_constant__ Params p) {
    extern __shared__ float row[];
    __shared__ float scratch[2][SOFTMAX_THREADS / 32];
    const int query = blockIdx.x, head = blockIdx.y, batch = blockIdx.z;
    float* scores = scores_of(p, batch, head, query);

    float greatest = -infinity();
    for (int key = threadIdx.x; key < p.key_len; key += SOFTMAX_THREADS) {
        row[key] = scores[key];
        greatest = fmaxf(greatest, row[key]);
    }
    greatest = reduce(greatest, scratch[0], [](float a, float b) { return fmaxf(a, b); });
    // The maximum drops NaN, the weights keep it (FAS:fwd.special.nan).
    const float reference = greatest == -infinity() ? 0.0f : greatest;

    float sum = 0.0f;
    for (int key = threadIdx.x; key < p.key_len; key += SOFTMAX_THREADS) {
        row[key] = exp2_approx(row[key] - reference);
        sum += row[key];
    }
    sum = reduce(sum, scratch[1], [](float a, float b) { return a + b; });

    const Visible visible = visible_keys(p, batch, query);
    const bool empty = visible.first >= visible.past;
    const float inverse = 1.0f / sum;
    for (int key = threadIdx.x; key < p.key_len; key += SOFTMAX_THREADS)
        scores[key] = empty ? 0.0f : row[key] * inverse;
    if (threadIdx.x == 0)
        p.lse[batch * p.lse_batch_stride + head * p.lse_head_stride + query] =
            empty ? -infinity() : fmaf(greatest, LN_2, logf(sum));
}

// sum += weights * values; SELECT: over what each row sees, for 0 * NaN is NaN (FAS:fwd.special.invisible).
template <bool SELECT>
__device__ __forceinline__ void add_products(float (&sum)[ROWS][COLUMNS], const float* weight_tile,
                                             const float* value_tile, const Visible (&visible)[ROWS], int first_key) {
#pragma unroll 1
    for (int position = 0; position < DEPTH; position += 4) {
        Several<float, 4> weight[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; r++) weight[r] = load(weight_tile + (first_row() + r) * (DEPTH + 4) + position);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const auto value = load(value_tile + (position + i) * (TILE + 4) + lane() * COLUMNS);
            const int key = first_key + position + i;
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                const bool seen = key >= visible[r].first && key < visible[r].past;
#pragma unroll
                for (int c = 0; c < COLUMNS; c++) {
                    const float added = fmaf(weight[r].at[i], value.at[c], sum[r][c]);
                    sum[r][c] = !SELECT || seen ? added : sum[r][c];
                }
            }
        }
    }
}

// O = P V, rounded once to the format of O.
extern "C" __global__ void __launch_bounds__(PRODUCT_THREADS) dense_output(const __grid_constant__ Params p) {
    __shared__ alignas(16) float weight_tile[TILE * (DEPTH + 4)];
    __shared__ alignas(16) float value_tile[DEPTH * (TILE + 4)];
    const int batch = blockIdx.z / p.query_heads, head = blockIdx.z % p.query_heads;
    const int key_head = head / (p.query_heads / p.key_heads);
    const int first_query = blockIdx.y * TILE, first_column = blockIdx.x * TILE;
    const int used = used_queries(p, batch), keys = used_keys(p, batch);
    const Matrix<float> weights{scores_of(p, batch, head, 0), p.key_len, 0, used, keys, p.key_len % 4 == 0};
    const Matrix<ELEMENT> value{rows_of<const ELEMENT>(p.value, batch, key_head, p.key_offsets), p.value.row_stride,
                                0, keys, p.value_dim, p.aligned != 0};

    Visible visible[ROWS];
    float sum[ROWS][COLUMNS] = {};
#pragma unroll
    for (int r = 0; r < ROWS; r++) visible[r] = visible_keys(p, batch, first_query + first_row() + r);
#pragma unroll 1
    for (int first_key = 0; first_key < keys; first_key += DEPTH) {
        load_tile<TILE, DEPTH>(weight_tile, weights, first_query, first_key);
        load_tile<DEPTH, TILE>(value_tile, value, first_key, first_column);
        __syncthreads();
        bool all = true;
#pragma unroll
        for (int r = 0; r < ROWS; r++)
            all = all && visible[r].first <= first_key && visible[r].past >= min(first_key + DEPTH, keys);
        if (all)
            add_products<false>(sum, weight_tile, value_tile, visible, first_key);
        else
            add_products<true>(sum, weight_tile, value_tile, visible, first_key);
        __syncthreads();
    }

    // Padding is a row without keys; where members follow each other, what is past the last row belongs to
    // the next member.
    const int written = p.query_offsets ? used : p.query_len;
    ELEMENT* output = rows_of<ELEMENT>(p.output, batch, head, p.query_offsets);
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        const int row = first_query + first_row() + r;
        if (row >= written) continue;
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int column = first_column + lane() * COLUMNS + c;
            if (column < p.value_dim) output[row * p.output.row_stride + column] = Element<ELEMENT>::from(sum[r][c]);
        }
    }
}
