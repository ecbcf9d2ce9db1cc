//! Single step: every instruction that a call executes, in this process, by the processor's trap flag.
//!
//! With the flag set each instruction raises SIGTRAP when it is done. The handler sees the address of the next one, so it
//! counts it, and decodes those that store or are fences: with the registers at hand the address of a store is known
//! before it happens. Counts are the same to the last digit in every run; time means nothing meanwhile.

use std::arch::asm;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, PoisonError};
use std::{io, mem, ptr};

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, Register,
};

/// What a traced call did that a device could notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A store into a watched range.
    Store {
        /// Which of the ranges.
        range: usize,
        /// Offset in it.
        offset: usize,
        /// Bytes.
        width: usize,
    },
    /// `sfence`.
    StoreFence,
    /// `mfence` or a locked instruction.
    FullFence,
    /// `lfence`.
    LoadFence,
}

/// Memory to watch.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// First address.
    pub start: usize,
    /// Bytes.
    pub len: usize,
}

/// What a trace holds.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Instructions, those of [`run`] itself taken off.
    pub instructions: u64,
    /// System calls among them.
    pub system_calls: u64,
    /// In the order of execution.
    pub events: Vec<Event>,
    /// Cache lines (addresses without their low six bits) that were read or written, if asked for.
    pub lines: Vec<usize>,
}

/// Adds to a list while it has room: the handler interrupts an allocator at any point, and must not allocate.
fn kept<T>(list: &mut Vec<T>, it: T) {
    if list.len() < list.capacity() {
        list.push(it);
    }
}

impl Trace {
    fn happened(&mut self, event: Event) {
        kept(&mut self.events, event);
    }
}

/// What says which registers and memory an instruction uses, with room for those that use most: `vzeroall` and `fxsave`.
fn information() -> InstructionInfoFactory {
    let mut info = InstructionInfoFactory::new();
    for code in [&[0xc5, 0xfc, 0x77][..], &[0x48, 0x0f, 0xae, 0x04, 0x24]] {
        let _ = info.info(&Decoder::new(64, code, DecoderOptions::NONE).decode());
    }
    info
}

/// What the handler works on. Only one thread traces, and only between [`start`] and [`stop`] of the same thread.
struct State {
    ranges: Vec<Range>,
    watches_lines: bool,
    /// Base of the thread's own memory.
    thread: u64,
    trace: Trace,
    info: InstructionInfoFactory,
    /// Decoded before, by address: code does not change.
    cache: Vec<Option<(u64, Instruction, u8)>>,
}

/// Entries of the cache of decoded instructions.
const CACHE: usize = 1 << 14;

static mut STATE: *mut State = ptr::null_mut();
/// One trace at a time.
static TRACING: Mutex<()> = Mutex::new(());

/// Kinds of instructions that the handler looks at.
const PLAIN: u8 = 0;
const MEMORY: u8 = 1;
const FENCE: u8 = 2;
const SYSTEM: u8 = 3;

/// The register's value in a signal frame.
fn value(registers: &[i64; 23], register: Register) -> u64 {
    let full = register.full_register();
    let index = match full {
        Register::RAX => libc::REG_RAX,
        Register::RBX => libc::REG_RBX,
        Register::RCX => libc::REG_RCX,
        Register::RDX => libc::REG_RDX,
        Register::RSI => libc::REG_RSI,
        Register::RDI => libc::REG_RDI,
        Register::RBP => libc::REG_RBP,
        Register::RSP => libc::REG_RSP,
        Register::R8 => libc::REG_R8,
        Register::R9 => libc::REG_R9,
        Register::R10 => libc::REG_R10,
        Register::R11 => libc::REG_R11,
        Register::R12 => libc::REG_R12,
        Register::R13 => libc::REG_R13,
        Register::R14 => libc::REG_R14,
        Register::R15 => libc::REG_R15,
        Register::RIP => libc::REG_RIP,
        _ => return 0,
    };
    registers[index as usize] as u64
}

extern "C" fn on_trap(_signal: c_int, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a `ucontext_t` to handlers installed with SA_SIGINFO.
    let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    // SAFETY: set before the trap flag is, by the thread that traps.
    let state = unsafe { STATE };
    // SAFETY: as above; nothing else uses it until the flag is cleared.
    let state = unsafe { &mut *state };
    state.trace.instructions += 1;
    state.look(registers);
}

impl State {
    fn decode(&mut self, at: u64) -> (Instruction, u8) {
        let slot = at as usize % CACHE;
        if let Some((known, instruction, kind)) = &self.cache[slot]
            && *known == at
        {
            return (*instruction, *kind);
        }
        let code = ptr::with_exposed_provenance::<u8>(at as usize);
        let mut bytes = [0; 15];
        // The instruction may end just before the end of the mapping, so no more is read than its page and, if it goes
        // over into the next one, that.
        let page = 4096 - at as usize % 4096;
        let first = bytes.len().min(page);
        // SAFETY: the processor is about to execute from there, so that page is mapped.
        unsafe { code.copy_to_nonoverlapping(bytes.as_mut_ptr(), first) };
        let mut instruction =
            Decoder::with_ip(64, &bytes[..first], at, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            // SAFETY: an instruction that is not whole in its page goes on in the next, which is mapped then.
            unsafe { code.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
            instruction = Decoder::with_ip(64, &bytes, at, DecoderOptions::NONE).decode();
        }
        let kind = match instruction.code() {
            Code::Sfence | Code::Mfence | Code::Lfence => FENCE,
            Code::Syscall => SYSTEM,
            _ if instruction.has_lock_prefix() => MEMORY,
            _ if self.info.info(&instruction).used_memory().is_empty() => PLAIN,
            _ => MEMORY,
        };
        self.cache[slot] = Some((at, instruction, kind));
        (instruction, kind)
    }

    fn look(&mut self, registers: &[i64; 23]) {
        let at = registers[libc::REG_RIP as usize] as u64;
        let (instruction, kind) = self.decode(at);
        if kind == PLAIN {
            return;
        }
        if kind == SYSTEM {
            self.trace.system_calls += 1;
            return;
        }
        if kind == FENCE {
            self.trace.happened(match instruction.code() {
                Code::Sfence => Event::StoreFence,
                Code::Lfence => Event::LoadFence,
                _ => Event::FullFence,
            });
            return;
        }
        if instruction.has_lock_prefix() {
            self.trace.happened(Event::FullFence);
        }
        let repeats = instruction.has_rep_prefix() || instruction.has_repne_prefix();
        let State {
            info,
            ranges,
            trace,
            watches_lines,
            thread,
            ..
        } = self;
        for memory in info.info(&instruction).used_memory() {
            let Some(address) = memory.virtual_address(0, |register, _, _| {
                Some(match register {
                    Register::ES | Register::CS | Register::SS | Register::DS => 0,
                    Register::FS => *thread,
                    Register::GS => 0,
                    register => value(registers, register),
                })
            }) else {
                continue;
            };
            // A repeated string instruction traps after each of its steps, so each is seen as one.
            let width = memory.memory_size().size().max(1);
            let writes = !matches!(memory.access(), OpAccess::Read | OpAccess::CondRead)
                && memory.access() != OpAccess::NoMemAccess;
            if repeats && value(registers, Register::RCX) == 0 {
                continue;
            }
            let address = address as usize;
            if *watches_lines && memory.access() != OpAccess::NoMemAccess {
                let line = address & !63;
                if !trace.lines.contains(&line) {
                    kept(&mut trace.lines, line);
                }
            }
            if !writes {
                continue;
            }
            let hit = ranges
                .iter()
                .position(|range| (range.start..range.start + range.len).contains(&address));
            if let Some(range) = hit {
                trace.happened(Event::Store {
                    range,
                    offset: address - ranges[range].start,
                    width,
                });
            }
        }
    }
}

/// Where the calling thread's own memory is: its first word says so itself (System V ABI, ELF handling for thread-local
/// storage, variant II).
fn thread_base() -> u64 {
    let base;
    // SAFETY: reads that word.
    unsafe { asm!("mov {}, fs:[0]", out(reg) base, options(nostack, readonly)) };
    base
}

/// Installs the handler.
fn install() -> io::Result<()> {
    // SAFETY: zero bytes are a valid `sigaction`.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction =
        on_trap as extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: a valid action; the handler touches only the tracer's own state, which the traced code does not use.
    let result = unsafe { libc::sigaction(libc::SIGTRAP, &raw const action, ptr::null_mut()) };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the trap flag (bit 8); the instruction after `popfq` is the first to trap.
#[inline(always)]
fn start() {
    // SAFETY: changes only flags; a handler is installed.
    unsafe {
        asm!(
            "pushfq",
            "or qword ptr [rsp], 0x100",
            "popfq",
            options(preserves_flags)
        );
    }
}

/// Clears it again.
#[inline(always)]
fn stop() {
    // SAFETY: changes only flags.
    unsafe {
        asm!(
            "pushfq",
            "and qword ptr [rsp], -257",
            "popfq",
            options(preserves_flags)
        );
    }
}

/// A call under single step.
///
/// # Panics
///
/// If the handler cannot be installed, or the call does more than is kept (2^16 events, as many lines).
pub fn run(ranges: &[Range], watches_lines: bool, call: &mut dyn FnMut()) -> Trace {
    let empty = once(&[], false, &mut || {});
    let mut trace = once(ranges, watches_lines, call);
    trace.instructions = trace.instructions.saturating_sub(empty.instructions);
    trace
}

/// For [`fake_kernel_preload::watch`]: while a traced thread is inside the fake kernel it runs freely, since what is
/// done there is no part of the call.
pub fn pause(pauses: bool) {
    // SAFETY: only compared; set and taken back by the thread that traces.
    let is_tracing = unsafe { !STATE.is_null() };
    match (is_tracing, pauses) {
        (true, true) => stop(),
        (true, false) => start(),
        _ => {}
    }
}

fn once(ranges: &[Range], watches_lines: bool, call: &mut dyn FnMut()) -> Trace {
    let _one = TRACING.lock().unwrap_or_else(PoisonError::into_inner);
    install().expect("a handler for SIGTRAP");
    let state = Box::into_raw(Box::new(State {
        ranges: ranges.to_vec(),
        watches_lines,
        thread: thread_base(),
        trace: Trace {
            instructions: 0,
            system_calls: 0,
            events: Vec::with_capacity(1 << 16),
            lines: Vec::with_capacity(1 << 16),
        },
        info: information(),
        cache: vec![None; CACHE],
    }));
    // SAFETY: this thread is the only one that traces.
    unsafe { STATE = state };
    start();
    call();
    stop();
    // SAFETY: no trap any more.
    unsafe { STATE = ptr::null_mut() };
    // SAFETY: from `Box::into_raw` above.
    let state = unsafe { Box::from_raw(state) };
    let trace = state.trace;
    assert!(
        trace.events.len() < trace.events.capacity() && trace.lines.len() < trace.lines.capacity(),
        "a trace is too long to be kept"
    );
    trace
}

#[cfg(test)]
mod tests {
    use std::arch::asm;

    use iced_x86::{Decoder, DecoderOptions};

    use super::{Event, Range, run};

    #[test]
    fn stores_and_fences_in_order() {
        let mut memory = [0_u64; 16];
        let start = memory.as_mut_ptr();
        let range = Range {
            start: start.expose_provenance(),
            len: 128,
        };
        let trace = run(&[range], true, &mut || {
            // SAFETY: stores into `memory`.
            unsafe {
                asm!(
                    "mov dword ptr [{p} + 4], {v:e}",
                    "sfence",
                    "mov qword ptr [{p} + 64], {v}",
                    "lock add dword ptr [{p} + 8], 1",
                    "mfence",
                    "lfence",
                    p = in(reg) start,
                    v = in(reg) 7_u64,
                );
            }
        });
        let store = |offset, width| Event::Store {
            range: 0,
            offset,
            width,
        };
        assert_eq!(
            trace.events,
            [
                store(4, 4),
                Event::StoreFence,
                store(64, 8),
                Event::FullFence,
                store(8, 4),
                Event::FullFence,
                Event::LoadFence,
            ]
        );
        assert_eq!(memory[8], 7);
        assert!(trace.lines.contains(&(range.start & !63)));
    }

    /// What uses most registers is known before the handler meets it.
    #[test]
    fn the_handler_has_room_for_every_register() {
        let mut info = super::information();
        let code = [0xc5, 0xf8, 0x77]; // vzeroupper
        let instruction = Decoder::new(64, &code, DecoderOptions::NONE).decode();
        let used = info.info(&instruction).used_registers().len();
        assert!(used > 10, "iced's room for a start");
    }

    #[test]
    fn counts_are_exact() {
        let count = |n: u64| {
            run(&[], false, &mut || {
                // SAFETY: a loop of `n` rounds of two instructions.
                unsafe {
                    asm!("2:", "dec {n}", "jnz 2b", n = inout(reg) n => _);
                }
            })
            .instructions
        };
        assert_eq!(count(11) - count(1), 20);
        assert_eq!(count(101) - count(1), 200);
    }
}
