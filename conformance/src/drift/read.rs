//! Reading snapshots and histories, and writing files whole or not at all.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::de::DeserializeOwned;

use super::error::DriftError;
use super::snapshot::{SNAPSHOT_VERSION, Snapshot};

/// A kind of file that this module keeps.
pub(super) struct Kind {
    /// What it is called.
    pub(super) what: &'static str,
    /// The key that holds its version.
    pub(super) key: &'static str,
    /// The version that is read.
    pub(super) version: u32,
}

const SNAPSHOT: Kind =
    Kind { what: "snapshot", key: "flashproof-drift-snapshot", version: SNAPSHOT_VERSION };

impl Snapshot {
    /// Reads a snapshot from a file.
    ///
    /// # Errors
    /// [`DriftError`] names the file, and what is wrong with it.
    pub fn read(path: &Path) -> Result<Self, DriftError> {
        Self::parse(&text(path)?, &path.display().to_string())
    }

    /// Reads a snapshot from its text; `origin` is what errors call it.
    ///
    /// # Errors
    /// [`DriftError`] names the line, and what is wrong with it.
    pub fn parse(text: &str, origin: &str) -> Result<Self, DriftError> {
        parse(text, origin, &SNAPSHOT)
    }

    /// Writes the snapshot to a file, whole or not at all.
    ///
    /// # Errors
    /// [`DriftError::Write`] names the file.
    pub fn write(&self, path: &Path) -> Result<(), DriftError> {
        write(path, &self.to_string())
    }
}

/// Reads what has the right version.
pub(super) fn parse<T: DeserializeOwned>(
    text: &str,
    origin: &str,
    kind: &Kind,
) -> Result<T, DriftError> {
    let malformed = |reason: String| DriftError::Text {
        path: origin.to_owned(),
        what: kind.what,
        reason: reason.trim_end().to_owned(),
    };
    let table: toml::Table =
        text.parse().map_err(|error: toml::de::Error| malformed(error.to_string()))?;
    let version = table
        .get(kind.key)
        .ok_or_else(|| malformed(format!("it has no '{}': expected its version", kind.key)))?;
    if version.as_integer() != Some(i64::from(kind.version)) {
        return Err(DriftError::Version {
            path: origin.to_owned(),
            what: kind.what,
            found: version.as_integer().map_or(version.type_str().to_owned(), |it| it.to_string()),
            expected: kind.version,
        });
    }
    toml::from_str(text).map_err(|error| malformed(error.to_string()))
}

pub(super) fn text(path: &Path) -> Result<String, DriftError> {
    fs::read_to_string(path)
        .map_err(|source| DriftError::Read { path: path.display().to_string(), source })
}

/// Writes to another file beside, and gives it the name when it is complete.
pub(super) fn write(path: &Path, text: &str) -> Result<(), DriftError> {
    write_whole(path, text)
        .map_err(|source| DriftError::Write { path: path.display().to_string(), source })
}

fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}
