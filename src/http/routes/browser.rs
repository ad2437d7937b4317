//! The contract in a browser: `GET /docs`, a Swagger UI that is part of the binary, on `/openapi.json`.

use axum::Router;
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::super::App;

pub(super) fn browser() -> Router<App> {
    // Without a validator: it is a service elsewhere, which the page would send the document's address to.
    let config = Config::from("/openapi.json").validator_url("none");
    SwaggerUi::new("/docs").config(config).into()
}
