//! What most tests need, in one line.

use serde_json::Value;

use super::{database::Database, http::Client, run::Run, server::TestServer};

/// A server on a database of its own. More servers on it: `TestServer::start(&ledger.database.url())`.
pub(crate) struct Ledger {
    pub(crate) server: TestServer,
    /// Dropped after the server.
    pub(crate) database: Database,
}

impl Ledger {
    /// `None` as from [`Database::start`]: `let Some(ledger) = Ledger::start().await else { return };`.
    pub(crate) async fn start() -> Option<Self> {
        let database = Database::start().await?;
        let server = TestServer::start(&database.url()).await;
        Some(Self { server, database })
    }

    /// A client of the server.
    pub(crate) fn client(&self) -> Client {
        self.server.client()
    }

    /// A new run with this configuration.
    pub(crate) async fn run(&self, config: Value) -> Run {
        Run::create(&self.client(), config).await
    }
}
