use super::*;

fn settings(appendonly: &str, appendfsync: &str) -> Settings {
    let told = |value: &str| Some(value.to_owned());
    Settings {
        appendonly: told(appendonly),
        appendfsync: told(appendfsync),
        no_appendfsync_on_rewrite: told("no"),
        save: told(""),
        maxmemory_policy: told("noeviction"),
        maxmemory: told("0"),
        role: told("master"),
        replicas: Some(0),
    }
}

fn evicting(policy: &str, maxmemory: &str) -> Settings {
    Settings {
        maxmemory_policy: Some(policy.to_owned()),
        maxmemory: Some(maxmemory.to_owned()),
        ..settings("yes", "always")
    }
}

const DURABLE: Demands = Demands {
    allow_eviction: false,
    require_durable: true,
    wait_replicas: 0,
};

#[test]
fn each_way_to_persist_has_its_name() {
    let of = |appendonly, appendfsync| judge(&settings(appendonly, appendfsync)).durability;

    assert_eq!(of("yes", "always"), Durability::Always);
    assert_eq!(of("yes", "everysec"), Durability::EverySecond);
    assert_eq!(of("yes", "no"), Durability::Unsynced);
    assert_eq!(of("no", "always"), Durability::Nothing);
    assert_eq!(of("yes", "sometimes"), Durability::Unknown);
}

#[test]
fn without_an_append_only_file_the_snapshots_decide() {
    let of = |save: Option<&str>| {
        let settings = Settings {
            save: save.map(str::to_owned),
            ..settings("no", "always")
        };
        judge(&settings).durability
    };

    assert_eq!(of(Some("")), Durability::Nothing);
    let save = "3600 1 300 100".to_owned();
    assert_eq!(of(Some(&save)), Durability::Snapshots { save: save.clone() });
    assert_eq!(of(None), Durability::Unknown);
}

#[test]
fn syncing_that_stops_during_rewrites_is_not_always() {
    let of = |setting: Option<&str>| {
        let settings = Settings {
            no_appendfsync_on_rewrite: setting.map(str::to_owned),
            ..settings("yes", "always")
        };
        judge(&settings).durability
    };

    assert_eq!(of(Some("yes")), Durability::ExceptDuringRewrites);
    assert_eq!(of(None), Durability::Unknown);
}

#[test]
fn a_database_that_tells_nothing_is_taken_unless_durability_is_required() {
    let verdict = judge(&Settings::default());

    assert_eq!(
        (&verdict.durability, &verdict.eviction),
        (&Durability::Unknown, &Eviction::Unknown)
    );
    assert_eq!(verdict.refusal(&Demands::default()), None);
    assert_eq!(
        verdict.refusal(&DURABLE),
        Some(Unfit::NotDurable {
            durability: Durability::Unknown
        })
    );
}

#[test]
fn whoever_requires_durability_must_be_able_to_know_of_evictions() {
    let settings = Settings {
        maxmemory_policy: None,
        ..settings("yes", "always")
    };

    assert_eq!(judge(&settings).refusal(&DURABLE), Some(Unfit::EvictionUnknown));
}

#[test]
fn an_evicting_policy_is_refused_whatever_the_limit_unless_allowed() {
    for (maxmemory, unlimited) in [("0", true), ("1000000", false)] {
        let verdict = judge(&evicting("volatile-lru", maxmemory));
        let eviction = Eviction::Evicts {
            policy: "volatile-lru".to_owned(),
            unlimited,
        };

        assert_eq!(verdict.refusal(&Demands::default()), Some(Unfit::Evicts { eviction }));
        let allowing = Demands {
            allow_eviction: true,
            ..Demands::default()
        };
        assert_eq!(verdict.refusal(&allowing), None);
    }
}

#[test]
fn only_always_is_durable() {
    let refused = |appendonly, appendfsync| judge(&settings(appendonly, appendfsync)).refusal(&DURABLE).is_some();

    assert!(!refused("yes", "always"));
    assert!(refused("yes", "everysec"));
    assert!(refused("yes", "no"));
    assert!(refused("no", "always"));
}

#[test]
fn a_refusal_says_what_is_wrong_and_what_would_be_right() {
    let evicts = judge(&evicting("allkeys-lru", "0")).refusal(&Demands::default());
    let weak = judge(&settings("yes", "everysec")).refusal(&DURABLE);

    let evicts = evicts.expect("a refusal").to_string();
    assert!(evicts.contains("maxmemory-policy allkeys-lru"), "{evicts}");
    assert!(evicts.contains("noeviction"), "{evicts}");
    assert!(evicts.contains("--allow-eviction"), "{evicts}");
    let weak = weak.expect("a refusal").to_string();
    assert!(weak.contains("appendfsync everysec"), "{weak}");
    assert!(weak.contains("appendfsync always"), "{weak}");
}
