//! Rules of firmware layouts: a field that is set is read back, its neighbours are left alone, fewer bytes than a layout
//! has are refused, and no bytes make anything panic.

use proptest::prelude::*;
use wqe_format::mlx5::firmware::caps::flow_table::FlowTableNicCap;
use wqe_format::mlx5::firmware::command::{CmdIfBox, CmdQueueEntry};
use wqe_format::mlx5::firmware::cq::{CreateCqIn, ModifyCqIn};
use wqe_format::mlx5::firmware::eqe::{Eqe, PagesReqEvent};
use wqe_format::mlx5::firmware::flow::entry::{FlowContext, SetFteIn};
use wqe_format::mlx5::firmware::hca_vport::{QueryHcaVportGidOut, QueryHcaVportPkeyOut};
use wqe_format::mlx5::firmware::pages::ManagePagesIn;
use wqe_format::mlx5::firmware::qp::CreateQpIn;
use wqe_format::mlx5::firmware::rqt::Rqtc;
use wqe_format::mlx5::firmware::{Count, Layout, Opcode, Short, bits, layouts};

/// Bit `index` as the manual counts.
fn bit(bytes: &[u8], index: usize) -> bool {
    bytes[index / 8] & (0x80 >> (index % 8)) != 0
}

proptest! {
    /// A number in any place, against one bit after the other.
    #[test]
    fn numbers_stand_where_they_should(
        mut bytes in prop::collection::vec(any::<u8>(), 32),
        offset in 0_usize..192,
        width in 1_usize..=64,
        value: u64,
    ) {
        let before = bytes.clone();
        let read = (0..width).fold(0, |sum, i| sum << 1 | u64::from(bit(&before, offset + i)));
        prop_assert_eq!(bits::get(&bytes, offset, width), read);

        bits::set(&mut bytes, offset, width, value);
        let kept = value & (u64::MAX >> (64 - width));
        prop_assert_eq!(bits::get(&bytes, offset, width), kept);
        for i in (0..256).filter(|i| !(offset..offset + width).contains(i)) {
            prop_assert_eq!(bit(&bytes, i), bit(&before, i), "bit {}", i);
        }
    }

    /// Bits beyond the end read as zero and are not written; nothing panics.
    #[test]
    fn there_is_nothing_behind_the_end(
        mut bytes in prop::collection::vec(any::<u8>(), 0..12),
        offset in 0_usize..200,
        width in 1_usize..=64,
        value: u64,
    ) {
        let mut longer = bytes.clone();
        longer.resize(64, 0);
        prop_assert_eq!(bits::get(&bytes, offset, width), bits::get(&longer, offset, width));
        bits::set(&mut bytes, offset, width, value);
        bits::set(&mut longer, offset, width, value);
        prop_assert_eq!(&bytes[..], &longer[..bytes.len()]);
        prop_assert!(bits::part(&bytes, offset & !7, width & !7).len() <= 8);
        prop_assert!(bits::part_mut(&mut bytes, usize::MAX, usize::MAX).is_empty());
        prop_assert!(bits::rest(&bytes, offset).len() <= bytes.len());
    }

    /// Any bytes can be looked at as any layout, printed and checked; too few are refused.
    #[test]
    fn any_bytes_can_be_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..0x400)) {
        for layout in layouts() {
            let short = Short { layout: layout.name, needed: layout.size, got: bytes.len() };
            let expected = if bytes.len() < layout.size { Err(short) } else { Ok(()) };
            prop_assert_eq!(layout.check(&bytes), expected);
            if let Some(reserved) = layout.reserved_bit_set(&bytes) {
                prop_assert!(bit(&bytes, reserved) && !layout.knows(reserved));
            }
        }
        macro_rules! print {
            ($($type:ident)*) => {$(
                if let Ok(view) = $type::new(&bytes) {
                    let text = format!("{view:?}");
                    prop_assert!(text.starts_with(stringify!($type)), "{}", text);
                }
            )*};
        }
        print! { CreateCqIn CreateQpIn Eqe FlowContext SetFteIn Rqtc CmdQueueEntry ManagePagesIn QueryHcaVportGidOut }
    }

    /// Typed functions of every kind of field write what they read, and nothing else.
    #[test]
    fn what_is_set_is_read(
        dirt in prop::collection::vec(any::<u8>(), CreateCqIn::SIZE + 24),
        opcode: u16,
        size: u8,
        flag: bool,
        pages: [u64; 3],
        address: u64,
    ) {
        let mut bytes = dirt.clone();
        let mut input = CreateCqIn::new(&mut bytes).unwrap();
        input.set_opcode(opcode).set_cq_umem_valid(flag);
        input.set_pas(0, pages[0]).set_pas(1, pages[1]).set_pas(2, pages[2]).set_pas(3, 1);
        input.cq_context_mut().set_log_cq_size(size).set_dbr_addr(address);

        prop_assert_eq!(input.opcode(), opcode);
        prop_assert_eq!(input.cq_umem_valid(), flag);
        prop_assert_eq!(input.pas().collect::<Vec<_>>(), pages);
        prop_assert_eq!(input.cq_context().log_cq_size(), size & 0x1f);
        prop_assert_eq!(input.cq_context().dbr_addr(), address);

        // Fields: opcode, cq_umem_valid, log_cq_size and dbr_addr of the context at 0x80, pages.
        let written = |i: usize| {
            i < 0x10 || i == 0x2e0 || (0xe3..0xe8).contains(&i) || (0x240..0x280).contains(&i) || i >= 0x880
        };
        for i in (0..bytes.len() * 8).filter(|i| !written(*i)) {
            prop_assert_eq!(bit(&bytes, i), bit(&dirt, i), "bit {:#x}", i);
        }
    }

    /// Arrays: of numbers, of bytes, of structures, with an end and without.
    #[test]
    fn elements_of_arrays(gids: [[u8; 16]; 2], keys: [u16; 3], numbers: [u32; 3], deltas in prop::array::uniform2(0_u32..1 << 24)) {
        let mut bytes = [0; QueryHcaVportGidOut::SIZE + 32];
        let mut reply = QueryHcaVportGidOut::new(&mut bytes).unwrap();
        for (mut to, from) in reply.gid_mut().zip(gids) {
            to.array128_auto_mut().copy_from_slice(&from);
        }
        let read: Vec<_> = reply.gid().map(|gid| gid.array128_auto().to_vec()).collect();
        prop_assert_eq!(read, gids.map(Vec::from));

        let mut bytes = [0; QueryHcaVportPkeyOut::SIZE + 12];
        let mut reply = QueryHcaVportPkeyOut::new(&mut bytes).unwrap();
        for (mut to, key) in reply.pkey_mut().zip(keys) {
            to.set_pkey(key);
        }
        prop_assert_eq!(reply.pkey().map(|key| key.pkey()).collect::<Vec<_>>(), keys);

        let mut bytes = [0; Rqtc::SIZE + 12];
        let mut table = Rqtc::new(&mut bytes).unwrap();
        for (mut to, number) in table.rq_num_mut().zip(numbers) {
            to.set_rq_num(number);
        }
        let read: Vec<_> = table.rq_num().map(|entry| entry.rq_num()).collect();
        prop_assert_eq!(read, numbers.map(|number| number & 0xff_ffff));

        let mut context = FlowContext::zeroed();
        for (index, delta) in deltas.into_iter().enumerate() {
            context.execute_aso_mut(index).unwrap().set_aso_object_id(delta);
        }
        for (index, delta) in deltas.into_iter().enumerate() {
            prop_assert_eq!(context.execute_aso(index).unwrap().aso_object_id(), delta);
        }
        prop_assert!(context.execute_aso(4).is_none() && context.execute_aso_mut(4).is_none());
    }
}

#[test]
fn too_few_bytes_are_refused_with_numbers() {
    let error = CreateCqIn::new([0; 0x10f]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "CreateCqIn has 0x110 bytes, here are 0x10f"
    );
    assert!(CreateCqIn::new([0; 0x110]).is_ok());
}

#[test]
fn reserved_bits_are_found() {
    let mut input = ModifyCqIn::zeroed();
    input.set_opcode(0x403).set_uid(3).set_cqn(1);
    input.cq_context_mut().set_log_cq_size(31);
    assert_eq!(input.reserved_bit_set(), None);
    // Bits 4 and 5 of a completion queue's context are reserved; it begins at bit 0x80.
    input.as_bytes_mut()[0x10] = 0x08;
    assert_eq!(input.reserved_bit_set(), Some(0x84));
}

#[test]
fn debug_shows_what_is_not_zero() {
    let mut event = Eqe::zeroed();
    event.set_event_type(0xb);
    let mut request = PagesReqEvent::new(event.event_data_mut()).unwrap();
    request.set_num_pages(5);
    assert_eq!(request.num_pages(), 5);
    assert!(format!("{event:?}").starts_with("Eqe { event_type: 0xb, event_data: [00, "));
    assert_eq!(format!("{:?}", CmdIfBox::zeroed()), "CmdIfBox { .. }");
}

/// No field leaves its layout, names stand once, and whole-byte kinds are whole bytes.
#[test]
fn tables_are_consistent() {
    let mut kernels = std::collections::HashSet::new();
    let nic = layouts().find(|layout| layout.kernel == "flow_table_nic_cap");
    assert_eq!(nic.map(|layout| layout.size), Some(FlowTableNicCap::SIZE));
    for layout in layouts() {
        assert!(kernels.insert(layout.kernel), "{} twice", layout.kernel);
        let mut names = std::collections::HashSet::new();
        for field in layout.fields {
            assert!(names.insert(field.name), "{}.{}", layout.name, field.name);
            let end = match field.count {
                Count::One => field.offset + field.width,
                Count::Times(times) => field.offset + field.width * times,
                // Behind the fixed part.
                Count::Rest => field.offset,
            };
            assert!(end <= layout.size * 8, "{}.{}", layout.name, field.name);
            if let Some(Layout { size, .. }) = field.nested {
                assert_eq!(field.width, size * 8, "{}.{}", layout.name, field.name);
            }
            let whole = field.offset % 8 == 0 && field.width % 8 == 0;
            assert!(field.width <= 64 || whole, "{}.{}", layout.name, field.name);
        }
    }
}

/// Commands that have one half have the other, whatever their layouts are called.
#[test]
fn commands_have_both_halves() {
    let mut known = 0;
    for opcode in Opcode::ALL {
        let (input, output) = (opcode.input(), opcode.output());
        assert_eq!(input.is_some(), output.is_some(), "{opcode:?}");
        if let (Some(input), Some(output)) = (input, output) {
            known += 1;
            assert_eq!(input.fields[0].name, "opcode", "{}", input.name);
            assert_eq!(output.fields[0].name, "status", "{}", output.name);
        }
    }
    let halves =
        layouts().filter(|layout| layout.fields.first().is_some_and(|f| f.name == "opcode"));
    println!("{known} commands of {} inputs", halves.count());
    assert!(known >= 140, "{known}");
    assert_eq!(
        Opcode::QP_2ERR.input().map(|layout| layout.name),
        Some("Qp2errIn")
    );
    assert_eq!(Opcode(0xfff).input().map(|layout| layout.name), None);
}
