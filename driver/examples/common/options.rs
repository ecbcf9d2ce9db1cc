//! Options that all pingpongs have, with the letters of the C programs.

use std::error::Error;

use clap::Args;
use oxverbs::{Context, Gid, Mtu};

/// Options of every pingpong.
#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Host to connect to; without one, be the server and wait for a client.
    pub(crate) host: Option<String>,
    /// TCP port to exchange addresses on.
    #[arg(short, long, default_value_t = 18515, value_name = "PORT")]
    pub(crate) port: u16,
    /// RDMA device [default: the first].
    #[arg(short = 'd', long = "ib-dev", value_name = "DEV")]
    pub(crate) device: Option<String>,
    /// Port of the device.
    #[arg(short = 'i', long = "ib-port", default_value_t = 1, value_name = "PORT",
          value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) ib_port: u8,
    /// Receives to post at a time.
    #[arg(short, long, default_value_t = 500, value_name = "DEPTH",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rx_depth: u32,
    /// Exchanges.
    #[arg(short = 'n', long, default_value_t = 1000, value_name = "COUNT")]
    pub(crate) iters: u32,
    /// Service level.
    #[arg(short = 'l', long, default_value_t = 0, value_name = "SL")]
    pub(crate) sl: u8,
    /// Sleep until completions come, instead of polling.
    #[arg(short, long)]
    pub(crate) events: bool,
    /// Index of the local GID.
    #[arg(short, long, value_name = "INDEX")]
    pub(crate) gid_idx: Option<u8>,
    /// Check the data that came.
    #[arg(short, long)]
    pub(crate) chk: bool,
}

/// Parses a path MTU in bytes.
pub(crate) fn mtu(text: &str) -> Result<Mtu, String> {
    let bytes = text.parse().map_err(|error| format!("{error}"))?;
    Mtu::from_bytes(bytes).ok_or_else(|| "256, 512, 1024, 2048 or 4096".into())
}

impl Options {
    /// Opens the device.
    pub(crate) fn open(&self) -> oxverbs::Result<Context> {
        match &self.device {
            Some(name) => Context::open(name),
            None => Context::open_first(),
        }
    }

    /// LID and GID of the local port, as they go to the peer: no GID unless the user chose one.
    pub(crate) fn local_address(&self, context: &Context) -> Result<(u16, Gid), Box<dyn Error>> {
        let port = context.query_port(self.ib_port)?;
        if port.link_layer() != oxverbs::LinkLayer::ETHERNET && port.lid == 0 {
            return Err("the port has no LID: is a subnet manager running?".into());
        }
        let gid = match self.gid_idx {
            Some(index) => match context.query_gid(self.ib_port, index.into())? {
                Some(entry) => entry.gid,
                None => return Err(format!("GID {index} of the port is empty").into()),
            },
            None => Gid::default(),
        };
        Ok((port.lid, gid))
    }
}
