; An atomic operation at an offset of a dynptr that is not known.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    call 7
    r2 = r0
    r2 &= 7
    r1 = r10
    r1 += -16
    r3 = 8
    call 203
    if r0 == 0 goto +2
    r1 = 1
    lock *(u64 *)(r0 + 0) += r1  ; error[misaligned]: atomic operation of 8 bytes at offset 0 of a dynptr's record of map `events`: the address must be a multiple of 8
    r1 = r10
    r1 += -16
    r2 = 0
    call 200
    r0 = 0
    exit
