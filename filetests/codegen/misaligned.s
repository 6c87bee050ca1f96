; memory 32
; PTX wants aligned addresses: a known offset tells which pieces are aligned.
    r0 = *(u32 *)(r1 + 1)
    r3 = *(u64 *)(r1 + 12)
    r0 += r3
    *(u32 *)(r1 + 22) = r0
    *(u64 *)(r10 - 16) = r0
    *(u64 *)(r10 - 8) = r3
    r0 = *(u32 *)(r10 - 10)
    exit
