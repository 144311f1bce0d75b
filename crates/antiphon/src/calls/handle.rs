//! The handle of a member's calls, and what a handler is given.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use antiphon_core::wire::Member;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::shared::{Cancel, Shared};
use super::{Call, CallError, Config, Failure, Ran, Refusal, Replies, RequestId, Rule, Target, task};
use crate::{Group, Incarnation, typed};

/// Calls members of a group, and answers their calls. A cheap handle: clones speak of the same member.
///
/// Dropping the last one leaves the group in order, in the background. So a handler that is to call others
/// takes [`Request::calls`], and not a clone of this.
///
/// ```no_run
/// # use std::time::Duration;
/// # use antiphon::calls::{Calls, Rule, Target, Verb};
/// const ADD: Verb<(u32, u32), u32, String> = Verb::new("add");
///
/// # async fn run(cluster: antiphon::Cluster) -> Result<(), Box<dyn std::error::Error>> {
/// let calls = Calls::new(cluster.group("sums").join().await?);
/// calls.serve(ADD, async |_, (a, b)| a.checked_add(b).ok_or("too much".to_owned()))?;
/// let sum = calls.ask(Target::Any, ADD, &(1, 2), Duration::from_secs(1)).await?;
/// let sums = calls.ask_all(ADD, &(1, 2), Rule::All, Duration::from_secs(1)).await?;
/// # let (_, _) = (sum, sums);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Calls {
    shared: Arc<Shared>,
    /// Calls are made within this request.
    within: Option<RequestId>,
    /// None in a handler.
    _membership: Option<Arc<Membership>>,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("within", &self.within)
            .finish_non_exhaustive()
    }
}

/// The last handle to go leaves.
struct Membership {
    shared: Arc<Shared>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.ask_to_leave();
        self.shared.dropped.notify_one();
    }
}

impl Calls {
    /// The calls of this member of a group, of any order. All members of the group have to use it for calls.
    /// Their task and their handlers run on the node's runtime, so this may be called on any thread (see
    /// [`Builder::start`](crate::Builder::start)).
    pub fn new(group: Group) -> Self {
        Self::with_config(group, Config::default())
    }

    /// The same with other limits.
    pub fn with_config(group: Group, config: Config) -> Self {
        let shared = Arc::new(Shared::new(group.sender(), config));
        let task = task::run(shared.clone(), group);
        shared.spawn(task);
        Self {
            shared: shared.clone(),
            within: None,
            _membership: Some(Arc::new(Membership { shared })),
        }
    }

    /// From here on this handler answers requests for this verb, in place of the former handler. Requests and
    /// replies are written by postcard. Each request has a task of its own; at most [`Config::max_running`]
    /// run at once. These are a [`Failure::GivenUp`] to the caller: a handler that panics, an answer that
    /// cannot be encoded or is larger than [`MAX_CALL_BYTES`](super::MAX_CALL_BYTES), and a request that
    /// cannot be read here, for which no handler runs.
    ///
    /// # Errors
    /// [`Refusal::VerbTooLong`], [`Refusal::TooManyVerbs`].
    pub fn serve<Q, R, E, F>(
        &self,
        verb: Verb<Q, R, E>,
        handler: impl Fn(Request, Q) -> F + Send + Sync + 'static,
    ) -> Result<(), Refusal>
    where
        Q: DeserializeOwned,
        R: Serialize,
        E: Serialize,
        F: Future<Output = Result<R, E>> + Send + 'static,
    {
        let name = verb.name;
        self.serve_bytes(name, move |request: Request| {
            let (id, shared) = (request.id, request.shared.clone());
            let asked = typed::decode(&request.payload);
            let answering = asked.map(|asked| handler(request, asked));
            async move {
                // The answer of a request that was given up counts for nothing: any bytes could be read as an
                // error of the handler's, which none has returned.
                let give_up = |what: &str, may_have_run| {
                    tracing::warn!(target: "antiphon::calls", ?id, verb = name, "{what}: do both sides use the same types?");
                    shared.0.give_up(id, may_have_run);
                    Bytes::new()
                };
                match answering {
                    Err(_) => Err(give_up("a request cannot be read", false)),
                    Ok(answering) => match answering.await {
                        Ok(reply) => typed::encode(&reply).map_err(|_| give_up("a reply cannot be encoded", true)),
                        Err(error) => {
                            Err(typed::encode(&error).unwrap_or_else(|_| give_up("an error cannot be encoded", true)))
                        }
                    },
                }
            }
        })
    }

    /// [`serve`](Self::serve) of bytes.
    ///
    /// # Errors
    /// As there.
    pub fn serve_bytes<F>(
        &self,
        verb: &str,
        handler: impl Fn(Request) -> F + Send + Sync + 'static,
    ) -> Result<(), Refusal>
    where
        F: Future<Output = Result<Bytes, Bytes>> + Send + 'static,
    {
        let handler = Arc::new(move |request| -> super::shared::Answering { Box::pin(handler(request)) });
        self.shared.serve(verb, handler)
    }

    /// No request for this verb begins here any more. Handlers that run go on.
    pub fn stop_serving(&self, verb: &str) {
        self.shared.stop_serving(verb);
    }

    /// Asks members, and waits until the rule holds or cannot hold any more, or the deadline is over.
    ///
    /// # Errors
    /// [`CallsError`], which says whether a handler ran.
    ///
    /// # Cancel safety
    /// If the future is dropped, the call is cancelled: requests that were not sent yet are not sent, and
    /// handlers that run are dropped.
    pub async fn call(&self, call: Call) -> Result<Replies, CallsError> {
        let call = Call {
            within: call.within.or(self.within),
            ..call
        };
        let (call, answer) = self.shared.call(call).map_err(CallsError::Refused)?;
        let mut cancel = Cancel::on_drop(&self.shared, call);
        let result = answer.await;
        cancel.disarm();
        // The answer comes before its sender goes, unless the task has died with the node.
        result
            .unwrap_or_else(|_| Err(Shared::died()))
            .map_err(CallsError::Failed)
    }

    /// Asks all members of the view in which the request is delivered, this one too.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn call_all(
        &self,
        verb: impl Into<String>,
        payload: impl Into<Bytes>,
        rule: Rule,
        deadline: Duration,
    ) -> Result<Replies, CallsError> {
        let call = Call {
            target: Target::All,
            verb: verb.into(),
            payload: payload.into(),
            rule,
            deadline,
            within: None,
        };
        self.call(call).await
    }

    /// Asks one member (the first one to answer, if the target is more) what [`serve`](Self::serve) answers
    /// there.
    ///
    /// # Errors
    /// [`AskError`].
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn ask<Q: Serialize, R: DeserializeOwned, E: DeserializeOwned>(
        &self,
        target: Target,
        verb: Verb<Q, R, E>,
        asked: &Q,
        deadline: Duration,
    ) -> Result<R, AskError<E>> {
        let call = Call {
            target,
            verb: verb.name.to_owned(),
            payload: typed::encode(asked).map_err(|_| AskError::Unencodable)?,
            rule: Rule::First,
            deadline,
            within: None,
        };
        match self.call(call).await {
            Ok(replies) => match replies.replies.first() {
                Some((_, reply)) => typed::decode(reply).map_err(|_| AskError::Undecodable),
                None => Err(AskError::Undecodable),
            },
            Err(CallsError::Failed(error)) => match error.failures.as_slice() {
                [(_, Failure::Error(bytes))] => Err(match typed::decode(bytes) {
                    Ok(error) => AskError::Application(error),
                    Err(_) => AskError::Undecodable,
                }),
                _ => Err(AskError::Failed(CallsError::Failed(error))),
            },
            Err(refused) => Err(AskError::Failed(refused)),
        }
    }

    /// Asks all members what [`serve`](Self::serve) answers there.
    ///
    /// # Errors
    /// [`AskError`]; applications' errors are in [`CallError::failures`], as bytes.
    ///
    /// # Cancel safety
    /// As [`call`](Self::call).
    pub async fn ask_all<Q: Serialize, R: DeserializeOwned, E>(
        &self,
        verb: Verb<Q, R, E>,
        asked: &Q,
        rule: Rule,
        deadline: Duration,
    ) -> Result<Vec<(Incarnation, R)>, AskError<E>> {
        let payload = typed::encode(asked).map_err(|_| AskError::Unencodable)?;
        let replies = self.call_all(verb.name, payload, rule, deadline).await;
        let replies = replies.map_err(AskError::Failed)?.replies.into_iter();
        let decoded = replies.map(|(from, reply)| Ok((from, typed::decode(&reply)?)));
        decoded
            .collect::<Result<_, String>>()
            .map_err(|_| AskError::Undecodable)
    }

    /// The members of the present view, by seniority; none once this member leaves the group.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.shared.members()
    }

    /// Requests that are running or waiting here.
    pub fn load(&self) -> u32 {
        self.shared.load()
    }

    /// Leaves the group in order. At once the calls of all handles end with
    /// [`Why::MembershipEnded`](super::Why::MembershipEnded), handlers are dropped where they await, and new
    /// calls are refused with [`Refusal::NotMember`].
    ///
    /// Waits for the primary: while there is none, no other member can be told. Put a timeout around it, or
    /// leave by [`Cluster::leave`](crate::Cluster::leave), which takes bounded time.
    ///
    /// # Cancel safety
    /// Leaving goes on if the future is dropped.
    pub async fn leave(self) {
        self.shared.ask_to_leave();
        self.shared.ended().await;
    }
}

/// A verb with the types of the request, of the reply, and of the application's error: declared once, for
/// callers and servers. Members do not compare types, and may read the bytes of one type as another. So if a
/// verb's types change, give it another name.
pub struct Verb<Q, R, E> {
    name: &'static str,
    types: PhantomData<fn(Q) -> Result<R, E>>,
}

impl<Q, R, E> Verb<Q, R, E> {
    /// The verb of this name; at most [`MAX_VERB_BYTES`](super::MAX_VERB_BYTES).
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            types: PhantomData,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<Q, R, E> Clone for Verb<Q, R, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<Q, R, E> Copy for Verb<Q, R, E> {}

impl<Q, R, E> fmt::Debug for Verb<Q, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verb").field(&self.name).finish()
    }
}

/// A request that a handler answers.
#[derive(Debug)]
pub struct Request {
    /// Which, and its caller.
    pub id: RequestId,
    /// What for.
    pub verb: String,
    /// With what.
    pub payload: Bytes,
    /// How much time was left, when the request came, until it is cancelled.
    pub time_left: Duration,
    pub(super) shared: Weakly,
}

/// A request does not keep the membership.
#[derive(Clone)]
pub(super) struct Weakly(pub(super) Arc<Shared>);

impl fmt::Debug for Weakly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Request {
    /// What was to run this has gone, and there will be no answer: the caller is told so at once, and whether
    /// the request may have run. The handler's own answer is not needed then. Nothing happens if it was
    /// answered or cancelled.
    pub fn give_up(&self, may_have_run: bool) {
        self.shared.0.give_up(self.id, may_have_run);
    }

    /// The handle for calls that are part of this request.
    pub fn calls(&self) -> Calls {
        Calls {
            shared: self.shared.0.clone(),
            within: Some(self.id),
            _membership: None,
        }
    }
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallsError {
    /// It was not taken. Nothing happened.
    Refused(Refusal),
    /// It ended without its answer.
    Failed(CallError),
}

impl CallsError {
    /// Whether a handler ran anywhere.
    pub fn ran(&self) -> Ran {
        match self {
            CallsError::Refused(_) => Ran::No,
            CallsError::Failed(error) => error.ran,
        }
    }
}

impl fmt::Display for CallsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallsError::Refused(refusal) => refusal.fmt(f),
            CallsError::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CallsError {}

/// Why a typed call has no answer. `E` is the application's error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskError<E> {
    /// The handler's own error.
    Application(E),
    /// The call was refused, or failed.
    Failed(CallsError),
    /// What was asked cannot be encoded. Nothing happened.
    Unencodable,
    /// A handler ran, and its answer cannot be read here: check that both sides use the same types.
    Undecodable,
}

impl<E> AskError<E> {
    /// Whether a handler ran anywhere.
    pub fn ran(&self) -> Ran {
        match self {
            AskError::Application(_) | AskError::Undecodable => Ran::Yes,
            AskError::Failed(error) => error.ran(),
            AskError::Unencodable => Ran::No,
        }
    }
}

impl<E: fmt::Display> fmt::Display for AskError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AskError::Application(error) => error.fmt(f),
            AskError::Failed(error) => error.fmt(f),
            AskError::Unencodable => f.write_str("what was asked cannot be encoded"),
            AskError::Undecodable => f.write_str("the answer cannot be decoded"),
        }
    }
}

impl<E: fmt::Debug + fmt::Display> std::error::Error for AskError<E> {}
