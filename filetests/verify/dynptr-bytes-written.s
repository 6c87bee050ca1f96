; A dynptr whose record is not given back may not be written over.
; map ring events entries=65536
    r1 = map[0]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    *(u32 *)(r10 - 4) = 0  ; error[dynptr-bytes]: write of 4 bytes at r10-4 of the stack: these bytes are part of the dynptr made at instruction 6
    r0 = 0
    exit
