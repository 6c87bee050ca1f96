; Strings whose bytes were stored as constants, one after the other in the same place, in pieces, on either path, and a caller's.
    r6 = *(u32 *)(r1 + 48)
    r1 = 28267
    *(u16 *)(r10 - 8) = r1
    *(u8 *)(r10 - 6) = 37
    *(u8 *)(r10 - 5) = 100
    *(u32 *)(r10 - 4) = 0
    r1 = r10
    r1 += -8
    r2 = 8
    r3 = 7
    call 6
    if r6 == 0 goto zero
    *(u64 *)(r10 - 8) = 25202
    goto on
zero:
    *(u64 *)(r10 - 8) = 25202
on:
    r1 = r10
    r1 += -8
    call 501
    *(u64 *)(r10 - 16) = 0
    r1 = r10
    r1 += -16
    r2 = 8
    r3 = r10
    r3 += -7
    call 182
    r1 = r10
    r1 += -8
    call callers
    r0 = 0
    exit
callers:
    call 501
    r0 = 0
    exit
