//! HTTP as text: for what must not be read and written again as JSON on the way.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// The body of a successful answer.
pub(crate) async fn get(url: &str) -> String {
    text(send(Request::get(url), "").await).await
}

/// The same, of a POST of this JSON.
pub(crate) async fn post(url: &str, json: &str) -> String {
    let request = Request::post(url).header(CONTENT_TYPE, "application/json");
    text(send(request, json).await).await
}

/// The head of the answer, with a body that is still to be read.
pub(crate) async fn send(request: hyper::http::request::Builder, body: &str) -> Response<Incoming> {
    let request = request
        .body(Full::new(Bytes::from(body.to_owned())))
        .expect("a request that can be written");
    let client = Client::builder(TokioExecutor::new()).build_http();
    client.request(request).await.expect("an answer")
}

async fn text(answer: Response<Incoming>) -> String {
    let status = answer.status();
    let bytes = answer.into_body().collect().await.expect("a whole answer").to_bytes();
    let text = String::from_utf8(bytes.to_vec()).expect("an answer is text");
    assert!(status.is_success(), "{status}: {text}");
    text
}
