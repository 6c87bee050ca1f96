# SPDX-License-Identifier: MIT OR Apache-2.0
"""A real model with random weights, the same in every run: prints a digest of what it computes.

usage: model.py resnet50|transformer [--steps N] [--batch N] [--compile]
"""

import argparse
import hashlib
import os

# Before CUDA is used: cuBLAS needs it to compute the same in every run.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
# Each worker of torch.compile would be a process more that loads PyTorch.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WORDS, WIDTH, LENGTH = 8192, 512, 256


class Transformer(nn.Module):
    """A small language model."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device, dtype=self.head.weight.dtype)
        return self.head(self.layers(self.words(text), mask=mask, is_causal=True))


def resnet50(arguments):
    """Forward passes; gives the last result."""
    from torchvision.models import resnet50

    model = resnet50(weights=None).cuda().eval().to(memory_format=torch.channels_last)
    images = torch.randn(arguments.batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    if arguments.compile:
        model = torch.compile(model)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        for _ in range(arguments.steps):
            result = model(images)
    return [result]


def transformer(arguments):
    """Steps of training; gives the last loss and all weights."""
    model = Transformer().cuda().bfloat16().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    text = torch.randint(WORDS, (arguments.batch, LENGTH + 1), device="cuda")
    run = torch.compile(model) if arguments.compile else model
    # The other kinds of attention have no backward pass that is the same in every run.
    with sdpa_kernel(SDPBackend.MATH):
        for _ in range(arguments.steps):
            optimizer.zero_grad()
            scores = run(text[:, :-1])
            loss = nn.functional.cross_entropy(scores.flatten(0, 1).float(), text[:, 1:].flatten())
            loss.backward()
            optimizer.step()
    return [loss.detach(), *(weights.detach() for weights in model.parameters())]


MODELS = {"resnet50": resnet50, "transformer": transformer}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    # It would fill each tensor that is made, which is most of the launches then.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    digest = hashlib.sha256()
    for tensor in MODELS[arguments.model](arguments):
        digest.update(tensor.float().cpu().numpy().tobytes())
    how = "compiled" if arguments.compile else "eager"
    print(f"{arguments.model}, {how}, {arguments.steps} steps of {arguments.batch}: {digest.hexdigest()}")


if __name__ == "__main__":
    main()
