; A store into a live iterator could make it run for ever.
    r2 = 0
    r3 = 3
    r1 = r10
    r1 += -8
    call kfunc[1]
    *(u32 *)(r10 - 4) = 1  ; error[iterator-bytes]: write of 4 bytes at r10-4 of the stack: these bytes are part of the iterator made at instruction 4
    r0 = 0
    exit
