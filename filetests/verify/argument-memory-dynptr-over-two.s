; One write over two dynptrs: the first holds nothing and may go, the second has a record that is not given back.
; map array values entries=1 value=16
; map ring events entries=65536
    r1 = map[0][0] + 0
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -32
    call 197
    r1 = map[1]
    r2 = 16
    r3 = 0
    r4 = r10
    r4 += -16
    call 198
    r1 = r10
    r1 += -32
    r2 = 32
    call 16  ; error[argument-memory]: argument 1 of `bpf_get_current_comm` must be 32 writable bytes: write of 32 bytes at r10-32 of the stack: these bytes are part of the dynptr made at instruction 13
    r0 = 0
    exit
