// One row of the online softmax, as a quad of lanes holds it (FAS:fwd.online.absorb; the chapter, equation 26.2).
// Scores are in base two: multiples of ln 2.
#pragma once
#include "instructions.cuh"
#include "params.cuh"

static __device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// The factor from a dot product to a score in base two, and what a softcap needs: cap tanh(x / cap)
// (FAS:score.softcap.tanh, FAS:score.softcap.before-mask).
struct Scaling {
    float factor;      // scale log2(e), or scale / cap with a softcap
    float cap;         // cap log2(e); 0: none

    __device__ __forceinline__ explicit Scaling(const Params& p) {
        const float log2_e = 1.4426950408889634f;
        factor = p.softcap == 0.0f ? p.scale * log2_e : p.scale / p.softcap;
        cap = p.softcap * log2_e;
    }
};

struct OnlineRow {
    float maximum = minus_infinity();  // m: of the scores so far; the same in the quad
    float normalizer = 0.0f;           // l: sum of e^(s - m) over this lane's columns so far

    // What weights are relative to: m, or 0 where every score so far is -inf, whose weights are then 0 and
    // not e^(-inf + inf) (FAS:fwd.online.masked-block). m itself stays.
    __device__ __forceinline__ float reference() const { return maximum == minus_infinity() ? 0.0f : maximum; }

    // Takes the greatest of this lane's new scores into m, and gives e^(m - m'), what the sums so far are to
    // be rescaled by (FAS:fwd.online.rescale): exactly 1 where m does not move. A NaN is passed over here,
    // for e^(NaN - m) is NaN whatever m is (FAS:fwd.special.nan).
    __device__ __forceinline__ float raise(float greatest) {
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 1));
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 2));
        const float before = maximum;
        maximum = fmaxf(maximum, greatest);
        const float factor = exp2_approx(before - reference());
        normalizer *= factor;
        return factor;
    }

    // l of the whole row.
    __device__ __forceinline__ float whole_normalizer() const {
        float sum = normalizer;
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        return sum + __shfl_xor_sync(0xffffffff, sum, 2);
    }

    // m + ln l in nats; -inf where l is 0 (FAS:fwd.lse.definition).
    __device__ __forceinline__ float lse(float whole_normalizer) const {
        const float ln_2 = 0.6931471805599453f;
        return maximum * ln_2 + logf(whole_normalizer);
    }
};
