//! Links `libmlx5.so.1` from what `cargo build -p oxverbs-mlx5` left: `cargo run -p lab --example drop_in -- ARCHIVE TO`.

use std::path::Path;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(archive), Some(to)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("drop_in ARCHIVE TO");
    };
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    lab::drop_in::link(&checkout, archive.as_ref(), to.as_ref())
}
