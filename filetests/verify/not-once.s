; An aggregate over the block that some threads go around, by a branch that goes the same way in all of them.
    r2 = *(u32 *)(r1 + 0)
    if r2 > 3 goto out
    r1 = 1
    r2 = r10
    r2 += -8
    call 546  ; error[not-once]: each thread of the block must call `bpf_gpu_block_sum` exactly once, and the branch at instruction 1 leads past it
out:
    r0 = 0
    exit
