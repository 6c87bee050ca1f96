// What is not there says so by name.
#include <cstdio>
#include <cuda.h>
#include <cuda_runtime.h>

int main() {
    void *find[3];
    const char *names[] = {"cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col", "cuTensorMapEncodeIm2colWide"};
    for (int i = 0; i < 3; i++) {
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion(names[i], &find[i], 13000, cudaEnableDefault, &found);
    }
    auto tiled = (decltype(&cuTensorMapEncodeTiled))find[0];
    auto im2col = (decltype(&cuTensorMapEncodeIm2col))find[1];
    auto wide = (decltype(&cuTensorMapEncodeIm2colWide))find[2];
    void *memory;
    cudaMalloc(&memory, 4096);
    CUtensorMap map;
    cuuint64_t size[] = {32, 8, 4, 2}, pitch[] = {64, 512, 2048};
    cuuint32_t box[] = {16, 4, 1, 1}, strides[] = {1, 1, 1, 1};
    int lower[] = {0, 0}, upper[] = {0, 0}, far[] = {-200, 0};
    auto try_tiled = [&](int type, int interleave, int swizzle) {
        printf(" %d", tiled(&map, (CUtensorMapDataType)type, 2, memory, size, pitch, box, strides, (CUtensorMapInterleave)interleave, (CUtensorMapSwizzle)swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    };
    printf("tensor maps:");
    try_tiled(CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, 0, 0);
    try_tiled(CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_INTERLEAVE_16B, 0);
    try_tiled(CU_TENSOR_MAP_DATA_TYPE_UINT16, CU_TENSOR_MAP_INTERLEAVE_32B, CU_TENSOR_MAP_SWIZZLE_32B);
    try_tiled(CU_TENSOR_MAP_DATA_TYPE_UINT16, 0, CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B);
    auto try_im2col = [&](int rank, const int *corner, unsigned channels, unsigned pixels) {
        printf(" %d", im2col(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, rank, memory, size, pitch, corner, upper, channels, pixels, strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
    };
    try_im2col(2, lower, 16, 8);
    try_im2col(4, far, 16, 8);
    try_im2col(4, lower, 16, 2000);
    try_im2col(4, lower, 16, 8);
    printf(" %d\n", wide(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, memory, size, pitch, 0, 0, 16, 8, strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
                         CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));

    cudaArray_t array;
    cudaMipmappedArray_t levels;
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float>();
    printf("arrays: %s", cudaGetErrorName(cudaMallocMipmappedArray(&levels, &f, make_cudaExtent(8, 8, 0), 2)));
    printf(" %s", cudaGetErrorName(cudaMalloc3DArray(&array, &f, make_cudaExtent(8, 8, 6), cudaArrayCubemap)));
    printf(" %s", cudaGetErrorName(cudaMalloc3DArray(&array, &f, make_cudaExtent(8, 0, 0), cudaArrayLayered)));
    printf(" %s\n", cudaGetErrorName(cudaMallocArray(&array, &f, 8, 8)));
    cudaResourceDesc r = {};
    r.resType = cudaResourceTypeArray;
    r.res.array.array = array;
    cudaTextureDesc d = {};
    cudaTextureObject_t t;
    d.sRGB = 1;
    printf("textures: %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, nullptr)));
    d.sRGB = 0;
    cudaResourceViewDesc view = {};
    view.format = cudaResViewFormatFloat1;
    printf(" %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, &view)));
    r.resType = cudaResourceTypeMipmappedArray;
    printf(" %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, nullptr)));
    r.resType = cudaResourceTypeLinear;
    r.res.linear.devPtr = memory;
    r.res.linear.desc = f;
    r.res.linear.sizeInBytes = 5000;
    printf(" %s", cudaGetErrorName(cudaCreateTextureObject(&t, &r, &d, nullptr)));
    cudaSurfaceObject_t s;
    printf(" %s\n", cudaGetErrorName(cudaCreateSurfaceObject(&s, &r)));
}
