#!/bin/sh
# First program of the guest: loads modules, mounts the root and the share, hands over to the share's agent.
export PATH=/bin
b() { /bin/busybox "$@"; }
say() { echo "lab: $*" >/dev/console; }

b mount -t devtmpfs dev /dev
b mount -t proc proc /proc
while read -r module; do
    b insmod "/modules/$module.ko" || say "module $module does not load"
done </modules/order

mount_9p() { b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=524288,$3" "$1" "/newroot$2" || say "cannot mount $1"; }
mount_9p root "" ro,cache=loose
mount_9p share /share cache=none
mount_9p checkout /oxverbs/checkout ro,cache=loose
mount_9p target /oxverbs/target ro,cache=loose
b mount -t tmpfs -o mode=755 run /newroot/run
b mkdir /newroot/run/oxverbs
b cp /bin/busybox /newroot/run/oxverbs/busybox
b cp -r /late /newroot/run/oxverbs/modules
b umount /proc
b mount -t devtmpfs dev /newroot/dev
exec /bin/busybox switch_root -c /dev/console /newroot /run/oxverbs/busybox sh /share/agent.sh
say "no root"
