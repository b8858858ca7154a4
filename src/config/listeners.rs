//! Listeners: `NAME://host:port`, and which of them this broker opens.

use std::collections::BTreeMap;
use std::fmt;

use super::settings::{ConfigError, Settings};

/// One listener, as it is opened or as it is told to clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Upper case.
    pub name: String,
    /// Empty = all interfaces. IPv6 addresses without brackets.
    pub host: String,
    /// 0 = any free port (only to listen on).
    pub port: u16,
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "{}://[{}]:{}", self.name, self.host, self.port)
        } else {
            write!(f, "{}://{}:{}", self.name, self.host, self.port)
        }
    }
}

impl Listener {
    pub fn parse(text: &str) -> Result<Listener, String> {
        let problem = || format!("\"{text}\" is no listener; give NAME://host:port");
        let (name, address) = text.split_once("://").ok_or_else(problem)?;
        let (host, port) = address.rsplit_once(':').ok_or_else(problem)?;
        let host = match host.strip_prefix('[') {
            Some(inside) => inside.strip_suffix(']').ok_or_else(problem)?,
            None if host.contains(':') => return Err(problem()),
            None => host,
        };
        let port = port
            .parse()
            .map_err(|_| format!("\"{text}\": the port must be a number from 0 to 65535"))?;
        if name.is_empty() {
            return Err(problem());
        }
        Ok(Listener {
            name: name.to_ascii_uppercase(),
            host: host.to_owned(),
            port,
        })
    }
}

/// What is listened on and what clients are told, one to one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listeners {
    pub open: Vec<Listener>,
    /// Same names in the same order as `open`. A port of 0 stands for the one that was bound.
    pub advertised: Vec<Listener>,
}

impl Listeners {
    /// `host_name` is advertised for listeners on all interfaces, as Kafka does.
    pub fn of(settings: &Settings, host_name: &str) -> Result<Listeners, ConfigError> {
        let mut problems = Vec::new();
        let controllers: Vec<String> = settings
            .list("controller.listener.names")
            .iter()
            .map(|name| name.to_ascii_uppercase())
            .collect();
        let for_clients = |listener: &Listener| !controllers.contains(&listener.name);

        let open: Vec<Listener> = parse_all(settings, "listeners", &mut problems)
            .into_iter()
            .filter(for_clients)
            .collect();
        check_distinct(&open, &mut problems);
        if open.is_empty() && problems.is_empty() {
            problems.push(
                "listeners: no listener for clients; give at least one that is not in controller.listener.names"
                    .to_owned(),
            );
        }
        check_protocols(settings, &open, &mut problems);

        let given = settings.given_value("advertised.listeners");
        let advertised = if given.is_some_and(|text| !text.is_empty()) {
            let told = parse_all(settings, "advertised.listeners", &mut problems);
            in_order(&open, &told, &controllers, &mut problems)
        } else {
            open.clone()
        };
        let advertised = advertised
            .into_iter()
            .map(|listener| reachable(listener, given.is_some(), host_name, &mut problems))
            .collect();
        if problems.is_empty() {
            Ok(Listeners { open, advertised })
        } else {
            Err(ConfigError::Invalid(problems))
        }
    }
}

fn parse_all(settings: &Settings, property: &str, problems: &mut Vec<String>) -> Vec<Listener> {
    let mut listeners = Vec::new();
    for text in settings.list(property) {
        match Listener::parse(&text) {
            Ok(listener) => listeners.push(listener),
            Err(why) => problems.push(format!("{property}: {why}")),
        }
    }
    listeners
}

fn check_distinct(open: &[Listener], problems: &mut Vec<String>) {
    for (at, listener) in open.iter().enumerate() {
        let earlier = &open[..at];
        if earlier.iter().any(|other| other.name == listener.name) {
            problems.push(format!(
                "listeners: {} stands twice; give each listener a name of its own",
                listener.name
            ));
        }
        let same_port = |other: &&Listener| other.port == listener.port && other.port != 0;
        if earlier
            .iter()
            .find(same_port)
            .is_some_and(|other| other.host == listener.host)
        {
            problems.push(format!(
                "listeners: port {} stands twice; give each listener a port of its own",
                listener.port
            ));
        }
    }
}

/// Only PLAINTEXT is built: opening a listener that promises encryption or authentication without it would be worse than not starting.
fn check_protocols(settings: &Settings, open: &[Listener], problems: &mut Vec<String>) {
    let mut protocols = BTreeMap::new();
    for entry in settings.list("listener.security.protocol.map") {
        match entry.split_once(':') {
            Some((name, protocol)) => {
                protocols.insert(name.to_ascii_uppercase(), protocol.to_owned());
            }
            None => problems.push(format!(
                "listener.security.protocol.map: \"{entry}\" is no pair; give NAME:PROTOCOL"
            )),
        }
    }
    for listener in open {
        match protocols.get(&listener.name).map(String::as_str) {
            Some("PLAINTEXT") => {}
            Some(other) => problems.push(format!(
                "listeners: {} asks for {other}, which is not built yet; use PLAINTEXT on a network that you trust",
                listener.name
            )),
            None => problems.push(format!(
                "listeners: {0} has no security protocol; add {0}:PLAINTEXT to listener.security.protocol.map",
                listener.name
            )),
        }
    }
}

/// The advertised listener of each open one. Those of controllers may stand there and are not told to clients.
fn in_order(
    open: &[Listener],
    told: &[Listener],
    controllers: &[String],
    problems: &mut Vec<String>,
) -> Vec<Listener> {
    for listener in told {
        let known = open.iter().any(|other| other.name == listener.name)
            || controllers.contains(&listener.name);
        if !known {
            problems.push(format!(
                "advertised.listeners: {} is not in listeners; use the same names in both",
                listener.name
            ));
        }
    }
    // A listener that is not told stays usable for whoever knows its address; its own address stands in.
    let told_of = |listener: &Listener| {
        told.iter()
            .find(|other| other.name == listener.name)
            .unwrap_or(listener)
            .clone()
    };
    open.iter().map(told_of).collect()
}

fn reachable(
    mut listener: Listener,
    given: bool,
    host_name: &str,
    problems: &mut Vec<String>,
) -> Listener {
    if matches!(listener.host.as_str(), "0.0.0.0" | "::") {
        problems.push(format!(
            "{}: clients cannot connect to {listener}; set advertised.listeners to an address that they reach",
            if given { "advertised.listeners" } else { "listeners" },
        ));
    }
    if listener.host.is_empty() {
        host_name.clone_into(&mut listener.host);
    }
    listener
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listeners(pairs: &[(&str, &str)]) -> Result<Listeners, ConfigError> {
        let settings =
            Settings::from_pairs(pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()))).unwrap();
        Listeners::of(&settings, "box")
    }

    fn shown(listeners: &[Listener]) -> Vec<String> {
        listeners.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_listener_is_a_name_a_host_and_a_port() {
        for text in ["PLAINTEXT://a.b:1", "X://:0", "X://[::1]:9092"] {
            assert_eq!(Listener::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "a:1",
            "X://a",
            "X://a:65536",
            "X://::1:9092",
            "://a:1",
            "X://[::1:9",
        ] {
            assert!(Listener::parse(text).is_err(), "{text}");
        }
        assert_eq!(Listener::parse("plain://a:1").unwrap().name, "PLAIN");
    }

    #[test]
    fn the_default_is_this_machine_only() {
        let listeners = listeners(&[]).unwrap();
        assert_eq!(shown(&listeners.open), ["PLAINTEXT://127.0.0.1:9092"]);
        assert_eq!(listeners.advertised, listeners.open);
    }

    #[test]
    fn kafkas_own_example_file_opens_the_client_listener_only() {
        let listeners = listeners(&[
            ("listeners", "PLAINTEXT://:9092,CONTROLLER://:9093"),
            ("advertised.listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"),
            ("controller.listener.names", "CONTROLLER"),
            (
                "listener.security.protocol.map",
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            ),
        ])
        .unwrap();
        assert_eq!(shown(&listeners.open), ["PLAINTEXT://:9092"]);
        assert_eq!(shown(&listeners.advertised), ["PLAINTEXT://localhost:9092"]);
    }

    #[test]
    fn all_interfaces_are_advertised_by_the_name_of_the_host() {
        let listeners = listeners(&[("listeners", "PLAINTEXT://:9092")]).unwrap();
        assert_eq!(shown(&listeners.advertised), ["PLAINTEXT://box:9092"]);
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_to_do() {
        for (pairs, part) in [
            (
                vec![("listeners", "PLAINTEXT://0.0.0.0:9092")],
                "set advertised.listeners to an address",
            ),
            (
                vec![("listeners", "SSL://:9092")],
                "SSL, which is not built yet",
            ),
            (vec![("listeners", "MINE://:9092")], "add MINE:PLAINTEXT to"),
            (
                vec![("listeners", "PLAINTEXT://:1,PLAINTEXT://:2")],
                "stands twice",
            ),
            (
                vec![("advertised.listeners", "OTHER://a:1")],
                "OTHER is not in listeners",
            ),
            (vec![("listeners", "")], "no listener for clients"),
            (
                vec![("listeners", "PLAINTEXT:9092")],
                "give NAME://host:port",
            ),
        ] {
            let error = listeners(&pairs).unwrap_err().to_string();
            assert!(error.contains(part), "{pairs:?}: {error}");
        }
    }
}
