// The other file of parts.cu.
__device__ int scale = 7;
static __device__ int offset = 100;
__device__ int scaled(int x) { return x * scale + offset; }
