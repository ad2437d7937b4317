# The server's image: `docker build -t berth .`

FROM rust:1-bookworm AS build
WORKDIR /berth
# Cargo reads it; 0 for an image that is soon built and slow.
ARG CARGO_PROFILE_RELEASE_OPT_LEVEL=3

# The dependencies in a layer of their own, built around an empty crate: it is rebuilt only when the lock file changes.
COPY Cargo.toml Cargo.lock ./
RUN mkdir src \
 && echo '#![allow(missing_docs)]' >src/lib.rs \
 && echo 'fn main() {}' >src/main.rs \
 && cargo build --release --locked \
 && rm -r src

# COPY keeps the sources' times, which may be older than the empty crate's build: without `touch` cargo would keep that.
COPY src src
COPY lua lua
COPY migrations migrations
RUN touch src/lib.rs src/main.rs && cargo build --release --locked


FROM debian:bookworm-slim
RUN useradd --system --no-create-home --shell /usr/sbin/nologin berth
COPY --from=build /berth/target/release/berth /usr/local/bin/berth
USER berth
EXPOSE 8080
ENTRYPOINT ["berth"]
