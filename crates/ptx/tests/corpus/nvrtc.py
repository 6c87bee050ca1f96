"""Writes the `nvrtc-*.ptx`: what NVRTC of several releases makes of the sources beside it. Needs no GPU.

NVRTC has the front end and the optimiser of the nvcc of its release, so these texts stand for nvcc of releases whose
compiler is not in any package. `python3 nvrtc.py FOLDER` wants in FOLDER, for each release below, a folder `11.7`, … into
which these wheels are unpacked (`python3 -m pip download --no-deps`): `nvidia-cuda-nvrtc-cu11`, `nvidia-cuda-nvrtc-cu12`
or `nvidia-cuda-nvrtc`, and where a source has includes `nvidia-cuda-runtime-…` and `nvidia-cuda-nvcc-…` of the release.

Run it from a folder whose path may be published: NVRTC writes it, and that of includes, into the debug information.
"""

import ctypes
import pathlib
import sys

# Release, source, what the text is to be called by, options.
JOBS = [
    ("11.7", "calls.cu", "calls", ["-arch=compute_35", "-lineinfo"]),
    ("11.8", "memory.cu", "memory", ["-arch=compute_70", "-G"]),
    ("12.0", "memory.cu", "memory", ["-arch=compute_50"]),
    ("12.4", "async.cu", "async", ["-arch=compute_90a", "-lineinfo"]),
    ("12.9", "control.cu", "control", ["-arch=compute_120", "-lineinfo"]),
    ("13.5", "memory.cu", "memory", ["-arch=compute_121", "-lineinfo"]),
    ("13.5", "inline.cu", "inline", ["-arch=compute_100a", "-G"]),
]

# Of the host's C++ library NVRTC has nothing, and these sources need no more than is built in.
EMPTY = [b"cstdint", b"cstdio", b"cassert"]


def check(library, code, what):
    if code != 0:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise SystemExit(f"{what}: {library.nvrtcGetErrorString(code).decode()}")


def text(library, program, what):
    size = ctypes.c_size_t()
    check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    buffer = ctypes.create_string_buffer(size.value)
    check(library, getattr(library, f"nvrtcGet{what}")(program, buffer), what)
    return buffer.value.decode()


def compile(library, source, options):
    program = ctypes.c_void_p()
    strings = ctypes.c_char_p * len(EMPTY)
    written, name = source.read_bytes(), source.name.encode()
    headers = strings(*[b""] * len(EMPTY)), strings(*EMPTY)
    code = library.nvrtcCreateProgram(ctypes.byref(program), written, name, len(EMPTY), *headers)
    check(library, code, "nvrtcCreateProgram")
    arguments = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    code = library.nvrtcCompileProgram(program, len(options), arguments)
    if code != 0:
        print(text(library, program, "ProgramLog"), file=sys.stderr)
    check(library, code, f"{source.name} {' '.join(options)}")
    return text(library, program, "PTX")


if __name__ == "__main__":
    folder, here = pathlib.Path(sys.argv[1]), pathlib.Path(__file__).parent
    for release, source, name, options in JOBS:
        [path] = [path for path in (folder / release).rglob("libnvrtc.so*")]
        # NVRTC opens its built-in functions by name.
        [builtins] = [path for path in path.parent.glob("libnvrtc-builtins.so*")]
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        includes = [f"-I{path}" for path in (folder / release).rglob("include")]
        ptx = compile(ctypes.CDLL(str(path)), here / source, [*options, "-std=c++17", *includes])
        pathlib.Path(f"nvrtc-{release}-{name}.ptx").write_text(ptx)
