; The same after some lanes have left.
; together 506
    r2 = *(u32 *)(r1 + 48)
    r0 = 0
    if r2 > 3 goto +1
    call 506  ; error[not-together]: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 2 sends some of them another way
    r0 = 0
    exit
