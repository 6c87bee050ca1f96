; memory 32
; A program that runs by itself: its memory is global, and what it returns is written behind it.
    r0 = *(u64 *)(r1 + 0)
    r3 = *(u32 *)(r1 + 8)
    r0 += r3
    *(u16 *)(r1 + 16) = r0
    lock *(u64 *)(r1 + 24) += r0
    r0 += r2
    exit
