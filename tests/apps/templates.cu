// A matrix product by a kernel whose name is long because it is a template of templates, as libraries of such kernels have
// them: 1,871 characters. Prints the sum of the result, which is exact in float.
// usage: templates [size] [launches]
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#define CHECK(call)                                                                          \
    do {                                                                                     \
        cudaError_t error = (call);                                                          \
        if (error != cudaSuccess) {                                                          \
            fprintf(stderr, "templates: %s: %s\n", #call, cudaGetErrorString(error));        \
            return 1;                                                                        \
        }                                                                                    \
    } while (0)

namespace tiles {

template <int M, int N, int K> struct GemmShape {
    static const int kM = M, kN = N, kK = K;
};

namespace layout {
struct RowMajor {
    __device__ static int at(int row, int column, int stride) { return row * stride + column; }
};
struct ColumnMajor {
    __device__ static int at(int row, int column, int stride) { return column * stride + row; }
};
} // namespace layout

namespace epilogue {
template <typename Element, int Count> struct LinearCombination {
    __device__ static Element apply(Element sum) { return sum * Count; }
};
} // namespace epilogue

namespace gemm {
template <typename Shape, typename A, typename B, typename LayoutA, typename LayoutB, typename Epilogue, typename Steps>
struct Gemm {
    struct Params {
        const A *a;
        const B *b;
        float *c;
        int n;
    };
    __device__ void operator()(const Params &p) const
    {
        int row = blockIdx.y * Shape::kM + threadIdx.y, column = blockIdx.x * Shape::kN + threadIdx.x;
        float sum = 0;
        if (row >= p.n || column >= p.n)
            return;
        for (int k = 0; k < p.n; k++)
            sum += p.a[LayoutA::at(row, k, p.n)] * p.b[LayoutB::at(k, column, p.n)];
        p.c[row * p.n + column] = Epilogue::apply(sum);
    }
};
} // namespace gemm

template <typename Operator> __global__ void Kernel(typename Operator::Params params)
{
    Operator()(params);
}

} // namespace tiles

int main(int argc, char **argv)
{
    typedef tiles::GemmShape<16, 16, 8> Shape;
    typedef tiles::gemm::Gemm<Shape, float, float, tiles::layout::RowMajor, tiles::layout::ColumnMajor,
                              tiles::epilogue::LinearCombination<float, 1>, std::make_integer_sequence<int, 300>> Gemm;
    int n = argc > 1 ? atoi(argv[1]) : 40, launches = argc > 2 ? atoi(argv[2]) : 4;
    std::vector<float> a(n * n), b(n * n), c(n * n);
    for (int i = 0; i < n * n; i++) {
        a[i] = i % 5;
        b[i] = i % 3;
    }
    float *da, *db, *dc;
    size_t bytes = n * n * sizeof(float);
    CHECK(cudaMalloc(&da, bytes));
    CHECK(cudaMalloc(&db, bytes));
    CHECK(cudaMalloc(&dc, bytes));
    CHECK(cudaMemcpy(da, a.data(), bytes, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(db, b.data(), bytes, cudaMemcpyHostToDevice));
    dim3 threads(Shape::kN, Shape::kM), blocks((n + 15) / 16, (n + 15) / 16);
    for (int i = 0; i < launches; i++)
        tiles::Kernel<Gemm><<<blocks, threads>>>({da, db, dc, n});
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(c.data(), dc, bytes, cudaMemcpyDeviceToHost));
    double sum = 0;
    for (float value : c)
        sum += value;
    printf("templates: %d launches, sum %.0f\n", launches, sum);
    return 0;
}
