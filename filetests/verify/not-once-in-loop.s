; An aggregate over the block that is made several times by each thread, as often by all.
    r6 = 0
again:
    r1 = r6
    r2 = r10
    r2 += -8
    call 548  ; error[not-once]: each thread of the block must call `bpf_gpu_block_max` exactly once, and it stands in a loop or in a callback
    r6 += 1
    if r6 < 4 goto again
    r0 = 0
    exit
