; The bytes of a dynptr are its own: what it stands for is read through helpers.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    r6 = *(u64 *)(r10 - 8)  ; error[dynptr-bytes]: read of 8 bytes at r10-8 of the stack: these bytes are part of the dynptr made at instruction 6
    r1 = r10
    r1 += -16
    r2 = 0
    call 199
    r0 = 0
    exit
