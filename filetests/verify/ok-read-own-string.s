; Strings of a value and of the stack: the copy is written, and its length is from 1 to its size.
; map array values value=64 entries=4
; map array flags value=17
    r1 = map[0][0] + 0
    r6 = r1
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = r6
    call 115
    r7 = *(u64 *)(r10 - 16)
    r7 = *(u64 *)(r10 - 8)
    r1 = map[1][0] + 0
    r1 += r0
    *(u8 *)(r1 + 0) = 1
    *(u64 *)(r10 - 8) = 6513249
    r1 = r6
    r2 = r7
    r2 &= 7
    r3 = r10
    r3 += -8
    call 45
    r1 = r6
    r2 = 0
    r3 = r10
    call 114
    r0 = 0
    exit
