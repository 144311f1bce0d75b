//! What a node opens at its start beside its port: a console at a given path, a multicast group, and for an
//! agent its places for programs. Without one of them it ends at once.
//!
//! Each is opened as the node would, and closed again. What the node of these settings has already, because
//! it runs, is not tried.

use std::path::Path;

use antiphon_agent::access::Files;
use antiphon_agent::console::Console;
use antiphon_net::udp::multicast_sockets;

use super::report::{Report, Step};
use super::running::Own;
use crate::node::try_places;
use crate::settings::{Agent, Settings};

/// Tries all of it. What a node cannot do then, in words that end a sentence.
pub(super) async fn look(report: &mut Report, settings: &Settings, own: Option<&Own>) -> Vec<&'static str> {
    let mut cannot = Vec::new();
    if own.is_none() {
        cannot.extend(console(report, settings));
        cannot.extend(places(report, settings).await);
    }
    cannot.extend(multicast(report, settings));
    cannot
}

/// At the default place a console that cannot be opened ends nothing.
fn console(report: &mut Report, settings: &Settings) -> Option<&'static str> {
    let path = settings.console_at.as_deref();
    let path = path.filter(|path| *path != Path::new("none"))?;
    match Console::listen_at(path) {
        Ok(_) => {
            report.add(Step::ok("console", path.display(), "it can be opened"));
            None
        }
        Err(error) => {
            report.add(Step::failed(
                "console",
                "console",
                path.display(),
                error.to_string(),
                "give each node a --console of its own, in a directory that is there and that its user can write in; a directory that a service manager makes is there only while the service runs",
            ));
            Some("open its console")
        }
    }
}

/// Other programs of this host may be in the group, too.
fn multicast(report: &mut Report, settings: &Settings) -> Option<&'static str> {
    let group = settings.multicast.as_ref()?.group;
    let config = settings.builder().multicast_config(&settings.bind);
    let tried = match config {
        Ok(Some(config)) => multicast_sockets(&config).map_err(|error| error.to_string()),
        Ok(None) => return None,
        Err(error) => Err(error.to_string()),
    };
    match tried {
        Ok(_) => {
            report.add(Step::ok("multicast", group, "it can be joined"));
            None
        }
        Err(cause) => {
            report.add(Step::failed(
                "multicast",
                "multicast",
                group,
                format!("it cannot be joined: {cause}"),
                "give --multicast-interface an interface of this host that does multicast (`ip address` shows them)",
            ));
            Some("join its multicast group")
        }
    }
}

/// The file of an agent has keys that no other node has.
async fn places(report: &mut Report, settings: &Settings) -> Option<&'static str> {
    let Agent {
        listen,
        socket,
        files,
        commands,
    } = &settings.agent;
    let serves = listen.is_some() || socket.is_some() || *files != Files::default();
    let commands = commands.list.is_some() || commands.listen.is_some() || commands.authorities.is_some();
    if !serves && !commands {
        return None;
    }
    match try_places(settings).await {
        Ok(()) => {
            report.add(Step::ok(
                "agent",
                "",
                "an agent with this file can open all that it serves programs with",
            ));
            None
        }
        Err(failed) => {
            report.add(Step::failed(
                "agent",
                "agent",
                "",
                failed.message,
                "mend that in the file: its keys are those of an agent, which ends at its start",
            ));
            Some("serve programs as an agent")
        }
    }
}
