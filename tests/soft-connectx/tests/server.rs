//! The program as QEMU sees it: a vfio-user client speaks to it.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use vfio_user::Client;

const BAR0: u32 = 0;
const CONFIG: u32 = 7;
const MSIX: u32 = 2;

fn start(socket: &Path, more: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_soft-connectx"))
        .arg("--socket")
        .arg(socket)
        .args(more)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn connect(socket: &Path) -> Client {
    let start = Instant::now();
    loop {
        // The socket is there a moment before anyone listens.
        match Client::new(socket) {
            Ok(client) => return client,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(20), "{error:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn it_serves_one_client_and_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    for (link, class) in [("ib", 0x0207), ("roce", 0x0200)] {
        let socket = dir.path().join(link);
        let mut program = start(&socket, &["--link", link]);
        let mut client = connect(&socket);

        let mut identity = [0; 12];
        client.region_read(CONFIG, 0, &mut identity).unwrap();
        // PCI: vendor and device at 0, class code in the upper bytes of the dword at 8.
        assert_eq!(identity[..4], [0xb3, 0x15, 0x1b, 0x10]);
        assert_eq!(u16::from_le_bytes([identity[10], identity[11]]), class);
        assert_eq!(client.region(BAR0).unwrap().size, 32 << 20);
        assert_eq!(client.get_irq_info(MSIX).unwrap().count, 32);

        // cmdif_rev of the initialization segment, which mlx5_core wants to be 5.
        let mut revision = [0; 4];
        client.region_read(BAR0, 4, &mut revision).unwrap();
        assert_eq!(u32::from_be_bytes(revision) >> 16, 5);

        let memory: File = tempfile::tempfile().unwrap();
        memory.set_len(1 << 20).unwrap();
        client.dma_map(0, 0, 1 << 20, memory.as_raw_fd()).unwrap();
        client.dma_unmap(0, 1 << 20).unwrap();
        client.reset().unwrap();

        // Outside of the regions, in pieces of any size, written and read: nothing that ends the program.
        for (region, offset, len) in [
            (BAR0, u64::MAX - 3, 8),
            (BAR0, (32 << 20) - 4, 8),
            (3, 0, 64),
        ] {
            let mut bytes = vec![0; len];
            client.region_read(region, offset, &mut bytes).unwrap();
            client.region_write(region, offset, &bytes).unwrap();
        }
        client.region_read(CONFIG, 0, &mut identity).unwrap();
        drop(client);
        assert!(program.wait().unwrap().success());
        assert!(!socket.exists());
    }
}

#[test]
fn a_socket_that_exists_is_another_ones() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("taken");
    File::create(&socket).unwrap();
    let output = start(&socket, &[]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(
        message.starts_with("soft-connectx: ") && message.contains("taken"),
        "{message}"
    );
    assert!(socket.exists());
}
