//! `corelog serve` and `corelog format`: from settings to a running broker, or to formatted directories. Everything that can be wrong is found before
//! anything is touched: settings first, then the host and the addresses, then locks and identities.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use corelog_io::disk::dir::DirLock;
use corelog_shards::controller::bootstrap_checkpoint;

use super::args::{Engine, FormatArgs, LogFormat, ServeArgs, SettingsArgs};
use super::failure::Failure;
use super::{logging, print};
use crate::config::format::{self, Identity, Unformatted};
use crate::config::{BrokerConfig, Settings};
use crate::console::Console;
use crate::engine;

pub(super) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let settings = load(&args.settings, flags(args))?;
    let config = BrokerConfig::of(&settings)?;
    logging::start(log_format(&settings))?;
    for warning in settings.warnings() {
        tracing::warn!("{warning}");
    }
    let console = match &config.admin_listener {
        Some(address) => Some(Console::bind(address)?),
        None => None,
    };
    let told = |error: engine::ServeError| Failure::Told(error.to_string());
    let bound = engine::prepare(&config).map_err(told)?;
    let (identity, locks) = identify(&config, None, Unformatted::FormatIfEmpty, |dir| {
        tracing::info!(directory = %dir, "formatted an empty log directory");
        Ok(())
    })?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        node = identity.node_id,
        cluster = %identity.cluster_id,
        "starting"
    );
    let served = engine::serve(config, identity, console, bound);
    drop(locks);
    served.map_err(told)
}

pub(super) fn format(args: &FormatArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let settings = load(&args.settings, Vec::new())?;
    let config = BrokerConfig::of(&settings)?;
    let wanted = args.cluster_id.as_deref();
    let mut formatted = false;
    let (identity, _locks) = identify(&config, wanted, Unformatted::Format, |dir| {
        formatted = true;
        print::line(out, &format!("formatted {dir}"))
    })?;
    if !formatted {
        print::line(out, "all directories are formatted already")?;
    }
    let Identity {
        cluster_id,
        node_id,
        ..
    } = identity;
    print::line(out, &format!("cluster {cluster_id}, node {node_id}"))
}

/// Locks the directories, compares their identities with what is wanted, gives one to those that have none and tells which.
fn identify(
    config: &BrokerConfig,
    cluster_id: Option<&str>,
    unformatted: Unformatted,
    mut tell: impl FnMut(String) -> Result<(), Failure>,
) -> Result<(Identity, Vec<DirLock>), Failure> {
    let dirs = config.all_dirs();
    format::create_dirs(&dirs)?;
    let locks = dirs
        .iter()
        .map(|dir| DirLock::take(dir))
        .collect::<Result<Vec<DirLock>, _>>()?;
    let plan = format::plan(
        &dirs,
        &config.metadata_log_dir,
        config.node_id,
        cluster_id,
        unformatted,
    )?;
    plan.carry_out(&config.metadata_log_dir, &bootstrap_checkpoint(now_ms()))?;
    for dir in plan.unformatted() {
        tell(dir.display().to_string())?;
    }
    Ok((plan.identity, locks))
}

/// The flags win over `--override`, which wins over the file.
fn load(args: &SettingsArgs, flags: Vec<String>) -> Result<Settings, Failure> {
    let overrides: Vec<String> = args.overrides.iter().cloned().chain(flags).collect();
    Ok(Settings::load(args.config.as_deref(), &overrides)?)
}

fn flags(args: &ServeArgs) -> Vec<String> {
    let cores = args.cores.as_ref().map(|cores| format!("cores={cores}"));
    let shards = args.shards.map(|shards| format!("shards={shards}"));
    let engine = args.engine.map(|engine| match engine {
        Engine::Percore => "engine=percore".to_owned(),
        Engine::Classic => "engine=classic".to_owned(),
    });
    let format = args.log_format.map(|format| match format {
        LogFormat::Human => "log.format=human".to_owned(),
        LogFormat::Json => "log.format=json".to_owned(),
    });
    [cores, shards, engine, format]
        .into_iter()
        .flatten()
        .collect()
}

fn log_format(settings: &Settings) -> LogFormat {
    match settings.text("log.format").as_str() {
        "json" => LogFormat::Json,
        _ => LogFormat::Human,
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::format::BOOTSTRAP_FILE_NAME;

    #[test]
    fn format_gives_an_identity_once_and_tells_it() {
        let root = tempfile::tempdir().unwrap();
        let dirs = root.path().join("a");
        let args = FormatArgs {
            settings: SettingsArgs {
                config: None,
                overrides: vec![
                    format!("log.dirs={}", dirs.display()),
                    "node.id=4".to_owned(),
                ],
            },
            cluster_id: Some("mine".to_owned()),
        };
        let run = |args| {
            let mut out = Vec::new();
            format(args, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let first = run(&args);
        assert!(first.starts_with("formatted "), "{first}");
        assert!(first.ends_with("cluster mine, node 4\n"), "{first}");
        assert!(dirs.join(BOOTSTRAP_FILE_NAME).exists());
        let again = run(&args);
        assert!(
            again.starts_with("all directories are formatted already"),
            "{again}"
        );
        let other = FormatArgs {
            cluster_id: Some("other".to_owned()),
            ..args
        };
        assert!(format(&other, &mut Vec::new()).is_err());
    }

    #[test]
    fn flags_win_over_overrides() {
        let args = ServeArgs {
            settings: SettingsArgs {
                config: None,
                overrides: vec!["shards=2".to_owned(), "log.format=human".to_owned()],
            },
            cores: Some("0".to_owned()),
            shards: Some(3),
            engine: Some(Engine::Classic),
            log_format: Some(LogFormat::Json),
        };
        let settings = load(&args.settings, flags(&args)).unwrap();
        assert_eq!(settings.text("shards"), "3");
        assert_eq!(settings.text("cores"), "0");
        assert_eq!(settings.text("engine"), "classic");
        assert_eq!(log_format(&settings), LogFormat::Json);
    }
}
