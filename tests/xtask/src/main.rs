//! The one entrance to the tasks of this repository: `cargo xtask`.
//!
//! One module per word; each has its arguments and a `run` that returns the exit code.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod apps;
mod bench;
mod cache;
mod cargo;
mod compare;
mod control;
mod demo;
mod drop_in;
mod fuzz;
mod install;
mod lab;
mod matrix;
mod mpi;
mod oracle;
mod package;
mod test;

/// Tasks of the oxverbs repository.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Debug, Subcommand)]
enum Word {
    Apps(apps::Arguments),
    Bench(bench::Arguments),
    Demo(demo::Arguments),
    DropIn(drop_in::Arguments),
    Cache(cache::Arguments),
    Compare(compare::Arguments),
    Control(control::Arguments),
    Fuzz(fuzz::Arguments),
    Install(install::Arguments),
    Lab(lab::Arguments),
    Matrix(matrix::Arguments),
    Mpi(mpi::Arguments),
    Oracle(oracle::Arguments),
    Package(package::Arguments),
    Test(test::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().word {
        Word::Apps(arguments) => apps::run(&arguments),
        Word::Bench(arguments) => bench::run(&arguments),
        Word::Demo(arguments) => demo::run_word(&arguments),
        Word::DropIn(arguments) => drop_in::run(&arguments),
        Word::Cache(arguments) => cache::run(&arguments),
        Word::Compare(arguments) => compare::run(&arguments),
        Word::Control(arguments) => control::run(&arguments),
        Word::Fuzz(arguments) => fuzz::run(&arguments),
        Word::Install(arguments) => install::run(&arguments),
        Word::Lab(arguments) => lab::run(&arguments),
        Word::Matrix(arguments) => matrix::run(&arguments),
        Word::Mpi(arguments) => mpi::run(&arguments),
        Word::Oracle(arguments) => oracle::run(&arguments),
        Word::Package(arguments) => package::run(&arguments),
        Word::Test(arguments) => test::run(&arguments),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<::lab::Interrupted>() {
                130
            } else {
                125
            })
        }
    }
}
