; An iterator that was never made.
    r1 = r10
    r1 += -8
    call kfunc[2]  ; error[iterator-argument]: argument 1 of `bpf_iter_num_next` must be an iterator that `bpf_iter_num_new` made; `r1` is a pointer to r10-8 of the stack
    r0 = 0
    exit
