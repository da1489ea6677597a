// What every entry takes: one struct by value. Its members are named in the manifests.
#pragma once

// A tensor [batch, head, row, entry] whose entries of a row are adjacent. Strides are in elements.
struct Tensor {
    void* data;
    long long batch_stride;
    long long head_stride;
    long long row_stride;
};

enum Causal : int { CAUSAL_NONE = 0, CAUSAL_TOP_LEFT = 1, CAUSAL_BOTTOM_RIGHT = 2 };
enum Alignment : int { ALIGN_TOP_LEFT = 1, ALIGN_BOTTOM_RIGHT = 2 };

struct Params {
    Tensor query, key, value, output;
    Tensor output_gradient, query_gradient, key_gradient, value_gradient;

    // [batch, query_heads, query_len] with these strides, in nats; the gradient may be null.
    float* lse;
    const float* lse_gradient;
    long long lse_batch_stride, lse_head_stride;

    // Scratch, dense: rowsum(dO O) - dLSE, [batch, query_heads, query_len].
    float* delta;
    // Scratch, dense: dQ summed by atomic additions, [batch, query_heads, query_len, head_dim], zero at
    // first; null where dQ has a launch of its own.
    float* query_gradient_sum;
    // Scratch, dense: results of each split, [splits, batch, query_heads, query_len, value_dim] and
    // [splits, batch, query_heads, query_len]; null where there is one split.
    float* split_output;
    float* split_lse;
    // Scratch, dense: whole scores, then weights, [batch, query_heads, query_len, key_len]; null but for
    // the kernel that stores them.
    float* scores;

    // One a batch member, each null where all are used: keys and queries in use, the first key in use,
    // and the rows where a member's tensors begin when members follow each other.
    const int* query_lengths;
    const int* key_lengths;
    const int* key_starts;
    const int* query_offsets;
    const int* key_offsets;

    int batch, query_heads, key_heads, query_len, key_len, head_dim, value_dim;
    int splits;
    int causal;            // Causal
    int window_left;       // keys before the own position; -1: all
    int window_right;      // keys after it; -1: all
    int window_alignment;  // Alignment
    float scale;           // softmax scale
    float softcap;         // 0: none
    // Whether every row of every tensor begins at a multiple of 16 bytes and is a multiple of 16 bytes long.
    int aligned;
};

// The keys that a query sees: first <= key < past. Neither end falls from one query to the next, up to the
// last in use (FAS:mask.causal.*, FAS:mask.length.*, FAS:mask.window.inclusive).
struct Visible {
    int first, past;
};

__device__ __forceinline__ int used_queries(const Params& p, int batch) {
    return p.query_lengths ? p.query_lengths[batch] : p.query_len;
}

__device__ __forceinline__ int used_keys(const Params& p, int batch) {
    return p.key_lengths ? p.key_lengths[batch] : p.key_len;
}

__device__ __forceinline__ Visible visible_keys(const Params& p, int batch, int query) {
    const int queries = used_queries(p, batch), keys = used_keys(p, batch);
    const int shift = keys - queries;
    int first = p.key_starts ? p.key_starts[batch] : 0;
    int past = query < queries ? keys : 0;
    if (p.causal != CAUSAL_NONE)
        past = min(past, query + (p.causal == CAUSAL_BOTTOM_RIGHT ? shift : 0) + 1);
    const int position = query + (p.window_alignment == ALIGN_BOTTOM_RIGHT ? shift : 0);
    if (p.window_left >= 0) first = max(first, position - p.window_left);
    if (p.window_right >= 0) past = min(past, position + p.window_right + 1);
    return {first, past};
}

template <typename T>
__device__ __forceinline__ T* rows_of(const Tensor& tensor, int batch, int head, const int* offsets) {
    const long long first = offsets ? offsets[batch] * tensor.row_stride : 0;
    return static_cast<T*>(tensor.data) + batch * tensor.batch_stride + head * tensor.head_stride + first;
}
