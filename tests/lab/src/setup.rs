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
    let mut environment = format!(
        "export PATH=/oxverbs/target/{profile}/examples:/oxverbs/target/{profile}:$PATH\n\
         export OXVERBS_CHECKOUT=/oxverbs/checkout OXVERBS_TARGET=/oxverbs/target/{profile}\n"
    );
    if config.drop_in {
        // Where programs that link libmlx5.so.1 find ours first.
        let _ = writeln!(environment, "export LD_LIBRARY_PATH={PROVIDER_DIR}");
    }
    if let Some(peer) = &config.peer {
        let (number, ip) = (peer.number, network_ip(peer.other()));
        let _ = writeln!(environment, "export LAB_GUEST={number} LAB_PEER={ip}");
    }
    environment
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
        (Device::Rxe, Topology::Pair) => script.extend([PAIR, ROUTES, PAIR_DEVICES]),
        (Device::Mlx5, _) => script += &mlx5(config),
        (Device::Vfio, _) => {
            script += VFIO;
            script += &mlx5(config);
        }
    }
    let gid = config.gid_index();
    for device in (config.devices().iter()).filter(|name| !is_for_programs(name)) {
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

/// A virtual cable with an rxe device at each end.
const PAIR: &str = "\
ip -batch - <<END
link set lo up
link add ox0 mtu 4200 address 52:54:00:0a:09:01 type veth peer name ox1 mtu 4200 address 52:54:00:0a:09:02
addr add 10.9.0.1/24 dev ox0
addr add 10.9.0.2/24 dev ox1
link set ox0 up
link set ox1 up
END
net0=ox0 net1=ox1
";

/// Both ends live in one network namespace, because rxe of Linux 6.12 receives in the initial one only. Policy routing
/// sends packets between the two addresses over the cable instead of through the loopback device.
const ROUTES: &str = "\
for f in all default $net0 $net1; do
    echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/$f/accept_local
    echo 1 >/proc/sys/net/ipv4/conf/$f/arp_ignore
done
ip -batch - <<END
route add 10.9.0.2 dev $net0 src 10.9.0.1 table 101
route add 10.9.0.1 dev $net1 src 10.9.0.2 table 102
rule add pref 100 lookup local
rule add pref 10 iif lo from 10.9.0.1 to 10.9.0.2 lookup 101
rule add pref 11 iif lo from 10.9.0.2 to 10.9.0.1 lookup 102
rule del pref 0
END
";

/// Joins rxe devices to the ends of [`PAIR`].
const PAIR_DEVICES: &str = "\
rdma link add rxe0 type rxe netdev ox0
rdma link add rxe1 type rxe netdev ox1
";

/// `connectx ORDER...` gives the guest's software ConnectX an order (`soft-connectx --help` names them at `--control`) and
/// waits until it is done.
const ORDERS: &str = r#"
cat >/run/oxverbs/bin/connectx <<'END'
#!/bin/sh
exec 9>/run/oxverbs/connectx.lock
flock 9
rm -f /share/connectx.answer
echo "$*" >/share/connectx.new
mv /share/connectx.new /share/connectx
n=0
until [ -e /share/connectx.answer ]; do
    n=$((n + 1))
    [ $n -lt 500 ] || { echo 'connectx: no answer' >&2; exit 1; }
    sleep 0.02
done
read -r result answer </share/connectx.answer
[ "$result" = ok ] || { echo "connectx: $answer" >&2; exit 1; }
echo "$answer"
END
chmod 755 /run/oxverbs/bin/connectx
"#;

/// The MAC address of the network card between two guests.
pub(crate) fn network_address(number: u16) -> String {
    format!("52:54:00:0a:0a:{:02x}", number + 1)
}

/// The IP address that the other guest reaches a guest at, whatever the link layer of the RDMA devices.
fn network_ip(number: u16) -> String {
    format!("10.9.1.{}", number + 1)
}

/// The first ConnectX' MAC address and the link-local address made of it (RFC 4291, appendix A), for the kernel that drives
/// the second: a program that drives a device by itself need not answer who asks the network for them.
const NEIGHBOUR: &str =
    "ip neigh add fe80::202:c9ff:fe00:1 lladdr 00:02:c9:00:00:01 dev $net1 nud permanent\n";

/// Waits for what the drivers make of the devices.
fn mlx5(config: &Config) -> String {
    let mut script = format!("ip link set lo up\n{ORDERS}");
    let first = config.peer.as_ref().map_or(0, |peer| peer.number);
    let kernels = || {
        (0..)
            .zip(config.devices())
            .filter(|(_, name)| !is_for_programs(name))
    };
    for (number, device) in kernels() {
        let _ = write!(
            script,
            "n=0\n\
             until [ -e /sys/class/infiniband/{device} ]; do\n\
                 n=$((n + 1))\n\
                 [ $n -lt 150 ] || {{ echo 'no RDMA device {device}: the mlx5 drivers did not accept the device'; dmesg | grep mlx5; exit 1; }}\n\
                 sleep 0.02\n\
             done\n"
        );
        if config.connectx.link == Link::Roce {
            // The MTU leaves room for RDMA's largest path MTU and its headers.
            let address = first + number + 1;
            let _ = write!(
                script,
                "net{number}=$(ls /sys/class/infiniband/{device}/device/net) || {{ echo '{device} has no network interface'; exit 1; }}\n\
                 ip link set $net{number} mtu 4200 up\n\
                 ip addr add 10.9.0.{address}/24 dev $net{number}\n"
            );
        }
    }
    if kernels().count() == 2 && config.connectx.link == Link::Roce {
        script += ROUTES;
    }
    if config.device == Device::Vfio && config.connectx.two && config.connectx.link == Link::Roce {
        script += NEIGHBOUR;
    }
    if let Some(peer) = &config.peer {
        let (mac, ip) = (network_address(peer.number), network_ip(peer.number));
        let _ = write!(
            script,
            "net=$(grep -l {mac} /sys/class/net/*/address)\n\
             net=${{net%/address}}\n\
             net=${{net##*/}}\n\
             ip link set $net up\n\
             ip addr add {ip}/24 dev $net\n"
        );
    }
    for (_, device) in kernels() {
        let _ = write!(
            script,
            "n=0\n\
             until grep -q ACTIVE /sys/class/infiniband/{device}/ports/1/state; do\n\
                 n=$((n + 1))\n\
                 [ $n -lt 500 ] || {{ echo \"{device} is $(cat /sys/class/infiniband/{device}/ports/1/state)\"; exit 1; }}\n\
                 sleep 0.02\n\
             done\n"
        );
    }
    script
}

/// Whether no driver of the kernel has a device of this name.
fn is_for_programs(name: &str) -> bool {
    name.starts_with("vfio:")
}

/// Gives the first ConnectX to vfio-pci, before any mlx5 driver is there to take it; then those drivers come and take a
/// second one.
const VFIO: &str = "\
connectx=
for device in /sys/bus/pci/devices/*; do
    [ \"$(cat $device/vendor)\" = 0x15b3 ] || continue
    [ -n \"$connectx\" ] || first=${device##*/}
    connectx=\"$connectx ${device##*/}\"
    [ -e $device/iommu_group ] || { echo \"${device##*/} is behind no IOMMU\"; dmesg | grep -i dmar; exit 1; }
done
echo vfio-pci >/sys/bus/pci/devices/$first/driver_override
echo $first >/sys/bus/pci/drivers_probe
[ -e /sys/bus/pci/drivers/vfio-pci/$first ] || { echo \"vfio-pci did not take $first\"; dmesg | tail -n 20; exit 1; }
[ -e /dev/vfio/vfio ] || { echo 'no /dev/vfio/vfio'; exit 1; }
if [ \"$connectx\" != \" $first\" ]; then
    while read -r module; do
        /run/oxverbs/busybox insmod /run/oxverbs/modules/$module.ko
    done </run/oxverbs/modules/order
fi
";
