; A path that stores only a part of the string.
    r6 = *(u32 *)(r1 + 48)
    *(u16 *)(r10 - 8) = 25185
    if r6 != 0 goto on
    *(u16 *)(r10 - 6) = 0
on:
    r1 = r10
    r1 += -8
    call 501  ; error[argument]: argument 1 of `bpf_gpu_puts` must be a constant string (in `.rodata`, or of constants that were stored on the stack); `r1` is a pointer to r10-8 of the stack, and byte 2 there was never written
    r0 = 0
    exit
