// Functions inlined into each other, one of them at two places: what `.loc` says of calls.
struct Value {
    float x;
    __device__ __forceinline__ float square() const { return x * x; }
};

template <class T> __device__ __forceinline__ T twice(T a) {
    Value v{a};
    return v.square() + a;
}

namespace ns {
__device__ __forceinline__ float deep(float a) {
    return twice(a) * 3.0f;
}
}

__global__ void kernel(float *p, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] = ns::deep(p[i]);
    p[i + n] = twice(p[i + n]);
}
