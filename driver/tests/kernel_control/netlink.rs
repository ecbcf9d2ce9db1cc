//! RDMA netlink of the kernel, against what the device and sysfs say.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use uverbs_abi::netlink::nldev::{self, ResourceKind};
use uverbs_abi::netlink::{Body, NETLINK_RDMA, NLM_F_DUMP, Request, messages};
use uverbs_abi::types::{DriverId, QpState, QpType};
use uverbs_abi::udata::rxe;

use super::{node, open};

fn socket() -> OwnedFd {
    // SAFETY: takes no pointer.
    let fd = unsafe {
        libc::socket(
            libc::AF_NETLINK,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            NETLINK_RDMA,
        )
    };
    assert!(fd >= 0, "{}", io::Error::last_os_error());
    // SAFETY: just made, nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The payloads of the answers, or the errno.
fn ask(socket: &OwnedFd, request: &Request, several: bool) -> Result<Vec<Vec<u8>>, i32> {
    assert!(request.fits());
    let bytes = request.bytes();
    // SAFETY: the pointer and the length are those of a slice.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
    assert_eq!(sent, bytes.len() as isize, "{}", io::Error::last_os_error());
    let mut payloads = Vec::new();
    loop {
        let mut datagram = vec![0u8; 65_536];
        // SAFETY: the pointer and the length are those of a vector that outlives the call.
        let len = unsafe {
            libc::recv(
                socket.as_raw_fd(),
                datagram.as_mut_ptr().cast(),
                datagram.len(),
                0,
            )
        };
        datagram.truncate(usize::try_from(len).expect("an answer"));
        for message in messages(&datagram) {
            match message.unwrap().body() {
                Body::Data(payload) => payloads.push(payload.to_vec()),
                Body::Error(errno) => return Err(errno),
                Body::Done => return Ok(payloads),
            }
        }
        if !several {
            return Ok(payloads);
        }
    }
}

#[test]
fn netlink_describes_the_device() {
    let Some(opened) = open("netlink_describes_the_device") else {
        return;
    };
    let socket = socket();
    let node = node().unwrap();
    let name = node.file_name().unwrap().to_str().unwrap();
    let node_device = std::fs::metadata(&node).unwrap().rdev();

    let request = nldev::get_devices(1);
    assert_eq!(request.bytes()[6..8], (1 | NLM_F_DUMP).to_ne_bytes());
    let answers = ask(&socket, &request, true).unwrap();
    let devices: Vec<_> = answers
        .iter()
        .map(|payload| nldev::Device::parse(payload).unwrap())
        .collect();
    let (index, device) = devices
        .iter()
        .find_map(|device| {
            let answers = ask(
                &socket,
                &nldev::get_chardev(device.index, "uverbs", 2),
                false,
            );
            let answers = answers.unwrap();
            let chardev = nldev::Chardev::parse(&answers[0]).unwrap();
            if chardev.name != name {
                return None;
            }
            assert_eq!(chardev.driver, DriverId::RXE);
            assert_eq!(
                (chardev.major(), chardev.minor()),
                (libc::major(node_device), libc::minor(node_device))
            );
            Some((device.index, device))
        })
        .expect("the node is one of the devices'");

    let attr = opened.uctx.query_device().unwrap();
    assert_eq!(device.node_guid.to_be_bytes(), attr.node_guid);
    assert_eq!(device.sys_image_guid.to_be_bytes(), attr.sys_image_guid);
    assert_eq!(device.ports, u32::from(attr.phys_port_cnt));
    assert_eq!(device.node_type, nldev::NodeType::IB_CA);
    assert_eq!(device.protocol, "roce");
    let class = std::path::Path::new("/sys/class/infiniband").join(device.name);
    assert!(class.exists(), "{}", class.display());

    let one = ask(&socket, &nldev::get_device(index, 3), false).unwrap();
    assert_eq!(nldev::Device::parse(&one[0]), Ok(*device));
    assert_eq!(
        ask(&socket, &nldev::get_device(u32::MAX, 4), false),
        Err(libc::EINVAL)
    );
    let none = ask(&socket, &nldev::get_chardev(index, "nothing", 5), false);
    assert!(none.is_err(), "{none:?}");

    let answers = ask(&socket, &nldev::get_port(index, 1, 6), false).unwrap();
    let port = nldev::Port::parse(&answers[0]).unwrap();
    assert_eq!((port.index, port.state), (1, 4));
    let interface = std::fs::read_to_string(format!("/sys/class/net/{}/ifindex", port.netdev_name));
    assert_eq!(interface.unwrap().trim(), port.netdev_index.to_string());

    let answers = ask(&socket, &nldev::get_system(7), false).unwrap();
    let system = nldev::System::parse(&answers[0]).unwrap();
    assert!(system.netns_shared.is_some());
    assert!(system.copy_on_fork, "every kernel since 5.12 does");
}

#[test]
fn netlink_lists_what_was_made() {
    let Some(opened) = open("netlink_lists_what_was_made") else {
        return;
    };
    let socket = socket();
    let answers = ask(&socket, &nldev::get_devices(1), true).unwrap();
    // other tests make objects too, so they are looked for by this thread's number, which is what the
    // kernel says of its maker
    // SAFETY: no preconditions.
    let maker = unsafe { libc::gettid() } as u32;
    let pd = opened.pd();
    let cq = opened.cq(8);
    let attr = opened.qp_attr(QpType::UC, pd, cq);
    let qp = opened.uctx.create_qp::<rxe::CreateQpResp>(&attr).unwrap();
    let list = |kind: ResourceKind| {
        let mut mine = Vec::new();
        for payload in &answers {
            let index = nldev::Device::parse(payload).unwrap().index;
            let answers = ask(&socket, &nldev::get_resources(kind, index, 2), true).unwrap();
            for payload in &answers {
                for resource in nldev::resources(kind, payload) {
                    let resource = resource.unwrap();
                    if resource.pid == Some(maker) {
                        mine.push((
                            resource.lqpn,
                            resource.qp_type,
                            resource.qp_state,
                            resource.cqe,
                        ));
                    }
                }
            }
        }
        mine
    };
    let qps = list(ResourceKind::Qp);
    let expected = (
        Some(qp.qp_num),
        Some(QpType::UC),
        Some(QpState::RESET),
        None,
    );
    assert!(qps.contains(&expected), "{qps:?}");
    let cqs = list(ResourceKind::Cq);
    assert!(
        cqs.iter()
            .any(|(_, _, _, cqe)| cqe.is_some_and(|cqe| cqe >= 8)),
        "{cqs:?}"
    );
    assert!(!list(ResourceKind::Pd).is_empty());
    assert!(!list(ResourceKind::Ctx).is_empty());
    for kind in [ResourceKind::Mr, ResourceKind::Srq, ResourceKind::CmId] {
        list(kind);
    }
    let mut seen = 0;
    for payload in &answers {
        let index = nldev::Device::parse(payload).unwrap().index;
        let summary = ask(&socket, &nldev::get_summary(index, 3), false).unwrap();
        for entry in nldev::summary(&summary[0]) {
            let (name, count) = entry.unwrap();
            if name == "pd" || name == "qp" {
                seen += count;
            }
        }
    }
    assert!(seen >= 2, "{seen}");
    opened.uctx.destroy_qp(qp.handle).unwrap();
    opened.uctx.destroy_cq(cq).unwrap();
    opened.uctx.dealloc_pd(pd).unwrap();
    let qps = list(ResourceKind::Qp);
    assert!(!qps.contains(&expected), "{qps:?}");
}
