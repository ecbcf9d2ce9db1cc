//! Requests of mlx5 as text.

use uverbs_abi::handle::{Cq, Pd};
use uverbs_abi::ioctl::{Command, RequestView, Slot};
use uverbs_abi::object::mlx5::{UarAllocType, extra, uar};
use uverbs_abi::object::{cq, qp};
use uverbs_abi::trace::{self, Memory, Show};
use uverbs_abi::types::{DriverId, QpCap, QpType};
use uverbs_abi::udata::mlx5;

/// The input memory of one command; addresses are offsets in it.
struct Input(Vec<u8>);

impl Memory for Input {
    fn with(&self, address: u64, len: usize, f: &mut dyn FnMut(Option<&[u8]>)) {
        let start = address as usize;
        f(self.0.get(start..start + len));
    }
}

/// The command as text, and that a kernel would take it.
fn text<M: uverbs_abi::ioctl::Method>(command: &mut Command<'_, M>, show: Show) -> String {
    use zerocopy::IntoBytes;
    let mut raw = command.prepare(DriverId::MLX5).unwrap();
    let input = Input(raw.input.as_bytes().to_vec());
    for (attr, slot) in raw.attrs() {
        if let Slot::Input { offset, .. } = slot {
            attr.data = *offset as u64;
        }
    }
    let view = RequestView::parse(raw.frame.bytes()).unwrap();
    view.spec().unwrap().check(&view).unwrap();
    let mut text = String::new();
    trace::ioctl(&mut text, &view, &input, show).unwrap();
    text
}

#[test]
fn a_queue_pair_by_its_fields() {
    let mut command = Command::<qp::create::Method>::new();
    command
        .object(qp::create::PD_HANDLE, Pd(1))
        .new_handle(qp::create::HANDLE)
        .constant(qp::create::TYPE, QpType::RC)
        .input(qp::create::USER_HANDLE, 5)
        .input(qp::create::CAP, QpCap::default())
        .output(qp::create::RESP_CAP)
        .output(qp::create::RESP_QP_NUM)
        .uhw_in(&mlx5::CreateQp {
            buf_addr: 0x7f00,
            sq_wqe_count: 64,
            flags: mlx5::CreateQpFlags::UAR_PAGE_INDEX,
            uidx: 3,
            ..mlx5::CreateQp::default()
        })
        .uhw_out::<mlx5::CreateQpResp>();
    let lines = "  UVERBS_ATTR_UHW_IN in\n    buf_addr 007f000000000000\n    sq_wqe_count 40000000\n    \
                 flags 00040000\n    uidx 03000000\n  UVERBS_ATTR_UHW_OUT out 40 bytes\n";
    let all = text(&mut command, Show::All);
    assert!(all.ends_with(lines), "{all}");
    let portable = text(&mut command, Show::Portable);
    let hidden = lines.replace(" 007f000000000000", "");
    assert!(portable.ends_with(&hidden), "{portable}");
}

/// The driver's own methods and attributes have names only in a request for it.
#[test]
fn names_are_the_drivers() {
    let mut command = Command::<uar::alloc::Method>::new();
    command
        .new_handle(uar::alloc::HANDLE)
        .constant(uar::alloc::TYPE, UarAllocType::NC)
        .output(uar::alloc::MMAP_OFFSET)
        .output(uar::alloc::MMAP_LENGTH)
        .output(uar::alloc::PAGE_ID);
    let mlx5 = text(&mut command, Show::All);
    assert!(mlx5.starts_with("MLX5_IB_METHOD_UAR_OBJ_ALLOC\n"), "{mlx5}");
    assert!(
        mlx5.contains("MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE in 0100000000000000\n"),
        "{mlx5}"
    );
    let raw = command.prepare(DriverId::RXE).unwrap();
    let view = RequestView::parse(raw.frame.bytes()).unwrap();
    assert!(view.spec().is_none());

    let mut command = Command::<cq::create::Method>::new();
    command
        .new_handle(cq::create::HANDLE)
        .input(cq::create::CQE, 255)
        .input(cq::create::USER_HANDLE, 5)
        .input(cq::create::COMP_VECTOR, 0)
        .output(cq::create::RESP_CQE)
        .input(extra::CREATE_CQ_UAR_INDEX, 70000);
    let mlx5 = text(&mut command, Show::All);
    assert!(
        mlx5.ends_with("MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX in 70110100\n"),
        "{mlx5}"
    );
    let raw = command.prepare(DriverId::RXE).unwrap();
    let view = RequestView::parse(raw.frame.bytes()).unwrap();
    let spec = view.spec().unwrap();
    assert!(spec.check(&view).is_err(), "rxe has no such attribute");
    assert_eq!(Cq(0), command.handle(cq::create::HANDLE).unwrap());
}
