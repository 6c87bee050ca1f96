; A string with a number in it that is not known.
    r6 = *(u32 *)(r1 + 48)
    *(u16 *)(r10 - 8) = 25185
    *(u16 *)(r10 - 6) = r6
    *(u32 *)(r10 - 4) = 0
    r1 = r10
    r1 += -8
    r2 = 8
    call 6  ; error[argument]: argument 1 of `bpf_trace_printk` must be a constant string (in `.rodata`, or of constants that were stored on the stack); `r1` is a pointer to r10-8 of the stack, and byte 2 there is not a known constant
    r0 = 0
    exit
