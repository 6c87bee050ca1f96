# SPDX-License-Identifier: MIT OR Apache-2.0
"""Kernels of PyTorch's own, one that Triton makes and one that CuPy has NVRTC make, always the same: prints digests of what they compute.

usage: backends_work.py
"""

import hashlib

import cupy
import torch
import triton
import triton.language as tl

LAUNCHES = 5
SIZE = 1 << 20


@triton.jit
def backends_triton(to, left, right, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(to + at, tl.load(left + at, inside) * 2 + tl.load(right + at, inside), inside)


# Threads leave at different places.
SOURCE = r"""
extern "C" __global__ void backends_nvrtc(float *to, const float *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = from[i];
    if (x < 0.25f) {
        to[i] = -x;
        return;
    }
    to[i] = x / (1.0f + x);
}
"""


def digest(name, tensor):
    torch.cuda.synchronize()
    print(name, hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest()[:16], flush=True)


def main():
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(3)
    left, right = torch.rand(SIZE, device="cuda"), torch.rand(SIZE, device="cuda")
    rows = left.reshape(1024, -1)
    for name, operation in {
        "add": lambda: left + right,
        "gelu": lambda: torch.nn.functional.gelu(left),
        "softmax": lambda: torch.softmax(rows, -1),
        "sum": lambda: rows.sum(-1),
        "norm": lambda: torch.nn.functional.layer_norm(rows, rows.shape[-1:]),
        "pick": lambda: rows.index_select(0, torch.arange(0, 1024, 3, device="cuda")),
        "half": lambda: left.half() * right.half(),
    }.items():
        for _ in range(LAUNCHES):
            result = operation()
        digest(name, result)
    to = torch.empty_like(left)
    for n in [SIZE - 77] * LAUNCHES:
        backends_triton[(triton.cdiv(n, 1024),)](to[:n], left[:n], right[:n], n, BLOCK=1024)
    digest("triton", to[: SIZE - 77])
    kernel = cupy.RawKernel(SOURCE, "backends_nvrtc", backend="nvrtc")
    source, made = cupy.from_dlpack(left), cupy.empty(SIZE, dtype=cupy.float32)
    torch.cuda.synchronize()
    for _ in range(LAUNCHES):
        kernel(((SIZE + 191) // 192,), (192,), (made, source, cupy.uint32(SIZE)))
    cupy.cuda.Device().synchronize()
    digest("nvrtc", torch.from_dlpack(made))


main()
