//! Changes of a list of tags, and what their completions say. Bytes are as mlx5dv.h has them (`struct mlx5_wqe_tm_seg`), and
//! as the oracle finds them in libmlx5's.

use wqe_format::mlx5::{Cqe64, tag_operation};

use super::super::tags::TagCompletion;
use super::*;

/// A change as a program has it.
#[derive(Clone, Copy, Debug)]
struct Request {
    id: u64,
    signaled: bool,
    unexpected: Option<u32>,
    change: TagChange,
    handle: Option<u32>,
}

impl Request {
    fn new(id: u64, change: TagChange) -> Self {
        Self {
            id,
            signaled: true,
            unexpected: None,
            change,
            handle: None,
        }
    }

    fn add(id: u64) -> Self {
        let sge = Sge {
            addr: 0x0102_0304_0506_0708,
            length: 0x100,
            lkey: 0x1112_1314,
        };
        Self::new(
            id,
            TagChange::Add {
                recv_wr_id: id + 100,
                sge: Some(sge),
                tag: 0x2122_2324_2526_2728,
                mask: 0x3132_3334_3536_3738,
            },
        )
    }
}

impl TagRequest for &mut Request {
    fn wr_id(&self) -> u64 {
        self.id
    }

    fn is_signaled(&self) -> bool {
        self.signaled
    }

    fn unexpected(&self) -> Option<u32> {
        self.unexpected
    }

    fn change(&self) -> Result<TagChange, PostError> {
        Ok(self.change)
    }

    fn added(&mut self, handle: u32) {
        self.handle = Some(handle);
    }
}

/// A list of two places, and the queue that it is changed by, of four work requests.
fn list() -> (TagList, Bed) {
    (TagList::new(2, 64, true), Bed::new(QueueKind::Rc))
}

fn post(list: &TagList, bed: &mut Bed, mut request: Request) -> Result<Option<u32>, PostError> {
    let posted = list.post(&mut bed.queue, std::iter::once(&mut request));
    posted.map_err(|refused| refused.error)?;
    Ok(request.handle)
}

fn complete(list: &TagList, operation: u8, index: u16, phase: u16) -> TagCompletion {
    let mut bytes = [0; 64];
    // Success; the phase; `app_op` and `app_info`.
    bytes[0] = 0x80;
    bytes[4..6].copy_from_slice(&phase.to_be_bytes());
    bytes[41] = operation;
    bytes[42..44].copy_from_slice(&index.to_be_bytes());
    let cqe: Cqe64 = zerocopy::transmute!(bytes);
    // SAFETY: there are no data.
    unsafe { list.complete(&cqe, None) }.expect("a known operation")
}

#[test]
fn an_addition_names_the_place_of_the_next() {
    let (list, mut bed) = list();
    let mut request = Request::add(1);
    request.unexpected = Some(0x1_0203);
    assert_eq!(post(&list, &mut bed, request), Ok(Some(0)));
    let mut expected = vec![0, 0, 0, 0x28, 0xab, 0xcd, 0xef, 4, 0, 0, 0, 0, 0, 0, 0, 0];
    expected.extend([0x10, 0xc0, 0, 1, 0, 0, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(0x21..=0x28_u8);
    expected.extend(0x31..=0x38_u8);
    expected.extend([0, 0, 1, 0, 0x11, 0x12, 0x13, 0x14]);
    expected.extend(1..=8_u8);
    assert_eq!(bed.wqe(0, 64), expected);
    assert_eq!(bed.doorbell(), 1);
}

#[test]
fn places_are_free_when_nothing_is_waited_for() {
    let (list, mut bed) = list();
    assert_eq!(post(&list, &mut bed, Request::add(1)), Ok(Some(0)));
    assert_eq!(post(&list, &mut bed, Request::add(2)), Ok(Some(1)));
    let full = Err(PostError::QueueFull);
    assert_eq!(post(&list, &mut bed, Request::add(3)), full);
    // The addition, and then the message.
    let done = complete(&list, tag_operation::APPEND, 0, 0);
    assert_eq!((done.wr_id, done.status.0, done.wants_sync), (1, 0, false));
    assert_eq!(post(&list, &mut bed, Request::add(3)), full);
    let met = complete(&list, tag_operation::CONSUMED_MSG, 0, 0);
    assert_eq!((met.wr_id, met.status.0), (101, 0));
    assert_eq!(post(&list, &mut bed, Request::add(3)), Ok(Some(2)));
    // Nobody waits for one that is free.
    let met = complete(&list, tag_operation::CONSUMED_MSG, 0, 0);
    assert_eq!(met.status, wqe_format::rxe::WcStatus::GENERAL_ERR);
    let unknown = complete(&list, tag_operation::CONSUMED_MSG, 0xffff, 0);
    assert_eq!(unknown.status, met.status);
}

#[test]
fn a_removal_frees_its_place_and_one_of_nothing_is_refused() {
    let (list, mut bed) = list();
    let remove = |handle| Request::new(9, TagChange::Remove { handle });
    let refused = Err(PostError::UnknownTag);
    for handle in [0, 2, 3, 0x1_0000] {
        assert_eq!(post(&list, &mut bed, remove(handle)), refused);
    }
    assert_eq!(bed.queue.head(), 0);
    assert_eq!(post(&list, &mut bed, Request::add(1)), Ok(Some(0)));
    assert_eq!(post(&list, &mut bed, remove(0)), Ok(None));
    complete(&list, tag_operation::APPEND, 0, 0);
    let done = complete(&list, tag_operation::REMOVE, 0, 0);
    assert_eq!((done.wr_id, done.status.0), (9, 0));
    assert_eq!(post(&list, &mut bed, remove(0)), refused);
}

#[test]
fn completions_of_changes_make_room_for_more() {
    let (list, mut bed) = list();
    let sync = Request::new(5, TagChange::Sync);
    for _ in 0..4 {
        assert_eq!(post(&list, &mut bed, sync), Ok(None));
    }
    let full = Err(PostError::QueueFull);
    assert_eq!(post(&list, &mut bed, sync), full);
    let done = complete(&list, tag_operation::NOOP, 0, 7);
    // A synchronisation is of no phase.
    assert_eq!((done.wr_id, done.wants_sync), (5, false));
    assert_eq!(post(&list, &mut bed, sync), Ok(None));
    assert_eq!(post(&list, &mut bed, sync), full);
    // More completions than changes are the device's mistake.
    for _ in 0..4 {
        assert_eq!(complete(&list, tag_operation::NOOP, 0, 0).status.0, 0);
    }
    let more = complete(&list, tag_operation::NOOP, 0, 0);
    assert_eq!(more.status, wqe_format::rxe::WcStatus::GENERAL_ERR);
}

#[test]
fn a_phase_that_is_not_the_devices_is_told() {
    let (list, mut bed) = list();
    for (told, phase, wants) in [(3, 3, false), (4, 5, true), (0x1_0006, 6, false)] {
        let mut request = Request::add(1);
        request.unexpected = Some(told);
        let handle = post(&list, &mut bed, request).unwrap().unwrap();
        let done = complete(&list, tag_operation::APPEND, 0, phase);
        assert_eq!(done.wants_sync, wants);
        complete(&list, tag_operation::CONSUMED_MSG, handle as u16, 0);
    }
}
