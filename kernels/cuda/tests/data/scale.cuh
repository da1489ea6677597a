#pragma once
#include <cuda_fp16.h>

struct Scale {
    const ELEMENT* in;
    float* out;
    float factor;
};
