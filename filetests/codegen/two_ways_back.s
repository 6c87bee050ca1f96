; map array value=8
; A loop with two ways back to its head, of which lanes take different ones: what enters it as a constant is combined with a zero.
    r6 = *(u32 *)(r1 + 24)
    r7 = 0
    r8 = 0
top:
    may_goto out
    r8 += 1
    if r6 > r8 goto top
    r7 += 1
    if r7 < 3 goto top
out:
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r7
    r0 = 0
    exit
