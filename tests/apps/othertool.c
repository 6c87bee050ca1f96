// Another tool in the injection slots of CUDA and of NVTX: it is there, says so to who looks, and does nothing.
#include <stdio.h>

int InitializeInjection(void) { return 1; }

int InitializeInjectionNvtx2(void *find)
{
    (void)find;
    fputs("the other tool has the ranges\n", stderr);
    return 1;
}
