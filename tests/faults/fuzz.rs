//! Random requests to every route of the contract: whatever comes, the server finds no fault of its own.

use hyper::Method;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use crate::support::Ledger;

const REQUESTS: usize = 500;
const SEED: u64 = 3;

#[tokio::test]
async fn no_request_at_random_finds_a_fault_of_the_server() {
    of_requests_at_random(json!({ "batch_size": 2, "max_staleness": 1 })).await;
}

#[tokio::test]
async fn no_request_at_random_finds_one_where_there_are_groups() {
    let groups =
        json!({ "batch_size": 2, "max_staleness": 1, "group_size": 1, "group_candidates": 2, "adopt_groups": true });
    of_requests_at_random(groups).await;
}

async fn of_requests_at_random(config: Value) {
    let Some(ledger) = Ledger::start().await else {
        return;
    };
    let client = ledger.client();
    let contract = client.get("/openapi.json").await.ok();
    let routes = routes(&contract);
    assert!(routes.len() >= 20, "{} routes", routes.len());
    let mut random = StdRng::seed_from_u64(SEED);
    let run = ledger.run(config.clone()).await;
    let mut refused = 0;
    let mut done = 0;

    for _ in 0..REQUESTS {
        // Deleted ones are made anew, and there is always an entry to name.
        run.put("", config.clone()).await;
        let reserve = json!({ "worker": "w", "session": "s", "version": 0 });
        let granted = run.post("reservations", reserve).await.body;
        let granted = granted.pointer("/granted/0/id").cloned().unwrap_or_default();
        let known = [json!(run.name()), granted];
        let (method, path, operation) = routes.choose(&mut random).expect("a route");
        let path = fill(path, operation, &known, &mut random);
        let body = operation.get("requestBody").map(|body| {
            let schema = resolve(&contract, &body["content"]["application/json"]["schema"]);
            random_body(&contract, schema, &known, &mut random)
        });

        let answer = client
            .attempt(method.clone(), &path, body.clone())
            .await
            .expect("an answer");

        assert!(
            answer.status < 500,
            "{method} {path} {}: {answer:#?}",
            body.unwrap_or_default()
        );
        if answer.status < 400 {
            done += 1;
        } else {
            refused += 1;
        }
    }

    assert!(
        done > REQUESTS / 20 && refused > REQUESTS / 5,
        "{done} done, {refused} refused"
    );
}

fn routes(contract: &Value) -> Vec<(Method, String, Value)> {
    let mut routes = Vec::new();
    for (path, operations) in contract["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            let method: Method = method.to_uppercase().parse().expect("a method");
            routes.push((method, path.clone(), operation.clone()));
        }
    }
    routes
}

fn resolve<'a>(contract: &'a Value, schema: &'a Value) -> &'a Value {
    match schema["$ref"].as_str() {
        Some(reference) => contract.pointer(reference.trim_start_matches('#')).expect("a schema"),
        None => schema,
    }
}

/// A path whose parameters mostly name something that there is, with a random query.
fn fill(path: &str, operation: &Value, known: &[Value; 2], random: &mut StdRng) -> String {
    let mut filled = path.to_owned();
    let mut query = Vec::new();
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().expect("a name");
        let usual = match name {
            "run" => known[0].as_str().unwrap_or_default(),
            "id" => known[1].as_str().unwrap_or("nobody"),
            "version" | "index" => "0",
            _ => "w",
        };
        let strange = text_of(&random_value(known, random, 0));
        if parameter["in"] == "path" {
            let value = if random.random_ratio(9, 10) {
                usual.to_owned()
            } else {
                encode(&strange)
            };
            filled = filled.replace(&format!("{{{name}}}"), &value);
        } else if random.random_ratio(1, 2) {
            let value = if name == "wait_ms" {
                "1".to_owned()
            } else {
                encode(&strange)
            };
            query.push(format!("{name}={value}"));
        }
    }
    if query.is_empty() {
        return filled;
    }
    format!("{filled}?{}", query.join("&"))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn encode(text: &str) -> String {
    text.bytes()
        .take(200)
        .fold(String::new(), |encoded, byte| format!("{encoded}%{byte:02X}"))
}

/// A body with most of the fields that the contract names, some of a wrong kind, and now and then something else altogether.
fn random_body(contract: &Value, schema: &Value, known: &[Value; 2], random: &mut StdRng) -> Value {
    if random.random_ratio(1, 20) {
        return random_value(known, random, 0);
    }
    let required: Vec<&Value> = schema["required"].as_array().into_iter().flatten().collect();
    let mut body = Map::new();
    for (field, described) in schema["properties"].as_object().into_iter().flatten() {
        if !required.contains(&&json!(field)) && random.random_ratio(1, 2) {
            continue;
        }
        let value = if field == "wait_ms" {
            json!(1)
        } else if random.random_ratio(2, 3) {
            usual_value(contract, field, described, known, random)
        } else {
            random_value(known, random, 0)
        };
        body.insert(field.clone(), value);
    }
    if random.random_ratio(1, 20) {
        body.insert("unknown".to_owned(), random_value(known, random, 0));
    }
    Value::Object(body)
}

fn usual_value(contract: &Value, field: &str, described: &Value, known: &[Value; 2], random: &mut StdRng) -> Value {
    match field {
        "worker" => json!("w"),
        "session" => json!("s"),
        "id" => known[1].clone(),
        "version" => json!(random.random_range(0..3)),
        "reason" => json!("failed"),
        "meta" => json!({ "a": random_value(known, random, 0) }),
        "trajectories" => {
            let item = resolve(contract, &described["items"]);
            (0..random.random_range(1..4))
                .map(|_| random_body(contract, item, known, random))
                .collect()
        }
        "prompts" | "holding" | "acknowledged" => json!([known[1].as_str().unwrap_or("p")]),
        _ => json!(random.random_range(0..10)),
    }
}

fn random_value(known: &[Value; 2], random: &mut StdRng, depth: usize) -> Value {
    let texts = [
        "",
        "a",
        "w",
        "\u{0}",
        "🐟",
        "-1",
        "1e9",
        "null",
        "berth:{a}:run",
        "../..",
        "' OR 1=1",
        "%00",
    ];
    match random.random_range(0..if depth < 3 { 10 } else { 8 }) {
        0 => Value::Null,
        1 => json!(random.random::<bool>()),
        2 => json!(random.random_range(-2..5)),
        3 => [
            json!(u64::MAX),
            json!(i64::MIN),
            json!((1_u64 << 53) + 1),
            json!(u32::MAX),
            json!(i64::MAX),
        ]
        .choose(random)
        .expect("one of them")
        .clone(),
        4 => [
            json!(0.5),
            json!(-0.0),
            json!(f64::MAX),
            json!(f64::MIN_POSITIVE),
            json!(1e15),
        ]
        .choose(random)
        .expect("one of them")
        .clone(),
        5 => json!(texts.choose(random)),
        6 => json!("x".repeat(random.random_range(0..3_000))),
        7 => known.choose(random).expect("one of them").clone(),
        8 => (0..random.random_range(0..4))
            .map(|_| random_value(known, random, depth + 1))
            .collect(),
        _ => {
            let fields = (0..random.random_range(0..4)).map(|_| {
                let name = texts.choose(random).expect("one of them");
                ((*name).to_owned(), random_value(known, random, depth + 1))
            });
            Value::Object(fields.collect())
        }
    }
}
