; An atomic addition across two words: no GPU can do it in one piece.
; map array big value=64 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r1 = 1
    lock *(u64 *)(r0 + 4) += r1  ; error[misaligned]: atomic operation of 8 bytes at offset 4 of a value of map `big`: the address must be a multiple of 8
    r0 = 0
    exit
