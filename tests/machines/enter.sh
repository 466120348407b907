#!/bin/sh
# Run in namespaces of its own: sh enter.sh ROOT CHECKOUT PATH...
# Mount what a system needs, and each PATH of this machine at the same place there; then run the two commands.
set -eu

root=$1 checkout=$2
shift 2

mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"

for path; do
    if [ -d "$path" ]; then
        mkdir -p "$root$path"
    else
        mkdir -p "$(dirname "$root$path")"
        touch "$root$path"
    fi
    mount --bind -o ro "$path" "$root$path"
done

chroot "$root" sh -euc 'cd "$1"; python3 --version; make demo; make test' sh "$checkout"
