// Parameters of every kind of type: what debug information says of them. For nvcc and for clang without headers.
#ifdef __clang__
#define __global__ __attribute__((global))
#endif
namespace ns {
struct Inner {
    int a;
    union Either { int i; float f; };
};
template <class T, int N> struct Array { T data[N]; };
enum class Color { Red };
typedef float (*Callback)(int, const Inner &);
}
namespace { struct Hidden { int x; }; }
struct Outer {
    struct Nested { double d; };
    int f(int);
};
using Alias = const unsigned char *;
enum Old { A, B };

__global__ void types(const float *__restrict__ in, float *const out, volatile int *flag, unsigned long long n, bool set,
                      ns::Inner inner, ns::Array<ns::Inner, 3> array, ns::Color color, ns::Callback callback, Alias alias,
                      Old old, Outer::Nested *nested, int (*table)[4][2], void *raw, const void *fixed, char **strings,
                      ns::Inner::Either either, Hidden hidden, const int constant, int (*const *functions)(float),
                      int (Outer::*method)(int)) {
    out[0] = in[n] + inner.a;
    *flag = hidden.x;
}
extern "C" __global__ void plain(int first, long second) {}
namespace ns {
__global__ void inside(Inner *p);
__global__ void inside(Inner *p) { p->a = 1; }
}
template <class T, int N> __global__ void generic(T *p, ns::Array<T, N> a) { p[0] = a.data[0]; }
template __global__ void generic<float, 4>(float *, ns::Array<float, 4>);
__global__ void unnamed(int, float *p) { *p = 1; }
__global__ void none() {}
