; A number of eight bytes at an odd place is read byte by byte.
; map array big value=64 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r0 = *(u64 *)(r0 + 1)  ; warning[split-access]: this access of 8 bytes is only known to be aligned to 1: it is split into 8 accesses, which other threads can see one by one
    exit
