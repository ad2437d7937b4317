//! What the route macros leave out of the `OpenAPI` document, and a generator of clients needs: a description of every
//! answer (the standard requires one), and the media type of the errors.

use utoipa::openapi::{OpenApi, RefOr};

const JSON: &str = "application/json";
const PROBLEM: &str = "application/problem+json";

pub(super) fn completed(mut document: OpenApi) -> OpenApi {
    for path in document.paths.paths.values_mut() {
        let operations = [
            &mut path.get,
            &mut path.put,
            &mut path.post,
            &mut path.patch,
            &mut path.delete,
        ];
        for operation in operations.into_iter().flatten() {
            for (status, response) in &mut operation.responses.responses {
                let RefOr::T(response) = response else { continue };
                let is_problem = status.starts_with(['4', '5']);
                if let Some(content) = is_problem.then(|| response.content.shift_remove(JSON)).flatten() {
                    response.content.insert(String::from(PROBLEM), content);
                }
                if response.description.is_empty() {
                    response.description = String::from("done");
                }
            }
        }
    }
    document
}
