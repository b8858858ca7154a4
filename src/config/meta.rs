//! `meta.properties`: which cluster and which node a directory belongs to (kafka.md 5.2).

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use corelog_wire::primitives::Uuid;

use super::properties;

pub const FILE_NAME: &str = "meta.properties";

/// The identity of one log directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaProperties {
    /// 22 characters of base64url by custom, but any text that a cluster was formatted with.
    pub cluster_id: String,
    pub node_id: i32,
    /// Absent in files of version 0 and in version 1 files of old releases.
    pub directory_id: Option<Uuid>,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: {why}; restore the file from a copy, or remove it and run corelog format with the node.id and the --cluster-id that the directory had",
    path.display()
)]
pub struct MetaError {
    pub path: PathBuf,
    pub why: String,
}

impl MetaProperties {
    /// Reads a file's text; both versions.
    pub fn parse(text: &str) -> Result<MetaProperties, String> {
        let pairs = properties::parse(text).map_err(|error| error.to_string())?;
        let value = |name: &str| {
            let found = pairs.iter().rev().find(|(key, _)| key == name);
            found.map(|(_, value)| value.trim())
        };
        let required = |name: &str| value(name).ok_or_else(|| format!("{name} is missing"));
        let node_property = match required("version")? {
            "0" => "broker.id",
            "1" => "node.id",
            other => return Err(format!("version {other} is not known; 0 and 1 are")),
        };
        let cluster_id = required("cluster.id")?.to_owned();
        let node_id = required(node_property)?;
        let directory_id = match value("directory.id") {
            None => None,
            Some(text) => Some(directory_id(text)?),
        };
        if cluster_id.is_empty() {
            return Err("cluster.id is empty".to_owned());
        }
        Ok(MetaProperties {
            cluster_id,
            node_id: node_id
                .parse()
                .ok()
                .filter(|id| *id >= 0)
                .ok_or_else(|| format!("{node_property}={node_id} is no node id"))?,
            directory_id,
        })
    }

    /// Reads the file of `dir`; `None` = there is none.
    pub fn read(dir: &Path) -> Result<Option<MetaProperties>, MetaError> {
        let path = dir.join(FILE_NAME);
        let problem = |why: String| MetaError {
            path: path.clone(),
            why,
        };
        match std::fs::read(&path) {
            Ok(bytes) => MetaProperties::parse(&properties::decode(bytes))
                .map(Some)
                .map_err(problem),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(problem(error.to_string())),
        }
    }

    /// Writes version 1, whole or not at all: temporary file, sync, rename, sync of the directory.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        write_durably(dir, FILE_NAME, self.to_string().as_bytes())
    }
}

impl fmt::Display for MetaProperties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node_id = self.node_id.to_string();
        let directory_id = self.directory_id.map(|id| id.to_string());
        let mut pairs = vec![("cluster.id", self.cluster_id.as_str())];
        if let Some(id) = &directory_id {
            pairs.push(("directory.id", id));
        }
        pairs.push(("node.id", &node_id));
        pairs.push(("version", "1"));
        f.write_str("#\n")?;
        f.write_str(&properties::write(&pairs))
    }
}

fn directory_id(text: &str) -> Result<Uuid, String> {
    let id: Uuid = text
        .parse()
        .map_err(|_| format!("directory.id={text} is no uuid of 22 characters"))?;
    if id.is_reserved() {
        return Err(format!("directory.id={text} is reserved"));
    }
    Ok(id)
}

/// A file that is there whole after a crash, or as it was before.
pub(super) fn write_durably(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let temporary = dir.join(format!("{name}.tmp"));
    let mut file = std::fs::File::create(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::rename(&temporary, dir.join(name))?;
    std::fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "cluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\ndirectory.id=oVe8gNkxT_qz4FAGMmt_bg\nversion=1\n";

    #[test]
    fn both_versions_are_read() {
        let meta = MetaProperties::parse(OURS).unwrap();
        assert_eq!(
            (meta.cluster_id.as_str(), meta.node_id),
            ("4L6g3nShT-eMCtK--X86sw", 1)
        );
        assert!(meta.directory_id.is_some());
        let old = "#\n#Thu Jan 01 00:00:00 UTC 2026\nversion=0\nbroker.id=3\ncluster.id=abc\n";
        let meta = MetaProperties::parse(old).unwrap();
        assert_eq!((meta.cluster_id.as_str(), meta.node_id), ("abc", 3));
        assert_eq!(meta.directory_id, None);
    }

    #[test]
    fn what_is_no_identity_is_named() {
        for (from, to, part) in [
            ("version=1", "version=2", "version 2 is not known"),
            ("version=1\n", "", "version is missing"),
            ("node.id=1", "node.id=-1", "no node id"),
            ("node.id=1", "node.id=x", "no node id"),
            ("oVe8gNkxT_qz4FAGMmt_bg", "oVe8", "no uuid"),
            (
                "oVe8gNkxT_qz4FAGMmt_bg",
                "AAAAAAAAAAAAAAAAAAAAAQ",
                "reserved",
            ),
            ("cluster.id=4L6g3nShT-eMCtK--X86sw", "cluster.id=", "empty"),
        ] {
            let why = MetaProperties::parse(&OURS.replace(from, to)).unwrap_err();
            assert!(why.contains(part), "{to}: {why}");
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(MetaProperties::read(dir.path()).unwrap(), None);
        let meta = MetaProperties::parse(OURS).unwrap();
        meta.write(dir.path()).unwrap();
        assert_eq!(MetaProperties::read(dir.path()).unwrap(), Some(meta));
        assert!(!dir.path().join("meta.properties.tmp").exists());
    }

    #[test]
    fn an_unreadable_file_is_an_error_and_not_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(FILE_NAME), "version=1\n").unwrap();
        let error = MetaProperties::read(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("meta.properties: cluster.id is missing"),
            "{error}"
        );
    }
}
