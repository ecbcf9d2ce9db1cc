//! Which provider a libibverbs gives its devices to.
//!
//! The order is libibverbs' (`init.c` of rdma-core 34 to 65): libraries that registered before (a `libmlx5.so.1` that the
//! program links), then the names of `RDMAV_DRIVERS` or `IBV_DRIVERS`, then those of the configuration, the last line first,
//! files in the directory's own order. The first one that registers for a device gets it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::install::layout::{is_ours, under};

/// Who has a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Owner {
    /// A file of ours.
    Ours,
    /// A file of rdma-core's.
    Official,
    /// No file at all: the program does not see the device.
    Nobody,
}

impl Owner {
    /// In a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Official => "official",
            Self::Nobody => "nobody",
        }
    }
}

/// A libibverbs, as its file says.
#[derive(Clone, Debug)]
pub(super) struct Library {
    root: PathBuf,
    /// Of its real file name, `libibverbs.so.1.14.56.1`: 56.1.
    pub(super) release: String,
    /// `/usr/lib/x86_64-linux-gnu/libibverbs/lib%s-rdmav34.so`.
    pattern: String,
    configuration: PathBuf,
}

impl Library {
    /// Reads what is compiled in. None if the file is no libibverbs that knows plug-ins.
    pub(super) fn read(root: &Path, file: &Path) -> Option<Self> {
        let real = fs::canonicalize(under(root, file)).ok()?;
        let bytes = fs::read(&real).ok()?;
        let text = |needle: &str| {
            bytes
                .split(|byte| *byte == 0)
                .filter_map(|text| std::str::from_utf8(text).ok())
                .find(|text| text.starts_with('/') && text.contains(needle))
        };
        let pattern = text("/lib%s-rdmav")?.to_owned();
        let configuration = PathBuf::from(text("/libibverbs.d")?);
        let name = real.file_name()?.to_string_lossy().into_owned();
        let release = name
            .strip_prefix("libibverbs.so.1.")
            .and_then(|rest| rest.split_once('.'))
            .map_or("?", |(_, release)| release)
            .to_owned();
        Some(Self {
            root: root.to_owned(),
            release,
            pattern,
            configuration,
        })
    }

    /// The file that a `driver NAME` line means.
    fn plugin(&self, name: &str) -> PathBuf {
        match (name.starts_with('/'), self.pattern.rsplit_once("/lib%s")) {
            (true, Some((_, end))) => PathBuf::from(format!("{name}{end}")),
            _ => PathBuf::from(self.pattern.replace("%s", name)),
        }
    }

    /// The names, in the order in which they are loaded.
    fn names(&self, environment: Option<&str>) -> Vec<String> {
        let mut names: Vec<String> = environment
            .unwrap_or_default()
            .split([':', ';'])
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        let dir = under(&self.root, &self.configuration);
        let mut lines = Vec::new();
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            // Every regular file is read, whatever its name: `.dpkg-old` ones too.
            if !entry.path().is_file() {
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            for line in text.lines() {
                let mut words = line.split_whitespace();
                if let (Some("driver"), Some(name)) = (words.next(), words.next()) {
                    lines.push(name.to_owned());
                }
            }
        }
        names.extend(lines.into_iter().rev());
        names
    }

    /// Who gets the devices of a family (`rxe`, `mlx5`), if nobody registered before.
    pub(super) fn owner(&self, family: &str, environment: Option<&str>) -> Owner {
        for name in self.names(environment) {
            let file = self.plugin(&name);
            let here = under(&self.root, &file);
            if !here.exists() {
                continue;
            }
            if is_ours(&here) {
                let claims = match family {
                    // the drop-in has no rxe
                    "rxe" => !is_drop_in(&here),
                    _ => is_drop_in(&here) || here.with_file_name("claim-mlx5").exists(),
                };
                if claims {
                    return Owner::Ours;
                }
            } else if name == family {
                return Owner::Official;
            }
        }
        Owner::Nobody
    }
}

/// Whether one of our files is the one with mlx5dv.
fn is_drop_in(file: &Path) -> bool {
    fs::canonicalize(file).is_ok_and(|real| {
        real.file_name()
            .is_some_and(|name| name == lab::drop_in::SONAME)
    })
}
