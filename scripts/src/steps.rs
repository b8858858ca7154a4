//! Runs commands at the root of the repository, says which one runs and how long it took.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use crate::tidy;

/// A sentence that says what went wrong.
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

pub(crate) struct Steps {
    root: PathBuf,
    env: Vec<(&'static str, &'static str)>,
}

impl Steps {
    pub(crate) fn at_root() -> Result<Steps, Failed> {
        let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        match here.parent() {
            Some(root) if root.join("Cargo.toml").exists() => Ok(Steps {
                root: root.to_owned(),
                env: Vec::new(),
            }),
            _ => Err(Failed(format!(
                "{} is not in the repository any more; build xtask again",
                here.display()
            ))),
        }
    }

    /// For all commands from here on.
    pub(crate) fn env(&mut self, name: &'static str, value: &'static str) {
        self.env.push((name, value));
    }

    pub(crate) fn cargo(&self, fixed: &[&str], rest: &[String]) -> Result<(), Failed> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        self.run(&cargo, fixed, rest)
    }

    /// A bash script of the repository.
    pub(crate) fn script(&self, path: &str, rest: &[String]) -> Result<(), Failed> {
        if !self.root.join(path).exists() {
            return Err(Failed(format!("there is no {path} yet")));
        }
        self.run("bash", &[path], rest)
    }

    pub(crate) fn tidy(&self) -> Result<(), Failed> {
        let began = Instant::now();
        let problems = tidy::check(&self.root)?;
        for problem in &problems {
            eprintln!("tidy: {problem}");
        }
        eprintln!("xtask: tidy took {:.1} s", began.elapsed().as_secs_f64());
        if problems.is_empty() {
            Ok(())
        } else {
            Err(Failed(format!("tidy found {} problems", problems.len())))
        }
    }

    fn run(&self, program: &str, fixed: &[&str], rest: &[String]) -> Result<(), Failed> {
        let mut command = Command::new(program);
        command
            .args(fixed)
            .args(rest)
            .current_dir(&self.root)
            .envs(self.env.iter().copied());
        let shown = format!(
            "{} {}",
            program.rsplit('/').next().unwrap_or(program),
            fixed.join(" ")
        );
        eprintln!("xtask: {shown}");
        let began = Instant::now();
        let status = command
            .status()
            .map_err(|error| Failed(format!("cannot run {program}: {error}; is it installed?")))?;
        eprintln!("xtask: {shown} took {:.1} s", began.elapsed().as_secs_f64());
        if status.success() {
            Ok(())
        } else {
            Err(Failed(format!("{shown} failed ({status})")))
        }
    }
}
