//! The program as QEMU sees it: a vfio-user client speaks to it.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
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

/// A command with a bit that means nothing: a strict device ends and says why, another does not.
#[test]
fn a_strict_device_ends_by_the_first_mistake() {
    use std::os::unix::fs::FileExt as _;

    let dir = tempfile::tempdir().unwrap();
    for (name, options, code) in [
        ("strict", &["--strict"][..], Some(3)),
        ("lenient", &[], Some(0)),
    ] {
        let socket = dir.path().join(name);
        let program = start(&socket, options);
        let mut client = connect(&socket);
        let memory: File = tempfile::tempfile().unwrap();
        memory.set_len(1 << 20).unwrap();
        client.dma_map(0, 0, 1 << 20, memory.as_raw_fd()).unwrap();
        // One entry of the command queue (`mlx5_cmd_layout` of Linux' device.h): transport 7, QUERY_ISSI (0x10a) of 16 bytes.
        let mut entry = [0; 64];
        (entry[0], entry[7], entry[59], entry[63]) = (7, 16, 16, 1);
        entry[16..18].copy_from_slice(&[0x01, 0x0a]);
        entry[24] = 0x01;
        memory.write_at(&entry, 0).unwrap();
        // `cmdq_addr_h`, `cmdq_addr_l_sz` and `cmd_dbell` of `mlx5_init_seg`.
        for (offset, value) in [(0x10, 0u32), (0x14, 0), (0x18, 1)] {
            // The last one may get no answer.
            let _ = client.region_write(BAR0, offset, &value.to_be_bytes());
        }
        drop(client);
        let output = program.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), code, "{said}");
        let names_it = said.contains("ended by the first mistake: ReservedCommandBit");
        assert_eq!(names_it, code == Some(3), "{said}");
    }
}

/// Gives an order and returns what is answered.
fn order(file: &Path, lines: &str) -> String {
    let beside = |end: &str| PathBuf::from(format!("{}{end}", file.display()));
    let (new, answer) = (beside(".new"), beside(".answer"));
    let _ = std::fs::remove_file(&answer);
    std::fs::write(&new, lines).unwrap();
    std::fs::rename(&new, file).unwrap();
    let start = Instant::now();
    loop {
        if let Ok(text) = std::fs::read_to_string(&answer) {
            return text;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "no answer");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn two_devices_take_orders_and_end_when_both_clients_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let control = dir.path().join("control");
    let (second, file) = (two.to_str().unwrap(), control.to_str().unwrap());
    let more = [
        "--socket",
        second,
        "--control",
        file,
        "--loss",
        "0.25%",
        "--delay",
        "2",
    ];
    let mut program = start(&one, &more);
    let mut clients = [connect(&one), connect(&two)];
    let answers = order(
        &control,
        "status\nloss 2\nreorder 1%\nfail 1\nfail 2\nreset 0\n",
    );
    let words: Vec<&str> = answers
        .lines()
        .map(|line| line.split_once(' ').unwrap().0)
        .collect();
    assert_eq!(
        words,
        ["ok", "error", "ok", "ok", "error", "ok"],
        "{answers}"
    );
    assert!(answers.starts_with("ok way 0: 0 carried"), "{answers}");
    // A function that was reset decodes no memory, and reads of it give ones, until its command register says so (PCI 3.0 6.2.2).
    let mut byte = [0];
    clients[0].region_read(BAR0, 0x23d, &mut byte).unwrap();
    assert_eq!(byte[0], 0xff);
    clients[0].region_write(CONFIG, 4, &[2, 0]).unwrap();
    // The syndrome of the health buffer, at 0x23d (`mlx5_init_seg` of Linux' device.h).
    for (client, syndrome) in clients.iter_mut().zip([0, 1]) {
        let mut byte = [0xff];
        client.region_read(BAR0, 0x23d, &mut byte).unwrap();
        assert_eq!(byte[0], syndrome);
    }
    let [first, other] = clients;
    drop(first);
    std::thread::sleep(Duration::from_millis(50));
    assert!(program.try_wait().unwrap().is_none(), "one is still served");
    drop(other);
    assert!(program.wait().unwrap().success());
}

#[test]
fn two_programs_meet_at_a_cable() {
    let dir = tempfile::tempdir().unwrap();
    let cable = dir.path().join("cable");
    let path = |name: &str| dir.path().join(name);
    let more = |control: &str, serial: &str| {
        let words = [
            "--cable",
            cable.to_str().unwrap(),
            "--control",
            control,
            "--serial",
            serial,
        ];
        words.map(str::to_owned)
    };
    let mut programs = Vec::new();
    for (name, serial) in [("a", "1"), ("b", "2")] {
        let words = more(path(&format!("{name}.control")).to_str().unwrap(), serial);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        programs.push(start(&path(name), &words));
        let start = Instant::now();
        while !cable.exists() {
            assert!(start.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let clients = [connect(&path("a")), connect(&path("b"))];
    for name in ["a.control", "b.control"] {
        assert_eq!(order(&path(name), "cut\nrestore"), "ok done\nok done\n");
        assert!(order(&path(name), "fail 1").starts_with("error "));
    }
    drop(clients);
    for program in programs {
        let output = program.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        assert!(said.contains("the cable has another end"), "{said}");
    }
    assert!(!cable.exists());
}
