//! The features that this broker has (kraft.md 5.1). A feature appears here when it is built, not before: clients act on what they see.

/// A feature and the levels of it that are supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    pub name: &'static str,
    pub min: i16,
    pub max: i16,
}

pub const METADATA_VERSION: &str = "metadata.version";

/// 4.3-IV0: the newest level whose records are all understood. New directories are finalised at it.
pub const METADATA_VERSION_MAX: i16 = 30;
/// 3.3-IV3, the lowest that 4.x knows.
pub const METADATA_VERSION_MIN: i16 = 7;

/// From this level on, operations of many records are framed by transactions.
pub const TRANSACTIONS_SINCE: i16 = 13;
/// From this level on, controllers register.
pub const CONTROLLER_REGISTRATION_SINCE: i16 = 15;

pub const SUPPORTED: &[Feature] = &[Feature {
    name: METADATA_VERSION,
    min: METADATA_VERSION_MIN,
    max: METADATA_VERSION_MAX,
}];

/// The supported feature with this name.
pub fn supported(name: &str) -> Option<Feature> {
    SUPPORTED
        .iter()
        .copied()
        .find(|feature| feature.name == name)
}

/// The level at which this broker works when the log says `finalised`: a directory may come from a newer release.
pub fn clamped(name: &str, finalised: i16) -> i16 {
    supported(name).map_or(0, |feature| finalised.min(feature.max))
}
