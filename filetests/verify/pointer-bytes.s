; Half of a pointer, read as a number.
    *(u64 *)(r10 - 8) = r1
    r0 = *(u32 *)(r10 - 8)  ; error[pointer-bytes]: read of 4 bytes at r10-8 of the stack: these bytes are part of the pointer stored at r10-8
    exit
