//! Which kernel is played.

/// Which driver the devices have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// Soft-RoCE, `rxe0` and so on.
    #[default]
    Rxe,
    /// ConnectX, `mlx5_0` and so on.
    Mlx5,
}

/// Link layer of a ConnectX port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// RoCE.
    #[default]
    Ethernet,
    /// InfiniBand, with LIDs.
    InfiniBand,
}

/// What a ConnectX and its kernel driver can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlx5 {
    /// The port's link layer.
    pub link: Link,
    /// Doorbell registers that come with the context, at most; with `None` the driver gives out UAR objects
    /// (Linux 5.7 and later).
    pub tot_bfregs: Option<u32>,
    /// How completions name their queue: 0 by its number, 1 by the user index.
    pub cqe_version: u8,
    /// Whether registers may be written with whole work requests.
    pub has_blue_flame: bool,
    /// Whether the device offers DEVX.
    pub has_devx: bool,
    /// Whether the device says over DEVX that its send queues copy memory.
    pub has_copy: bool,
    /// Whether the device says over DEVX that it reserves numbers of queue pairs and changes the UDP port of a sending one.
    pub has_numbers: bool,
    /// Whether the device says over DEVX that it bonds two ports, has schedules for what queue pairs send, and is told which
    /// queue pairs addresses are for.
    pub has_traffic: bool,
    /// Whether the device says over DEVX that keys have signatures of every kind.
    pub has_signatures: bool,
    /// With which status the firmware refuses what programs ask of it over DEVX, but for what it can do.
    pub refusal: Option<u8>,
    /// Whether the driver shares a page by which timestamps become nanoseconds.
    pub has_clock: bool,
    /// Whether address handles are made with the kernel's help on Ethernet.
    pub has_ah_udata: bool,
    /// Whether there is a key that reads as a fill pattern and swallows writes.
    pub has_dump_fill_mkey: bool,
    /// `eth_min_inline` of the context's answer (`enum mlx5_user_inline_mode`).
    pub eth_min_inline: u8,
    /// Bytes of a cache line.
    pub cache_line: u32,
    /// Whether a thread lets the devices execute what is posted ([`Hca::run`](crate::hca::Hca::run)).
    pub runs: bool,
}

impl Default for Mlx5 {
    /// ConnectX-5 Ex with Linux 6.12.
    fn default() -> Self {
        Self {
            link: Link::Ethernet,
            tot_bfregs: None,
            cqe_version: 1,
            has_blue_flame: true,
            has_devx: true,
            has_copy: false,
            has_numbers: false,
            has_traffic: false,
            has_signatures: false,
            refusal: None,
            has_clock: true,
            has_ah_udata: true,
            has_dump_fill_mkey: true,
            eth_min_inline: 1,
            cache_line: 64,
            runs: false,
        }
    }
}

/// What the kernel knows and how it answers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which driver the devices have.
    pub family: Family,
    /// Whether `RDMA_VERBS_IOCTL` exists; without it every ioctl is `ENOTTY`.
    pub has_ioctl: bool,
    /// Whether write commands may travel inside the ioctl.
    pub has_invoke_write: bool,
    /// C names of methods that this kernel does not have (`UVERBS_METHOD_QP_CREATE`).
    pub missing_methods: Vec<String>,
    /// Whether address handles have numbers; kernels before 5.15 have none and want the address
    /// vector in each datagram.
    pub has_ah_num: bool,
    /// Number of devices.
    pub devices: usize,
    /// What devices of family [`Family::Mlx5`] are like.
    pub mlx5: Mlx5,
    /// What a broken kernel does with the next queue.
    pub lie: Option<Lie>,
}

impl Default for Config {
    /// Linux 6.12 with one device.
    fn default() -> Self {
        Self {
            family: Family::Rxe,
            has_ioctl: true,
            has_invoke_write: true,
            missing_methods: Vec::new(),
            has_ah_num: true,
            devices: 1,
            mlx5: Mlx5::default(),
            lie: None,
        }
    }
}

impl Config {
    /// From words as an environment variable holds them: `no-ioctl`, `no-invoke-write`, `no-ah-num`,
    /// `without=UVERBS_METHOD_…`, `devices=N`, separated by commas. For mlx5: `mlx5` itself, `link=ib` or
    /// `link=eth`, `tot-bfregs=N`, `cqe-version=0` or `1`, `min-inline=N`, `cache-line=N`, `no-bf`, `no-devx`,
    /// `no-clock`, `no-ah-udata`, `no-dump-fill-mkey`, `numbers`, `copy`, `traffic`, `signatures`, `refuse=STATUS`, and `run` for
    /// devices that execute what is posted.
    ///
    /// # Errors
    ///
    /// The word that is not one of them.
    pub fn parse(words: &str) -> Result<Self, String> {
        let mut config = Self::default();
        for word in words.split(',').filter(|word| !word.is_empty()) {
            match word.split_once('=') {
                None if word == "no-ioctl" => config.has_ioctl = false,
                None if word == "no-invoke-write" => config.has_invoke_write = false,
                None if word == "no-ah-num" => config.has_ah_num = false,
                None if word == "mlx5" => config.family = Family::Mlx5,
                None if word == "run" => config.mlx5.runs = true,
                None if word == "no-bf" => config.mlx5.has_blue_flame = false,
                None if word == "no-devx" => config.mlx5.has_devx = false,
                None if word == "numbers" => config.mlx5.has_numbers = true,
                None if word == "copy" => config.mlx5.has_copy = true,
                None if word == "traffic" => config.mlx5.has_traffic = true,
                None if word == "signatures" => config.mlx5.has_signatures = true,
                Some(("refuse", n)) if n.parse::<u8>().is_ok() => {
                    config.mlx5.refusal = n.parse().ok();
                }
                None if word == "no-clock" => config.mlx5.has_clock = false,
                None if word == "no-ah-udata" => config.mlx5.has_ah_udata = false,
                None if word == "no-dump-fill-mkey" => config.mlx5.has_dump_fill_mkey = false,
                Some(("link", "ib")) => config.mlx5.link = Link::InfiniBand,
                Some(("link", "eth")) => config.mlx5.link = Link::Ethernet,
                Some(("cqe-version", "0")) => config.mlx5.cqe_version = 0,
                Some(("cqe-version", "1")) => config.mlx5.cqe_version = 1,
                Some(("tot-bfregs", n)) if n.parse::<u16>().is_ok() => {
                    config.mlx5.tot_bfregs = n.parse().ok();
                }
                Some(("min-inline", n)) if n.parse::<u8>().is_ok() => {
                    config.mlx5.eth_min_inline = n.parse().unwrap_or(1);
                }
                Some(("cache-line", "64")) => config.mlx5.cache_line = 64,
                Some(("cache-line", "128")) => config.mlx5.cache_line = 128,
                Some(("without", name)) => config.missing_methods.push(name.to_owned()),
                Some(("devices", n)) if n.parse::<u8>().is_ok() => {
                    config.devices = n.parse().unwrap_or(1);
                }
                _ => return Err(format!("no such setting of the fake kernel: {word}")),
            }
        }
        Ok(config)
    }
}

/// A lie about a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// In the header: the size of an entry.
    Log2ElemSize(u32),
    /// In the header: the number of entries less one.
    IndexMask(u32),
    /// In the header: the producer index.
    Producer(u32),
    /// In the header: the consumer index.
    Consumer(u32),
    /// In the answer: bytes to map.
    QueueSize(u32),
    /// In the answer: where to map.
    QueueOffset(u64),
    /// In the answer: the new object's handle.
    Handle(u32),
}
