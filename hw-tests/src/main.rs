//! One suite of verbs behaviour that runs on any RDMA device.
//!
//! `cargo run -p hw-tests -- --device rxe0` runs every case that the device can run, and says by name
//! which it cannot and why. The suite knows nothing of the device beyond its capabilities.

mod check;
mod cli;
mod counters;
mod fixture;
mod runner;
mod suite;
mod verbs;
mod worker;

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;
use regex::Regex;
use serde_json::json;

use cli::{Options, Provider};
use fixture::Env;
use runner::{Outcome, Totals};
use suite::Case;
use verbs::Verbs;
use verbs::planted::{Plant, Planted};
use verbs::remote::{self, Hello, RemoteVerbs};

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("hw-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    if options.serve_one {
        return serve_one(options);
    }
    if let Some(address) = &options.serve {
        return serve(options, address);
    }
    if let Some(name) = &options.run_case {
        return run_case(options, name);
    }
    if options.run_cases {
        raise_memlock();
        worker::serve(&environment(options, None)?)?;
        return Ok(true);
    }
    let cases = selected(options)?;
    if options.list {
        return list(options, &cases);
    }
    let seed = options.seed.unwrap_or_else(clock);
    // No device is an error, not a suite without failures.
    let device = open(options)?;
    describe(options, &*device, cases.len(), seed)?;
    drop(device);
    if options.prove {
        return prove(options, seed, &cases);
    }
    let before = counters::read(options.device(), options.port);
    let started = Instant::now();
    let mut reports = Vec::new();
    let mut workers = worker::Workers::new(options, seed);
    for case in &cases {
        let report = match options.keeps_open() {
            true => workers.run(case)?,
            false => runner::run_in_child(options, seed, case, None)?,
        };
        runner::print(&report);
        reports.push(report);
    }
    workers.end()?;
    let totals = Totals::of(&reports);
    let seconds = started.elapsed().as_secs_f64();
    write_json(
        options,
        &json!({
            "device": options.device(), "seed": seed, "seconds": seconds, "kernel": kernel(),
            "totals": totals, "cases": reports,
            "counters": {
                "before": before, "after": counters::read(options.device(), options.port),
            },
        }),
    )?;
    let Totals {
        passed,
        failed,
        skipped,
    } = totals;
    println!("{passed} passed, {failed} failed, {skipped} skipped in {seconds:.0} s");
    Ok(failed == 0 && passed > 0)
}

/// The cases whose names match, without the long ones unless those are wanted or only shown.
fn selected(options: &Options) -> Result<Vec<Case>> {
    let mut cases = suite::all();
    cases.retain(|case| !case.long || options.long || options.list);
    if let Some(filter) = &options.filter {
        let filter = Regex::new(filter).context("--filter")?;
        cases.retain(|case| filter.is_match(&case.name));
        if cases.is_empty() {
            bail!("no case matches --filter {filter}");
        }
    }
    Ok(cases)
}

fn list(options: &Options, cases: &[Case]) -> Result<bool> {
    for case in cases {
        let needs: Vec<_> = case.needs.iter().map(|need| format!("{need:?}")).collect();
        let long = if case.long { "  (with --long)" } else { "" };
        match needs.is_empty() {
            true => println!("{}{long}", case.name),
            false => println!("{}  (needs {}){long}", case.name, needs.join(", ")),
        }
    }
    println!("{} cases", cases.len());
    let entry = |case: &Case| {
        let needs: Vec<_> = case.needs.iter().map(|need| format!("{need:?}")).collect();
        json!({ "name": case.name, "needs": needs, "long": case.long })
    };
    write_json(options, &cases.iter().map(entry).collect::<Vec<_>>())?;
    Ok(true)
}

fn describe(options: &Options, device: &dyn Verbs, cases: usize, seed: u64) -> Result<()> {
    let port = device.port(options.port)?;
    println!(
        "running {cases} cases on {} port {} (MTU {}) through {}, Linux {}, seed {seed}",
        options.device(),
        options.port,
        port.mtu_bytes(),
        device.provider(),
        kernel(),
    );
    Ok(())
}

fn open(options: &Options) -> Result<Box<dyn Verbs>> {
    let name = options.device();
    let device: Box<dyn Verbs> = match options.provider {
        Provider::Core => Box::new(verbs::core::Core::open(name)?),
        Provider::Libibverbs => Box::new(verbs::official::Official::open(name)?),
    };
    Ok(match options.plant {
        Some(plant) => Box::new(Planted::new(device, plant)),
        None => device,
    })
}

/// Child process: one case.
fn run_case(options: &Options, name: &str) -> Result<bool> {
    let cases = suite::all();
    let case = cases.iter().find(|case| case.name == name);
    let case = case.with_context(|| format!("there is no case {name}"))?;
    // Regions of gigabytes; without the right to raise the limit the case says so.
    raise_memlock();
    let env = environment(options, options.peer.as_deref())?;
    runner::run_here(&env, case);
    Ok(true)
}

/// The device under test, opened, and the peer's.
fn environment(options: &Options, peer: Option<&str>) -> Result<Env> {
    let near = open(options)?;
    let (far, hello) = match peer {
        Some(peer) => {
            let (far, hello) = RemoteVerbs::connect(peer)?;
            (Some(Box::new(far) as Box<dyn Verbs>), hello)
        }
        None => (None, hello(options)),
    };
    Ok(Env {
        near,
        far,
        port: options.port,
        gid_index: options.gid_index,
        far_port: hello.port,
        far_gid_index: hello.gid_index,
        seed: options.seed.unwrap_or_default(),
        name: options.device().to_owned(),
    })
}

fn hello(options: &Options) -> Hello {
    Hello {
        protocol: Hello::PROTOCOL,
        port: options.port,
        gid_index: options.gid_index,
    }
}

/// The peer's side: a process for each connection, until it is killed.
fn serve(options: &Options, address: &str) -> Result<bool> {
    // A device that is not there is told at once, not to the first peer.
    drop(open(options)?);
    let listener = TcpListener::bind(address).with_context(|| format!("listen at {address}"))?;
    println!("serving {} at {}", options.device(), listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = OwnedFd::from(stream.context("accept a peer")?);
        let mut child = Command::new(std::env::current_exe()?)
            .args(options.for_child(0))
            .arg("--serve-one")
            .stdin(Stdio::from(stream))
            .spawn()
            .context("start a process for a peer")?;
        // Cases come one after another; waiting keeps no zombies.
        child.wait()?;
    }
    Ok(true)
}

fn serve_one(options: &Options) -> Result<bool> {
    raise_memlock();
    let device = open(options)?;
    let stream = TcpStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    remote::serve(&*device, &hello(options), stream)?;
    Ok(true)
}

fn raise_memlock() {
    let limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` outlives the call. Without the right nothing changes.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
}

/// Plants each fault and runs the cases that guard against it: at least one must fail, and all of
/// them must pass without the fault.
fn prove(options: &Options, seed: u64, cases: &[Case]) -> Result<bool> {
    let mut unseen = Vec::new();
    for plant in Plant::ALL {
        let guards = plant.guards();
        let (mut red, mut green) = (Vec::new(), Vec::new());
        for case in cases
            .iter()
            .filter(|case| guards.contains(&case.name.as_str()))
        {
            let healthy = runner::run_in_child(options, seed, case, None)?;
            match healthy.outcome {
                Outcome::Passed => {}
                Outcome::Skipped(_) => continue,
                Outcome::Failed(reason) => {
                    bail!("{} fails without a planted fault: {reason}", case.name)
                }
            }
            let planted = runner::run_in_child(options, seed, case, Some(plant))?;
            match planted.outcome {
                Outcome::Failed(reason) => red.push((planted.name, reason)),
                _ => green.push(planted.name),
            }
        }
        for (name, reason) in &red {
            println!("planted {plant}: {name} turns red: {reason}");
        }
        for name in &green {
            println!("planted {plant}: {name} STAYS GREEN");
        }
        if red.is_empty() || !green.is_empty() {
            unseen.push(plant.to_string());
        }
    }
    let total = Plant::ALL.len();
    println!(
        "{} of {total} planted faults turn the suite red",
        total - unseen.len()
    );
    if !unseen.is_empty() {
        println!("not seen: {}", unseen.join(", "));
    }
    Ok(unseen.is_empty())
}

fn write_json(options: &Options, value: &impl serde::Serialize) -> Result<()> {
    let Some(path) = &options.json else {
        return Ok(());
    };
    let text = serde_json::to_string_pretty(value)?;
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn kernel() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().to_owned()
}

fn clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |time| time.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_and_guards_exist() {
        let cases = suite::all();
        let names: HashSet<_> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for plant in Plant::ALL {
            for guard in plant.guards() {
                assert!(names.contains(guard), "{plant}: no case {guard}");
            }
        }
    }
}
