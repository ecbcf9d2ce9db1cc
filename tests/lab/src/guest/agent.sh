# First process of the guest's root. Sets the machine up, then runs what the host asks for over the "control" port:
#   run N          runs /share/steps/N/command; answers "done N STATUS CENTISECONDS"
#   kill N SIGNAL  signals the process group of step N
b() { /run/oxverbs/busybox "$@"; }

b mount -t proc proc /proc
b mount -t sysfs sys /sys
b mount -t cgroup2 cgroup /sys/fs/cgroup
b mount -t tmpfs tmp /tmp
b mount -t tmpfs tmp /var/tmp
b mkdir -p /dev/shm /dev/pts
b mount -t tmpfs shm /dev/shm
b mount -t devpts pts /dev/pts
b ln -sf /proc/self/fd /dev/fd
b ln -sf /proc/self/fd/0 /dev/stdin
b ln -sf /proc/self/fd/1 /dev/stdout
b ln -sf /proc/self/fd/2 /dev/stderr
b hostname lab
ulimit -l unlimited
ulimit -n 65536

export HOME=/root TERM=dumb LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1
export PATH=/run/oxverbs/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

b mkdir /run/oxverbs/bin
b cat >/run/oxverbs/bin/wait-port <<'END'
#!/bin/sh
# wait-port PORT: returns once something listens on this TCP port.
# /proc/net/tcp: local address as HEX:PORT, the remote one, the state; 0A is LISTEN.
pattern=$(printf '^ *[0-9]*: [0-9A-F]*:%04X [0-9A-F]*:0000 0A ' "$1")
until cat /proc/net/tcp /proc/net/tcp6 | grep -q "$pattern"; do sleep 0.05; done
END
b cat >/run/oxverbs/bin/claims <<'END'
#!/bin/sh
# claims: DEVICE<TAB>FILE for each RDMA device: whose provider code serves it.
IBV_SHOW_WARNINGS=1 exec python3 -I /share/claims.py
END
b chmod 755 /run/oxverbs/bin/wait-port /run/oxverbs/bin/claims

for port in /sys/class/virtio-ports/*; do
    [ "$(b cat "$port/name")" = control ] && exec 3<>"/dev/${port##*/}"
done

. /share/environment
/bin/sh -e /share/setup.sh </dev/null >/share/setup.log 2>&1
echo "ready $? $(b uname -r)" >&3

uptime_cs() {
    read -r now rest </proc/uptime
    echo "${now%.*}${now#*.}"
}

run() {
    step=/share/steps/$1
    group=/sys/fs/cgroup/step-$1
    b mkdir "$group"
    start=$(uptime_cs)
    (
        echo 0 >"$group/cgroup.procs"
        exec /run/oxverbs/busybox setsid /bin/sh "$step/command"
    ) </dev/null >>"$step/stdout" 2>>"$step/stderr" 3>&-
    status=$?
    end=$(uptime_cs)
    # What the step left running would disturb the next, in a session of its own too.
    echo 1 >"$group/cgroup.kill"
    for turn in 1 2 3 4 5 6 7 8 9 10; do
        b rmdir "$group" 2>/dev/null && break
        b usleep $((turn * 10000))
    done
    echo "done $1 $status $((end - start))" >&3
}

while read -r verb step signal <&3; do
    case $verb in
    run) run "$step" & ;;
    kill) kill "-$signal" -- "-$(b cat "/share/steps/$step/pid")" 2>/dev/null ;;
    esac
done
echo "lab: the host is gone" >/dev/console
