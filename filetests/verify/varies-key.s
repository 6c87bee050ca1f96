; `--strict-uniform`: each lane looks something else up.
; strict-uniform
; map array counts entries=32 value=8
    r2 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = r2
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1  ; error[varies]: the key of this call can differ between lanes of a warp, which `--strict-uniform` refuses
    r0 = 0
    exit
