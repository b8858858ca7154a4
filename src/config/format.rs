//! Gives directories their identity, and refuses directories that belong to somebody else (kafka.md 5.2).
//!
//! The order matters: [`plan`] reads and compares and touches nothing; [`Plan::carry_out`] writes. A caller holds the locks of the directories
//! from before `plan` until it stops.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use corelog_wire::primitives::Uuid;

use super::meta::{FILE_NAME, MetaError, MetaProperties, write_durably};

/// The file beside `meta.properties` of which a JVM node that opens the directory takes its first metadata records (kraft.md 10).
pub const BOOTSTRAP_FILE_NAME: &str = "bootstrap.checkpoint";

/// The identity of this node and of its directories, as found or as drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    pub node_id: i32,
    /// One for each directory, in the order in which they were given.
    pub directory_ids: Vec<Uuid>,
}

/// What formatting would do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub identity: Identity,
    /// Directories whose `meta.properties` is missing or lacks its directory id.
    writes: Vec<(PathBuf, MetaProperties)>,
}

/// What to do about directories that have no identity yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unformatted {
    /// Give them one (`format`, and `serve` on empty directories).
    Format,
    /// Refuse a directory that holds logs without an identity: it is another program's, or its identity was lost.
    FormatIfEmpty,
}

/// Why the directories can't be used together, or by this node.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    #[error(transparent)]
    Meta(#[from] MetaError),
    #[error("{0}")]
    Refused(String),
    #[error("cannot {what} {}: {why}; check that the directory above it exists, that no file has its name, and that this user may write to it", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        why: io::Error,
    },
}

/// Compares the directories with each other and with what is wanted. `cluster_id`: `None` = as found, else a random one.
pub fn plan(
    dirs: &[PathBuf],
    metadata_dir: &Path,
    node_id: i32,
    cluster_id: Option<&str>,
    unformatted: Unformatted,
) -> Result<Plan, FormatError> {
    let mut found: Vec<Option<MetaProperties>> = Vec::with_capacity(dirs.len());
    for dir in dirs {
        let meta = MetaProperties::read(dir)?;
        if meta.is_none() && unformatted == Unformatted::FormatIfEmpty {
            refuse_unless_empty(dir)?;
        }
        found.push(meta);
    }
    if unformatted == Unformatted::FormatIfEmpty {
        refuse_lost_metadata(dirs, &found, metadata_dir)?;
    }
    let known = found.iter().flatten().next();
    let cluster_id = match (cluster_id, known) {
        (Some(wanted), _) => wanted.to_owned(),
        (None, Some(meta)) => meta.cluster_id.clone(),
        (None, None) => random_uuid()?.to_string(),
    };
    for (dir, meta) in dirs.iter().zip(&found) {
        if let Some(meta) = meta {
            refuse_strangers(dir, meta, &cluster_id, node_id)?;
        }
    }
    let mut directory_ids = Vec::with_capacity(dirs.len());
    let mut writes = Vec::new();
    for (dir, meta) in dirs.iter().zip(found) {
        let id = match meta.and_then(|meta| meta.directory_id) {
            Some(id) => id,
            None => {
                let id = random_uuid()?;
                writes.push((
                    dir.clone(),
                    MetaProperties {
                        cluster_id: cluster_id.clone(),
                        node_id,
                        directory_id: Some(id),
                    },
                ));
                id
            }
        };
        if let Some(twin) = directory_ids.iter().position(|other| *other == id) {
            return Err(FormatError::Refused(format!(
                "{} and {} have the same directory.id {id}: one is a copy of the other; remove the copy from log.dirs",
                dirs[twin].display(),
                dir.display()
            )));
        }
        directory_ids.push(id);
    }
    Ok(Plan {
        identity: Identity {
            cluster_id,
            node_id,
            directory_ids,
        },
        writes,
    })
}

impl Plan {
    /// The directories that `carry_out` would write to.
    pub fn unformatted(&self) -> impl Iterator<Item = &Path> {
        self.writes.iter().map(|(dir, _)| dir.as_path())
    }

    /// Writes what is missing. `bootstrap` (a metadata snapshot) goes into the metadata directory if that is one of those written to.
    pub fn carry_out(&self, metadata_dir: &Path, bootstrap: &[u8]) -> Result<(), FormatError> {
        for (dir, meta) in &self.writes {
            let problem = |what| {
                move |why| FormatError::Io {
                    what,
                    path: dir.clone(),
                    why,
                }
            };
            // The identity comes last: a directory with one is a whole directory.
            if dir == metadata_dir {
                write_durably(dir, BOOTSTRAP_FILE_NAME, bootstrap)
                    .map_err(problem("write bootstrap.checkpoint in"))?;
            }
            meta.write(dir)
                .map_err(problem("write meta.properties in"))?;
        }
        Ok(())
    }
}

/// Makes the directories that are not there yet.
pub fn create_dirs(dirs: &[PathBuf]) -> Result<(), FormatError> {
    for dir in dirs {
        std::fs::create_dir_all(dir).map_err(|why| FormatError::Io {
            what: "create",
            path: dir.clone(),
            why,
        })?;
    }
    Ok(())
}

/// A random id as Kafka draws them: version 4, not reserved, and not one whose text begins with a dash, which tools take for an option.
pub fn random_uuid() -> Result<Uuid, FormatError> {
    let path = PathBuf::from("/dev/urandom");
    let problem = |why| FormatError::Io {
        what: "read",
        path: path.clone(),
        why,
    };
    let mut source = std::fs::File::open(&path).map_err(problem)?;
    loop {
        let mut bytes = [0; 16];
        source.read_exact(&mut bytes).map_err(problem)?;
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let id = Uuid(bytes);
        if !id.is_reserved() && !id.to_string().starts_with('-') {
            return Ok(id);
        }
    }
}

fn refuse_strangers(
    dir: &Path,
    meta: &MetaProperties,
    cluster_id: &str,
    node_id: i32,
) -> Result<(), FormatError> {
    let file = dir.join(FILE_NAME);
    if meta.cluster_id != cluster_id {
        return Err(FormatError::Refused(format!(
            "{} belongs to cluster {}, not to {cluster_id}; give a directory of this cluster, or an empty one, in log.dirs",
            file.display(),
            meta.cluster_id
        )));
    }
    if meta.node_id != node_id {
        return Err(FormatError::Refused(format!(
            "{} belongs to node {}, but node.id is {node_id}; set node.id={}, or give a directory of this node in log.dirs",
            file.display(),
            meta.node_id,
            meta.node_id
        )));
    }
    Ok(())
}

/// Files are no obstacle (a fresh file system has lost+found, an editor leaves things): logs are.
/// An empty metadata directory beside others that are not: with new metadata, the topics of the others would be strays.
fn refuse_lost_metadata(
    dirs: &[PathBuf],
    found: &[Option<MetaProperties>],
    metadata_dir: &Path,
) -> Result<(), FormatError> {
    let with_meta = || dirs.iter().zip(found);
    let lost = with_meta().any(|(dir, meta)| dir == metadata_dir && meta.is_none());
    let known = with_meta().find_map(|(dir, meta)| meta.as_ref().map(|meta| (dir, meta)));
    match known {
        Some((other, meta)) if lost => Err(FormatError::Refused(format!(
            "{} shall hold the metadata but has no {FILE_NAME}, while {} belongs to cluster {}; if it is a disk, mount it, or restore it from a \
             copy; run format to begin with empty metadata, which gives up the topics of the other directories",
            metadata_dir.display(),
            other.display(),
            meta.cluster_id
        ))),
        _ => Ok(()),
    }
}

fn refuse_unless_empty(dir: &Path) -> Result<(), FormatError> {
    let problem = |why| FormatError::Io {
        what: "list",
        path: dir.to_owned(),
        why,
    };
    for entry in std::fs::read_dir(dir).map_err(problem)? {
        let name = entry.map_err(problem)?.file_name();
        let name = name.to_string_lossy();
        let is_log = name.rsplit_once('-').is_some_and(|(topic, partition)| {
            !topic.is_empty() && partition.parse::<u32>().is_ok()
        });
        if is_log {
            return Err(FormatError::Refused(format!(
                "{} holds the log {name} but no {FILE_NAME}, so its cluster and node are not known; restore the file, run format to give the \
                 directory a new identity, or give another one in log.dirs",
                dir.display()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dirs {
        _root: tempfile::TempDir,
        paths: Vec<PathBuf>,
    }

    fn dirs(count: usize) -> Dirs {
        let root = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..count)
            .map(|index| root.path().join(format!("d{index}")))
            .collect();
        create_dirs(&paths).unwrap();
        Dirs { _root: root, paths }
    }

    fn formatted(paths: &[PathBuf], node_id: i32, cluster: Option<&str>) -> Identity {
        let plan = plan(
            paths,
            &paths[0],
            node_id,
            cluster,
            Unformatted::FormatIfEmpty,
        )
        .unwrap();
        plan.carry_out(&paths[0], b"records").unwrap();
        plan.identity
    }

    fn refused(paths: &[PathBuf], node_id: i32, cluster: Option<&str>) -> String {
        plan(
            paths,
            &paths[0],
            node_id,
            cluster,
            Unformatted::FormatIfEmpty,
        )
        .unwrap_err()
        .to_string()
    }

    #[test]
    fn empty_directories_get_one_cluster_and_an_id_each() {
        let dirs = dirs(2);
        let identity = formatted(&dirs.paths, 7, None);
        assert_eq!(identity.cluster_id.len(), 22);
        assert_ne!(identity.directory_ids[0], identity.directory_ids[1]);
        let bootstrap = |dir: &PathBuf| std::fs::read(dir.join(BOOTSTRAP_FILE_NAME)).ok();
        assert_eq!(bootstrap(&dirs.paths[0]).as_deref(), Some(&b"records"[..]));
        assert_eq!(bootstrap(&dirs.paths[1]), None);
    }

    #[test]
    fn formatting_twice_changes_nothing() {
        let dirs = dirs(2);
        let first = formatted(&dirs.paths, 7, Some("mine"));
        let again = plan(
            &dirs.paths,
            &dirs.paths[0],
            7,
            None,
            Unformatted::FormatIfEmpty,
        )
        .unwrap();
        assert_eq!(again.identity, first);
        assert_eq!(again.unformatted().count(), 0);
    }

    #[test]
    fn an_added_directory_joins_the_cluster_of_the_others() {
        let dirs = dirs(3);
        let first = formatted(&dirs.paths[..2], 7, None);
        let all = formatted(&dirs.paths, 7, None);
        assert_eq!(all.cluster_id, first.cluster_id);
        assert_eq!(all.directory_ids[..2], first.directory_ids);
    }

    #[test]
    fn a_metadata_directory_that_is_lost_is_not_made_anew() {
        let dirs = dirs(2);
        let first = formatted(&dirs.paths, 7, None);
        std::fs::remove_dir_all(&dirs.paths[0]).unwrap();
        create_dirs(&dirs.paths).unwrap();
        let why = refused(&dirs.paths, 7, None);
        assert!(
            why.contains("d0 shall hold the metadata") && why.contains("mount it"),
            "{why}"
        );
        let plan = plan(&dirs.paths, &dirs.paths[0], 7, None, Unformatted::Format);
        assert_eq!(plan.unwrap().identity.cluster_id, first.cluster_id);
    }

    #[test]
    fn directories_of_another_cluster_or_node_are_refused() {
        let dirs = dirs(2);
        formatted(&dirs.paths[..1], 7, Some("one"));
        formatted(&dirs.paths[1..], 7, Some("two"));
        let why = refused(&dirs.paths, 7, None);
        assert!(why.contains("belongs to cluster two, not to one"), "{why}");
        let why = refused(&dirs.paths[..1], 8, None);
        assert!(why.contains("belongs to node 7, but node.id is 8"), "{why}");
        let why = refused(&dirs.paths[..1], 7, Some("other"));
        assert!(
            why.contains("belongs to cluster one, not to other"),
            "{why}"
        );
    }

    #[test]
    fn a_copied_directory_is_refused() {
        let dirs = dirs(2);
        formatted(&dirs.paths[..1], 7, None);
        std::fs::copy(dirs.paths[0].join(FILE_NAME), dirs.paths[1].join(FILE_NAME)).unwrap();
        assert!(refused(&dirs.paths, 7, None).contains("one is a copy of the other"));
    }

    #[test]
    fn logs_without_an_identity_are_formatted_only_on_request() {
        let dirs = dirs(1);
        std::fs::create_dir(dirs.paths[0].join("topic-0")).unwrap();
        std::fs::create_dir(dirs.paths[0].join("lost+found")).unwrap();
        assert!(
            refused(&dirs.paths, 7, None).contains("holds the log topic-0 but no meta.properties")
        );
        assert!(plan(&dirs.paths, &dirs.paths[0], 7, None, Unformatted::Format).is_ok());
    }

    #[test]
    fn a_directory_without_an_id_gets_one() {
        let dirs = dirs(1);
        let old = MetaProperties {
            cluster_id: "old".to_owned(),
            node_id: 7,
            directory_id: None,
        };
        old.write(&dirs.paths[0]).unwrap();
        let identity = formatted(&dirs.paths, 7, None);
        let now = MetaProperties::read(&dirs.paths[0]).unwrap().unwrap();
        assert_eq!(now.cluster_id, "old");
        assert_eq!(now.directory_id, Some(identity.directory_ids[0]));
    }
}
