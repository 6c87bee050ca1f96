// Textures and surfaces: fetches by index and by coordinate, interpolated, from arrays and from linear memory.
#include "corpus.h"

__global__ void textureLinear(cudaTextureObject_t texture, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = tex1Dfetch<int>(texture, 127 - i);
}

__global__ void texturePoint(cudaTextureObject_t texture, float4 *out)
{
    // Half of the coordinates are outside and wrap around.
    float x = (threadIdx.x * 2 + 0.5f) / 16, y = (threadIdx.y + 0.5f) / 8;
    out[threadIdx.y * blockDim.x + threadIdx.x] = tex2D<float4>(texture, x, y);
}

__global__ void textureFiltered(cudaTextureObject_t texture, float *out)
{
    // Between two texels: the mean of both, exactly.
    out[threadIdx.y * 8 + threadIdx.x] = tex2D<float>(texture, threadIdx.x + 1.0f, threadIdx.y + 0.5f);
}

__global__ void textureGather(cudaTextureObject_t texture, float4 *out)
{
    out[threadIdx.x] = tex2Dgather<float4>(texture, threadIdx.x + 1.0f, 2.0f, 0);
}

__global__ void surfaceWrite(cudaSurfaceObject_t surface, int factor)
{
    int old;
    surf2Dread(&old, surface, threadIdx.x * (int)sizeof(int), threadIdx.y);
    surf2Dwrite(old * factor + (int)threadIdx.x, surface, threadIdx.x * (int)sizeof(int), threadIdx.y);
}

struct Array {
    cudaArray_t array = nullptr;

    template <typename T> Array(const std::vector<T> &values, int width, unsigned flags)
    {
        cudaChannelFormatDesc format = cudaCreateChannelDesc<T>();
        size_t row = width * sizeof(T), rows = values.size() / width;
        CHECK(cudaMallocArray(&array, &format, width, rows, flags));
        CHECK(cudaMemcpy2DToArray(array, 0, 0, values.data(), row, row, rows, cudaMemcpyHostToDevice));
    }
    ~Array() { cudaFreeArray(array); }

    cudaResourceDesc resource() const
    {
        cudaResourceDesc desc = {};
        desc.resType = cudaResourceTypeArray;
        desc.res.array.array = array;
        return desc;
    }
};

static cudaTextureObject_t texture(const cudaResourceDesc &resource, const cudaTextureDesc &how)
{
    cudaTextureObject_t object;
    CHECK(cudaCreateTextureObject(&object, &resource, &how, nullptr));
    return object;
}

template <typename T, typename F> static std::vector<T> values(int n, F value)
{
    std::vector<T> result;
    for (int i = 0; i < n; i++)
        result.push_back(value(i));
    return result;
}

static const corpus::Case cases[] = {
    {"textureLinear",
     [] {
         Buffer<int> in(128, [](uint32_t i) { return (int)number(i); }), out(128);
         cudaResourceDesc resource = {};
         resource.resType = cudaResourceTypeLinear;
         resource.res.linear.devPtr = in.device;
         resource.res.linear.desc = cudaCreateChannelDesc<int>();
         resource.res.linear.sizeInBytes = 128 * sizeof(int);
         cudaTextureObject_t object = texture(resource, {});
         textureLinear<<<2, 64>>>(object, out.device);
         report("textureLinear", out, [&](uint32_t i) { return in.host[127 - i]; });
         CHECK(cudaDestroyTextureObject(object));
     }},
    {"texturePoint",
     [] {
         auto texels = values<float4>(128, [](int i) { return float4{(float)i, small(i) * 0.5f, -1.0f * i, 7}; });
         Array array(texels, 16, cudaArrayDefault);
         cudaTextureDesc how = {};
         how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap;
         how.normalizedCoords = 1;
         cudaTextureObject_t object = texture(array.resource(), how);
         Buffer<float4> out(16 * 8);
         texturePoint<<<1, dim3(16, 8)>>>(object, out.device);
         report("texturePoint", out, [&](uint32_t i) { return texels[i / 16 * 16 + i % 16 * 2 % 16]; });
         CHECK(cudaDestroyTextureObject(object));
     }},
    {"textureFiltered",
     [] {
         auto texels = values<float>(64, [](int i) { return (float)small(i); });
         Array array(texels, 8, cudaArrayDefault);
         cudaTextureDesc how = {};
         how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
         how.filterMode = cudaFilterModeLinear;
         cudaTextureObject_t object = texture(array.resource(), how);
         Buffer<float> out(64);
         textureFiltered<<<1, dim3(8, 8)>>>(object, out.device);
         report("textureFiltered", out, [&](uint32_t i) { return (texels[i] + texels[i % 8 == 7 ? i : i + 1]) / 2; });
         CHECK(cudaDestroyTextureObject(object));
     }},
    {"textureGather",
     [] {
         auto texels = values<float>(64, [](int i) { return (float)i; });
         Array array(texels, 8, cudaArrayTextureGather);
         cudaTextureDesc how = {};
         how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
         cudaTextureObject_t object = texture(array.resource(), how);
         Buffer<float4> out(6);
         textureGather<<<1, 6>>>(object, out.device);
         report("textureGather", out);
         CHECK(cudaDestroyTextureObject(object));
     }},
    {"surfaceWrite",
     [] {
         auto texels = values<int>(64, [](int i) { return (int)number(i); });
         Array array(texels, 8, cudaArraySurfaceLoadStore);
         cudaResourceDesc resource = array.resource();
         cudaSurfaceObject_t object;
         CHECK(cudaCreateSurfaceObject(&object, &resource));
         surfaceWrite<<<1, dim3(8, 8)>>>(object, 3);
         CHECK(cudaDeviceSynchronize());
         std::vector<int> out(64);
         CHECK(cudaMemcpy2DFromArray(out.data(), 32, array.array, 0, 0, 32, 8, cudaMemcpyDeviceToHost));
         for (int i = 0; i < 64; i++)
             if (out[i] != (int)((unsigned)texels[i] * 3 + i % 8)) {
                 fprintf(stderr, "surfaceWrite: element %d is wrong\n", i);
                 exit(1);
             }
         corpus::print("surfaceWrite", out);
         CHECK(cudaDestroySurfaceObject(object));
     }},
};

int main(int argc, char **argv) { return corpus::run(argc, argv, cases); }
