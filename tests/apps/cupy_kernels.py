# Kernels that CuPy compiles by NVRTC while it runs: one written out, one made of an expression, one that adds up. Prints digests of what they compute.
# usage: cupy_kernels.py [launches]
import hashlib
import sys

import cupy

raw = cupy.RawKernel(
    r"""
extern "C" __global__ void ours_saxpy(const float *x, float *y, float a, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
""",
    "ours_saxpy",
)
squares = cupy.ElementwiseKernel("float32 x", "float32 y", "y = x * x + 1", "ours_squares")


def digest(name, array):
    print(name, hashlib.sha256(cupy.asnumpy(array).tobytes()).hexdigest()[:16])


launches = int(sys.argv[1]) if len(sys.argv) > 1 else 5
n = 98432
x = cupy.asarray([i % 1000 for i in range(n)], dtype=cupy.float32)
y = cupy.asarray([i % 7 for i in range(n)], dtype=cupy.float32)
for _ in range(launches):
    raw((385,), (256,), (x, y, cupy.float32(0.5), cupy.uint32(n)))
digest("saxpy", y)
for _ in range(launches):
    z = squares(x)
digest("squares", z)
print("sum", float(x.sum()))
