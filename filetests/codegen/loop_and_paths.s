; The addend comes out of a loop and from two paths: a loop in PTX, and parameters of blocks.
; map array value=16 entries=1
    r6 = *(u32 *)(r1 + 0)
    r7 = *(u32 *)(r1 + 24)
    r9 = map[0][0] + 0
    r8 = 0
again:
    r8 += 1
    lock *(u64 *)(r9 + 0) += r8
    if r8 < 4 goto again
    r5 = 2
    if r7 > 3 goto out
    r5 = 3
out:
    lock *(u64 *)(r9 + 8) += r5
    r0 = 0
    exit
