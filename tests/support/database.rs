//! The database of a test, chosen by one switch.
//!
//! `BERTH_TEST_DATABASE=local` (the default) is a `redis-server` process, `BERTH_TEST_DATABASE=container` a container
//! of `redis:8`, or of the image that `BERTH_TEST_REDIS_IMAGE` names.

use std::{env, process::Stdio};

use redis::aio::MultiplexedConnection;
use testcontainers::{
    ContainerAsync, GenericImage, ImageExt,
    core::{IntoContainerPort, WaitFor},
    runners::AsyncRunner,
};
use tokio::process::Command;

use super::{
    local_redis::{LocalRedis, connect},
    not_run::say_not_run,
};

/// An empty Redis that is this test's alone and ends with the value. A test that kills or pauses it uses
/// [`LocalRedis`] whatever the switch says.
pub(crate) enum Database {
    Local(Box<LocalRedis>),
    Container {
        url: String,
        container: Box<ContainerAsync<GenericImage>>,
    },
}

impl Database {
    /// Starts one. `None`, said aloud, when the switch asks for a container and no engine is there to run it: the
    /// test then returns, as in `let Some(database) = Database::start().await else { return };`.
    pub(crate) async fn start() -> Option<Self> {
        match env::var("BERTH_TEST_DATABASE").as_deref() {
            Err(_) | Ok("" | "local") => Some(Self::Local(Box::new(LocalRedis::start().await))),
            Ok("container") if engine_answers().await => Some(Self::start_container().await),
            Ok("container") => {
                say_not_run("BERTH_TEST_DATABASE=container and no container engine answers");
                None
            }
            Ok(other) => panic!("BERTH_TEST_DATABASE is `{other}`, not `local` or `container`"),
        }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Local(redis) => redis.url(),
            Self::Container { url, .. } => url.clone(),
        }
    }

    /// A new connection.
    pub(crate) async fn connection(&self) -> MultiplexedConnection {
        connect(&self.url())
            .await
            .expect("the test's database takes a connection")
    }

    async fn start_container() -> Self {
        let image = env::var("BERTH_TEST_REDIS_IMAGE").unwrap_or_else(|_| String::from("redis:8"));
        let (name, tag) = image.rsplit_once(':').unwrap_or((&image, "latest"));
        let container = GenericImage::new(name, tag)
            .with_exposed_port(6379.tcp())
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_cmd("--appendonly yes --appendfsync always --maxmemory-policy noeviction".split(' '))
            .start()
            .await
            .unwrap_or_else(|error| panic!("a container of {image}: {error}"));
        let host = container.get_host().await.expect("the container's host");
        let port = container.get_host_port_ipv4(6379).await.expect("the container's port");
        Self::Container {
            url: format!("redis://{host}:{port}"),
            container: Box::new(container),
        }
    }
}

async fn engine_answers() -> bool {
    let version = Command::new("docker")
        .arg("version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.await.is_ok_and(|status| status.success())
}
