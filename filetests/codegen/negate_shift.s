; A negation that is shifted right is written in other words: see `lower`.
; map array value=8
    r2 = *(u32 *)(r1 + 24)
    w3 = w2
    w3 = -w3
    w3 s>>= 15
    w3 += 118574
    w2 += w3
    r1 = map[0][0] + 0
    lock *(u64 *)(r1 + 0) += r2
    r0 = 0
    exit
