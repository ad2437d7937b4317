//! What wakes a waiting call: Redis pub/sub, one connection a server, and channels subscribed to only while somebody waits.
//!
//! A message is a hint and no more. Whoever waits subscribes, looks, waits, and looks again; messages that are lost with their
//! connection are made up for by waking everybody when it is back, and, should a message be lost in any other way, by a slow
//! look at each run that is waited for, which wakes its waiters only if something has happened there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSub, PubSubSink};
use redis::streams::StreamRangeReply;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{self, MissedTickBehavior};

use super::Store;
use super::keys::{RunKeys, Topic};

/// How often the connection is tried, and channels that nobody waits on are given up.
const TICK: Duration = Duration::from_secs(5);
/// How many ticks lie between two slow looks at the runs that are waited for.
const TICKS_BETWEEN_LOOKS: u32 = 3;
/// How long the database may take to answer a ping or a subscription.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The place where a server's waiting calls are woken.
#[derive(Clone)]
pub struct Wakes {
    channels: Arc<Mutex<HashMap<String, Channel>>>,
    requests: mpsc::UnboundedSender<oneshot::Sender<()>>,
}

struct Channel {
    keys: RunKeys,
    is_subscribed: bool,
    /// Whether nobody has waited here since the tick before the last.
    is_idle: bool,
    /// Waiters by the name they wait for; the empty name waits for every message.
    waiters: HashMap<String, watch::Sender<u64>>,
    last_event: Option<String>,
}

/// A subscription to one topic of one run. Messages since it was made are not missed.
pub struct Subscription {
    wakes: Wakes,
    channel: String,
    name: String,
    woken: watch::Receiver<u64>,
}

impl Subscription {
    /// Completes when there is a reason to look again.
    pub async fn woken(&mut self) {
        // The sender lives in the map for as long as this subscription does.
        if self.woken.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut channels = self.wakes.lock();
        if let Some(channel) = channels.get_mut(&self.channel) {
            let is_last = channel
                .waiters
                .get(&self.name)
                .is_some_and(|sender| sender.receiver_count() == 1);
            if is_last {
                channel.waiters.remove(&self.name);
            }
        }
    }
}

impl Wakes {
    /// Starts the task that listens; it ends when the last clone is dropped.
    pub fn listen(store: Arc<Store>) -> Self {
        let (requests, received) = mpsc::unbounded_channel();
        let channels = Arc::new(Mutex::new(HashMap::new()));
        let hub = Hub {
            channels: Arc::clone(&channels),
            store,
            requests: received,
        };
        tokio::spawn(hub.run());
        Self { channels, requests }
    }

    /// Subscribes to a topic of a run, for messages that carry `name` among their words, or for all.
    ///
    /// When it returns, the database knows of the subscription, or the connection is down and everybody is woken once it is
    /// back.
    pub async fn subscribe(&self, keys: &RunKeys, topic: Topic, name: Option<&str>) -> Subscription {
        let channel_name = keys.channel(topic);
        let name = name.unwrap_or_default().to_owned();
        let (subscription, is_subscribed) = {
            let mut channels = self.lock();
            let channel = channels.entry(channel_name.clone()).or_insert_with(|| Channel {
                keys: keys.clone(),
                is_subscribed: false,
                is_idle: false,
                waiters: HashMap::new(),
                last_event: None,
            });
            channel.is_idle = false;
            let woken = channel
                .waiters
                .entry(name.clone())
                .or_insert_with(|| watch::channel(0).0)
                .subscribe();
            let subscription = Subscription {
                wakes: self.clone(),
                channel: channel_name,
                name,
                woken,
            };
            (subscription, channel.is_subscribed)
        };
        if !is_subscribed {
            let (done, subscribed) = oneshot::channel();
            if self.requests.send(done).is_ok() {
                let _ = subscribed.await;
            }
        }
        subscription
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Hub {
    channels: Arc<Mutex<HashMap<String, Channel>>>,
    store: Arc<Store>,
    requests: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
}

impl Hub {
    async fn run(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(connection) = self.connect().await {
                pause = FIRST_PAUSE;
                if !self.listen_on(connection).await {
                    return;
                }
                self.lock()
                    .values_mut()
                    .for_each(|channel| channel.is_subscribed = false);
                tracing::warn!("the connection that wakes waiting calls broke");
            }
            // While the connection is down nobody waits for a subscription: all are woken when it is back.
            let pausing = time::sleep(pause);
            tokio::pin!(pausing);
            loop {
                tokio::select! {
                    () = &mut pausing => break,
                    request = self.requests.recv() => match request {
                        Some(done) => drop(done),
                        None => return,
                    },
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect(&self) -> Option<PubSub> {
        let client = self.store.address().client().ok()?;
        time::timeout(super::CONNECT_TIMEOUT, client.get_async_pubsub())
            .await
            .ok()?
            .ok()
    }

    /// Serves until the connection breaks (true) or nobody can ask any more (false).
    async fn listen_on(&mut self, connection: PubSub) -> bool {
        let (mut sink, mut messages) = connection.split();
        if !self.subscribe_pending(&mut sink).await {
            return true;
        }
        self.wake_where(|_| true);
        let mut ticks = 0;
        let mut tick = time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => {
                        let words: String = message.get_payload().unwrap_or_default();
                        self.deliver(message.get_channel_name(), &words);
                    }
                    None => return true,
                },
                request = self.requests.recv() => {
                    let Some(done) = request else { return false };
                    if !self.subscribe_pending(&mut sink).await {
                        return true;
                    }
                    let _ = done.send(());
                }
                _ = tick.tick() => {
                    if !is_answered(sink.ping::<redis::Value>()).await || !self.give_up_idle(&mut sink).await {
                        return true;
                    }
                    ticks += 1;
                    if ticks % TICKS_BETWEEN_LOOKS == 0 {
                        self.look().await;
                    }
                }
            }
        }
    }

    async fn subscribe_pending(&self, sink: &mut PubSubSink) -> bool {
        let pending: Vec<String> = self
            .lock()
            .iter()
            .filter(|(_, channel)| !channel.is_subscribed)
            .map(|(name, _)| name.clone())
            .collect();
        for name in pending {
            if !is_answered(sink.subscribe(&name)).await {
                return false;
            }
            if let Some(channel) = self.lock().get_mut(&name) {
                channel.is_subscribed = true;
            }
        }
        true
    }

    /// Unsubscribes from channels that nobody has waited on for a whole tick.
    async fn give_up_idle(&self, sink: &mut PubSubSink) -> bool {
        let mut given_up = Vec::new();
        self.lock().retain(|name, channel| {
            let keep = !channel.waiters.is_empty() || !channel.is_idle;
            channel.is_idle = channel.waiters.is_empty();
            if !keep {
                given_up.push(name.clone());
            }
            keep
        });
        for name in given_up {
            if !is_answered(sink.unsubscribe(&name)).await {
                return false;
            }
            // Somebody may have come meanwhile and believe to be subscribed.
            if let Some(channel) = self.lock().get_mut(&name) {
                channel.is_subscribed = false;
            }
        }
        self.subscribe_pending(sink).await
    }

    fn deliver(&self, channel: &str, words: &str) {
        let channels = self.lock();
        let Some(channel) = channels.get(channel) else { return };
        if words.is_empty() {
            wake_all(channel);
            return;
        }
        for name in words.split(' ').chain([""]) {
            if let Some(waiter) = channel.waiters.get(name) {
                waiter.send_modify(|count| *count += 1);
            }
        }
    }

    fn wake_where(&self, condition: impl Fn(&Channel) -> bool) {
        self.lock()
            .values()
            .filter(|channel| condition(channel))
            .for_each(wake_all);
    }

    /// The safety net: wakes the waiters of each run whose last event is another than at the look before.
    async fn look(&self) {
        let waited_for: Vec<(String, RunKeys)> = self
            .lock()
            .iter()
            .filter(|(_, channel)| !channel.waiters.is_empty())
            .map(|(name, channel)| (name.clone(), channel.keys.clone()))
            .collect();
        for (name, keys) in waited_for {
            let mut newest = redis::cmd("XREVRANGE");
            newest.arg(keys.part("events")).arg("+").arg("-").arg("COUNT").arg(1);
            let Ok(reply) = self.store.command::<StreamRangeReply>(&newest).await else {
                return;
            };
            let last_event = reply.ids.first().map(|entry| entry.id.clone());
            if let Some(channel) = self.lock().get_mut(&name)
                && channel.last_event != last_event
            {
                channel.last_event = last_event;
                wake_all(channel);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Channel>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a command succeeds in time: nothing comes back over a line that swallows everything, and the library waits for ever.
async fn is_answered<T>(command: impl Future<Output = redis::RedisResult<T>>) -> bool {
    matches!(time::timeout(ANSWER_TIMEOUT, command).await, Ok(Ok(_)))
}

fn wake_all(channel: &Channel) {
    for waiter in channel.waiters.values() {
        waiter.send_modify(|count| *count += 1);
    }
}
