; A thread of the application is ended, and nobody allowed it.
    call 507  ; error[modifies]: `bpf_gpu_exit` can change what the application computes
