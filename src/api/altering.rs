//! What AlterConfigs and IncrementalAlterConfigs have in common: this broker checks what it alone knows, the controller does the rest.
//!
//! Not here: the levels of loggers, which are set at start.

use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::base::ids::Text;
use corelog_shards::controller::request::{AlterResource, Refusal};
use corelog_shards::metadata::configs::ResourceKind;

use super::Context;
use crate::config::table::{Change, Kind, property};
use crate::config::value;

/// How long a change may take; the request does not say.
pub(super) const TIMEOUT_MS: i32 = 30_000;

/// A resource as the request names it.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub(super) kind: i8,
    pub(super) name: Text,
}

/// What becomes of each resource, in the order of the request.
pub(super) struct Plan<T> {
    /// `None`: it is the next one of those that the controller is asked about.
    pub(super) local: Vec<(Named, Option<Refusal>)>,
    pub(super) asked: Vec<AlterResource<T>>,
}

impl<T> Plan<T> {
    /// `check` looks at the changes of a broker resource.
    pub(super) fn make(
        cx: &Context<'_>,
        resources: impl Iterator<Item = (Named, Result<Vec<T>, Refusal>)>,
        check: impl Fn(bool, &T) -> Result<(), Refusal>,
    ) -> Plan<T> {
        let mut plan = Plan {
            local: Vec::new(),
            asked: Vec::new(),
        };
        for (named, changes) in resources {
            let checked = changes.and_then(|changes| resource(cx, &named, changes, &check));
            let refusal = match checked {
                Ok(resource) => {
                    plan.asked.push(resource);
                    None
                }
                Err(refusal) => Some(refusal),
            };
            plan.local.push((named, refusal));
        }
        plan
    }

    /// Every resource with what became of it.
    pub(super) fn merge(
        local: Vec<(Named, Option<Refusal>)>,
        replies: Vec<Result<(), Refusal>>,
    ) -> impl Iterator<Item = (Named, Option<Refusal>)> {
        let mut replies = replies.into_iter();
        local.into_iter().map(move |(named, refusal)| {
            let refusal = refusal.or_else(|| replies.next().and_then(Result::err));
            (named, refusal)
        })
    }
}

fn resource<T>(
    cx: &Context<'_>,
    named: &Named,
    changes: Vec<T>,
    check: impl Fn(bool, &T) -> Result<(), Refusal>,
) -> Result<AlterResource<T>, Refusal> {
    let Some(kind) = ResourceKind::from_code(named.kind) else {
        return Err(invalid(format!(
            "Unsupported resource type: {}",
            named.kind
        )));
    };
    match kind {
        ResourceKind::BrokerLogger => {
            return Err(invalid(
                "The levels of loggers can't be changed while this broker runs; start it with other ones.".to_owned(),
            ));
        }
        ResourceKind::Broker => {
            check_broker(cx, &named.name)?;
            let one_broker = !named.name.is_empty();
            changes
                .iter()
                .try_for_each(|change| check(one_broker, change))?;
        }
        ResourceKind::Topic | ResourceKind::ClientMetrics | ResourceKind::Group => {}
    }
    Ok(AlterResource {
        kind,
        name: named.name.clone(),
        changes,
    })
}

fn check_broker(cx: &Context<'_>, name: &str) -> Result<(), Refusal> {
    let own = cx.broker.node_id;
    match name.parse::<i32>() {
        _ if name.is_empty() => Ok(()),
        Ok(id) if id == own => Ok(()),
        Ok(_) => Err(invalid(format!(
            "Unexpected broker id, expected {own}, but received {name}"
        ))),
        Err(_) => Err(invalid(format!(
            "Unable to parse broker name '{name}' as a base 10 number."
        ))),
    }
}

/// Whether a broker property may get this value while the broker runs (kafka.md 12.1). Names that nobody knows are kept, as Kafka does.
pub(super) fn check_broker_property(
    one_broker: bool,
    name: &str,
    new: Option<&str>,
) -> Result<(), Refusal> {
    let Some(property) = property(name) else {
        return Ok(());
    };
    match property.change {
        Change::ReadOnly => {
            return Err(invalid(format!(
                "Cannot update these configs dynamically: [{name}]"
            )));
        }
        Change::PerBroker if !one_broker => {
            return Err(invalid(format!(
                "Cannot update these configs at default cluster level, broker id must be specified: [{name}]"
            )));
        }
        Change::PerBroker | Change::ClusterWide => {}
    }
    let checked = new.map_or(Ok(()), |new| value::check(property, new));
    checked.map_err(|why| {
        let new = new.unwrap_or_default();
        invalid(format!(
            "Invalid value {new} for configuration {name}: {why}"
        ))
    })
}

/// What a list is without a dynamic setting; `None` if the property is no list.
pub(super) fn broker_list(cx: &Context<'_>, name: &str) -> Option<Text> {
    let property = property(name).filter(|property| property.kind == Kind::List)?;
    let given = cx.broker.statics.get(name).cloned();
    let base = given.or_else(|| property.default.map(str::to_owned));
    Some(Text::from(base.unwrap_or_default()))
}

fn invalid(message: String) -> Refusal {
    Refusal::new(ErrorCode::INVALID_REQUEST, message)
}
