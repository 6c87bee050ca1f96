; A map that programs may only write.
; map array counts value=8 entries=16 flags=256
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r0 = *(u64 *)(r0 + 0)  ; error[write-only]: read of 8 bytes at offset 0 of a value of map `counts`: map `counts` is write-only for programs
    exit
