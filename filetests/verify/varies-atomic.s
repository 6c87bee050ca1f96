; `--strict-uniform`: lanes add in different places.
; strict-uniform
; map array counts entries=1 value=256
    r2 = *(u32 *)(r1 + 48)
    r2 <<= 3
    r1 = map[0][0] + 0
    r2 &= 248
    r1 += r2
    r3 = 1
    lock *(u64 *)(r1 + 0) += r3  ; error[varies]: the address of this atomic operation can differ between lanes of a warp, which `--strict-uniform` refuses
    r0 = 0
    exit
