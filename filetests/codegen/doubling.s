; map array value=8
; A loop is not unrolled: ptxas would take 64 doublings for none.
    r7 = *(u32 *)(r1 + 24)
    r8 = *(u32 *)(r1 + 0)
    r8 <<= 32
    r7 |= r8
top:
    may_goto out
    r7 += r7
    goto top
out:
    r7 += -1
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r7
    r0 = 0
    exit
