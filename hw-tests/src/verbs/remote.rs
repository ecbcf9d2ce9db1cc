//! A peer's device: the same calls as lines of JSON over TCP.
//!
//! One connection serves one case and ends with it; the peer's side is a process of its own too, so that
//! whatever the case leaves behind goes with it.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::types::*;
use super::{Rereg, Verbs};
use crate::counters::Counters;

/// First line of the peer's side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Both sides must come from the same source.
    pub(crate) protocol: u32,
    pub(crate) port: u8,
    pub(crate) gid_index: u32,
}

impl Hello {
    pub(crate) const PROTOCOL: u32 = 1;
}

/// The peer's device.
#[derive(Debug)]
pub(crate) struct RemoteVerbs {
    connection: Mutex<Connection>,
}

#[derive(Debug)]
struct Connection {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Connection {
    fn ask<T: DeserializeOwned>(&mut self, call: &Call) -> std::io::Result<T> {
        let mut line = serde_json::to_string(call)?;
        line.push('\n');
        self.writer.write_all(line.as_bytes())?;
        let mut answer = String::new();
        if self.reader.read_line(&mut answer)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&answer)?)
    }
}

impl RemoteVerbs {
    pub(crate) fn connect(peer: &str) -> Result<(Self, Hello)> {
        let writer = TcpStream::connect(peer).with_context(|| format!("connect to {peer}"))?;
        writer.set_nodelay(true)?;
        let mut reader = BufReader::new(writer.try_clone()?);
        let mut line = String::new();
        reader
            .read_line(&mut line)
            .context("read the peer's hello")?;
        let hello: Hello = serde_json::from_str(&line).context("understand the peer's hello")?;
        if hello.protocol != Hello::PROTOCOL {
            bail!("the peer speaks version {} of the protocol", hello.protocol);
        }
        let connection = Mutex::new(Connection { reader, writer });
        Ok((Self { connection }, hello))
    }

    fn ask<T: DeserializeOwned>(&self, call: &Call) -> Answer<T> {
        let mut connection = self.connection.lock().expect("no panic under the lock");
        connection.ask(call).map_err(|error| Fault {
            errno: error.raw_os_error(),
            what: format!("reach the peer: {error}"),
        })
    }
}

/// Serves one connection until it ends.
pub(crate) fn serve(device: &dyn Verbs, hello: &Hello, stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut send = |text: String| writer.write_all((text + "\n").as_bytes());
    send(serde_json::to_string(hello)?)?;
    for line in BufReader::new(stream).lines() {
        let call: Call = serde_json::from_str(&line?).context("understand a call")?;
        send(call.run(device)?)?;
    }
    Ok(())
}

/// Makes the calls, their execution on the peer's side and their forwarding on this side.
/// `by` says how the trait takes an argument: by value, as a reference, or as a slice.
macro_rules! calls {
    (@type val $type:ty) => { $type };
    (@type reference $type:ty) => { &$type };
    (@type slice $type:ty) => { &[$type] };
    (@held val $type:ty) => { $type };
    (@held reference $type:ty) => { $type };
    (@held slice $type:ty) => { Vec<$type> };
    (@hold val $arg:ident) => { $arg };
    (@hold reference $arg:ident) => { *$arg };
    (@hold slice $arg:ident) => { $arg.to_vec() };
    (@give val $arg:ident) => { $arg };
    (@give reference $arg:ident) => { &$arg };
    (@give slice $arg:ident) => { &$arg };
    (@unreached Answer $fault:ident) => { Err($fault) };
    (@unreached Posted $fault:ident) => {
        Err(PostFault { index: 0, fault: $fault })
    };
    ($(
        fn $name:ident($($arg:ident: $by:ident $type:ty),*) -> $kind:ident $(<$ok:ty>)?;
    )*) => {
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[allow(non_camel_case_types)]
        enum Call {
            $($name { $($arg: calls!(@held $by $type)),* },)*
        }

        impl Call {
            fn run(self, device: &dyn Verbs) -> serde_json::Result<String> {
                match self {
                    $(Self::$name { $($arg),* } => {
                        serde_json::to_string(&device.$name($(calls!(@give $by $arg)),*))
                    })*
                }
            }
        }

        impl Verbs for RemoteVerbs {
            fn provider(&self) -> &'static str {
                "a peer"
            }

            $(fn $name(&self, $($arg: calls!(@type $by $type)),*) -> $kind $(<$ok>)? {
                let call = Call::$name { $($arg: calls!(@hold $by $arg)),* };
                match self.ask::<$kind $(<$ok>)?>(&call) {
                    Ok(answer) => answer,
                    Err(fault) => calls!(@unreached $kind fault),
                }
            })*
        }
    };
}

calls! {
    fn device() -> Answer<DeviceAttr>;
    fn counters(port: val u8) -> Answer<Counters>;
    fn port(port: val u8) -> Answer<PortAttr>;
    fn gid(port: val u8, index: val u32) -> Answer<[u8; 16]>;
    fn pkey(port: val u8, index: val u16) -> Answer<u16>;
    fn buffer(len: val u64) -> Answer<Buf>;
    fn write(buf: val Buf, offset: val u64, bytes: slice u8) -> Answer<()>;
    fn read(buf: val Buf, offset: val u64, len: val u64) -> Answer<Vec<u8>>;
    fn alloc_pd() -> Answer<Pd>;
    fn dealloc_pd(pd: val Pd) -> Answer<()>;
    fn reg_mr(pd: val Pd, addr: val u64, len: val u64, iova: val u64, rights: val u32) -> Answer<Mr>;
    fn rereg_mr(mr: val Mr, change: val Rereg) -> Answer<Mr>;
    fn dereg_mr(mr: val Mr) -> Answer<()>;
    fn create_channel() -> Answer<Channel>;
    fn destroy_channel(channel: val Channel) -> Answer<()>;
    fn channel_event(channel: val Channel, timeout: val Duration) -> Answer<Option<u32>>;
    fn ack_cq(cq: val Cq, events: val u32) -> Answer<()>;
    fn create_cq(cqe: val u32, channel: val Option<Channel>) -> Answer<Cq>;
    fn resize_cq(cq: val Cq, cqe: val u32) -> Answer<Cq>;
    fn arm(cq: val Cq, solicited_only: val bool) -> Answer<()>;
    fn poll(cq: val Cq, max: val u32) -> Answer<Vec<Wc>>;
    fn destroy_cq(cq: val Cq) -> Answer<()>;
    fn create_qp(init: reference QpInit) -> Answer<Qp>;
    fn modify_qp(qp: val Qp, attr: reference QpAttr) -> Answer<()>;
    fn query_qp(qp: val Qp) -> Answer<QpReport>;
    fn destroy_qp(qp: val Qp) -> Answer<()>;
    fn post_send(qp: val Qp, list: slice SendWr) -> Posted;
    fn post_recv(qp: val Qp, list: slice RecvWr) -> Posted;
    fn create_srq(pd: val Pd, max_wr: val u32, max_sge: val u32, limit: val u32) -> Answer<Srq>;
    fn modify_srq(srq: val Srq, max_wr: val Option<u32>, limit: val Option<u32>) -> Answer<()>;
    fn query_srq(srq: val Srq) -> Answer<SrqReport>;
    fn destroy_srq(srq: val Srq) -> Answer<()>;
    fn post_srq(srq: val Srq, list: slice RecvWr) -> Posted;
    fn create_ah(pd: val Pd, route: reference Route) -> Answer<Ah>;
    fn destroy_ah(ah: val Ah) -> Answer<()>;
    fn alloc_mw(pd: val Pd, kind: val MwType) -> Answer<Mw>;
    fn bind_mw(qp: val Qp, bind: reference Bind, id: val u64, flags: val u32) -> Answer<u32>;
    fn dealloc_mw(mw: val Mw) -> Answer<()>;
    fn attach_mcast(qp: val Qp, gid: val [u8; 16], lid: val u16) -> Answer<()>;
    fn detach_mcast(qp: val Qp, gid: val [u8; 16], lid: val u16) -> Answer<()>;
    fn async_event(timeout: val Duration) -> Answer<Option<Event>>;
    fn wait(cq: val Cq, count: val usize, timeout: val Duration) -> Answer<Vec<Wc>>;
}
