//! Many runs on many queue pairs, until enough WQEs were compared.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::c::device::QpSpec;
use crate::call::{Arena, Service};
use crate::compare::{Findings, Two, compare};
use crate::coverage::Coverage;
use crate::generate::extra;
use crate::golden;
use crate::pass::{self, Tracing};
use crate::ring::BLOCK;
use crate::script::script;
use crate::subject::Subject;

/// Two bytes that share no bit, so that no written byte looks unwritten.
pub const POISONS: [u8; 2] = [0xee, 0x11];

/// Makes the same queue pair with different implementations.
pub trait Maker {
    /// Whose.
    fn name(&self) -> &'static str;

    /// Whether it has this service yet.
    fn has(&self, service: Service) -> bool;

    /// One queue pair. `given` is what the witness gave, for implementations that take sizes as they are.
    ///
    /// # Errors
    ///
    /// As its calls.
    fn make<'a>(&'a self, asked: &QpSpec, witness: &dyn Subject) -> Result<Box<dyn Subject + 'a>>;
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// WQEs to post on each implementation.
    pub wqes: u64,
    /// Of the generator.
    pub seed: u64,
    /// Calls traced: one of so many.
    pub one_of: usize,
}

/// What came of it.
#[derive(Debug)]
pub struct Report {
    /// Per implementation.
    pub findings: BTreeMap<&'static str, Findings>,
    /// What was driven.
    pub coverage: Coverage,
    /// WQEs posted.
    pub wqes: u64,
}

/// A queue pair's limits: small rings wrap often; the largest inline size makes WQEs that no BlueFlame register takes.
fn limits(rng: &mut StdRng, service: Service) -> QpSpec {
    let inline = [0, 64, 96, 188, 188, 400];
    let sge = [1, 2, 4, 7, 7, 7, 16, 24];
    let pick = |rng: &mut StdRng, from: &[u32]| from[rng.random_range(0..from.len())];
    QpSpec {
        service,
        send_wr: pick(rng, &[2, 3, 4, 4, 8, 8, 17, 40, 100]),
        // An initiator of XRC receives nothing. (Asked for a receive ring, libmlx5 makes one that Linux knows nothing of.)
        recv_wr: u32::from(!matches!(service, Service::Xrc | Service::Dci)),
        send_sge: pick(rng, &sge),
        recv_sge: 1,
        inline: match service {
            Service::Raw => 0,
            _ => pick(rng, &inline),
        },
        tso_header: match service {
            Service::Raw => pick(rng, &[54, 66, 128]) as u16,
            _ => 0,
        },
        signals_all: rng.random_ratio(1, 8),
        has_builder: rng.random_ratio(7, 8) || service.is_direct(),
    }
}

/// Runs until the plan is fulfilled.
///
/// # Errors
///
/// An object cannot be made.
pub fn run(
    witness: &dyn Maker,
    subjects: &[&dyn Maker],
    plan: Plan,
    services: &[Service],
) -> Result<Report> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let arena = Arena::new(plan.seed)?;
    let mut report = Report {
        findings: BTreeMap::new(),
        coverage: Coverage::new(services, &extra(services)),
        wqes: 0,
    };
    let per_run = (plan.wqes / 60).clamp(400, 40_000);
    let mut round = 0;
    // A cell that is still empty gets some more time.
    while report.wqes < plan.wqes
        || report.wqes < plan.wqes.saturating_mul(3) && !report.coverage.missing().is_empty()
    {
        let mut service = services[round % services.len()];
        if round >= services.len() && round % 2 == 0 {
            // Where most is missing.
            let missing = |service: &Service| report.coverage.missing_of(*service);
            service = services
                .iter()
                .copied()
                .max_by_key(missing)
                .unwrap_or(service);
        }
        // The device counts blocks by 16 bits; one run of each service goes over that.
        let least = if round < services.len() { 66_000 } else { 0 };
        round += 1;
        let mut asked = limits(&mut rng, service);
        if least > 0 {
            // Large work requests in a small ring: few are needed, and many go over its end.
            asked = QpSpec {
                send_wr: 8,
                send_sge: 24,
                inline: if service == Service::Raw { 0 } else { 400 },
                tso_header: if service == Service::Raw { 128 } else { 0 },
                signals_all: false,
                has_builder: true,
                ..asked
            };
        }
        let mut theirs = witness.make(&asked, &crate::subject::Nothing)?;
        let spec = theirs.spec();
        let ring = (theirs.memory().ring.len() / BLOCK) as u32;
        let script = script(
            &mut rng,
            &arena,
            spec,
            ring,
            per_run,
            least,
            &mut report.coverage,
        );
        report.wqes += script.wqes;
        let tracing = Tracing {
            one_of: plan.one_of,
        };
        let both = |subject: &mut dyn Subject| -> Result<Two> {
            Ok(Two {
                one: pass::run(subject, &script, POISONS[0], tracing)?,
                other: pass::run(subject, &script, POISONS[1], Tracing { one_of: 0 })?,
            })
        };
        let truth = both(&mut *theirs)?;
        for maker in subjects.iter().filter(|maker| maker.has(service)) {
            let mut ours = maker.make(&asked, &*theirs)?;
            let did = both(&mut *ours)?;
            let mut findings = compare(&script, &truth, &did);
            if ours.spec() != spec {
                findings.differ("limits of the queue pair".to_owned(), || {
                    format!(
                        "asked {asked:?}\n    libmlx5 {spec:?}\n    ours {:?}",
                        ours.spec()
                    )
                });
            }
            report
                .findings
                .entry(maker.name())
                .or_default()
                .add(findings);
        }
    }
    Ok(report)
}

/// Records one run of each service from the witness, for plain `cargo test`.
///
/// # Errors
///
/// As [`run`], or a file cannot be written.
pub fn record(witness: &dyn Maker, libmlx5: &str, directory: &Path, wqes: u64) -> Result<()> {
    let seed = 7;
    let mut rng = StdRng::seed_from_u64(seed);
    let arena = Arena::new(seed)?;
    for service in Service::ALL {
        let asked = QpSpec {
            send_wr: 6,
            send_sge: 6,
            inline: if service == Service::Raw { 0 } else { 110 },
            tso_header: if service == Service::Raw { 66 } else { 0 },
            signals_all: false,
            has_builder: true,
            ..limits(&mut rng, service)
        };
        let mut theirs = witness.make(&asked, &crate::subject::Nothing)?;
        let spec = theirs.spec();
        let ring = (theirs.memory().ring.len() / BLOCK) as u32;
        // The first that has every kind.
        let script = loop {
            let mut coverage = Coverage::new(&[service], &extra(&[service]));
            let script = script(&mut rng, &arena, spec, ring, wqes, 0, &mut coverage);
            let has = golden::kinds_of(&script);
            if golden::kinds(service).all(|kind| has.contains(&kind)) {
                break script;
            }
        };
        let none = Tracing { one_of: 0 };
        let truth = Two {
            one: pass::run(&mut *theirs, &script, POISONS[0], none)?,
            other: pass::run(&mut *theirs, &script, POISONS[1], none)?,
        };
        let file = directory.join(format!("{service:?}.jsonl").to_lowercase());
        golden::write(&file, libmlx5, seed, spec, script, &truth)?;
    }
    Ok(())
}
