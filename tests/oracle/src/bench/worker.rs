//! One process's measurements: libmlx5's mode is a global of the process.

use anyhow::Result;
use clap::ValueEnum;
use fake_kernel::FakeKernel;
use serde::{Deserialize, Serialize};

use super::c::CTimed;
use super::case::Case;
use super::clock::nanoseconds_per_tick;
use super::figure::{Figure, Figures};
use super::fleet::{CFleet, Fleet, NativeFleet};
use super::measure::{Cost, Timed, measure};
use super::native::NativeTimed;
use super::{cold, control, longest, scale};
use crate::c::device::CDevice;
use crate::c::library::{Library, mapped_release};
use crate::c::locate::Places;

/// One case on one implementation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The case's name.
    pub case: String,
    /// Whose: `libmlx5`, `shim`, `native`.
    pub who: String,
    /// Nanoseconds per operation.
    pub ns: f64,
    /// Instructions per operation.
    pub insn: f64,
    /// Stores to device registers per operation.
    pub mmio: f64,
    /// Store fences per operation.
    pub fences: f64,
    /// Distinct cache lines touched per operation, over 32 operations.
    pub lines: f64,
    /// Bytes stored to device registers per operation.
    pub mmio_bytes: f64,
    /// Bytes that the device fetches per operation, data apart.
    pub device_reads: f64,
    /// Bytes that the device writes per operation, data apart.
    pub device_writes: f64,
}

/// Everything that a worker measured.
#[derive(Debug, Serialize, Deserialize)]
pub struct Measured {
    /// `libmlx5.so.…` that was mapped.
    pub libmlx5: String,
    /// Rows.
    pub rows: Vec<Row>,
    /// What is measured beside them.
    pub figures: Vec<Figure>,
}

/// What is measured beside the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum More {
    /// Nothing.
    None,
    /// What can be counted exactly.
    Counted,
    /// Times too.
    #[default]
    All,
}

/// Measures all cases whose names contain `filter`.
///
/// # Errors
///
/// A library or an object cannot be had.
pub fn run(
    kernel: &'static FakeKernel,
    plugin: Option<&str>,
    regions: usize,
    filter: &str,
    more: More,
) -> Result<Measured> {
    // The plug-in is asked first, and takes only the device that `OXVERBS_DEVICES` names.
    let mut providers = Vec::new();
    providers.extend(plugin);
    providers.push("libmlx5.so.1");
    let library = Library::load(&providers)?;
    let official = CDevice::open(library, "mlx5_0")?;
    let mut libmlx5 = CTimed::new("libmlx5", &official, &Places::new(kernel, 0))?;
    let ours = match plugin {
        Some(_) => Some(CDevice::open(library, "mlx5_1")?),
        None => None,
    };
    let mut shim = match &ours {
        Some(device) => Some(CTimed::new("shim", device, &Places::new(kernel, 1))?),
        None => None,
    };
    let mut native = NativeTimed::new()?;
    let scale = nanoseconds_per_tick();
    let mut rows = Vec::new();
    for case in Case::all() {
        let name = case.to_string();
        if !name.contains(filter) {
            continue;
        }
        let mut subjects: Vec<&mut dyn Timed> = vec![&mut libmlx5];
        if let Some(shim) = &mut shim {
            subjects.push(shim);
        }
        subjects.push(&mut native);
        let costs = measure(&case, &mut subjects, regions);
        for (subject, cost) in subjects.iter().zip(costs) {
            if let Some(cost) = cost {
                rows.push(row(&name, subject.name(), &cost, scale));
            }
        }
    }
    let mut figures = Figures::default();
    if more == More::All {
        let mut subjects: Vec<&mut dyn Timed> = vec![&mut libmlx5];
        if let Some(shim) = &mut shim {
            subjects.push(shim);
        }
        subjects.push(&mut native);
        cold::run(&mut subjects, scale, &mut figures);
        longest::run(&mut subjects, scale, &mut figures);
    }
    if more != More::None {
        let mut libmlx5 = CFleet::new("libmlx5", &official, &Places::new(kernel, 0))?;
        let mut shim = match &ours {
            Some(device) => Some(CFleet::new("shim", device, &Places::new(kernel, 1))?),
            None => None,
        };
        let mut native = NativeFleet::new("mlx5_1", kernel.hca(1))?;
        let mut fleets: Vec<&mut dyn Fleet> = vec![&mut libmlx5];
        if let Some(shim) = &mut shim {
            fleets.push(shim);
        }
        fleets.push(&mut native);
        control::run(kernel, &mut fleets, &mut figures)?;
        scale::run(&mut fleets, scale, more == More::All, &mut figures)?;
    }
    Ok(Measured {
        libmlx5: mapped_release("libmlx5")?,
        rows,
        figures: figures.all,
    })
}

fn row(case: &str, who: &str, cost: &Cost, scale: f64) -> Row {
    Row {
        case: case.to_owned(),
        who: who.to_owned(),
        ns: cost.ticks * scale,
        insn: cost.instructions,
        mmio: cost.register_stores,
        fences: cost.fences,
        lines: cost.lines,
        mmio_bytes: cost.register_bytes,
        device_reads: cost.device_reads,
        device_writes: cost.device_writes,
    }
}
