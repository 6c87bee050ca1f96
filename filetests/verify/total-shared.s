; An aggregate over the block whose result every thread would write to one global variable.
; map array counts value=8
    r1 = 1
    r2 = map[0][0] + 0
    call 546  ; error[total-shared]: argument 2 of `bpf_gpu_block_sum` must be 8 bytes of the stack, because every thread of the block writes them; `r2` is a pointer to a value of map `counts`
    r0 = 0
    exit
