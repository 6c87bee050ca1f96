// Half, bfloat16, double and special function units.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
template <typename T> __global__ void axpy(T a, const T *x, T *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = a * x[i] + y[i];
}
template __global__ void axpy<double>(double, const double *, double *);
template __global__ void axpy<float>(float, const float *, float *);
template __global__ void axpy<__half>(__half, const __half *, __half *);
template __global__ void axpy<__half2>(__half2, const __half2 *, __half2 *);
template __global__ void axpy<__nv_bfloat16>(__nv_bfloat16, const __nv_bfloat16 *, __nv_bfloat16 *);
template __global__ void axpy<long long>(long long, const long long *, long long *);
template __global__ void axpy<unsigned char>(unsigned char, const unsigned char *, unsigned char *);

__global__ void functions(float *f, double *d, long long *l) {
    int i = threadIdx.x;
    f[i] = sinf(f[i]) + __expf(f[i]) + rsqrtf(f[i]) + tanhf(f[i]) + powf(f[i], 2.5f) + __fdividef(f[i], 3.0f);
    d[i] = sin(d[i]) + exp(d[i]) / sqrt(d[i]) + __dadd_rd(d[i], 1.0) + fma(d[i], 2.0, 3.0) + lgamma(d[i]);
    l[i] = (long long)d[i] / (l[i] | 1) + __double2ll_ru(d[i]) + __float2int_rn(f[i]) + __brevll(l[i]) % 7;
    f[i] += __int2float_rz(i) + __half2float(__float2half_rn(f[i])) + fminf(f[i], 2.f);
}
