//! Makes posting calls: seeded, and steered towards cells of the coverage table that were hit least.

use rand::Rng;
use rand::rngs::StdRng;

use crate::c::device::QpSpec;
use crate::call::{Api, Arena, Bind, Opcode, Piece, Post, Service, Wr, flags};
use crate::coverage::Coverage;
use crate::direct::{self, KeyCall, Layout, More};
use crate::shape::{Cell, Shape, blocks};

/// Things besides cells that must happen.
const EXTRA: &[&str] = &[
    "list of 1",
    "list of 2 to 15",
    "list of 16",
    "list of 17 or more",
    "list over the end of the ring",
    "index over 16 bits",
    "more than 256 bytes in one WQE",
    "small fence after an invalidation",
    "builder aborted",
    "refused: overflow",
    "refused: pieces",
    "refused: inline",
    "datagram address after the data",
    "every work request signalled",
    "refused: key elsewhere",
    "refused: key access",
    "refused: key too long",
    "stream chosen",
    "stream not chosen",
];

/// Those that queue pairs of these services can have.
pub fn extra(services: &[Service]) -> Vec<&'static str> {
    let has_any = |wanted: &[Service]| services.iter().any(|service| wanted.contains(service));
    let mut extra = EXTRA.to_vec();
    if has_any(&[Service::Direct]) {
        extra.extend(KeyCall::WHATS);
        extra.extend(["canceled: none", "canceled: one", "canceled: several"]);
    } else {
        extra.retain(|name| !name.starts_with("refused: key"));
    }
    if !has_any(&[Service::Dci]) {
        extra.retain(|name| !name.starts_with("stream"));
    }
    let chains = |service: &Service| service.interfaces().contains(&Api::Chain);
    if !services.iter().any(chains) {
        // Builders write more than there is room for.
        extra.retain(|name| *name != "refused: pieces");
    }
    if !has_any(&[
        Service::Rc,
        Service::Uc,
        Service::Xrc,
        Service::Dci,
        Service::Direct,
    ]) {
        extra.retain(|name| *name != "small fence after an invalidation");
    }
    if services == [Service::Raw] {
        extra.retain(|name| *name != "refused: inline");
    }
    if !has_any(&[Service::Ud, Service::Xrc, Service::Dci]) {
        extra.retain(|name| *name != "datagram address after the data");
    }
    extra
}

/// Where the send queue stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Blocks posted since the start.
    pub position: u32,
    /// Blocks of the ring.
    pub ring: u32,
    /// Work requests that still fit.
    pub free: u32,
}

/// A call and what its work requests count as.
#[derive(Debug)]
pub struct Made {
    /// The call.
    pub post: Post,
    /// One for each work request of it.
    pub shapes: Vec<Shape>,
    /// What is wrong with it.
    pub mistake: Option<&'static str>,
}

/// The generator for one queue pair.
#[derive(Debug)]
pub struct Generator<'a> {
    rng: &'a mut StdRng,
    arena: &'a Arena,
    spec: QpSpec,
    pending: Option<Cell>,
    next_id: u64,
}

impl<'a> Generator<'a> {
    /// For a queue pair of these limits.
    pub fn new(rng: &'a mut StdRng, arena: &'a Arena, spec: QpSpec) -> Self {
        Self {
            rng,
            arena,
            spec,
            pending: None,
            next_id: 1,
        }
    }

    /// What it draws from.
    pub fn rng(&mut self) -> &mut StdRng {
        self.rng
    }

    fn any_api(&mut self) -> Api {
        if self.spec.service.is_direct() {
            return Api::Builder;
        }
        if self.spec.has_builder && self.rng.random() {
            Api::Builder
        } else {
            Api::Chain
        }
    }

    /// Whether this queue pair can have a cell.
    fn can(&self, cell: &Cell) -> bool {
        if cell.opcode.is_direct() {
            return direct::can(&self.spec, cell);
        }
        let sge = self.spec.send_sge;
        let fits = match cell.shape {
            Shape::Hole if cell.wraps => sge >= 5,
            Shape::Two | Shape::Hole | Shape::InlineList => sge >= 2,
            Shape::Several => sge >= 4,
            Shape::Full => !cell.wraps || sge >= 4,
            _ => true,
        };
        let inline = !cell.shape.is_inline() || self.spec.inline >= 64;
        let tso = cell.opcode != Opcode::Tso || self.spec.tso_header > 0;
        let api = cell.api == Api::Chain || self.spec.has_builder;
        fits && inline && tso && api
    }

    fn wanted(&mut self, coverage: &Coverage) -> Cell {
        for _ in 0..64 {
            let cell = coverage.wanted(self.rng, self.spec.service);
            if self.can(&cell) {
                return cell;
            }
        }
        Cell {
            service: self.spec.service,
            api: self.spec.service.interfaces()[0],
            opcode: Opcode::Send,
            flags: 0,
            shape: Shape::One,
            wraps: false,
        }
    }

    /// The next call. `None`: there is no room, so complete what was posted first.
    pub fn next(&mut self, coverage: &Coverage, place: Place) -> Option<Made> {
        if place.free == 0 {
            return None;
        }
        if self.pending.is_none() && self.rng.random_ratio(1, 64) {
            return Some(self.mistaken(coverage, place));
        }
        let cell = match self.pending.take() {
            Some(cell) => cell,
            None => self.wanted(coverage),
        };
        let wr = self.wr(&cell);
        let mut place = place;
        let mut made = Made {
            post: Post {
                api: cell.api,
                wrs: Vec::new(),
                aborts: false,
            },
            shapes: Vec::new(),
            mistake: None,
        };
        let size = blocks(self.spec.service, &wr);
        if cell.wraps && size > 1 {
            let start = place.ring - self.rng.random_range(1..size.min(place.ring));
            let mut gap = (start + place.ring - place.position % place.ring) % place.ring;
            while gap > 0 && place.free > 1 && made.post.wrs.len() < 24 {
                let mut other = self.wanted(coverage);
                other.api = cell.api;
                let (wr, shape) = match self.wr(&other) {
                    wr if blocks(self.spec.service, &wr) <= gap => (wr, other.shape),
                    _ => self.filler(cell.api),
                };
                gap -= blocks(self.spec.service, &wr);
                made.shapes.push(shape);
                made.post.wrs.push(wr);
                place.free -= 1;
            }
            if gap > 0 {
                // Later, from nearer.
                self.pending = Some(cell);
                if made.post.wrs.is_empty() {
                    return None;
                }
                return Some(made);
            }
            // On its own the WQE can go through the BlueFlame register too.
            if !made.post.wrs.is_empty() && self.rng.random() {
                self.pending = Some(Cell { ..cell });
                return Some(made);
            }
        }
        made.shapes.push(cell.shape);
        made.post.wrs.push(wr);
        let more = match self.rng.random_range(0..8) {
            0..4 => 0,
            4 => self.rng.random_range(1..4),
            5 => self.rng.random_range(4..15),
            6 => 15,
            _ => self.rng.random_range(16..40),
        };
        for _ in 0..more.min(place.free - 1) {
            let mut cell = self.wanted(coverage);
            cell.api = made.post.api;
            made.shapes.push(cell.shape);
            let wr = self.wr(&cell);
            made.post.wrs.push(wr);
        }
        made.post.aborts = made.post.api == Api::Builder && self.rng.random_ratio(1, 50);
        Some(made)
    }

    /// A call with one small work request, if there is room.
    pub fn plain(&mut self, place: Place) -> Option<Made> {
        let api = self.spec.service.interfaces()[0];
        let (wr, shape) = self.filler(api);
        (place.free > 0).then(|| Made {
            post: Post {
                api,
                wrs: vec![wr],
                aborts: false,
            },
            shapes: vec![shape],
            mistake: None,
        })
    }

    /// A call that is refused: too many work requests, too many pieces, too many bytes inline.
    fn mistaken(&mut self, coverage: &Coverage, place: Place) -> Made {
        let mut api = self.any_api();
        let kind = match self.spec.service {
            Service::Direct => [0, 2, 3, 4, 5][self.rng.random_range(0..5)],
            Service::Dci => [0, 2][self.rng.random_range(0..2)],
            _ => self.rng.random_range(0..3),
        };
        let good = match kind {
            0 => place.free,
            _ => self.rng.random_range(0..place.free.min(4)),
        };
        let mut wrs = Vec::new();
        let mut shapes = Vec::new();
        if kind == 1 {
            // Builders do not check the number of pieces against the queue pair in releases built without debugging;
            // what they write then is undefined.
            api = Api::Chain;
        }
        for _ in 0..good {
            let mut cell = self.wanted(coverage);
            cell.api = api;
            shapes.push(cell.shape);
            let wr = self.wr(&cell);
            wrs.push(wr);
        }
        let (mut bad, shape) = self.filler(api);
        let mistake = match kind {
            1 => {
                let pieces = self.spec.send_sge as usize + 64;
                bad.pieces = (0..pieces).map(|_| self.piece()).collect();
                "refused: pieces"
            }
            3..=5 => {
                let cell = Cell {
                    service: self.spec.service,
                    api,
                    opcode: Opcode::Key,
                    flags: 0,
                    shape: Shape::Empty,
                    wraps: false,
                };
                bad = self.wr(&cell);
                match kind {
                    3 => {
                        bad.is_inline = false;
                        "refused: key elsewhere"
                    }
                    4 => {
                        // MW_BIND
                        bad.more.key.access = Some(1 << 4);
                        "refused: key access"
                    }
                    _ => {
                        let list = vec![self.piece(); direct::KEY_ENTRIES as usize + 1];
                        bad.more.key.layout = Some(Layout::List(list));
                        "refused: key too long"
                    }
                }
            }
            2 if self.spec.service != Service::Raw && self.spec.inline > 0 => {
                bad.is_inline = true;
                let piece = Piece {
                    address: self.arena.address(0),
                    len: 2048,
                    lkey: 0,
                };
                bad.pieces = vec![piece];
                "refused: inline"
            }
            _ => {
                // One more than fits.
                while wrs.len() < place.free as usize {
                    let (wr, shape) = self.filler(api);
                    wrs.push(wr);
                    shapes.push(shape);
                }
                "refused: overflow"
            }
        };
        wrs.push(bad);
        shapes.push(shape);
        Made {
            post: Post {
                api,
                wrs,
                aborts: false,
            },
            shapes,
            mistake: Some(mistake),
        }
    }

    /// A work request of one block.
    pub fn filler(&mut self, api: Api) -> (Wr, Shape) {
        let mut set = 0;
        for flag in [flags::SIGNALED, flags::SOLICITED] {
            set |= if self.rng.random() { flag } else { 0 };
        }
        let shape = match self.spec.service {
            Service::Raw => Shape::One,
            _ => Shape::Empty,
        };
        let wr = self.wr(&Cell {
            service: self.spec.service,
            api,
            opcode: Opcode::Send,
            flags: set,
            shape,
            wraps: false,
        });
        (wr, shape)
    }

    fn piece(&mut self) -> Piece {
        if self.spec.service == Service::Raw {
            // Its first bytes are copied.
            let len = self.rng.random_range(19..200);
            return self.copied(len);
        }
        let small = self.rng.random_range(1..4096);
        Piece {
            address: self.rng.random(),
            len: match self.rng.random_range(0..8) {
                0 => 1,
                // Bit 31 would make it another kind of segment: ours refuses that, libmlx5 writes it.
                1 | 2 => 0x7fff_ffff,
                _ => small,
            },
            lkey: self.rng.random(),
        }
    }

    /// A piece of the arena.
    fn copied(&mut self, len: u32) -> Piece {
        let start = self.rng.random_range(0..Arena::LEN - len as usize);
        Piece {
            address: self.arena.address(start),
            len,
            lkey: self.rng.random(),
        }
    }

    fn pieces(&mut self, cell: &Cell) -> Vec<Piece> {
        let most = self.spec.send_sge;
        let room = self.spec.inline;
        let some = |this: &mut Self, n: u32| (0..n).map(|_| this.piece()).collect::<Vec<_>>();
        if cell.opcode.is_atomic() {
            let mut piece = self.piece();
            piece.len = match cell.opcode {
                Opcode::MaskedSwap4 | Opcode::MaskedAdd4 => 4,
                _ => 8,
            };
            return vec![piece];
        }
        if cell.opcode.is_direct() {
            return Vec::new();
        }
        match cell.shape {
            Shape::Empty => Vec::new(),
            Shape::One => some(self, 1),
            Shape::Two => some(self, 2),
            Shape::Several if most > 4 => {
                let n = self.rng.random_range(4..most);
                some(self, n)
            }
            Shape::Several => some(self, most.max(3)),
            Shape::Full => some(self, most),
            Shape::Hole => {
                let n = self.rng.random_range(2..=most);
                let mut pieces = some(self, n);
                let at = self.rng.random_range(0..n as usize);
                pieces[at].len = 0;
                if cell.wraps && most >= 5 {
                    pieces.extend(some(self, most - n));
                }
                pieces
            }
            Shape::Holes => {
                let n = self.rng.random_range(1..=most);
                let mut pieces = some(self, n);
                pieces.iter_mut().for_each(|piece| piece.len = 0);
                pieces
            }
            Shape::Inline => {
                let least = if cell.wraps { 61.min(room) } else { 1 };
                let len = self.rng.random_range(least..=room);
                vec![self.copied(len)]
            }
            Shape::InlineFull => vec![self.copied(room)],
            Shape::InlineNothing => {
                let mut piece = self.copied(8);
                piece.len = 0;
                vec![piece]
            }
            Shape::InlineList => {
                let n = self.rng.random_range(2..=most.min(6));
                let mut left = room;
                let mut pieces = Vec::new();
                for index in 0..n {
                    let last = index + 1 == n;
                    let len = match last {
                        true if cell.wraps => left,
                        _ => self.rng.random_range(0..=left.min(room / 2 + 1)),
                    };
                    left -= len;
                    pieces.push(self.copied(len));
                }
                if pieces.iter().all(|piece| piece.len == 0) {
                    pieces[0] = self.copied(1);
                }
                pieces
            }
        }
    }

    fn wr(&mut self, cell: &Cell) -> Wr {
        let id = self.next_id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.next_id += 1;
        let mut pieces = self.pieces(cell);
        // A first piece that is the headers and nothing else. Not in chains: behind such a packet, libmlx5 leaves out the
        // first piece of a TSO in the same chain (its place in the list is set up once a call).
        if cell.service == Service::Raw && cell.api == Api::Builder && self.rng.random_ratio(1, 4) {
            pieces[0].len = 18;
        }
        let mut header = Piece {
            address: 0,
            len: 0,
            lkey: 0,
        };
        if cell.opcode == Opcode::Tso {
            let most = u32::from(self.spec.tso_header);
            let least = if cell.wraps { most } else { 18 };
            let len = self.rng.random_range(least..=most);
            header = self.copied(len);
            pieces.iter_mut().for_each(|piece| piece.len %= 1000);
            pieces.iter_mut().for_each(|piece| piece.len += 1);
        }
        let unbinds = self.rng.random_ratio(1, 6) && !cell.wraps;
        let bind = Bind {
            // Builders bind windows of type 2 only.
            is_type_2: cell.api == Api::Builder || self.rng.random(),
            window_rkey: self.rng.random(),
            mr_lkey: self.rng.random(),
            address: self.rng.random::<u64>() >> 1,
            len: if unbinds {
                0
            } else {
                self.rng.random_range(1..=1 << 31)
            },
            // REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED
            access: self.rng.random::<u32>() & (0b1110 | 1 << 5),
        };
        let needs_bind = cell.opcode == Opcode::BindMw;
        let mut more = More::default();
        if self.spec.service == Service::Dci {
            more.dc_key = self.rng.random();
            more.stream = self.rng.random_bool(0.5).then(|| self.rng.random());
        }
        let mut wr = Wr {
            id,
            opcode: cell.opcode,
            flags: cell.flags,
            is_inline: cell.shape.is_inline(),
            pieces,
            uses_list: self.rng.random_ratio(1, 4),
            address_first: self.rng.random(),
            remote: self.rng.random(),
            rkey: self.rng.random(),
            imm: self.rng.random(),
            compare_add: self.rng.random(),
            swap: self.rng.random(),
            handle: self.rng.random_range(0..4),
            remote_qpn: self.rng.random::<u32>() & 0xff_ffff,
            remote_qkey: self.rng.random::<u32>() >> 1,
            srqn: self.rng.random::<u32>() & 0xff_ffff,
            bind: if needs_bind { bind } else { Bind::default() },
            header,
            mss: self.rng.random(),
            more,
        };
        if cell.opcode.is_direct() {
            direct::fill(self.rng, &self.spec, cell, &mut wr);
        }
        wr
    }
}
