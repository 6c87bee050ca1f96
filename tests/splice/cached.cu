// A kernel of a file of its own, as Triton makes them; `STEP` makes another version of it, which nothing but its text tells apart.
#ifndef STEP
#define STEP 3
#endif

extern "C" __global__ void cached_add(unsigned *sum)
{
    atomicAdd(sum, STEP);
}
