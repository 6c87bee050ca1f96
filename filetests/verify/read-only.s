; A constant is changed.
; map rodata .rodata bytes=0700000000000000
    r1 = map[0][0] + 0
    *(u64 *)(r1 + 0) = 1  ; error[read-only]: write of 8 bytes at offset 0 of a value of map `.rodata`: map `.rodata` is read-only data
    r0 = 0
    exit
