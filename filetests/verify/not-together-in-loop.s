; The same in a loop that lanes leave at different times.
; together 506
    r6 = *(u32 *)(r1 + 48)
    r6 &= 7
    r7 = 0
again:
    r7 += 1
    call 506  ; error[not-together]: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 5 sends some of them another way
    if r7 < r6 goto again
    r0 = 0
    exit
