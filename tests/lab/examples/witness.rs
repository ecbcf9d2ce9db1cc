//! Prints where the outside witnesses for tests are, as shell assignments:
//! `eval "$(cargo run -q -p lab --example witness)"`.

use std::env;

use lab::Userland::{Bookworm, Sid, Trixie};
use lab::cache::Cache;
use lab::witness;

fn main() -> anyhow::Result<()> {
    let cache = Cache::open(false)?;
    let headers: Vec<_> = [Bookworm, Trixie]
        .into_iter()
        .map(|release| witness::kernel_headers(&cache, release))
        .collect::<Result<_, _>>()?;
    let verbs: Vec<_> = [Bookworm, Trixie, Sid]
        .into_iter()
        .map(|release| witness::verbs_headers(&cache, release))
        .collect::<Result<_, _>>()?;
    let ucx: Vec<_> = [Bookworm, Trixie]
        .into_iter()
        .map(|release| witness::ucx(&cache, release))
        .collect::<Result<_, _>>()?;
    let mut sources = Vec::new();
    for release in [Bookworm, Trixie, Sid] {
        match witness::rdma_core_source(&cache, release)? {
            Some(dir) => sources.push(dir),
            None => eprintln!(
                "the archive lacks the rdma-core source of {}",
                release.suite()
            ),
        }
    }
    match witness::linux_source(&cache)? {
        Some(dir) => println!("export OXVERBS_LINUX_SRC={}", dir.display()),
        None => eprintln!("the archive lacks linux-source-6.12"),
    }
    let (headers, sources) = (env::join_paths(headers)?, env::join_paths(sources)?);
    println!("export OXVERBS_UAPI_HEADERS={}", headers.display());
    println!(
        "export OXVERBS_VERBS_HEADERS={}",
        env::join_paths(verbs)?.display()
    );
    println!("export OXVERBS_RDMA_CORE_SRC={}", sources.display());
    println!("export OXVERBS_UCX={}", env::join_paths(ucx)?.display());
    Ok(())
}
