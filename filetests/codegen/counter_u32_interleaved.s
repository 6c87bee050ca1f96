; Two fields, loaded first and stored last, as a compiler may schedule them: two atomics; 32-bit and a subtraction.
; map array value=8 entries=1
    r9 = map[0][0] + 0
    r1 = *(u32 *)(r9 + 0)
    r2 = *(u32 *)(r9 + 4)
    w1 += 1
    w2 -= 3
    *(u32 *)(r9 + 0) = r1
    *(u32 *)(r9 + 4) = r2
    r0 = 0
    exit
