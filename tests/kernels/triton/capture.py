#!/usr/bin/env python3
"""Writes what Triton makes of three kernels: NAME.ptx, and NAME.launch with threads and shared memory of a block.

usage: capture.py [FOLDER]     (default: beside this file; needs a GPU, PyTorch and Triton)

The files are committed, because no machine that runs the tests has Triton. Each kernel is also run here and must
compute what PyTorch does. Line information is left out: it would hold the paths of the machine that ran this script.
"""

import os
import pathlib
import sys

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"

import torch
import triton
import triton.language as tl


@triton.jit
def tritonAdd(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def tritonRows(x, out, columns, BLOCK: tl.constexpr):
    """Each row minus its greatest element, over the sum of its absolute values."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * columns + at, mask=inside, other=0.0)
    most = tl.max(tl.where(inside, values, -1e30), axis=0)
    weight = tl.sum(tl.abs(values), axis=0)
    tl.store(out + row * columns + at, (values - most) / (weight + 1.0), mask=inside)


@triton.jit
def tritonMatmul(a, b, c, k, BLOCK: tl.constexpr, STEP: tl.constexpr):
    """One tile of BLOCK x BLOCK: on tensor cores, with a pipeline of asynchronous copies."""
    rows = tl.arange(0, BLOCK)
    steps = tl.arange(0, STEP)
    a_at = a + rows[:, None] * k + steps[None, :]
    b_at = b + steps[:, None] * BLOCK + rows[None, :]
    sums = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for _ in range(0, k, STEP):
        sums += tl.dot(tl.load(a_at), tl.load(b_at))
        a_at += STEP
        b_at += STEP * BLOCK
    tl.store(c + rows[:, None] * BLOCK + rows[None, :], sums)


def number(i):
    """As in sources/corpus.h."""
    i = ((i ^ 0x9D2C5680) * 0x01000193) & 0xFFFFFFFF
    i ^= i >> 15
    i = (i * 0x2545F491) & 0xFFFFFFFF
    return i ^ (i >> 13)


def small(n, dtype):
    return torch.tensor([number(i) % 9 - 4 for i in range(n)], dtype=dtype, device="cuda")


def write(folder, compiled):
    name = compiled.metadata.name
    (folder / f"{name}.ptx").write_text(compiled.asm["ptx"])
    threads, shared = compiled.metadata.num_warps * 32, compiled.metadata.shared
    (folder / f"{name}.launch").write_text(f"threads {threads}\nshared {shared}\n")
    print(f"{name}: {len(compiled.asm['ptx'])} bytes of PTX, {threads} threads, {shared} bytes of shared memory")


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Triton {triton.__version__} on {torch.cuda.get_device_name()}")

    x = small(1000, torch.float32)
    out = torch.zeros_like(x)
    compiled = tritonAdd[(4,)](x, x, out, 1000, BLOCK=256)
    assert torch.equal(out, x + x)
    write(folder, compiled)

    x = small(6 * 200, torch.float32).view(6, 200)
    out = torch.zeros_like(x)
    compiled = tritonRows[(6,)](x, out, 200, BLOCK=256)
    wanted = (x - x.amax(1, True)) / (x.abs().sum(1, True) + 1)
    assert torch.allclose(out, wanted, rtol=1e-6)
    write(folder, compiled)

    block, k = 64, 128
    a = small(block * k, torch.float16).view(block, k)
    b = small(k * block, torch.float16).view(k, block)
    c = torch.zeros((block, block), dtype=torch.float32, device="cuda")
    compiled = tritonMatmul[(1,)](a, b, c, k, BLOCK=block, STEP=32, num_warps=4, num_stages=3)
    assert torch.equal(c, a.float() @ b.float())
    write(folder, compiled)


if __name__ == "__main__":
    main()
