; A helper that needs the whole group, on one way of a branch on the lane: here
; `bpf_gpu_membar` is one.
; together 506
    r2 = *(u32 *)(r1 + 48)
    if r2 > 3 goto out
    call 506  ; error[not-together]: `bpf_gpu_membar` needs all lanes that arrived together, but the branch at instruction 1 sends some of them another way
out:
    r0 = 0
    exit
