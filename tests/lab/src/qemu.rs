//! QEMU: its command line and its process.

use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};

use crate::cache::Tree;
use crate::config::{Clock, Config, Device};
use crate::death::GuestDied;
use crate::guest::POLL;
use crate::kits::{KernelKit, Tools};
use crate::setup;

/// What QEMU's side tells the guest's owner.
#[derive(Debug)]
pub(crate) enum Event {
    /// The guest's agent wrote a line.
    Line(String),
    /// QEMU ended; the text says how.
    Ended(String),
}

/// Milliseconds that QEMU waits for an answer of the ConnectX. It has to do what was stored to its registers before, a message
/// of 8 MiB perhaps, and with QEMU's own 5 s a busy machine lost the device.
const ANSWER_MS: u32 = 60_000;

/// Words for the guest kernel: no mitigations and no self-tests, which emulation makes slow; faults end the guest at once.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=4 oops=panic panic=-1 reboot=t mitigations=off nokaslr \
    tsc=reliable clocksource=tsc no_timer_check random.trust_cpu=on rcupdate.rcu_expedited=1 audit=0 selinux=0 apparmor=0 \
    lsm=capability init_on_alloc=0 cryptomgr.notests=1 8250.nr_uarts=1 i8042.noaux i8042.nokbd \
    initcall_blacklist=jent_mod_init,load_system_certificate_list,init_encrypted,init_ima,init_evm,serio_init,i8042_init,\
cmos_init,crypto_kdf108_init";

/// Sockets of a guest, in a directory of their own.
#[derive(Debug)]
pub(crate) struct Sockets {
    dir: tempfile::TempDir,
}

impl Sockets {
    /// Socket addresses are limited to 108 bytes; a cache may lie deep.
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("oxverbs-lab-").tempdir()?;
        Ok(Self { dir })
    }

    /// Of the guest's agent.
    pub(crate) fn control(&self) -> PathBuf {
        self.dir.path().join("control")
    }

    /// Of the software ConnectX.
    pub(crate) fn connectx(&self, config: &Config) -> Vec<PathBuf> {
        let names = match config.device {
            Device::Rxe => &[][..],
            Device::Mlx5 | Device::Vfio => config.devices(),
        };
        names
            .iter()
            .map(|name| self.dir.path().join(name))
            .collect()
    }
}

/// The command line of a guest with its console in `dir/console.log`.
pub(crate) fn command(
    config: &Config,
    tools: &Tools,
    kernel: &KernelKit,
    root: &Tree,
    dir: &Path,
    sockets: &Sockets,
) -> Result<Command> {
    let target = config.target();
    fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    let mut command = tools.qemu();
    // Emulation always: a /dev/kvm that exists may still not run a guest.
    command.args(match config.clock {
        Clock::Host => &["-accel", "tcg,thread=multi"][..],
        // Idle time passes at once.
        Clock::Instructions => &[
            "-accel",
            "tcg,thread=single",
            "-icount",
            "shift=0,sleep=off",
        ],
    });
    let mut machine = "q35,usb=off,vmport=off,smm=off,hpet=off".to_owned();
    if config.device.is_connectx() {
        // The device's process maps the guest's memory.
        let size = config.memory;
        command.args([
            "-object",
            &format!("memory-backend-memfd,id=memory,size={size}M,share=on"),
        ]);
        machine += ",memory-backend=memory";
    }
    command.args(["-M", &machine, "-cpu", "max"]);
    if config.device == Device::Vfio {
        // Before the devices that it is to translate for. VFIO wants interrupts remapped, or it calls them unsafe; without
        // caching mode QEMU would not hear of new mappings.
        command.args(["-device", "intel-iommu,caching-mode=on,intremap=on"]);
    }
    command.args([
        "-smp",
        &config.processors.to_string(),
        "-m",
        &format!("{}M", config.memory),
    ]);
    command.args([
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    // QEMU ends with the thread that started it, which waits for it.
    command.args(["-run-with", "exit-with-parent=on"]);
    command
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&kernel.initrd);
    let iommu = match config.device {
        Device::Vfio => "intel_iommu=on ",
        Device::Rxe | Device::Mlx5 => "",
    };
    command.arg("-append").arg(format!(
        "{KERNEL_ARGUMENTS} {iommu}{}",
        config.kernel_arguments
    ));
    command
        .arg("-serial")
        .arg(with_path("file:", &dir.join("console.log"), "")?);
    command.args(["-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]);
    command.arg("-chardev").arg(with_path(
        "socket,id=control,path=",
        &sockets.control(),
        "",
    )?);
    command.args(["-device", "virtserialport,chardev=control,name=control"]);
    for (number, socket) in sockets.connectx(config).iter().enumerate() {
        let device = serde_json::json!({
            "driver": "vfio-user-pci",
            "bus": format!("root{number}"),
            "socket": { "type": "unix", "path": socket },
            "x-msg-timeout": ANSWER_MS,
        });
        let port = format!("pcie-root-port,id=root{number},chassis={}", number + 1);
        command.args(["-device", &port, "-device", &device.to_string()]);
    }
    if let Some(peer) = &config.peer {
        let network = serde_json::json!({
            "type": "dgram",
            "id": "network",
            "local": { "type": "unix", "path": peer.network(peer.number) },
            "remote": { "type": "unix", "path": peer.network(peer.other()) },
        });
        let card = serde_json::json!({
            "driver": "virtio-net-pci",
            "netdev": "network",
            "mac": setup::network_address(peer.number),
            "romfile": "",
        });
        command.args(["-netdev", &network.to_string()]);
        command.args(["-device", &card.to_string()]);
    }
    let share = dir.join("share");
    let checkout = config.checkout();
    add_share(&mut command, "root", &root.dir, true)?;
    add_share(&mut command, "share", &share, false)?;
    add_share(&mut command, "checkout", &checkout, true)?;
    add_share(&mut command, "target", &target, true)?;
    for (name, path) in &config.shares {
        let is_word = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_word || name.is_empty() || name.len() > 20 {
            bail!("{name:?} is no name for a share: up to 20 letters, digits and _");
        }
        if !path.is_dir() {
            bail!("share {name}: {} is no directory", path.display());
        }
        add_share(&mut command, &format!("x_{name}"), path, true)?;
    }
    Ok(command)
}

fn add_share(command: &mut Command, tag: &str, path: &Path, readonly: bool) -> Result<()> {
    let readonly = if readonly { ",readonly=on" } else { "" };
    // The guest's root sees the files as their owner on the host has them; new ones belong to the user who runs QEMU.
    let options = format!(",security_model=none,multidevs=remap{readonly}");
    command
        .arg("-fsdev")
        .arg(with_path(&format!("local,id={tag},path="), path, &options)?);
    command.args([
        "-device",
        &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
    ]);
    Ok(())
}

/// QEMU's option syntax doubles commas.
fn with_path(before: &str, path: &Path, after: &str) -> Result<String> {
    let path = path
        .to_str()
        .ok_or_else(|| anyhow!("{}: not UTF-8, which QEMU's options need", path.display()))?;
    Ok(format!("{before}{}{after}", path.replace(',', ",,")))
}

/// Starts QEMU on a thread that lives as long as it does, because QEMU ends with the thread that started it.
pub(crate) fn spawn(
    mut command: Command,
    dir: &Path,
    events: Sender<Event>,
) -> Result<Arc<Mutex<Option<u32>>>> {
    let errors = dir.join("qemu.log");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(&errors)?);
    // A terminal's Ctrl-C is for us; we end QEMU.
    command.process_group(0);
    let (sender, started) = mpsc::channel();
    std::thread::spawn(move || {
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                let _ = sender.send(Err(anyhow!("starting QEMU: {error}")));
                return;
            }
        };
        let pid = Arc::new(Mutex::new(Some(child.id())));
        let _ = sender.send(Ok(Arc::clone(&pid)));
        // Until it is reaped the number is QEMU's: the lock below keeps a kill from hitting another process.
        let how = loop {
            let mut guard = pid.lock().unwrap_or_else(PoisonError::into_inner);
            match child.try_wait() {
                Ok(None) => drop(guard),
                Ok(Some(status)) => {
                    *guard = None;
                    break format!("QEMU ended with {status}");
                }
                Err(error) => {
                    *guard = None;
                    break format!("waiting for QEMU: {error}");
                }
            }
            std::thread::sleep(POLL);
        };
        let log = fs::read_to_string(&errors).unwrap_or_default();
        let _ = events.send(Event::Ended(format!("{how} {}", log.trim_end())));
    });
    started
        .recv()
        .map_err(|_| anyhow!("the thread for QEMU is gone"))?
}

/// Ends it at once; a QEMU that has ended already is left alone.
pub(crate) fn kill(qemu: &Mutex<Option<u32>>) {
    let guard = qemu.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pid) = *guard {
        let _ = Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .status();
    }
}

/// QEMU's connection to the control socket.
pub(crate) fn accept(
    listener: &UnixListener,
    events: &Receiver<Event>,
    dir: &Path,
) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Ok(Event::Ended(how)) = events.recv_timeout(POLL) {
            return Err(GuestDied::new("its start".into(), &how, &read_console(dir)).into());
        }
    }
}

/// All that the guest wrote to its console.
pub(crate) fn read_console(dir: &Path) -> String {
    fs::read(dir.join("console.log"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
