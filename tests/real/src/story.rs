//! What a story is, and how the test runner is told of it.

use std::cell::RefCell;

use libtest_mimic::{Completion, Trial};

use crate::stories;

/// How node views are agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Coordinator,
    Cut,
}

impl Engine {
    /// As `--membership` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::Cut => "cut",
        }
    }
}

/// A function whose name says what happens to the cluster and what must come of it.
#[derive(Clone, Copy)]
pub(crate) struct Story {
    name: &'static str,
    tell: Tell,
    /// Enough on this engine.
    on: Option<Engine>,
    long: bool,
}

#[derive(Clone, Copy)]
enum Tell {
    OnEach(fn(Engine)),
    Once(fn()),
}

/// The story that this function tells, on each engine.
macro_rules! story {
    ($name:ident) => {
        $crate::story::Story::on_each(stringify!($name), $name)
    };
}

/// The story that this function tells once: it chooses the engine, or membership has no part in it.
macro_rules! once {
    ($name:ident) => {
        $crate::story::Story::once(stringify!($name), $name)
    };
}

pub(crate) use {once, story};

impl Story {
    pub(crate) const fn on_each(name: &'static str, tell: fn(Engine)) -> Self {
        Self {
            name,
            tell: Tell::OnEach(tell),
            on: None,
            long: false,
        }
    }

    pub(crate) const fn once(name: &'static str, tell: fn()) -> Self {
        Self {
            name,
            tell: Tell::Once(tell),
            on: None,
            long: false,
        }
    }

    /// It takes long, or adds little on the other engine.
    pub(crate) const fn on(self, engine: Engine) -> Self {
        Self {
            on: Some(engine),
            ..self
        }
    }

    /// Told only where it is asked for.
    pub(crate) const fn long(self) -> Self {
        Self { long: true, ..self }
    }

    fn trial(self, module: &str, engine: Option<Engine>) -> Option<Trial> {
        let (name, tell): (_, Box<dyn FnOnce() + Send>) = match (self.tell, engine) {
            (Tell::OnEach(tell), Some(engine)) => (
                format!("{}::{module}::{}", engine.name(), self.name),
                Box::new(move || tell(engine)),
            ),
            (Tell::Once(tell), None) => (format!("{module}::{}", self.name), Box::new(tell)),
            _ => return None,
        };
        let told = || {
            // What a story left that failed on this thread.
            SKIPPED.take();
            tell();
            Ok(SKIPPED
                .take()
                .map_or(Completion::Completed, Completion::ignored_with))
        };
        let left_out = self.long || self.on.is_some_and(|on| Some(on) != engine);
        Some(Trial::ignorable_test(name, told).with_ignored_flag(left_out))
    }
}

/// All stories, for the test runner.
pub(crate) fn trials() -> Vec<Trial> {
    let of = |engine| {
        let modules = stories::ALL.iter();
        modules.flat_map(move |(module, stories)| {
            let stories = stories.iter();
            stories.filter_map(move |story| story.trial(module, engine))
        })
    };
    [Some(Engine::Coordinator), Some(Engine::Cut), None]
        .into_iter()
        .flat_map(of)
        .collect()
}

thread_local! {
    /// Why the story that is told on this thread could not be told.
    static SKIPPED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Says that this thread's story cannot be told, and why: nobody should believe that it passed.
pub(crate) fn skipped(why: &str) {
    SKIPPED.set(Some(format!("SKIPPED: {why}")));
}
