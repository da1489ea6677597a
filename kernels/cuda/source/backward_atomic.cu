// The gradients of keys and values, and those of queries summed by atomic additions in whatever order
// blocks arrive: dS is formed once, and dQ does not repeat bit for bit (FAS:bwd.tiled.order).
#include "backward_key_value.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
flash_backward_atomic(const __grid_constant__ Params p) {
    key_value_gradient<true>(p);
}
