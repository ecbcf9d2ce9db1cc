//! Makes and destroys every kind of object of a function that vfio-pci has, over and over, and sees that nothing grows: in
//! the lab, where `cargo xtask apps --device vfio` runs it.
//!
//! Looked at are open files, the memory that the driver makes for the device, what the kernel says that it has locked for it
//! (`VmLck` and `VmPin` of `/proc/self/status`), and what the driver says of itself: mappings, free I/O addresses, and pages
//! that the firmware has.

#[path = "../../tests/growth/mod.rs"]
mod growth;

use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use growth::Watch;
use oxverbs::control::vfio::linux::{VFIO, VfioPci};
use oxverbs::{Context, DriverUsage, LinkLayer};

/// Make and destroy objects over and over, and see that nothing grows.
#[derive(Parser, Debug)]
struct Arguments {
    /// The device that the program drives, such as vfio:0000:00:04.0.
    #[arg(short, long)]
    device: String,
    /// How often each object is made.
    #[arg(short, long, default_value_t = 1000)]
    number: usize,
    /// How often the device is opened.
    #[arg(short, long, default_value_t = 20)]
    opens: usize,
}

/// Everything that could grow.
#[derive(Debug, PartialEq, Eq)]
struct Sizes {
    files: usize,
    kib: usize,
    /// As the kernel writes it.
    locked: Vec<String>,
    usage: DriverUsage,
}

impl Sizes {
    fn now(usage: &dyn Fn() -> DriverUsage) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("what the kernel says");
        let locked = |line: &&str| line.starts_with("VmLck:") || line.starts_with("VmPin:");
        Self {
            files: growth::files(),
            kib: growth::kib_for_devices(),
            locked: status
                .lines()
                .filter(locked)
                .map(|line| line.replace('\t', " "))
                .collect(),
            usage: usage(),
        }
    }
}

/// Does things so many times, and remembers what grew.
struct Times {
    count: usize,
    kinds: usize,
    grew: Vec<String>,
}

impl Watch for Times {
    fn steady(
        &mut self,
        what: &str,
        most: usize,
        usage: &dyn Fn() -> DriverUsage,
        act: &mut dyn FnMut(),
    ) {
        let count = self.count.min(most);
        let (before, after, took) = growth::repeated(3, count, || Sizes::now(usage), act);
        let seconds = took.as_secs_f64();
        println!("{count} x {what} in {seconds:.1} s: {after:?}");
        self.kinds += 1;
        if after != before {
            self.grew.push(format!("{what}: {before:?} before"));
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(address) = arguments.device.strip_prefix(VFIO) else {
        eprintln!("the device is no {VFIO}...");
        return ExitCode::from(2);
    };
    let mut watch = Times {
        count: arguments.opens,
        kinds: 0,
        grew: Vec::new(),
    };
    let open = || Context::open(&arguments.device).expect("the device");
    // who opens and closes has nothing open meanwhile
    watch.steady(
        "open and close",
        arguments.opens,
        &DriverUsage::default,
        &mut || drop(open()),
    );
    watch.count = arguments.number;
    let context = open();
    growth::nouns(&context, &mut watch);
    let port = context.query_port(1).expect("its port");
    if port.link_layer() == LinkLayer::ETHERNET {
        growth::ethernet(&context, &mut watch);
    }
    drop(context);
    let pci = Arc::new(VfioPci::open(address).expect("the device"));
    let objects = oxverbs::control::vfio::open(pci, Default::default()).expect("the device");
    growth::below_the_nouns(objects, &mut watch);
    for grew in &watch.grew {
        println!("grew with {grew}");
    }
    match watch.grew.is_empty() {
        true => {
            println!("nothing grows: {} kinds of objects", watch.kinds);
            ExitCode::SUCCESS
        }
        false => ExitCode::FAILURE,
    }
}
