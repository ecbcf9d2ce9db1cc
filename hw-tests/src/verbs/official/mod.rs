//! The installed libibverbs, as a control: what it does on a device is what the suite must expect
//! of any provider there. Loaded at run time, so that the suite needs no C library to build or run.

mod calls;
mod layout;
mod objects;

use std::ffi::{CStr, c_char, c_int};
use std::mem::{self, MaybeUninit};
use std::time::Duration;

use super::memory::Memory;
use super::types::*;
use super::{Rereg, Verbs};
use layout::*;
use objects::{Objects, Pointer};

/// A device opened by libibverbs.
#[derive(Debug)]
pub(crate) struct Official {
    library: Pointer,
    context: Pointer,
    name: String,
    objects: Objects,
    memory: Memory,
}

type Fn1 = unsafe extern "C" fn(Ptr) -> c_int;

impl Official {
    pub(crate) fn open(device: &str) -> Answer<Self> {
        // SAFETY: loading a library runs its constructors, which libibverbs allows at any time.
        let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(Fault::errno(libc::ENOENT, "load libibverbs.so.1"));
        }
        let mut this = Self {
            library: Pointer(library),
            context: Pointer(std::ptr::null_mut()),
            name: device.to_owned(),
            objects: Objects::default(),
            memory: Memory::default(),
        };
        let mut count: c_int = 0;
        let list: unsafe extern "C" fn(*mut c_int) -> *mut Ptr =
            this.function(c"ibv_get_device_list")?;
        // SAFETY: `count` outlives the call.
        let devices = unsafe { list(&raw mut count) };
        let name: unsafe extern "C" fn(Ptr) -> *const c_char =
            this.function(c"ibv_get_device_name")?;
        let open: unsafe extern "C" fn(Ptr) -> Ptr = this.function(c"ibv_open_device")?;
        for i in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: the list has `count` entries.
            let entry = unsafe { devices.wrapping_add(i).read() };
            // SAFETY: an entry of the list is a device.
            let text = unsafe { name(entry) };
            // SAFETY: a device's name is NUL-terminated and lives as long as the device.
            let text = unsafe { CStr::from_ptr(text) };
            if text.to_bytes() == device.as_bytes() {
                // SAFETY: as above.
                let context = unsafe { open(entry) };
                this.context = Pointer(not_null(context, "ibv_open_device")?);
                return Ok(this);
            }
        }
        Err(Fault::errno(
            libc::ENODEV,
            format!("find device {device} through libibverbs"),
        ))
    }

    /// A symbol as a function.
    fn function<F: Copy>(&self, name: &CStr) -> Answer<F> {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: the handle is an open library and the name is NUL-terminated.
        let address = unsafe { libc::dlsym(self.library.0, name.as_ptr()) };
        if address.is_null() {
            let what = format!("find {name:?} in libibverbs");
            return Err(Fault::errno(libc::ENOSYS, what));
        }
        // SAFETY: a function pointer has a pointer's size (asserted); callers name its C type.
        Ok(unsafe { mem::transmute_copy(&address) })
    }

    /// A function of the provider, by slot of `ibv_context_ops`.
    fn op<F: Copy>(&self, slot: usize) -> F {
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        let at = self
            .context
            .0
            .wrapping_byte_add(offset::CONTEXT_OPS + 8 * slot);
        // SAFETY: the table has 32 slots, all filled by libibverbs; callers name the C type.
        unsafe { at.cast::<F>().read() }
    }

    /// Calls a destructor-like function and drops the table entry if it succeeded.
    fn end(&self, name: &CStr, id: u32) -> Answer<()> {
        let function: Fn1 = self.function(name)?;
        let object = self.objects.get(id)?;
        // SAFETY: the table holds live objects only.
        zero(unsafe { function(object) }, name)?;
        self.objects.remove(id);
        Ok(())
    }

    fn ah_attr(route: &Route) -> CAh {
        let half = |i: usize| {
            u64::from_ne_bytes(
                route.gid[i..i + 8]
                    .try_into()
                    .expect("eight bytes of a GID"),
            )
        };
        CAh {
            dgid: [half(0), half(8)],
            flow_label: route.flow_label,
            sgid_index: route.sgid_index,
            hop_limit: route.hop_limit,
            traffic_class: route.traffic_class,
            dlid: route.lid,
            sl: 0,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num: route.port,
        }
    }

    fn send_wr(&self, wr: &SendWr, sges: &mut [CSge]) -> Answer<CSendWr> {
        // SAFETY: all-zero bytes are a valid request of null pointers and zeroes.
        let mut c: CSendWr = unsafe { mem::zeroed() };
        c.wr_id = wr.id;
        c.sg_list = sges.as_mut_ptr();
        c.num_sge = sges.len() as i32;
        c.send_flags = wr.flags;
        let rdma = |remote: Remote| CWrUnion {
            rdma: CRdma {
                remote_addr: remote.addr,
                rkey: remote.rkey,
            },
        };
        let atomic = |remote: Remote, compare_add, swap| CWrUnion {
            atomic: CAtomic {
                remote_addr: remote.addr,
                compare_add,
                swap,
                rkey: remote.rkey,
            },
        };
        match wr.op {
            Op::Write(remote) => c.wr = rdma(remote),
            Op::WriteImm(remote, imm) => {
                (c.opcode, c.ex, c.wr) = (1, imm.to_be(), rdma(remote));
            }
            Op::Send => c.opcode = 2,
            Op::SendImm(imm) => (c.opcode, c.ex) = (3, imm.to_be()),
            Op::Read(remote) => (c.opcode, c.wr) = (4, rdma(remote)),
            Op::CompareSwap {
                remote,
                compare,
                swap,
            } => (c.opcode, c.wr) = (5, atomic(remote, compare, swap)),
            Op::FetchAdd { remote, add } => (c.opcode, c.wr) = (6, atomic(remote, add, 0)),
            Op::LocalInv(key) => (c.opcode, c.ex) = (7, key),
            Op::BindMw(bind) => {
                c.opcode = 8;
                let mw = self.objects.get(bind.mw.id)?;
                let rkey_field = mw.wrapping_byte_add(offset::MW_RKEY).cast::<u32>();
                // A type 2 window's current key is the program's to keep (`ibv_bind_mw(3)`).
                // SAFETY: `ibv_mw.rkey` is inside a live object.
                unsafe { rkey_field.write(bind.mw.rkey) };
                c.bind = CBind {
                    mw,
                    rkey: bind.rkey,
                    info: self.bind_info(&bind)?,
                };
            }
            Op::SendInv(key) => (c.opcode, c.ex) = (9, key),
            Op::AtomicWrite(..) | Op::Flush { .. } => {
                let what = "post this operation through ibv_post_send";
                return Err(Fault::errno(libc::EOPNOTSUPP, what));
            }
        }
        if let Some(to) = wr.to {
            c.wr.ud = CUd {
                ah: self.objects.get(to.ah.0)?,
                remote_qpn: to.qpn,
                remote_qkey: to.qkey,
            };
        }
        Ok(c)
    }

    fn bind_info(&self, bind: &Bind) -> Answer<CBindInfo> {
        Ok(CBindInfo {
            mr: self.objects.get(bind.mr.id)?,
            addr: bind.addr,
            length: bind.len,
            access: bind.access,
        })
    }

    fn post_receives(&self, queue: Ptr, slot: usize, list: &[RecvWr]) -> Posted {
        type Post = unsafe extern "C" fn(Ptr, *mut CRecvWr, *mut *mut CRecvWr) -> c_int;
        let mut sges: Vec<Vec<CSge>> = list.iter().map(|wr| c_sges(&wr.sg)).collect();
        let mut wrs: Vec<CRecvWr> = list
            .iter()
            .zip(&mut sges)
            .map(|(wr, sges)| CRecvWr {
                wr_id: wr.id,
                next: std::ptr::null_mut(),
                sg_list: sges.as_mut_ptr(),
                num_sge: sges.len() as i32,
            })
            .collect();
        if wrs.is_empty() {
            return Ok(());
        }
        let first = wrs.as_mut_ptr();
        for i in 1..wrs.len() {
            wrs[i - 1].next = first.wrapping_add(i);
        }
        let mut bad = std::ptr::null_mut();
        let post: Post = self.op(slot);
        // SAFETY: the list, its entries' lists and `bad` outlive the call.
        let code = unsafe { post(queue, first, &raw mut bad) };
        posted(code, (bad as usize).wrapping_sub(first as usize) / 32)
    }
}

fn c_sges(list: &[Sge]) -> Vec<CSge> {
    list.iter()
        .map(|sge| CSge {
            addr: sge.addr,
            length: sge.len,
            lkey: sge.lkey,
        })
        .collect()
}

fn posted(code: c_int, index: usize) -> Posted {
    if code == 0 {
        return Ok(());
    }
    Err(PostFault {
        index,
        fault: Fault::errno(code, "post"),
    })
}

fn zero(code: c_int, name: &CStr) -> Answer<()> {
    match code {
        0 => Ok(()),
        // `ibv_rereg_mr` has small negative codes of its own.
        ..0 => Err(last(&name.to_string_lossy())),
        errno => Err(Fault::errno(errno, name.to_string_lossy())),
    }
}

fn not_null(pointer: Ptr, name: &str) -> Answer<Ptr> {
    if pointer.is_null() {
        return Err(last(name));
    }
    Ok(pointer)
}

fn last(name: &str) -> Fault {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
    Fault::errno(errno, name)
}

fn field(object: Ptr, offset: usize) -> u32 {
    // SAFETY: callers name an offset inside the public part of a live object.
    unsafe { object.wrapping_byte_add(offset).cast::<u32>().read() }
}

/// Whether `fd` becomes readable in `timeout`.
fn readable(fd: i32, timeout: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&raw mut poll, 1, millis) > 0 }
}
