; A number from the context taken for an address of the application.
    r1 = *(u64 *)(r1 + 64)
    r0 = *(u64 *)(r1 + 0)  ; error[not-a-pointer]: `r1` is used as an address but holds a number: any number
    exit
