// The gradients of keys and values, and nothing else: those of queries have a launch of their own.
#include "backward_key_value.cuh"

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
flash_backward_key_value(const __grid_constant__ Params p) {
    key_value_gradient<false>(p);
}
