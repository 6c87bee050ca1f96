; More than the proof may look at.
; effort 50
    r1 = 0
again:
    r1 += 1  ; error[too-complex]: the proof needs more than 50 steps
    if r1 < 100 goto again
    r0 = 0
    exit
