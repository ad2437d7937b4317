//! The database of a test, chosen by one switch.
//!
//! `BERTH_TEST_DATABASE=local` (the default) is a `redis-server` process, `BERTH_TEST_DATABASE=container` a container
//! of `redis:8`, or of the image that `BERTH_TEST_REDIS_IMAGE` names.
//!
//! A container takes longer to start than most tests take. Where `BERTH_TEST_CONTAINERS` gives a name, tests that run one
//! after another share a container of that name, emptied before each, and whoever gave the name removes them.

use std::{
    env,
    process::Stdio,
    sync::atomic::{AtomicUsize, Ordering},
};

use redis::aio::MultiplexedConnection;
use testcontainers::{
    ContainerAsync, ContainerRequest, GenericImage, ImageExt, ReuseDirective,
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
        let request = GenericImage::new(name, tag)
            .with_exposed_port(6379.tcp())
            .with_wait_for(WaitFor::message_on_stdout("Ready to accept connections"))
            .with_cmd("--appendonly yes --appendfsync always --maxmemory-policy noeviction".split(' '));
        let container = shared(request)
            .start()
            .await
            .unwrap_or_else(|error| panic!("a container of {image}: {error}"));
        let host = container.get_host().await.expect("the container's host");
        let port = container.get_host_port_ipv4(6379).await.expect("the container's port");
        let database = Self::Container {
            url: format!("redis://{host}:{port}"),
            container: Box::new(container),
        };
        let mut connection = database.connection().await;
        let _: () = redis::cmd("FLUSHALL")
            .query_async(&mut connection)
            .await
            .expect("an empty database");
        database
    }
}

/// The container that the tests in this one's slot share: nextest runs one test at a time in each. A second database of the
/// same test is another container.
fn shared(request: ContainerRequest<GenericImage>) -> ContainerRequest<GenericImage> {
    static STARTED: AtomicUsize = AtomicUsize::new(0);
    match (env::var("BERTH_TEST_CONTAINERS"), env::var("NEXTEST_TEST_GLOBAL_SLOT")) {
        (Ok(name), Ok(slot)) if !name.is_empty() => {
            let number = STARTED.fetch_add(1, Ordering::Relaxed);
            request
                .with_container_name(format!("{name}-{slot}-{number}"))
                .with_reuse(ReuseDirective::Always)
        }
        _ => request,
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
