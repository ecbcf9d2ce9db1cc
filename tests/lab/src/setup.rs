//! The shell scripts that make a guest's devices and choose its provider.

use std::fmt::Write;

use crate::config::{Config, Device, Link, Provider, Topology};

/// Directory of our provider in the guest.
pub(crate) const PROVIDER_DIR: &str = "/run/oxverbs/provider";

/// Suffixes that the supported libibverbs releases append to a provider's name: 34 (up to rdma-core 56), 57 (and 58), 59
/// (to 63), 64, 65.
pub const PROVIDER_ABIS: [u32; 5] = [34, 57, 59, 64, 65];

/// Variables of every step.
pub(crate) fn environment(config: &Config) -> String {
    let profile = config.profile.directory();
    format!(
        "export PATH=/oxverbs/target/{profile}/examples:/oxverbs/target/{profile}:$PATH\n\
         export OXVERBS_CHECKOUT=/oxverbs/checkout OXVERBS_TARGET=/oxverbs/target/{profile}\n"
    )
}

/// Runs once, before the first step, with `sh -e`.
pub(crate) fn script(config: &Config) -> String {
    let mut script = String::from("echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad\n");
    if config.huge_pages > 0 {
        let _ = writeln!(
            script,
            "echo {} >/proc/sys/vm/nr_hugepages",
            config.huge_pages
        );
    }
    for (name, _) in &config.shares {
        let _ = write!(
            script,
            "mkdir -p /run/oxverbs/shares/{name}\n\
             mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose x_{name} /run/oxverbs/shares/{name}\n"
        );
    }
    if config.provider == Provider::Ours {
        let _ = write!(
            script,
            "cp -a /share/provider {PROVIDER_DIR}\n\
             mkdir /run/oxverbs/libibverbs.d\n\
             echo 'driver {PROVIDER_DIR}/liboxverbs' >/run/oxverbs/libibverbs.d/oxverbs.driver\n\
             mount --bind /run/oxverbs/libibverbs.d /etc/libibverbs.d\n"
        );
    }
    match (config.device, config.topology) {
        (Device::Rxe, Topology::Loopback) => script += LOOPBACK,
        (Device::Rxe, Topology::Pair) => script += PAIR,
        (Device::Mlx5, _) => {
            script += MLX5;
            if config.connectx.link == Link::Roce {
                script += MLX5_NETDEV;
            }
        }
    }
    let gid = config.gid_index();
    for device in config.devices() {
        // The address shows up in the GID table a moment after the device; without it nothing connects.
        let _ = write!(
            script,
            "gid=/sys/class/infiniband/{device}/ports/1/gids/{gid}\n\
             n=0\n\
             while grep -q '^0000:0000:0000:0000:0000:0000' $gid; do\n\
                 n=$((n + 1)); [ $n -lt 200 ] || {{ echo \"{device} has no GID {gid}\"; exit 1; }}\n\
                 sleep 0.02\n\
             done\n"
        );
    }
    script += &config.setup;
    script.push('\n');
    script
}

/// MTU 4200 leaves room for RDMA's largest path MTU (4096) and its headers.
const LOOPBACK: &str = "\
ip -batch - <<END
link set lo up
link add ox0 address 52:54:00:0a:09:01 type dummy
link set ox0 mtu 4200 up
addr add 10.9.0.1/24 dev ox0
END
rdma link add rxe0 type rxe netdev ox0
";

/// Both ends live in one network namespace, because rxe of Linux 6.12 receives in the initial one only. Policy routing
/// sends packets between the two addresses over the cable instead of through the loopback device.
const PAIR: &str = "\
for f in all default; do
    echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$f/accept_local
    echo 1 >/proc/sys/net/ipv4/conf/$f/arp_ignore
done
ip -batch - <<END
link set lo up
link add ox0 mtu 4200 address 52:54:00:0a:09:01 type veth peer name ox1 mtu 4200 address 52:54:00:0a:09:02
addr add 10.9.0.1/24 dev ox0
addr add 10.9.0.2/24 dev ox1
link set ox0 up
link set ox1 up
route add 10.9.0.2 dev ox0 src 10.9.0.1 table 101
route add 10.9.0.1 dev ox1 src 10.9.0.2 table 102
rule add pref 100 lookup local
rule add pref 10 iif lo from 10.9.0.1 to 10.9.0.2 lookup 101
rule add pref 11 iif lo from 10.9.0.2 to 10.9.0.1 lookup 102
rule del pref 0
END
rdma link add rxe0 type rxe netdev ox0
rdma link add rxe1 type rxe netdev ox1
";

/// Waits for what the driver makes of the device.
const MLX5: &str = "\
ip link set lo up
n=0
until [ -e /sys/class/infiniband/mlx5_0 ]; do
    n=$((n + 1))
    [ $n -lt 150 ] || { echo 'no RDMA device mlx5_0: the mlx5 drivers did not accept the device'; dmesg | grep mlx5; exit 1; }
    sleep 0.02
done
";

/// An address for the network interface; its MTU leaves room for RDMA's largest path MTU and its headers.
const MLX5_NETDEV: &str = "\
net=$(ls /sys/class/infiniband/mlx5_0/device/net) || { echo 'mlx5_0 has no network interface'; exit 1; }
ip link set $net mtu 4200 up
ip addr add 10.9.0.1/24 dev $net
";
