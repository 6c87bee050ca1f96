; A function that calls itself.
    call f
    exit
f:
    r0 = 0
    call f  ; error[recursion]: `the function at instruction 2` calls itself, directly or through others
    exit
