; Nothing.
    r0 = 0
    exit
