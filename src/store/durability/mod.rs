//! What the settings of a database mean for a run: what a crash may lose of what was acknowledged, and whether memory pressure
//! may throw away what a run consists of.
//!
//! Everything here is pure. The settings are read in [`examiner`], on every new connection: after a fail-over another
//! database may answer under the same address.

pub(super) mod examiner;
#[cfg(test)]
mod tests;

use std::fmt;

use thiserror::Error;

/// What the operator demands of the database. The default is what `berth serve` demands without flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demands {
    /// Take a database that evicts, or may.
    pub allow_eviction: bool,
    /// Take only a database that is known to lose nothing it acknowledged.
    pub require_durable: bool,
    /// How many replicas must have what a call wrote before the call is answered.
    pub wait_replicas: u32,
}

/// What a database says of itself, in its own words. What it does not tell is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    /// `yes` or `no`.
    pub appendonly: Option<String>,
    /// `always`, `everysec` or `no`.
    pub appendfsync: Option<String>,
    /// `yes` or `no`: whether syncing stops while the append-only file or a snapshot is written.
    pub no_appendfsync_on_rewrite: Option<String>,
    /// When snapshots are written; empty for never.
    pub save: Option<String>,
    /// What is thrown away when memory is full.
    pub maxmemory_policy: Option<String>,
    /// Bytes; 0 is no limit.
    pub maxmemory: Option<String>,
    /// `master` or `slave`.
    pub role: Option<String>,
    /// How many replicas are connected.
    pub replicas: Option<u32>,
}

/// What a crash of the database may lose of what was acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Durability {
    /// Nothing.
    Always,
    /// What was written while the append-only file was rewritten or a snapshot written.
    ExceptDuringRewrites,
    /// A second, or more where the disk is slow.
    EverySecond,
    /// What the operating system had not yet written.
    Unsynced,
    /// Everything since the last snapshot.
    Snapshots {
        /// When they are written, as in the setting `save`.
        save: String,
    },
    /// Everything.
    Nothing,
    /// The database does not tell its settings.
    Unknown,
}

/// Whether the database throws keys away when its memory is full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eviction {
    /// It refuses writes instead.
    Never,
    /// It does.
    Evicts {
        /// Which keys, as in the setting `maxmemory-policy`.
        policy: String,
        /// Whether memory has no limit for now, so that it never counts as full.
        unlimited: bool,
    },
    /// The database does not tell.
    Unknown,
}

/// What settings mean for a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What a crash may lose.
    pub durability: Durability,
    /// What full memory may lose.
    pub eviction: Eviction,
    /// Whether it is a replica, which takes no writes.
    pub is_replica: bool,
    /// How many replicas it has, if it tells.
    pub replicas: Option<u32>,
}

/// Why a database is not what the operator demands.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfit {
    /// It evicts.
    #[error(
        "{eviction}; runs need `maxmemory-policy noeviction` (CONFIG SET maxmemory-policy noeviction, and in its configuration \
         file); --allow-eviction takes it as it is"
    )]
    Evicts {
        /// What it may throw away.
        eviction: Eviction,
    },
    /// It may lose what it acknowledged.
    #[error(
        "--require-durable wants an append-only file that is synced on every write (appendonly yes, appendfsync always, \
         no-appendfsync-on-rewrite no), and here {durability}"
    )]
    NotDurable {
        /// What it may lose.
        durability: Durability,
    },
    /// It does not tell whether it evicts.
    #[error("--require-durable wants to know that nothing is evicted, and {}", Eviction::Unknown)]
    EvictionUnknown,
}

/// Says what settings mean.
pub fn judge(settings: &Settings) -> Verdict {
    Verdict {
        durability: Durability::of(settings),
        eviction: Eviction::of(settings),
        is_replica: settings.role.as_deref() == Some("slave"),
        replicas: settings.replicas,
    }
}

impl Verdict {
    /// Why a database of this verdict is not to be used, if it is not.
    pub fn refusal(&self, demands: &Demands) -> Option<Unfit> {
        let eviction = match &self.eviction {
            Eviction::Never => None,
            Eviction::Evicts { .. } if demands.allow_eviction => None,
            Eviction::Evicts { .. } => Some(Unfit::Evicts {
                eviction: self.eviction.clone(),
            }),
            Eviction::Unknown => (demands.require_durable && !demands.allow_eviction).then_some(Unfit::EvictionUnknown),
        };
        let is_too_weak = demands.require_durable && self.durability != Durability::Always;
        let durability = is_too_weak.then(|| Unfit::NotDurable {
            durability: self.durability.clone(),
        });
        durability.or(eviction)
    }
}

impl Durability {
    fn of(settings: &Settings) -> Self {
        let snapshots = || match settings.save.as_deref() {
            Some("") => Self::Nothing,
            Some(save) => Self::Snapshots { save: save.to_owned() },
            None => Self::Unknown,
        };
        let synced = || match settings.no_appendfsync_on_rewrite.as_deref() {
            Some("no") => Self::Always,
            Some("yes") => Self::ExceptDuringRewrites,
            _ => Self::Unknown,
        };
        match (settings.appendonly.as_deref(), settings.appendfsync.as_deref()) {
            (Some("no"), _) => snapshots(),
            (Some("yes"), Some("always")) => synced(),
            (Some("yes"), Some("everysec")) => Self::EverySecond,
            (Some("yes"), Some("no")) => Self::Unsynced,
            _ => Self::Unknown,
        }
    }

    /// Whether this is a choice that somebody may make for a run that matters.
    pub fn is_sound(&self) -> bool {
        matches!(self, Self::Always | Self::EverySecond)
    }
}

impl Eviction {
    fn of(settings: &Settings) -> Self {
        match settings.maxmemory_policy.as_deref() {
            Some("noeviction") => Self::Never,
            Some(policy) => Self::Evicts {
                policy: policy.to_owned(),
                unlimited: settings.maxmemory.as_deref() == Some("0"),
            },
            None => Self::Unknown,
        }
    }
}

/// A clause, for the log and for refusals.
impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => {
                f.write_str("nothing acknowledged is lost in a crash (append-only file, synced on every write)")
            }
            Self::ExceptDuringRewrites => f.write_str(
                "a crash while the append-only file is rewritten may lose what was acknowledged meanwhile \
                 (appendfsync always, but no-appendfsync-on-rewrite yes)",
            ),
            Self::EverySecond => f.write_str(
                "a crash may lose the last second of what was acknowledged, more on a slow disk (appendfsync everysec)",
            ),
            Self::Unsynced => f.write_str(
                "a crash of the machine may lose what was acknowledged in the last half minute or so (appendfsync no)",
            ),
            Self::Snapshots { save } => write!(
                f,
                "a crash loses everything acknowledged since the last snapshot (appendonly no, save {save})"
            ),
            Self::Nothing => {
                f.write_str("a crash or a restart loses every run: nothing is written to disk (appendonly no)")
            }
            Self::Unknown => f.write_str(
                "it cannot be told what a crash loses: the database does not tell its settings (CONFIG GET)",
            ),
        }
    }
}

/// A clause, for the log and for refusals.
impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Never => f.write_str("nothing is evicted when memory is full"),
            Self::Evicts { policy, unlimited } => {
                write!(
                    f,
                    "leases and records of runs are thrown away when memory is full (maxmemory-policy {policy})"
                )?;
                if *unlimited {
                    f.write_str(", although memory has no limit now (maxmemory 0)")?;
                }
                Ok(())
            }
            Self::Unknown => f.write_str("it cannot be told whether keys are evicted when memory is full"),
        }
    }
}
