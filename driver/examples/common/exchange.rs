//! The TCP hand-shake of the C programs: `lid:qpn:psn:gid` in hexadecimal with a NUL byte, the client
//! first; the client says `done` when it has read the server's.

use std::error::Error;
use std::fmt;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use oxverbs::{Address, Gid};

/// `0000:000000:000000:` and 32 digits of the GID, and the NUL byte.
const MESSAGE: usize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1;
const DONE: &[u8] = b"done\0";

/// What one end tells the other of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) lid: u16,
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
    pub(crate) gid: Gid,
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qpn, psn, gid } = self;
        write!(
            f,
            "LID 0x{lid:04x}, QPN 0x{qpn:06x}, PSN 0x{psn:06x}, GID {gid}"
        )
    }
}

impl Destination {
    /// The path there; by GID if the peer has given one.
    pub(crate) fn address(&self, port: u8, gid_index: Option<u8>, sl: u8, hops: u8) -> Address {
        Address {
            gid: (!self.gid.has_no_interface()).then_some(self.gid),
            sgid_index: gid_index.unwrap_or(0),
            hop_limit: hops,
            service_level: sl,
            ..Address::local(port, self.lid)
        }
    }

    fn encode(&self) -> [u8; MESSAGE] {
        let Self { lid, qpn, psn, gid } = self;
        let gid = u128::from_be_bytes(gid.0);
        let text = format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}\0");
        text.into_bytes()
            .try_into()
            .unwrap_or_else(|_| unreachable!("numbers of fixed width"))
    }

    fn decode(message: &[u8]) -> Result<Self, Box<dyn Error>> {
        let bad = || format!("the peer sent no address but {message:?}");
        let text = std::str::from_utf8(message)?.trim_end_matches('\0');
        let mut words = text.split(':');
        let mut word = || words.next().ok_or_else(bad);
        Ok(Self {
            lid: u16::from_str_radix(word()?, 16)?,
            qpn: u32::from_str_radix(word()?, 16)?,
            psn: u32::from_str_radix(word()?, 16)?,
            gid: Gid(u128::from_str_radix(word()?, 16)?.to_be_bytes()),
        })
    }
}

fn send(stream: &mut TcpStream, destinations: &[Destination]) -> Result<(), Box<dyn Error>> {
    // One write for each: the C programs read each with one `read`.
    for destination in destinations {
        stream.write_all(&destination.encode())?;
    }
    Ok(())
}

fn receive(stream: &mut TcpStream, count: usize) -> Result<Vec<Destination>, Box<dyn Error>> {
    let mut message = [0; MESSAGE];
    (0..count)
        .map(|_| {
            stream.read_exact(&mut message)?;
            Destination::decode(&message)
        })
        .collect()
}

/// Exchanges addresses with the client or the server, as many as `local` has. `connect` is called when the peer's are
/// known: the server has to be ready before the client hears of it.
pub(crate) fn exchange(
    host: Option<&str>,
    port: u16,
    local: &[Destination],
    connect: impl FnOnce(&[Destination]) -> Result<(), Box<dyn Error>>,
) -> Result<Vec<Destination>, Box<dyn Error>> {
    let failed = |what: &str, error: std::io::Error| format!("cannot {what}: {error}");
    let Some(host) = host else {
        // Both protocols where the machine has IPv6, else IPv4.
        let listener = TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .map_err(|error| failed(&format!("listen on port {port}"), error))?;
        let (mut stream, _) = listener.accept()?;
        let remote = receive(&mut stream, local.len())?;
        connect(&remote)?;
        send(&mut stream, local)?;
        let mut done = [0; DONE.len()];
        stream.read_exact(&mut done)?;
        return Ok(remote);
    };
    let mut stream = TcpStream::connect((host, port))
        .map_err(|error| failed(&format!("connect to {host}:{port}"), error))?;
    send(&mut stream, local)?;
    let remote = receive(&mut stream, local.len())?;
    stream.write_all(DONE)?;
    connect(&remote)?;
    Ok(remote)
}
