; A record of a varying size and a part of a value, written, read and pointed to; the stack of the one that holds nothing is used again.
; map ring events entries=65536
; map array counts value=64
    call 7
    r6 = r0
    r1 = map[0]
    r2 = r6
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    *(u32 *)(r10 - 20) = 0
    r1 = map[1]
    r2 = r10
    r2 += -20
    call 1
    if r0 == 0 goto +26
    r1 = r0
    r1 += 4
    r2 = 60
    r3 = 0
    r4 = r10
    r4 += -40
    call 197
    r1 = r10
    r1 += -64
    r2 = 16
    r3 = r10
    r3 += -40
    r4 = r6
    r5 = 0
    call 201
    r1 = r10
    r1 += -16
    r2 = 3
    r3 = r10
    r3 += -64
    r4 = 16
    r5 = 0
    call 202
    r1 = *(u64 *)(r10 - 56)
    *(u64 *)(r10 - 40) = r1
    r1 = *(u64 *)(r10 - 40)
    r1 = r10
    r1 += -16
    r2 = r6
    r3 = 8
    call 203
    if r0 == 0 goto +1
    *(u64 *)(r0 + 0) = 7
    r1 = r10
    r1 += -16
    r2 = 0
    call 199
    r0 = 0
    exit
