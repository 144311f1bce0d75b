//! `antiphon recover`: shows what would be given up, asks, and has a survivor go on alone (R11).
//!
//! ```text
//!   what would it mean? ──► shown ──► the node's name typed, or --yes ──► do that ──► done
//!                                       │ anything else: nothing happens
//! ```
//! It connects anew for the second question: a person who has to think may take longer than a console waits.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use antiphon_agent::console::{Client, ClientError};
use antiphon_api::console::{Answer, Question, Recovery};
use antiphon_core::text::{in_json, in_lines, on_one_line};

use super::args::{AskArgs, RecoverArgs};
use super::{astray, choose, failed, print, readable, show};
use crate::exit::{Exit, Failed};

pub(super) async fn run(args: &RecoverArgs) -> Result<Exit, Failed> {
    let told = connect(args)
        .await?
        .ask(&Question::Recovery {})
        .await
        .map_err(failed)?;
    let Answer::Recovery(recovery) = told.answer.clone() else {
        return Err(astray());
    };
    let shown = match args.json {
        true => in_json(&told.line),
        false => match readable(&told)? {
            Answer::Recovery(recovery) => in_lines(&show::recovery(&recovery)),
            _ => return Err(astray()),
        },
    };
    if print(&shown).is_err() {
        // If the person could not read what it means, it is not done.
        return Ok(Exit::StdoutClosed);
    }
    confirm(args, &recovery)?;
    let question = Question::Recover {
        lineage: recovery.lineage,
        view: recovery.view,
        quorum: recovery.quorum,
        may_fork: recovery.may_fork,
    };
    let mut client = connect(args).await?;
    client.begin(&question).await.map_err(failed)?;
    let told = client.answer().await.map_err(|error| match error {
        ClientError::Refused(_) => failed(error),
        error => unknown(args, &error.to_string()),
    })?;
    let Ok(Answer::Recovered(recovered)) = readable(&told) else {
        return Err(unknown(args, &astray().message));
    };
    let shown = match args.json {
        true => in_json(&told.line),
        false => in_lines(&show::recovered(&recovered)),
    };
    // It is done, whether or not somebody still reads.
    let _ = print(&shown);
    Ok(Exit::Success)
}

/// The question was asked: the node may have it, and take it up whenever it runs again.
fn unknown(args: &RecoverArgs, reason: &str) -> Failed {
    Failed {
        exit: Exit::Unknown,
        message: format!(
            "{reason}. It is not known whether {} goes on alone, and it may still do so: ask `antiphon members`",
            args.from
        ),
    }
}

async fn connect(args: &RecoverArgs) -> Result<Client, Failed> {
    let ask = AskArgs {
        node: Some(args.from.clone()),
        cluster: args.cluster.clone(),
        console: args.console.clone(),
        json: args.json,
    };
    choose(&ask).await
}

/// A person who types the name of the node means it.
fn confirm(args: &RecoverArgs, recovery: &Recovery) -> Result<(), Failed> {
    if args.yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failed::usage(
            "stdin is no terminal, so nobody can confirm this: give --yes. Nothing was changed",
        ));
    }
    // If the prompt cannot be shown, the answer will not be the name.
    let _ = write!(
        io::stderr(),
        "\nTo have {} go on alone, type its name; anything else changes nothing: ",
        on_one_line(&recovery.node)
    );
    let mut typed = String::new();
    let read = io::stdin().lock().read_line(&mut typed);
    match read {
        Ok(_) if typed.trim() == recovery.node => Ok(()),
        _ => Err(Failed::run("not confirmed; nothing was changed")),
    }
}
