//! What a table says.

/// Both ends are included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Versions {
    pub(crate) first: i16,
    pub(crate) last: i16,
}

impl Versions {
    pub(crate) const ALL: Self = Self {
        first: 0,
        last: i16::MAX,
    };

    pub(crate) fn contains(self, version: i16) -> bool {
        (self.first..=self.last).contains(&version)
    }

    pub(crate) fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// The test `version is in self` as Rust, for a version that is known to lie in `within`; `None` if it always holds.
    pub(crate) fn condition(self, within: Self) -> Option<String> {
        let lower = (self.first > within.first).then(|| format!("version >= {}", self.first));
        let upper = (self.last < within.last).then(|| format!("version <= {}", self.last));
        match (lower, upper) {
            (Some(lower), Some(upper)) => Some(format!("{lower} && {upper}")),
            (one, other) => one.or(other),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Bool,
    I8,
    I16,
    U16,
    I32,
    I64,
    F64,
    Uuid,
    Text,
    Bytes,
    Struct(Struct),
    Array(Box<Kind>),
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) rust_name: String,
    pub(crate) kind: Kind,
    pub(crate) versions: Versions,
    /// The versions in which the field may be null, if there are any.
    pub(crate) null: Option<Versions>,
    pub(crate) tag: Option<u32>,
    pub(crate) default: Option<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) fields: Vec<Field>,
}

/// A root struct with what its table line says about versions.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    pub(crate) key: Option<i16>,
    pub(crate) versions: Versions,
    pub(crate) newest_is_unstable: bool,
    pub(crate) flexible_from: Option<i16>,
    pub(crate) root: Struct,
}

impl Schema {
    pub(crate) fn is_flexible_at(&self, version: i16) -> bool {
        self.flexible_from.is_some_and(|first| version >= first)
    }

    pub(crate) fn flexible_from_code(&self) -> String {
        self.flexible_from
            .map_or_else(|| "None".to_owned(), |first| format!("Some({first})"))
    }

    /// The fewest bytes that a value of `kind` takes in any of the schema's versions.
    pub(crate) fn smallest(&self, kind: &Kind) -> usize {
        let sizes =
            (self.versions.first..=self.versions.last).map(|version| self.size_at(kind, version));
        sizes.min().unwrap_or(1).max(1)
    }

    fn size_at(&self, kind: &Kind, version: i16) -> usize {
        let flexible = self.is_flexible_at(version);
        match kind {
            Kind::Bool | Kind::I8 => 1,
            Kind::I16 | Kind::U16 => 2,
            Kind::I32 => 4,
            Kind::I64 | Kind::F64 => 8,
            Kind::Uuid => 16,
            Kind::Text => {
                if flexible {
                    1
                } else {
                    2
                }
            }
            Kind::Bytes | Kind::Array(_) => {
                if flexible {
                    1
                } else {
                    4
                }
            }
            Kind::Struct(body) => {
                let present = body
                    .fields
                    .iter()
                    .filter(|field| field.tag.is_none() && field.versions.contains(version));
                let fields = present.map(|field| match (&field.kind, field.null) {
                    (Kind::Struct(_), Some(_)) => 1,
                    (kind, _) => self.size_at(kind, version),
                });
                fields.sum::<usize>() + usize::from(flexible)
            }
        }
    }
}

/// A request and its response.
#[derive(Debug)]
pub(crate) struct Rpc {
    pub(crate) name: String,
    pub(crate) request: Schema,
    pub(crate) response: Schema,
}
