# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a whole step of training costs: the transformer of examples/torch/model.py in stock PyTorch, medians of some steps in microseconds, and a digest of its weights.

`wall` is from before a step until the GPU has done it; `gpu` is between an event in front of its first kernel and one behind its last, waits for the host among them; `host`
is until the host has launched all of it.

usage: torch_step.py [STEPS]    (alone, and under `warpbpf run`)
"""

import hashlib
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../examples/torch"))
sys.dont_write_bytecode = True

import model
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

BATCH, WARM = 8, 5


def main():
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    net = model.Transformer().cuda().bfloat16().train()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    text = torch.randint(model.WORDS, (BATCH, model.LENGTH + 1), device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = {"wall": [], "gpu": [], "host": []}
    with sdpa_kernel(SDPBackend.MATH):
        for step in range(WARM + steps):
            torch.cuda.synchronize()
            at = time.perf_counter()
            begin.record()
            optimizer.zero_grad()
            scores = net(text[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            end.record()
            launched = time.perf_counter()
            torch.cuda.synchronize()
            done = time.perf_counter()
            if step >= WARM:
                times["wall"].append((done - at) * 1e6)
                times["gpu"].append(begin.elapsed_time(end) * 1e3)
                times["host"].append((launched - at) * 1e6)
    for name, all_of_them in times.items():
        print(f"{name} {statistics.median(all_of_them):.2f}")
    digest = hashlib.sha256()
    for weights in net.parameters():
        digest.update(weights.detach().float().cpu().numpy().tobytes())
    print(digest.hexdigest()[:16])


main()
