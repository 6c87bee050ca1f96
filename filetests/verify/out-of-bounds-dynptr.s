; A piece of a dynptr is as long as was asked for.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    r1 = r10
    r1 += -16
    r2 = 0
    r3 = 8
    call 203
    if r0 == 0 goto +1
    *(u64 *)(r0 + 4) = 1  ; error[out-of-bounds]: write of 8 bytes at offset 4 of a dynptr's record of map `events`, which has 8 bytes
    r1 = r10
    r1 += -16
    r2 = 0
    call 199
    r0 = 0
    exit
