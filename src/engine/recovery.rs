//! Runs the recovery of logs on helper threads: reads what the pure recovery asks for, carries out what it orders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
