"""Writes the `triton-*.ptx` beside it: what Triton 3.5 makes of three kernels for sm_90. Needs no GPU.

Run it from a folder whose path may be published: Triton writes it into the debug information.
"""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pm = tl.program_id(0)
    pn = tl.program_id(1)
    rm = pm * BM + tl.arange(0, BM)
    rn = pn * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        mask = (rm[:, None] < M) & ((k + rk)[None, :] < K)
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :], mask=mask, other=0.0)
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc += tl.dot(x, y)
    tl.store(c + rm[:, None] * N + rn[None, :], acc, mask=rm[:, None] < M)


@triton.jit
def softmax(o, i, n, B: tl.constexpr):
    r = tl.program_id(0)
    cols = tl.arange(0, B)
    x = tl.load(i + r * n + cols, mask=cols < n, other=-float("inf"))
    x = tl.exp(x - tl.max(x, 0))
    tl.store(o + r * n + cols, x / tl.sum(x, 0), mask=cols < n)
    tl.atomic_add(o + cols, x, mask=cols < n)
    tl.device_print("x", r)


@triton.jit
def tma(a, b, M, N, BM: tl.constexpr, BN: tl.constexpr):
    d = tl.make_tensor_descriptor(a, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    e = tl.make_tensor_descriptor(b, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    for i in range(0, M, BM):
        e.store([i, 0], d.load([i, 0]) * 2)


JOBS = [
    (matmul, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "M": "i32", "N": "i32", "K": "i32"}, {"BM": 64, "BN": 32, "BK": 32}),
    (softmax, {"o": "*fp32", "i": "*fp32", "n": "i32"}, {"B": 256}),
    (tma, {"a": "*fp16", "b": "*fp16", "M": "i32", "N": "i32"}, {"BM": 64, "BN": 64}),
]

for kernel, signature, constants in JOBS:
    source = ASTSource(
        kernel,
        signature | {name: "constexpr" for name in constants},
        constexprs=constants,
        attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_stages": 2})
    with open(f"triton-{kernel.__name__}.ptx", "w") as out:
        out.write(built.asm["ptx"])
