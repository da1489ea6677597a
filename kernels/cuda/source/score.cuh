// Scores, and what softmax in base two takes.
#pragma once
#include "params.cuh"

constexpr float LOG2_E = 1.4426950408889634f;
constexpr float LN_2 = 0.6931471805599453f;

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Scores in base two, from dot products: scale log2(e) x, or with a softcap cap log2(e) tanh(scale x / cap)
// (FAS:fwd.score.scale, FAS:score.softcap.tanh).
struct ScoreMap {
    float scale, inverse_cap, cap;

    struct Score {
        float value, slope;  // the slope is the softcap's, 1 without
    };

    __device__ __forceinline__ explicit ScoreMap(const Params& p)
        : scale(p.softcap > 0 ? p.scale : p.scale * LOG2_E), inverse_cap(1.0f / p.softcap), cap(p.softcap * LOG2_E) {}

    __device__ __forceinline__ Score of(float x) const {
        if (!(cap > 0)) return {x * scale, 1.0f};
        const float tangent = tanhf(x * scale * inverse_cap);
        return {tangent * cap, 1.0f - tangent * tangent};
    }
};
