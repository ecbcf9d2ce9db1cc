//! Runs of receive queues that are no queue pair's own, of each kind and several sizes, beside libmlx5's.

use std::collections::BTreeMap;

use anyhow::Result;
use fake_kernel::FakeKernel;

use crate::c::device::CDevice;
use crate::c::locate::Places;
use crate::c::pool::CPool;
use crate::compare::{Findings, divergence};
use crate::own_pool::OwnPool;
use crate::pool::{self, Pool};

/// Compares all of them; what never happened of what must.
///
/// # Errors
///
/// A queue cannot be made.
pub fn run(
    kernel: &'static FakeKernel,
    (official, shim): (&CDevice, Option<&CDevice>),
    release: &str,
    (wanted, seed): (u64, u64),
    findings: &mut BTreeMap<&'static str, Findings>,
) -> Result<Vec<String>> {
    let orders_early = release.ends_with("44.0");
    let mut missing = Vec::new();
    for kind in pool::Kind::ALL {
        let mut seen = pool::Seen::new();
        let sizes = [(1, 1), (5, 3), (16, 4), (30, 7), (100, 15), (7, 2)];
        for (round, asked) in sizes.into_iter().enumerate() {
            let make = |name, device: &CDevice, index| -> Result<Box<dyn Pool>> {
                let places = Places::new(kernel, index);
                Ok(Box::new(CPool::new(name, device, &places, kind, asked)?))
            };
            let theirs = || make("libmlx5", official, 0);
            let again = || make("libmlx5", official, 0);
            let own = || -> Result<Box<dyn Pool>> {
                let like = theirs()?;
                Ok(Box::new(OwnPool::new(kind, like.limits(), like.memory())?))
            };
            let plugin = || make("shim", shim.unwrap_or(official), 1);
            let mut subjects: Vec<(&'static str, pool::Make<'_>)> =
                vec![("libmlx5", &again), ("native", &own)];
            if shim.is_some() {
                subjects.push(("shim", &plugin));
            }
            // One goes over the 16 bits of the counter.
            let amount = match round + 1 == sizes.len() {
                true => 70_000,
                false => wanted,
            };
            for (name, subject) in subjects {
                let found = findings.entry(name).or_default();
                for ordered in [true, false] {
                    if !ordered && !kind.is_list() {
                        // Entries of a ring complete in its order.
                        continue;
                    }
                    if !ordered && orders_early {
                        *found
                            .divergences
                            .entry(divergence::SHARED_ORDER)
                            .or_default() += 1;
                        continue;
                    }
                    let amount = (amount, seed + round as u64);
                    let run = pool::run(kind, &theirs, subject, amount, ordered, &mut seen)?;
                    found.add(run);
                }
            }
        }
        println!("{kind:?}: {seen:?}");
        let in_order = !kind.is_list() || orders_early;
        let skipped = |what: &str| what == "completed out of order" && in_order;
        let never = pool::EXTRA.iter().filter(|what| !seen.contains_key(**what));
        let never = never.filter(|what| !skipped(what));
        missing.extend(never.map(|what| format!("{kind:?}: {what}")));
    }
    for what in &missing {
        println!("never: {what}");
    }
    Ok(missing)
}
