//! Packets as they are on the wire, with every header and check sum, so that a trace can be read by anyone's tools.
//!
//! An InfiniBand packet is LRH, GRH if there is one, BTH, the headers that its opcode brings, payload, padding, ICRC and VCRC.
//! On Ethernet there are the frame's and IP's headers instead, and no VCRC (the frame's own check is left to the link).

mod bth;
pub(crate) mod check;
mod route;

pub use bth::{Aeth, Answer, AtomicEth, Bth, Dceth, Deth, Extended, NakCode, Reth, Service, op};
pub use route::{Global, NETWORK_HEADER, ROCE_V2_PORT, Route, ipv4};

/// Why bytes are not a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// They end too early.
    Short,
    /// A route header that is none of the known ones.
    Header,
    /// Of another version of the transport header.
    Version,
    /// An opcode that its service does not have.
    Opcode(u8),
    /// A syndrome of an acknowledgement that has no meaning.
    Syndrome(u8),
    /// Changed on the way.
    CheckSum,
}

/// A packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Where it goes.
    pub route: Route,
    /// Base transport header.
    pub bth: Bth,
    /// Headers behind it.
    pub extended: Extended,
    /// Payload.
    pub payload: Vec<u8>,
}

/// What came over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A packet of InfiniBand's transport.
    Packet(Box<Packet>),
    /// Another Ethernet frame.
    Other(Vec<u8>),
}

/// The check at an Ethernet frame's end (IEEE 802.3 3.2.9).
pub(crate) fn frame_check(frame: &[u8]) -> [u8; 4] {
    check::invariant(frame).to_le_bytes()
}

impl Packet {
    /// The bytes.
    pub fn emit(&self) -> Vec<u8> {
        let pad = self.payload.len().wrapping_neg() & 3;
        let bth = Bth {
            pad: pad as u8,
            ..self.bth
        };
        let mut transport = Vec::with_capacity(self.payload.len() + 64);
        bth.emit(&mut transport);
        self.extended.emit(&mut transport);
        transport.extend(&self.payload);
        transport.resize(transport.len() + pad, 0);
        let mut bytes = Vec::with_capacity(transport.len() + 80);
        let mut invariant = Vec::with_capacity(transport.len() + 80);
        self.route
            .emit(transport.len() + 4, &mut bytes, &mut invariant);
        bytes.extend(&transport);
        // The reserved byte in front of the destination may change (IBTA 7.8.1).
        transport[4] = 0xff;
        invariant.extend(&transport);
        bytes.extend(check::invariant(&invariant).to_le_bytes());
        if matches!(self.route, Route::InfiniBand { .. }) {
            bytes.extend(check::variant(&bytes).to_le_bytes());
        }
        bytes
    }

    /// Its length from the first header to the invariant check sum.
    pub fn octets(&self) -> usize {
        let pad = self.payload.len().wrapping_neg() & 3;
        let mut headers = Vec::with_capacity(128);
        let mut invariant = Vec::with_capacity(128);
        self.bth.emit(&mut headers);
        self.extended.emit(&mut headers);
        let behind = self.payload.len() + pad + 4;
        let mut route = Vec::with_capacity(128);
        (self.route).emit(headers.len() + behind, &mut route, &mut invariant);
        route.len() + headers.len() + behind
    }

    /// Reads an InfiniBand packet.
    ///
    /// # Errors
    ///
    /// If the bytes are none, or were changed.
    pub fn parse_infiniband(bytes: &[u8]) -> Result<Self, Malformed> {
        let (mut rest, vcrc) = bytes.split_last_chunk::<2>().ok_or(Malformed::Short)?;
        if check::variant(rest).to_le_bytes() != *vcrc {
            return Err(Malformed::CheckSum);
        }
        let route = Route::parse_infiniband(&mut rest)?;
        Self::parse_transport(route, rest)
    }

    fn parse_transport(route: Route, rest: &[u8]) -> Result<Self, Malformed> {
        let (transport, icrc) = rest.split_last_chunk::<4>().ok_or(Malformed::Short)?;
        let (mut bytes, mut invariant) = (Vec::new(), Vec::new());
        route.emit(rest.len(), &mut bytes, &mut invariant);
        let mut covered = transport.to_vec();
        if let Some(reserved) = covered.get_mut(4) {
            *reserved = 0xff;
        }
        invariant.extend(covered);
        if check::invariant(&invariant).to_le_bytes() != *icrc {
            return Err(Malformed::CheckSum);
        }
        let mut rest = transport;
        let bth = Bth::parse(&mut rest)?;
        let extended = Extended::parse(&bth, &mut rest)?;
        let payload = rest
            .len()
            .checked_sub(usize::from(bth.pad))
            .and_then(|length| rest.get(..length))
            .ok_or(Malformed::Short)?;
        Ok(Self {
            route,
            bth: Bth { pad: 0, ..bth },
            extended,
            payload: payload.to_vec(),
        })
    }
}

impl Frame {
    /// Reads what came over Ethernet.
    ///
    /// # Errors
    ///
    /// If it is RoCE, but no valid packet.
    pub fn parse_ethernet(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        match Route::parse_ethernet(&mut rest)? {
            Some(route) => Packet::parse_transport(route, rest)
                .map(Box::new)
                .map(Self::Packet),
            None => Ok(Self::Other(bytes.to_vec())),
        }
    }
}

#[cfg(test)]
mod tests;
