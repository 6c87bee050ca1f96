#!/bin/sh
# Makes a folder with libcuda.so.1 and libcudart.so.13 from the static library that cargo builds of this crate:
#   assemble.sh target/release/libwarpbpf_softcuda.a soft/
# A program finds them by LD_LIBRARY_PATH=soft/.
set -eu
archive=$1
folder=$2
scripts=$(dirname "$0")
mkdir -p "$folder"
link() {
    # Linked aside and moved into place: a process may have the old one mapped.
    "${CC:-cc}" -shared -o "$folder/$1.new" -Wl,-soname,"$1" -Wl,--version-script="$scripts/$2" -Wl,--gc-sections \
        -Wl,-z,now -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
    mv "$folder/$1.new" "$folder/$1"
}
link libcuda.so.1 libcuda.map
link libcudart.so.13 libcudart.map
