; Constant strings and numbers as values of one message; one of the strings is one of two.
; map rodata .rodata bytes=25733a2564202573006f6e00666600
    call 7
    r6 = r0
    r1 = map[0][0] + 9
    if r6 == 0 goto +1
    r1 += 3
    *(u64 *)(r10 - 24) = r1
    *(u64 *)(r10 - 16) = r6
    r1 = map[0][0] + 9
    *(u64 *)(r10 - 8) = r1
    r1 = map[0][0] + 0
    r2 = 9
    r3 = r10
    r3 += -24
    r4 = 24
    call 177
    r0 = 0
    exit
