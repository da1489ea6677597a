extern "C" __global__ void broken(float* out) {
    *out = undeclared;
}
