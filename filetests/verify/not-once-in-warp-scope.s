; An aggregate over the block in a program that one lane runs for its warp.
; scope warp
    r1 = 1
    r2 = r10
    r2 += -8
    call 547  ; error[not-once]: each thread of the block must call `bpf_gpu_block_min` exactly once, and in scope `warp` one thread runs for others
    r0 = 0
    exit
