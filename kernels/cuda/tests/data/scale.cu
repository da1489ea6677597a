// out[i] = HEAD_DIM * factor * in[i], one thread an entry.
#include "scale.cuh"

extern "C" __global__ void __launch_bounds__(64) scale(const __grid_constant__ Scale p) {
    extern __shared__ float staged[];
    staged[threadIdx.x] = p.in[threadIdx.x];
    __syncthreads();
    p.out[threadIdx.x] = HEAD_DIM * p.factor * staged[threadIdx.x];
}
