//! Steps of bringing a device up, and what is agreed on with its firmware.

use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::atomic::AtomicCaps;
use wqe_format::mlx5::firmware::caps::command::{QueryHcaCapIn, QueryHcaCapOut, SetHcaCapIn};
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::command::MboxIn;
use wqe_format::mlx5::firmware::hca::{QueryIssiOut, SetDriverVersionIn, SetIssiIn};
use wqe_format::mlx5::firmware::register::access::AccessRegisterIn;
use wqe_format::mlx5::firmware::uar::{AllocUarOut, DeallocUarIn};
use wqe_format::mlx5::firmware::{EventType, Opcode, Status};

use super::command::{CommandCause, CommandError};
use super::eq;
use super::pci::Pci;
use crate::sys::errno::Errno;
use crate::sys::pages::page_size;

/// Runs a command.
pub(super) type Run<'a> = &'a dyn Fn(&[u8], &mut [u8]) -> Result<(), CommandError>;

/// Bytes of the capabilities that layouts describe.
const PART: usize = 0x100;
/// Command register of the configuration space: memory space and bus master (PCI 3.0, 6.2.2).
const COMMAND: u16 = 0x04;
const MEMORY_AND_MASTER: u16 = 0x6;
/// HOST_ENDIANNESS.
const HOST_ENDIANNESS: u16 = 0x7004;
/// `log_pkey_table_size` of 128 keys, as general capabilities have it (Linux `to_fw_pkey_sz`).
const PKEYS_128: u16 = 0;

/// Lets the function answer to its BAR and use memory.
pub(super) fn enable_bus(pci: &dyn Pci) -> Result<(), Errno> {
    let mut id = [0; 2];
    pci.config_read(0, &mut id)?;
    if id == [0xff; 2] {
        return Err(Errno(libc::ENODEV));
    }
    let mut command = [0; 2];
    pci.config_read(COMMAND, &mut command)?;
    let command = u16::from_le_bytes(command) | MEMORY_AND_MASTER;
    Ok(pci.config_write(COMMAND, &command.to_le_bytes())?)
}

/// A command that is nothing but its opcode.
fn plain(run: Run<'_>, opcode: Opcode) -> Result<[u8; 16], CommandError> {
    let mut input = MboxIn::zeroed();
    input.set_opcode(opcode.0);
    let mut output = [0; 16];
    run(input.as_bytes(), &mut output)?;
    Ok(output)
}

/// ENABLE_HCA, and the newest version of the interface that both sides know (ISSI 1, or 0 with firmware that does not know
/// the question).
pub(super) fn enable(run: Run<'_>) -> Result<(), CommandError> {
    plain(run, Opcode::ENABLE_HCA)?;
    let mut query = MboxIn::zeroed();
    query.set_opcode(Opcode::QUERY_ISSI.0);
    let mut answer = QueryIssiOut::zeroed();
    match run(query.as_bytes(), answer.as_bytes_mut()) {
        Err(CommandError {
            status: Status::BAD_OP_ERR,
            ..
        }) => return Ok(()),
        done => done?,
    }
    if answer.supported_issi_dw0() & 1 << 1 == 0 {
        return Ok(());
    }
    let mut set = SetIssiIn::zeroed();
    set.set_opcode(Opcode::SET_ISSI.0).set_current_issi(1);
    run(set.as_bytes(), &mut [0; 16])
}

/// DISABLE_HCA.
pub(super) fn disable(run: Run<'_>) -> Result<(), CommandError> {
    plain(run, Opcode::DISABLE_HCA).map(drop)
}

/// Device ids of virtual functions (Linux `mlx5_core_pci_table`, `MLX5_PCI_DEV_IS_VF`): from Connect-IB to ConnectX-6, all
/// later ones, BlueField.
const VIRTUAL_FUNCTIONS: [u16; 8] = [
    0x1012, 0x1014, 0x1016, 0x1018, 0x101a, 0x101c, 0x101e, 0xa2d3,
];
/// Device id in the configuration space (PCI 3.0, 6.2.1).
const DEVICE_ID: u16 = 0x02;

/// Whether the function is a virtual one, by whose id VFIO answers for it.
pub(super) fn is_virtual(pci: &dyn Pci) -> Result<bool, Errno> {
    let mut id = [0; 2];
    pci.config_read(DEVICE_ID, &mut id)?;
    Ok(VIRTUAL_FUNCTIONS.contains(&u16::from_le_bytes(id)))
}

/// Tells the firmware that the host is little-endian, which virtual functions may not say.
pub(super) fn host_endianness(run: Run<'_>) -> Result<(), CommandError> {
    let mut input = [0; AccessRegisterIn::SIZE + 16];
    if let Ok(mut view) = AccessRegisterIn::new(&mut input[..]) {
        view.set_opcode(Opcode::ACCESS_REG.0)
            .set_register_id(HOST_ENDIANNESS);
    }
    match run(&input, &mut [0; 32]) {
        Err(CommandError {
            cause: CommandCause::Refused,
            ..
        }) => Ok(()),
        done => done,
    }
}

/// Capabilities of a kind, in force or possible.
fn query(run: Run<'_>, op_mod: u16) -> Result<[u8; QueryHcaCapOut::SIZE], CommandError> {
    let mut input = QueryHcaCapIn::zeroed();
    input.set_opcode(Opcode::QUERY_HCA_CAP.0).set_op_mod(op_mod);
    let mut output = QueryHcaCapOut::zeroed();
    run(input.as_bytes(), output.as_bytes_mut())?;
    Ok(output.into_inner())
}

fn part(output: &[u8; QueryHcaCapOut::SIZE]) -> [u8; PART] {
    std::array::from_fn(|at| output[16 + at])
}

/// Layouts of [`PART`] bytes over as many.
fn fits<T>(made: Result<T, wqe_format::mlx5::firmware::Short>) -> Result<T, CommandError> {
    made.map_err(|_| {
        let cause = CommandCause::Process(Errno(libc::EIO));
        CommandError::other(Opcode::QUERY_HCA_CAP, cause)
    })
}

/// General capabilities in force.
pub(super) fn general(run: Run<'_>) -> Result<CmdHcaCap<[u8; PART]>, CommandError> {
    let output = query(run, CapType::GENERAL.current())?;
    fits(CmdHcaCap::new(part(&output)))
}

fn set(run: Run<'_>, kind: CapType, capability: &[u8]) -> Result<(), CommandError> {
    let mut input = SetHcaCapIn::zeroed();
    input
        .set_opcode(Opcode::SET_HCA_CAP.0)
        .set_op_mod(kind.current());
    input.capability_mut()[..capability.len()].copy_from_slice(capability);
    run(input.as_bytes(), &mut [0; 16])
}

/// Sets what has to be set before INIT_HCA: atomics in the host's byte order, and of the general capabilities what
/// Linux sets too (`main.c` `handle_hca_cap`).
pub(super) fn negotiate(run: Run<'_>) -> Result<(), CommandError> {
    let current = query(run, CapType::GENERAL.current())?;
    let possible = query(run, CapType::GENERAL.maximum())?;
    let possible = fits(CmdHcaCap::new(part(&possible)))?;
    let mut wanted = current;
    let mut general = fits(CmdHcaCap::new(&mut wanted[16..]))?;
    general.set_pkey_table_size(PKEYS_128).set_cmdif_checksum(0);
    if possible.cache_line_128byte() && cache_line() >= 128 {
        general.set_cache_line_128byte(true);
    }
    if possible.dct() {
        general.set_dct(true);
    }
    // pages of doorbells are counted in the system's pages
    if page_size() > 4096 && possible.uar_4k() {
        general.set_uar_4k(true);
    }
    general.set_log_uar_page_sz((page_size() / 4096).trailing_zeros() as u16);
    // requests for pages are served, so there is no need to do without
    set(run, CapType::GENERAL, &wanted[16..])?;
    if !possible.atomic() {
        return Ok(());
    }
    let mut atomic = query(run, CapType::ATOMIC.current())?;
    let can = query(run, CapType::ATOMIC.maximum())?;
    let can = fits(AtomicCaps::new(part(&can)))?;
    if can.supported_atomic_req_8b_endianness_mode_1() && cfg!(target_endian = "little") {
        fits(AtomicCaps::new(&mut atomic[16..]))?.set_atomic_req_8b_endianness_mode(1);
        set(run, CapType::ATOMIC, &atomic[16..])?;
    }
    Ok(())
}

fn cache_line() -> i64 {
    // SAFETY: `sysconf` has no preconditions.
    unsafe { libc::sysconf(libc::_SC_LEVEL1_DCACHE_LINESIZE) }
}

/// INIT_HCA, and who drives the device, for who looks at the firmware's logs.
pub(super) fn init(run: Run<'_>) -> Result<(), CommandError> {
    let mut input = wqe_format::mlx5::firmware::hca::InitHcaIn::zeroed();
    input.set_opcode(Opcode::INIT_HCA.0);
    run(input.as_bytes(), &mut [0; 16])?;
    if !general(run)?.driver_version() {
        return Ok(());
    }
    let mut input = SetDriverVersionIn::zeroed();
    input.set_opcode(Opcode::SET_DRIVER_VERSION.0);
    let name = concat!("Linux,oxverbs,", env!("CARGO_PKG_VERSION")).as_bytes();
    input.driver_version_mut()[..name.len()].copy_from_slice(name);
    run(input.as_bytes(), &mut [0; 16])
}

/// ALLOC_UAR.
pub(super) fn alloc_uar(run: Run<'_>) -> Result<u32, CommandError> {
    let output = plain(run, Opcode::ALLOC_UAR)?;
    let view = AllocUarOut::new(output).map_err(|_| {
        let cause = CommandCause::Process(Errno(libc::EIO));
        CommandError::other(Opcode::ALLOC_UAR, cause)
    })?;
    Ok(view.uar())
}

/// DEALLOC_UAR.
pub(super) fn dealloc_uar(run: Run<'_>, uar: u32) -> Result<(), CommandError> {
    let mut input = DeallocUarIn::zeroed();
    input.set_opcode(Opcode::DEALLOC_UAR.0).set_uar(uar);
    run(input.as_bytes(), &mut [0; 16])
}

/// Events that the device may tell of: of objects, ports and commands (Linux `eq.c` `gather_async_events_mask`).
pub(super) fn events(general: &CmdHcaCap<[u8; PART]>) -> [u64; 4] {
    let mut types = vec![
        EventType::PATH_MIG,
        EventType::COMM_EST,
        EventType::SQ_DRAINED,
        EventType::CQ_ERROR,
        EventType::WQ_CATAS_ERROR,
        EventType::PATH_MIG_FAILED,
        EventType::PORT_CHANGE,
        EventType::CMD,
        EventType::WQ_INVAL_REQ_ERROR,
        EventType::WQ_ACCESS_ERROR,
        EventType::SRQ_CATAS_ERROR,
        EventType::SRQ_LAST_WQE,
        EventType::SRQ_RQ_LIMIT,
    ];
    if general.dct() {
        types.extend([EventType::DCT_DRAINED, EventType::DCT_KEY_VIOLATION]);
    }
    eq::mask(&types)
}
