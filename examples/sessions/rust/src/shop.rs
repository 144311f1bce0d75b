//! The site: what each request does with the session of its browser.
//!
//! | request | what it does |
//! |---|---|
//! | `GET /` | shows the session and counts the visit, as a page, or as JSON if that is what is accepted |
//! | `POST /login` `user=ann` | begins a session; the answer brings the cookie |
//! | `POST /basket` `item=tea` | puts something into the basket |
//! | `POST /logout` | ends the session |
//! | `GET /events` | a stream of the session as it changes, at whichever server |
//! | `GET /readyz` | 200 if this server may be given requests, else 503 |
//!
//! A request that fails with 503 says in `ran` whether it may have happened: `no` or `maybe`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use antiphon::replicated::WatchEvent;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::header::{ACCEPT, CACHE_CONTROL, COOKIE, LOCATION, RETRY_AFTER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Form, Json, Router};
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::sessions::{Failure, Session, Sessions};
use crate::told::Told;

/// The longest name and the longest item.
const MOST_BYTES: usize = 64;
/// The most items of a basket: a session stays small, since each request writes all of it.
const MOST_ITEMS: usize = 200;
/// The largest request.
const MOST_REQUEST_BYTES: usize = 16 << 10;

/// What the handlers share.
#[derive(Clone)]
pub struct Shop {
    /// The sessions of all servers.
    pub sessions: Sessions,
    /// Tells open pages.
    pub told: Told,
    /// This server's name.
    pub server: String,
    /// How long a session lives after its last request.
    pub time_to_live: Duration,
    /// Whether the server is on its way out.
    pub stopping: Arc<AtomicBool>,
}

/// The site's routes.
pub fn routes(shop: Shop) -> Router {
    Router::new()
        .route("/", get(show))
        .route("/login", post(login))
        .route("/basket", post(put_into_basket))
        .route("/logout", post(logout))
        .route("/events", get(events))
        .route("/readyz", get(ready))
        .layer(DefaultBodyLimit::max(MOST_REQUEST_BYTES))
        .with_state(shop)
}

#[derive(Deserialize)]
struct Login {
    user: String,
}

#[derive(Deserialize)]
struct Wanted {
    item: String,
}

async fn show(State(shop): State<Shop>, headers: HeaderMap) -> Response {
    let Some(id) = session_id(&headers) else {
        return match wants_json(&headers) {
            true => failed(&Failure::NoSession),
            false => no_store(Html(page(&shop, None)).into_response()),
        };
    };
    let visit = |session: &mut Session| {
        session.visits += 1;
        Ok(())
    };
    match shop.change(&id, visit).await {
        Ok((session, said)) => match wants_json(&headers) {
            true => answer(said),
            false => no_store(Html(page(&shop, Some(&session))).into_response()),
        },
        Err(Failure::NoSession) if !wants_json(&headers) => no_store(Html(page(&shop, None)).into_response()),
        Err(failure) => failed(&failure),
    }
}

async fn login(State(shop): State<Shop>, headers: HeaderMap, Form(login): Form<Login>) -> Response {
    let user = login.user.trim().to_owned();
    if !is_sound(&user) {
        return failed(&Failure::Refused(
            "a user's name has 1 to 64 bytes, and no control characters",
        ));
    }
    match shop.sessions.begin(user, session_id(&headers)).await {
        Ok((id, session)) => {
            let mut response = done(&headers, shop.said(&session, 0));
            set_cookie(&mut response, &id, shop.time_to_live.as_secs());
            response
        }
        Err(failure) => failed(&failure),
    }
}

async fn put_into_basket(
    State(shop): State<Shop>,
    headers: HeaderMap,
    Form(wanted): Form<Wanted>,
) -> Response {
    let Some(id) = session_id(&headers) else {
        return failed(&Failure::NoSession);
    };
    let item = wanted.item.trim().to_owned();
    if !is_sound(&item) {
        return failed(&Failure::Refused(
            "an item has 1 to 64 bytes, and no control characters",
        ));
    }
    let put = |session: &mut Session| {
        if session.basket.len() >= MOST_ITEMS {
            return Err(Failure::Refused("the basket is full: it takes 200 items"));
        }
        session.basket.push(item.clone());
        Ok(())
    };
    match shop.change(&id, put).await {
        Ok((_, said)) => done(&headers, said),
        Err(failure) => failed(&failure),
    }
}

async fn logout(State(shop): State<Shop>, headers: HeaderMap) -> Response {
    if let Some(id) = session_id(&headers)
        && let Err(failure) = shop.sessions.end(&id).await
    {
        return failed(&failure);
    }
    let mut response = done(&headers, json!({ "server": shop.server }));
    set_cookie(&mut response, "", 0);
    response
}

async fn events(State(shop): State<Shop>, headers: HeaderMap) -> Response {
    let Some(id) = session_id(&headers) else {
        return failed(&Failure::NoSession);
    };
    // Open before the session is read: nothing that is told after it is missed.
    let Some(page) = shop.told.open(&id) else {
        return unavailable("this server stops: try again", "no");
    };
    match shop.sessions.read(&id).await {
        Ok((session, version)) => {
            let first = shop.said(&session, version.0).to_string();
            let stream = stream::unfold((Some(first), page), |(first, mut page)| async move {
                let said = match first {
                    Some(first) => first,
                    None => {
                        page.changed().await.ok()?;
                        page.borrow_and_update().clone()
                    }
                };
                Some((Ok(Event::default().data(said)), (None, page)))
            });
            stream_of(stream)
        }
        Err(failure) => failed(&failure),
    }
}

fn stream_of(stream: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    no_store(Sse::new(stream).keep_alive(KeepAlive::default()).into_response())
}

async fn ready(State(shop): State<Shop>) -> Response {
    if shop.stopping.load(Ordering::Relaxed) {
        return unavailable("this server stops", "no");
    }
    match shop.sessions.is_ready() {
        Ok(()) => answer(json!({ "server": shop.server })),
        Err(error) => unavailable(&error.to_string(), "no"),
    }
}

impl Shop {
    /// Tells open pages of each change by any server, until this one has left, for whatever reason.
    pub async fn tell_pages(self) {
        let mut changes = self.sessions.watch().await;
        while let Some(event) = changes.next().await {
            let changed = match event {
                Ok(WatchEvent::Snapshot(sessions)) => sessions,
                Ok(WatchEvent::Put { key, item }) => vec![(key, item)],
                Ok(_) => continue,
                Err(error) => {
                    eprintln!("open pages are not told of a change: {error}");
                    continue;
                }
            };
            for (id, item) in changed {
                let said = || self.said(&item.value, item.version.0).to_string();
                self.told.tell(&id, said);
            }
        }
    }

    /// Changes a session; gives it, and what is said of it.
    async fn change(
        &self,
        id: &String,
        change: impl Fn(&mut Session) -> Result<(), Failure>,
    ) -> Result<(Session, Value), Failure> {
        let (session, version) = self.sessions.change(id, change).await?;
        let said = self.said(&session, version.0);
        Ok((session, said))
    }

    /// The version as text: numbers of 64 bits are not safe in JavaScript.
    fn said(&self, session: &Session, version: u64) -> Value {
        json!({
            "user": session.user,
            "visits": session.visits,
            "basket": session.basket,
            "version": version.to_string(),
            "server": self.server,
        })
    }
}

/// A browser is led to the page, a program gets the session.
fn done(headers: &HeaderMap, said: Value) -> Response {
    match wants_json(headers) {
        true => answer(said),
        false => no_store((StatusCode::SEE_OTHER, [(LOCATION, "/")]).into_response()),
    }
}

fn answer(said: Value) -> Response {
    no_store(Json(said).into_response())
}

fn failed(failure: &Failure) -> Response {
    let status = match failure {
        Failure::NoSession => StatusCode::UNAUTHORIZED,
        Failure::Refused(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Failure::Busy | Failure::Map(_) => {
            let ran = if failure.may_have_happened() {
                "maybe"
            } else {
                "no"
            };
            return unavailable(&failure.to_string(), ran);
        }
    };
    no_store((status, Json(json!({ "error": failure.to_string() }))).into_response())
}

fn unavailable(error: &str, ran: &str) -> Response {
    let said = Json(json!({ "error": error, "ran": ran }));
    no_store((StatusCode::SERVICE_UNAVAILABLE, [(RETRY_AFTER, "1")], said).into_response())
}

/// Nothing on the way may keep what belongs to one browser.
fn no_store(mut response: Response) -> Response {
    response
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Behind TLS add `Secure`: then the cookie never goes in the clear.
fn set_cookie(response: &mut Response, id: &str, seconds: u64) {
    let cookie = format!("sid={id}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}

/// The id in the cookie, if it looks like one of ours.
fn session_id(headers: &HeaderMap) -> Option<String> {
    let cookies = headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|line| line.split(';'));
    let id = pairs.find_map(|pair| pair.trim().strip_prefix("sid="))?;
    let is_ours = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_ours.then(|| id.to_owned())
}

fn wants_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.starts_with("application/json"))
}

fn is_sound(text: &str) -> bool {
    (1..=MOST_BYTES).contains(&text.len()) && !text.contains(char::is_control)
}

fn page(shop: &Shop, session: Option<&Session>) -> String {
    let Some(session) = session else {
        return include_str!("../../login.html").to_owned();
    };
    let items: String = session
        .basket
        .iter()
        .map(|item| format!("<li>{}</li>", escaped(item)))
        .collect();
    include_str!("../../shop.html")
        .replace("@VISITS@", &session.visits.to_string())
        .replace("@SERVER@", &escaped(&shop.server))
        .replace("@ITEMS@", &items)
        .replace("@USER@", &escaped(&session.user))
}

/// What a user typed, as text of a page.
fn escaped(text: &str) -> String {
    let mut page = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => page.push_str("&amp;"),
            '<' => page.push_str("&lt;"),
            '>' => page.push_str("&gt;"),
            '"' => page.push_str("&quot;"),
            '\'' => page.push_str("&#39;"),
            // Else a name could be one of the page's places.
            '@' => page.push_str("&#64;"),
            letter => page.push(letter),
        }
    }
    page
}
