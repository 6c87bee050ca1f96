// Textures, surfaces and arrays, each against a computation on the host. Runs on a GPU as well.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t e = (call); if (e) { printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorName(e)); exit(1); } } while (0)

template <class T> static T *device(const std::vector<T> &v) {
    T *p;
    CHECK(cudaMalloc(&p, v.size() * sizeof(T)));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}

template <class T> static std::vector<T> host(const T *p, size_t n) {
    std::vector<T> v(n);
    CHECK(cudaMemcpy(v.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
    return v;
}

__global__ void sample1(cudaTextureObject_t t, const float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1D<float>(t, at[i].x);
}
__global__ void sample2(cudaTextureObject_t t, const float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2D<float>(t, at[i].x, at[i].y);
}
__global__ void sample3(cudaTextureObject_t t, const float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex3D<float>(t, at[i].x, at[i].y, at[i].z);
}
__global__ void sample_layer(cudaTextureObject_t t, const float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2DLayered<float>(t, at[i].x, at[i].y, (int)at[i].z);
}
__global__ void sample_level(cudaTextureObject_t t, const float4 *at, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex2DLod<float>(t, at[i].x, at[i].y, 0.0f);
}

static int wrap(cudaTextureAddressMode mode, bool normalised, int i, int n) {
    if (!normalised && (mode == cudaAddressModeWrap || mode == cudaAddressModeMirror)) mode = cudaAddressModeClamp;
    switch (mode) {
        case cudaAddressModeClamp: return i < 0 ? 0 : i >= n ? n - 1 : i;
        case cudaAddressModeBorder: return i < 0 || i >= n ? -1 : i;
        case cudaAddressModeWrap: return (i % n + n) % n;
        default: { int m = (i % (2 * n) + 2 * n) % (2 * n); return m < n ? m : 2 * n - 1 - m; }
    }
}

struct Model {
    std::vector<float> texels;
    int size[3] = {1, 1, 1}, dimensions = 1;
    cudaTextureAddressMode mode = cudaAddressModeClamp;
    bool normalised = false, linear = false;
    float border = 0;

    float texel(const int *i) const {
        int at[3];
        for (int d = 0; d < 3; d++) {
            at[d] = d < dimensions ? wrap(mode, normalised, i[d], size[d]) : 0;
            if (at[d] < 0) return border;
        }
        return texels[(at[2] * size[1] + at[1]) * size[0] + at[0]];
    }

    float operator()(float4 p) const {
        float xyz[3] = {p.x, p.y, p.z};
        int first[3] = {}, upper[3] = {};
        for (int d = 0; d < dimensions; d++) {
            double x = normalised ? (double)xyz[d] * size[d] : xyz[d];
            if (linear) {
                long long fixed = (long long)std::floor((x - 0.5) * 256 + 0.5);
                first[d] = (int)(fixed >> 8);
                upper[d] = (int)(fixed & 255);
                bool clamps = mode == cudaAddressModeClamp || (!normalised && mode != cudaAddressModeBorder);
                if (clamps && (first[d] < 0 || first[d] >= size[d] - 1)) {
                    first[d] = first[d] < 0 ? 0 : size[d] - 1;
                    upper[d] = 0;
                }
            } else {
                first[d] = (int)std::floor(x);
            }
        }
        if (!linear) return texel(first);
        double sum = 0;
        for (int corner = 0; corner < 8; corner++) {
            bool right = corner & 1, down = corner & 2, back = corner & 4;
            // As the H200 divides 256 by dimensions: z, x, y, each with a rounding.
            int z = back ? upper[2] : 256 - upper[2];
            int x = (z * upper[0] + 128) >> 8;
            if (!right) x = z - x;
            int y = (x * upper[1] + (right ? 128 : 127)) >> 8;
            if (!down) y = x - y;
            int at[3] = {first[0] + right, first[1] + down, first[2] + back};
            if (y) sum += y / 256.0 * texel(at);
        }
        return (float)sum;
    }
};

typedef void (*Kernel)(cudaTextureObject_t, const float4 *, float *, int);

static void compare(const char *name, Kernel kernel, cudaTextureObject_t t, const Model &model, const std::vector<float4> &at) {
    float *out;
    CHECK(cudaMalloc(&out, at.size() * 4));
    kernel<<<(at.size() + 127) / 128, 128>>>(t, device(at), out, (int)at.size());
    CHECK(cudaDeviceSynchronize());
    std::vector<float> found = host(out, at.size());
    int wrong = 0;
    size_t first = 0;
    for (size_t i = at.size(); i-- > 0;) if (!(found[i] == model(at[i]))) { wrong++; first = i; }
    printf("%s: %zu samples, %d wrong", name, at.size(), wrong);
    if (wrong) printf(", at %a %a %a: %.9g instead of %.9g", at[first].x, at[first].y, at[first].z, found[first], model(at[first]));
    printf("\n");
}

static std::vector<float4> places(bool normalised, const int *size, int dimensions, int count, bool exact) {
    std::vector<float4> list;
    uint32_t seed = 12345;
    auto next = [&](int n) {
        seed = seed * 1664525 + 1013904223;
        // From 1.5 sizes below to 2.5 above.
        float x = ((seed >> 8) % 4096) / 1024.0f - 1.5f;
        if (exact) x = std::floor(x * n * 64) / 64 / n;
        return normalised ? x : exact ? std::floor(x * n * 64) / 64 : x * n;
    };
    for (int i = 0; i < count; i++) {
        float4 p = {next(size[0]), dimensions > 1 ? next(size[1]) : 0, dimensions > 2 ? next(size[2]) : 0, 0};
        list.push_back(p);
    }
    return list;
}

static cudaTextureObject_t texture(const cudaResourceDesc &r, cudaTextureAddressMode mode, bool normalised, bool linear, cudaTextureReadMode read = cudaReadModeElementType, float border = 0, int dimensions = 3) {
    cudaTextureDesc d = {};
    d.addressMode[0] = mode;
    if (dimensions > 1) d.addressMode[1] = mode;
    if (dimensions > 2) d.addressMode[2] = mode;
    d.filterMode = linear ? cudaFilterModeLinear : cudaFilterModePoint;
    d.readMode = read;
    d.normalizedCoords = normalised;
    d.borderColor[0] = border;
    cudaTextureObject_t t = 0;
    CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
    return t;
}

static cudaResourceDesc of(cudaArray_t a) {
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = a;
    return r;
}

static void sampling() {
    const char *modes[] = {"wrap", "clamp", "mirror", "border"};
    Model m;
    for (int dimensions = 1; dimensions <= 3; dimensions++) {
        int size[3] = {8, dimensions > 1 ? 4 : 1, dimensions > 2 ? 16 : 1};
        m.dimensions = dimensions;
        memcpy(m.size, size, sizeof size);
        int n = size[0] * size[1] * size[2];
        m.texels.resize(n);
        for (int i = 0; i < n; i++) m.texels[i] = (float)((i * 37 + 11) % 251);
        cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
        cudaArray_t a;
        if (dimensions < 3) {
            CHECK(cudaMallocArray(&a, &f, size[0], dimensions > 1 ? size[1] : 0));
            CHECK(cudaMemcpy2DToArray(a, 0, 0, m.texels.data(), size[0] * 4, size[0] * 4, size[1], cudaMemcpyHostToDevice));
        } else {
            CHECK(cudaMalloc3DArray(&a, &f, make_cudaExtent(size[0], size[1], size[2])));
            cudaMemcpy3DParms p = {};
            p.srcPtr = make_cudaPitchedPtr(m.texels.data(), size[0] * 4, size[0], size[1]);
            p.dstArray = a;
            p.extent = make_cudaExtent(size[0], size[1], size[2]);
            p.kind = cudaMemcpyHostToDevice;
            CHECK(cudaMemcpy3D(&p));
        }
        Kernel kernels[] = {sample1, sample2, sample3};
        for (int mode = 0; mode < 4; mode++)
            for (int normalised = 0; normalised < 2; normalised++)
                for (int linear = 0; linear < 2; linear++) {
                    m.mode = (cudaTextureAddressMode)mode;
                    m.normalised = normalised;
                    m.linear = linear;
                    m.border = 77;
                    char name[80];
                    snprintf(name, sizeof name, "%dd %s%s%s", dimensions, modes[mode], normalised ? " normalised" : "", linear ? " linear" : "");
                    cudaTextureObject_t t = texture(of(a), m.mode, normalised, linear, cudaReadModeElementType, 77, dimensions);
                    // Weights whose products have few bits are the same on every device.
                    compare(name, kernels[dimensions - 1], t, m, places(normalised, size, dimensions, 1000, linear));
                    if (dimensions == 2 && mode == 1) compare("by level", sample_level, t, m, places(normalised, size, 2, 100, true));
                    CHECK(cudaDestroyTextureObject(t));
                }
        CHECK(cudaFreeArray(a));
    }
}

// What the documentation leaves open, as numbers.
static void details() {
    std::vector<float> ramp(16);
    for (int i = 0; i < 16; i++) ramp[i] = (float)(i * 256);
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
    cudaArray_t a;
    CHECK(cudaMallocArray(&a, &f, 16, 0));
    CHECK(cudaMemcpy2DToArray(a, 0, 0, ramp.data(), 64, 64, 1, cudaMemcpyHostToDevice));
    for (int linear = 0; linear < 2; linear++) {
        cudaTextureObject_t t = texture(of(a), cudaAddressModeClamp, false, linear);
        std::vector<float4> at;
        for (float x : {0.99999994f, 1.0f, 1.9999999f, 2.99999f, 3.998f, 3.9990f, 4.001f, 4.00195f, 4.00196f, 4.0030f, 4.0059f, 4.0058f, 7.1234f, 9.999f}) at.push_back({x, 0, 0, 0});
        float *out;
        CHECK(cudaMalloc(&out, 64));
        sample1<<<1, 32>>>(t, device(at), out, (int)at.size());
        std::vector<float> found = host(out, at.size());
        printf("%s:", linear ? "weights" : "points");
        for (float v : found) printf(" %g", v);
        printf("\n");
    }
    CHECK(cudaFreeArray(a));
}

__global__ void four_of(cudaTextureObject_t t, float x, uint32_t *out, int as) {
    uint32_t a, b, c, d;
    if (as == 0) asm("tex.1d.v4.f32.f32 {%0, %1, %2, %3}, [%4, {%5}];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(t), "f"(x));
    if (as == 1) asm("tex.1d.v4.u32.f32 {%0, %1, %2, %3}, [%4, {%5}];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(t), "f"(x));
    if (as == 2) asm("tex.1d.v4.s32.s32 {%0, %1, %2, %3}, [%4, {%5}];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(t), "r"((int)x));
    out[0] = a; out[1] = b; out[2] = c; out[3] = d;
}

template <class T> static void channels(const char *name, std::vector<T> texels, cudaTextureReadMode read, int as, float x = 0, cudaTextureAddressMode mode = cudaAddressModeBorder) {
    cudaChannelFormatDesc f = cudaCreateChannelDesc<T>();
    cudaArray_t a;
    CHECK(cudaMallocArray(&a, &f, texels.size(), 0));
    CHECK(cudaMemcpy2DToArray(a, 0, 0, texels.data(), texels.size() * sizeof(T), texels.size() * sizeof(T), 1, cudaMemcpyHostToDevice));
    cudaTextureDesc d = {};
    d.addressMode[0] = d.addressMode[1] = d.addressMode[2] = mode;
    d.readMode = read;
    d.borderColor[0] = 0.5f;
    d.borderColor[1] = 2.0f;
    d.borderColor[2] = -1.0f;
    d.borderColor[3] = 300.0f;
    cudaResourceDesc r = of(a);
    cudaTextureObject_t t;
    CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
    uint32_t *out;
    CHECK(cudaMalloc(&out, 16));
    four_of<<<1, 1>>>(t, x, out, as);
    std::vector<uint32_t> found = host(out, 4);
    printf("%s: %08x %08x %08x %08x\n", name, found[0], found[1], found[2], found[3]);
    CHECK(cudaDestroyTextureObject(t));
    CHECK(cudaFreeArray(a));
}

__global__ void fractions(cudaTextureObject_t t, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = tex1D<float>(t, i + 0.5f);
}

template <class T> static void normalised(const char *name, int least, int count, float most) {
    std::vector<T> texels(count);
    for (int i = 0; i < count; i++) texels[i] = (T)(least + i);
    cudaChannelFormatDesc f = cudaCreateChannelDesc<T>();
    cudaArray_t a;
    CHECK(cudaMallocArray(&a, &f, count, 0));
    CHECK(cudaMemcpyToArray(a, 0, 0, texels.data(), count * sizeof(T), cudaMemcpyHostToDevice));
    cudaTextureObject_t t = texture(of(a), cudaAddressModeClamp, false, false, cudaReadModeNormalizedFloat);
    float *out;
    CHECK(cudaMalloc(&out, count * 4));
    fractions<<<(count + 127) / 128, 128>>>(t, out, count);
    std::vector<float> found = host(out, count);
    int wrong = 0, first = 0;
    for (int i = count; i-- > 0;) {
        float wanted = std::fmax((least + i) / most, -1.0f);
        if (found[i] != wanted) { wrong++; first = i; }
    }
    printf("%s: %d wrong", name, wrong);
    if (wrong) printf(", of %d: %a instead of %a", least + first, found[first], std::fmax((least + first) / most, -1.0f));
    printf("\n");
}

__global__ void fetch(cudaTextureObject_t t, int4 *out, int first, int n) {
    if (threadIdx.x < n) out[threadIdx.x] = tex1Dfetch<int4>(t, first + (int)threadIdx.x);
}
__global__ void fetch_half(cudaTextureObject_t t, float *out, int n) {
    if (threadIdx.x < n) {
        float x;
        asm("{ .reg .f32 a, b, c; tex.1d.v4.f32.s32 {%0, a, b, c}, [%1, {%2}]; }" : "=f"(x) : "l"(t), "r"((int)threadIdx.x));
        out[threadIdx.x] = x;
    }
}

static void linear_memory() {
    std::vector<int4> texels(10);
    for (int i = 0; i < 10; i++) texels[i] = {i, -i, i * i, 7};
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = device(texels);
    r.res.linear.desc = cudaCreateChannelDesc<int4>();
    r.res.linear.sizeInBytes = 160;
    cudaTextureObject_t t = texture(r, cudaAddressModeClamp, false, false);
    int4 *out;
    CHECK(cudaMalloc(&out, 16 * 16));
    fetch<<<1, 32>>>(t, out, -2, 14);
    std::vector<int4> found = host(out, 14);
    int wrong = 0;
    for (int i = 0; i < 14; i++) {
        int4 w = i >= 2 && i < 12 ? texels[i - 2] : int4{0, 0, 0, 0};
        wrong += memcmp(&w, &found[i], 16) != 0;
    }
    std::vector<__half> halves(8);
    for (int i = 0; i < 8; i++) halves[i] = __float2half(i * 0.375f - 1);
    r.res.linear.devPtr = device(halves);
    r.res.linear.desc = cudaCreateChannelDesc(16, 0, 0, 0, cudaChannelFormatKindFloat);
    r.res.linear.sizeInBytes = 16;
    t = texture(r, cudaAddressModeClamp, false, false);
    fetch_half<<<1, 32>>>(t, (float *)out, 8);
    std::vector<float> floats = host((float *)out, 8);
    for (int i = 0; i < 8; i++) wrong += floats[i] != i * 0.375f - 1;
    printf("linear memory: %d wrong\n", wrong);
    cudaResourceDesc back;
    cudaTextureDesc how;
    CHECK(cudaGetTextureObjectResourceDesc(&back, t));
    CHECK(cudaGetTextureObjectTextureDesc(&how, t));
    printf("object: type %d, same pointer %d, %zu bytes, %d bits, filter %d, read %d\n", back.resType, back.res.linear.devPtr == r.res.linear.devPtr,
           back.res.linear.sizeInBytes, back.res.linear.desc.x, how.filterMode, how.readMode);

    Model m;
    m.dimensions = 2;
    m.size[0] = 10;
    m.size[1] = 6;
    for (int i = 0; i < 60; i++) m.texels.push_back((float)(i * 3));
    float *rows;
    size_t pitch;
    CHECK(cudaMallocPitch(&rows, &pitch, 40, 6));
    CHECK(cudaMemcpy2D(rows, pitch, m.texels.data(), 40, 40, 6, cudaMemcpyHostToDevice));
    r = {};
    r.resType = cudaResourceTypePitch2D;
    r.res.pitch2D.devPtr = rows;
    r.res.pitch2D.desc = cudaCreateChannelDesc<float>();
    r.res.pitch2D.width = 10;
    r.res.pitch2D.height = 6;
    r.res.pitch2D.pitchInBytes = pitch;
    t = texture(r, m.mode, false, false);
    compare("pitched memory", sample2, t, m, places(false, m.size, 2, 200, false));
}

__global__ void gathered(cudaTextureObject_t t, const float4 *at, uint4 *out, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    out[4 * i] = tex2Dgather<uint4>(t, at[i].x, at[i].y, 0);
    out[4 * i + 1] = tex2Dgather<uint4>(t, at[i].x, at[i].y, 1);
    out[4 * i + 2] = tex2Dgather<uint4>(t, at[i].x, at[i].y, 2);
    out[4 * i + 3] = tex2Dgather<uint4>(t, at[i].x, at[i].y, 3);
}

static void gather() {
    const int W = 8, H = 4;
    std::vector<uchar4> texels(W * H);
    for (int i = 0; i < W * H; i++) texels[i] = make_uchar4(i, 50 + i, 100 + i, 150 + i);
    cudaChannelFormatDesc f = cudaCreateChannelDesc<uchar4>();
    cudaArray_t a;
    CHECK(cudaMallocArray(&a, &f, W, H, cudaArrayTextureGather));
    CHECK(cudaMemcpy2DToArray(a, 0, 0, texels.data(), W * 4, W * 4, H, cudaMemcpyHostToDevice));
    cudaTextureObject_t t = texture(of(a), cudaAddressModeClamp, false, false);
    std::vector<float4> at;
    for (int y = 0; y <= H; y++) for (int x = 0; x < 6; x++) at.push_back({x * 1.75f - 0.25f, y - 0.25f, 0, 0});
    uint4 *out;
    CHECK(cudaMalloc(&out, at.size() * 64));
    gathered<<<1, 64>>>(t, device(at), out, (int)at.size());
    std::vector<uint4> found = host(out, at.size() * 4);
    int wrong = 0;
    for (size_t i = 0; i < at.size(); i++) {
        int x = (int)std::floor(at[i].x - 0.5f), y = (int)std::floor(at[i].y - 0.5f);
        auto texel = [&](int dx, int dy) {
            return wrap(cudaAddressModeClamp, false, x + dx, W) + W * wrap(cudaAddressModeClamp, false, y + dy, H);
        };
        for (uint32_t c = 0; c < 4; c++) {
            uint4 g = found[4 * i + c];
            uint32_t add = 50 * c;
            wrong += g.x != texel(0, 1) + add || g.y != texel(1, 1) + add || g.z != texel(1, 0) + add || g.w != texel(0, 0) + add;
        }
    }
    printf("gather: %d wrong\n", wrong);
}

static void layers() {
    Model m;
    m.dimensions = 3;
    m.size[0] = 5;
    m.size[1] = 3;
    m.size[2] = 4;
    for (int i = 0; i < 60; i++) m.texels.push_back((float)(i * 5));
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
    cudaArray_t a;
    CHECK(cudaMalloc3DArray(&a, &f, make_cudaExtent(5, 3, 4), cudaArrayLayered));
    cudaMemcpy3DParms p = {};
    p.srcPtr = make_cudaPitchedPtr(m.texels.data(), 20, 5, 3);
    p.dstArray = a;
    p.extent = make_cudaExtent(5, 3, 4);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    std::vector<float4> at;
    for (int i = 0; i < 200; i++) at.push_back({(i % 29) / 4.0f - 1, (i % 17) / 4.0f - 1, (float)(i % 8), 0});
    compare("layers", sample_layer, texture(of(a), cudaAddressModeClamp, false, false), m, at);
}

__global__ void write_surfaces(cudaSurfaceObject_t one, cudaSurfaceObject_t two, cudaSurfaceObject_t three, cudaSurfaceObject_t layered) {
    int i = threadIdx.x;
    surf1Dwrite<unsigned char>((unsigned char)(i * 3), one, i);
    surf2Dwrite<uint4>(make_uint4(i, i + 1, i + 2, i + 3), two, (i % 4) * 16, i / 4);
    surf3Dwrite<short2>(make_short2(i, -i), three, (i % 4) * 4, i / 4 % 2, i / 8);
    surf2DLayeredwrite<unsigned long long>(i * 0x100000001ull, layered, (i % 2) * 8, i / 2 % 2, i / 4);
}

__global__ void read_surfaces(cudaSurfaceObject_t one, cudaSurfaceObject_t two, cudaSurfaceObject_t three, cudaSurfaceObject_t layered, uint32_t *out) {
    int i = threadIdx.x;
    out += 16 * i;
    out[0] = surf1Dread<unsigned char>(one, i);
    uint4 v = surf2Dread<uint4>(two, (i % 4) * 16, i / 4);
    out[1] = v.x; out[2] = v.y; out[3] = v.z; out[4] = v.w;
    short2 s = surf3Dread<short2>(three, (i % 4) * 4, i / 4 % 2, i / 8);
    out[5] = s.x; out[6] = s.y;
    unsigned long long l = surf2DLayeredread<unsigned long long>(layered, (i % 2) * 8, i / 2 % 2, i / 4);
    out[7] = (uint32_t)l; out[8] = (uint32_t)(l >> 32);
    out[9] = surf1Dread<unsigned short>(one, i * 4 - 8, cudaBoundaryModeClamp);
    out[10] = surf1Dread<unsigned short>(one, i * 4 - 8, cudaBoundaryModeZero);
    out[11] = surf2Dread<unsigned>(two, i * 8 - 16, i - 4, cudaBoundaryModeClamp);
    out[12] = surf2Dread<unsigned>(two, i * 8 - 16, i - 4, cudaBoundaryModeZero);
    surf1Dwrite<unsigned char>(200, one, i + 30, cudaBoundaryModeZero);
    asm("suq.width.b32 %0, [%1];" : "=r"(out[13]) : "l"(three));
    asm("suq.height.b32 %0, [%1];" : "=r"(out[14]) : "l"(three));
    asm("suq.depth.b32 %0, [%1];" : "=r"(out[15]) : "l"(three));
}

__global__ void strays(cudaSurfaceObject_t two, int y) { surf2Dwrite<unsigned>(1, two, 0, y); }
static void surfaces() {
    cudaArray_t one, two, three, layered;
    cudaChannelFormatDesc u8 = cudaCreateChannelDesc<unsigned char>(), u4 = cudaCreateChannelDesc<uint4>(), s2 = cudaCreateChannelDesc<short2>(), u2 = cudaCreateChannelDesc<uint2>();
    CHECK(cudaMallocArray(&one, &u8, 32, 0, cudaArraySurfaceLoadStore));
    CHECK(cudaMallocArray(&two, &u4, 4, 4, cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&three, &s2, make_cudaExtent(4, 2, 2), cudaArraySurfaceLoadStore));
    CHECK(cudaMalloc3DArray(&layered, &u2, make_cudaExtent(2, 2, 4), cudaArraySurfaceLoadStore | cudaArrayLayered));
    cudaSurfaceObject_t s[4];
    cudaArray_t all[] = {one, two, three, layered};
    for (int i = 0; i < 4; i++) {
        cudaResourceDesc r = of(all[i]);
        CHECK(cudaCreateSurfaceObject(&s[i], &r));
    }
    uint32_t *out;
    CHECK(cudaMalloc(&out, 16 * 64));
    write_surfaces<<<1, 16>>>(s[0], s[1], s[2], s[3]);
    read_surfaces<<<1, 16>>>(s[0], s[1], s[2], s[3], out);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint32_t> found = host(out, 256);
    std::vector<uint32_t> image(64);
    CHECK(cudaMemcpy2DFromArray(image.data(), 64, two, 0, 0, 64, 4, cudaMemcpyDeviceToHost));
    auto word = [](int byte) { return byte < 16 ? (uint32_t)((byte * 3) | ((byte + 1) * 3) << 8) : 0u; };
    int wrong = 0, beyond = 0;
    for (int i = 0; i < 16; i++) {
        uint32_t *o = &found[16 * i];
        wrong += o[0] != (uint32_t)i * 3;
        for (uint32_t k = 0; k < 4; k++) wrong += (o[1 + k] != i + k) + (image[4 * i + k] != i + k);
        wrong += o[5] != (uint32_t)i || o[6] != (uint32_t)-i || o[7] != (uint32_t)i || o[8] != (uint32_t)i;
        int x = i * 4 - 8, c = x < 0 ? 0 : x > 30 ? 30 : x;
        // What is behind the first 16 bytes was never written.
        if (c < 15) beyond += o[9] != word(c);
        if (x < 0 || x > 30) beyond += o[10] != 0;
        else if (x < 15) beyond += o[10] != word(x);
        int bx = i * 8 - 16, by = i - 4, cx = bx < 0 ? 0 : bx > 60 ? 60 : bx, cy = by < 0 ? 0 : by > 3 ? 3 : by;
        uint32_t value = image[cy * 16 + cx / 4];
        beyond += o[11] != value;
        beyond += o[12] != (cx == bx && cy == by ? value : 0);
        wrong += o[13] != 4 || o[14] != 2 || o[15] != 2;
    }
    printf("surfaces: %d wrong, beyond the ends %d\n", wrong, beyond);
    cudaTextureObject_t t;
    cudaChannelFormatDesc f;
    cudaExtent extent;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&f, &extent, &flags, three));
    printf("array: %d %d %d %d kind %d, %zu %zu %zu, flags %u\n", f.x, f.y, f.z, f.w, f.f, extent.width, extent.height, extent.depth, flags);
    cudaArray_t copy;
    CHECK(cudaMallocArray(&copy, &u4, 4, 4));
    CHECK(cudaMemcpy2DArrayToArray(copy, 0, 0, two, 0, 1, 64, 3));
    CHECK(cudaMemcpyFromArray(image.data(), copy, 16, 1, 100, cudaMemcpyDeviceToHost));
    printf("copied: %u %u %u\n", image[0], image[11], image[24]);
    printf("errors: %s", cudaGetErrorName(cudaMemcpy2DToArray(copy, 0, 2, image.data(), 64, 64, 3, cudaMemcpyHostToDevice)));
    cudaResourceDesc r = of(copy);
    cudaSurfaceObject_t no;
    printf(" %s", cudaGetErrorName(cudaCreateSurfaceObject(&no, &r)));
    cudaChannelFormatDesc odd = cudaCreateChannelDesc(8, 8, 8, 0, cudaChannelFormatKindUnsigned), five = cudaCreateChannelDesc(5, 0, 0, 0, cudaChannelFormatKindUnsigned);
    printf(" %s", cudaGetErrorName(cudaMallocArray(&copy, &odd, 4, 4)));
    printf(" %s", cudaGetErrorName(cudaMallocArray(&copy, &five, 4, 4)));
    printf(" %s", cudaGetErrorName(cudaMallocArray(&copy, &u8, 0, 4)));
    cudaTextureDesc d = {};
    d.filterMode = cudaFilterModeLinear;
    printf(" %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, nullptr)));
    d.filterMode = cudaFilterModePoint;
    d.readMode = cudaReadModeNormalizedFloat;
    printf(" %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, nullptr)));
    printf(" %s", cudaGetErrorName(cudaDestroyTextureObject(12345)));
    printf(" %s\n", cudaGetErrorName(cudaFreeArray(nullptr)));
    cudaGetLastError();
    strays<<<1, 1>>>(s[1], 4);
    printf("stray: %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
}

int main() {
    sampling();
    details();
    channels<float>("float of 1", {1.5f}, cudaReadModeElementType, 0);
    channels<float2>("float of 2", {{1.5f, 2.5f}}, cudaReadModeElementType, 0);
    channels<unsigned>("unsigned of 1", {7}, cudaReadModeElementType, 1);
    channels<short2>("short of 2", {{-2, 3}}, cudaReadModeElementType, 1);
    channels<unsigned char>("fraction of 1", {51}, cudaReadModeNormalizedFloat, 0);
    channels<float4>("border of float", {{1, 2, 3, 4}}, cudaReadModeElementType, 0, 5);
    channels<float2>("border of 2", {{1, 2}}, cudaReadModeElementType, 0, 5);
    channels<uint4>("border of unsigned", {{1, 2, 3, 4}}, cudaReadModeElementType, 1, 5);
    channels<short4>("border of short", {{1, 2, 3, 4}}, cudaReadModeElementType, 1, 5);
    channels<uchar4>("border of fractions", {{1, 2, 3, 4}}, cudaReadModeNormalizedFloat, 0, 5);
    channels<int2>("number beyond", {{1, 2}, {3, -4}}, cudaReadModeElementType, 2, 9, cudaAddressModeClamp);
    normalised<unsigned char>("u8 fractions", 0, 256, 255);
    normalised<signed char>("s8 fractions", -128, 256, 127);
    normalised<unsigned short>("u16 fractions", 0, 65536, 65535);
    normalised<short>("s16 fractions", -32768, 65536, 32767);
    linear_memory();
    gather();
    layers();
    surfaces();
}
