; `--strict-uniform`: lanes go different ways.
; strict-uniform
    r2 = *(u32 *)(r1 + 48)
    if r2 > 3 goto out  ; error[varies]: where this branch goes can differ between lanes of a warp, which `--strict-uniform` refuses
    r0 = 0
    exit
out:
    r0 = 1
    exit
