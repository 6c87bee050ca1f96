# SPDX-License-Identifier: MIT OR Apache-2.0
"""GPU time of four operations of stock PyTorch, in microseconds (medians of 40, by events), and a digest of their results.

usage: torch_ops.py    (alone, and under `warpbpf run --backend sanitizer PROGRAM --`)
"""

import hashlib
import statistics

import torch

torch.use_deterministic_algorithms(True)
torch.manual_seed(0)


def rand(*shape):
    return torch.rand(*shape, device="cuda")


a, b = rand(64 << 20), rand(64 << 20)
total = torch.empty_like(a)
left, right = rand(4096, 4096).bfloat16(), rand(4096, 4096).bfloat16()
field = rand(64, 1024, 1024)

OPERATIONS = {
    "add": lambda: torch.add(a, b, out=total),
    "gemm": lambda: torch.matmul(left, right),
    "softmax": lambda: torch.softmax(field, -1),
    "gelu": lambda: torch.nn.functional.gelu(field),
}


def microseconds(operation):
    for _ in range(5):
        operation()
    times = []
    for _ in range(40):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        operation()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return statistics.median(times)


for name, operation in OPERATIONS.items():
    print(f"{name} {microseconds(operation):.2f}")
digest = hashlib.sha256()
for operation in OPERATIONS.values():
    digest.update(operation().float().cpu().numpy().tobytes())
print(digest.hexdigest()[:16])
