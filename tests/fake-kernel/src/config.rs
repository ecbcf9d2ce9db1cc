//! Which kernel is played.

/// What the kernel knows and how it answers.
#[derive(Clone, Debug)]
pub struct Config {
    /// Whether `RDMA_VERBS_IOCTL` exists; without it every ioctl is `ENOTTY`.
    pub has_ioctl: bool,
    /// Whether write commands may travel inside the ioctl.
    pub has_invoke_write: bool,
    /// C names of methods that this kernel does not have (`UVERBS_METHOD_QP_CREATE`).
    pub missing_methods: Vec<String>,
    /// Whether address handles have numbers; kernels before 5.15 have none and want the address
    /// vector in each datagram.
    pub has_ah_num: bool,
    /// Number of devices, `rxe0`, `rxe1` and so on.
    pub devices: usize,
    /// What a broken kernel does with the next queue.
    pub lie: Option<Lie>,
}

impl Default for Config {
    /// Linux 6.12 with one device.
    fn default() -> Self {
        Self {
            has_ioctl: true,
            has_invoke_write: true,
            missing_methods: Vec::new(),
            has_ah_num: true,
            devices: 1,
            lie: None,
        }
    }
}

impl Config {
    /// From words as an environment variable holds them: `no-ioctl`, `no-invoke-write`, `no-ah-num`,
    /// `without=UVERBS_METHOD_…`, `devices=N`, separated by commas.
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
