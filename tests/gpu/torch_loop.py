"""A training loop whose losses are the same to the bit each time: a small transformer, and two kernels of PTX that NVRTC makes.

usage: torch_loop.py STEPS eager|graph FILE [LIBRARY]

With LIBRARY (libtorch_squash.so, of squash.cu) the two kernels are that library's, as those of an extension are: in a file that is mapped.

Writes every loss as a hexadecimal float to FILE, and prints when it begins and how long its steps took. Three steps come before and are
undone: with them, libraries load what they need. With `graph`, steps are launches of one CUDA graph that is captured then.
"""
import ctypes
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch

SOURCE = b"""
extern "C" __global__ void warpbpf_squash(float *to, const float *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        to[i] = from[i] / (1.0f + fabsf(from[i]));
}
extern "C" __global__ void warpbpf_slope(float *to, const float *grad, const float *from, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float d = 1.0f + fabsf(from[i]);
        to[i] = grad[i] / (d * d);
    }
}
"""
BLOCK = 128


def check(result, what):
    if result != 0:
        sys.exit(f"torch_loop: {what}: error {result}")


def of_extension(path):
    """Functions that launch the kernels of a library into PyTorch's current stream."""
    extension = ctypes.CDLL(path)

    def launch(name, *tensors):
        words = [ctypes.c_void_p(t.data_ptr()) for t in tensors]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        check(getattr(extension, "launch_" + name)(*words, ctypes.c_uint(tensors[0].numel()), stream), name)

    return launch


def compile_ptx():
    import glob

    folders = [os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")]
    found = [p for f in folders for p in glob.glob(f + "/**/libnvrtc.so.1[23]", recursive=True)]
    nvrtc = ctypes.CDLL(found[0] if found else "libnvrtc.so")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"squash.cu", 0, None, None), "nvrtcCreateProgram")
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_90")
    check(nvrtc.nvrtcCompileProgram(program, 1, options), "nvrtcCompileProgram")
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "nvrtcGetPTXSize")
    ptx = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, ptx), "nvrtcGetPTX")
    return ptx


def of_nvrtc():
    """The same with kernels that are compiled now, which are in no file."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, kernels = ctypes.c_void_p(), {}
    check(driver.cuModuleLoadData(ctypes.byref(module), compile_ptx()), "cuModuleLoadData")
    for name in ("warpbpf_squash", "warpbpf_slope"):
        kernels[name] = ctypes.c_void_p()
        check(driver.cuModuleGetFunction(ctypes.byref(kernels[name]), module, name.encode()), name)

    def launch(name, *tensors):
        n = tensors[0].numel()
        words = [ctypes.c_void_p(t.data_ptr()) for t in tensors] + [ctypes.c_uint(n)]
        params = (ctypes.c_void_p * len(words))(*[ctypes.cast(ctypes.byref(w), ctypes.c_void_p) for w in words])
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = (n + BLOCK - 1) // BLOCK
        check(driver.cuLaunchKernel(kernels[name], grid, 1, 1, BLOCK, 1, 1, 0, stream, params, None), "cuLaunchKernel")

    return launch


torch.cuda.init()
torch.zeros(1, device="cuda")
launch = of_extension(sys.argv[4]) if len(sys.argv) > 4 else of_nvrtc()


class Squash(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        y = torch.empty_like(x)
        launch("warpbpf_squash", y, x)
        return y

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad = grad.contiguous()
        out = torch.empty_like(x)
        launch("warpbpf_slope", out, grad, x)
        return out


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
        self.out = torch.nn.Linear(128, 128)

    def forward(self, x):
        return self.out(Squash.apply(self.layer(x).contiguous()))


def main():
    steps, graph, path = int(sys.argv[1]), sys.argv[2] == "graph", sys.argv[3]
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Model().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, target = torch.randn(16, 32, 128, device="cuda"), torch.randn(16, 32, 128, device="cuda")
    losses = torch.zeros(steps, device="cuda")
    at = torch.zeros(1, dtype=torch.int64, device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=False)
        loss = torch.nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        losses.index_copy_(0, at, loss.detach().reshape(1))
        at.add_(1)

    captured = None
    begun = time.monotonic()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    state = [p.detach().clone() for p in model.parameters()]
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
    with torch.no_grad():
        for p, old in zip(model.parameters(), state):
            p.copy_(old)
    at.zero_()
    losses.zero_()
    torch.cuda.synchronize()
    print(f"begin, after {(time.monotonic() - begun) * 1e3:.0f} ms for what comes before", flush=True)
    times, begun = [], time.monotonic()
    for _ in range(steps):
        if captured:
            captured.replay()
        else:
            step()
        torch.cuda.synchronize()
        now = time.monotonic()
        times.append((now - begun) * 1e3)
        begun = now
    with open(path, "w") as file:
        for loss in losses.tolist():
            file.write(float(loss).hex() + "\n")
    rss = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmRSS"))
    print(f"steps {steps}, mean {sum(times) / steps:.2f} ms, longest {max(times):.2f} ms, resident {int(rss) >> 10} MiB", flush=True)


main()
