//! What a node opens at its start beside its port: a console at a given path, and a multicast group. Without
//! one of them it ends at once. An agent also opens its places for programs.
//!
//! Each is opened as the node would, and closed again. What the node of these settings has already, because
//! it runs, is not tried. What an agent lacks is a warning: the doctor does not know whether an agent is
//! meant or a node, which does not read those settings, nor with which flags an agent is started.

use std::path::Path;

use antiphon_agent::access::Files;
use antiphon_agent::console::Console;
use antiphon_net::udp::multicast_sockets;

use super::report::{Report, Step};
use crate::args::AgentArgs;
use crate::node::try_places;
use crate::settings::{Agent, Settings};

/// Where service managers make directories at the start of a service, and remove them at its end.
const OF_SERVICES: [&str; 2] = ["/run", "/var/run"];

/// Lays what the environment says of an agent over what the file says, as an agent does.
pub(super) fn take_environment(report: &mut Report, settings: &mut Settings) {
    match AgentArgs::of_environment() {
        Ok(agent) => settings.agent = agent.over(std::mem::take(&mut settings.agent)),
        Err(error) => report.add(refuses("", error)),
    }
}

/// Tries all of it; `runs` if the node of these settings does. What a node cannot do then, in words that end
/// a sentence.
pub(super) async fn look(report: &mut Report, settings: &Settings, runs: bool) -> Vec<&'static str> {
    let mut cannot = Vec::new();
    if !runs {
        cannot.extend(console(report, settings));
        places(report, settings).await;
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
            let step = Step::failed(
                "console",
                "console",
                path.display(),
                error.to_string(),
                "give each node a --console of its own, in a directory that is there and that its user can write in; a directory that a service manager makes is there only while the service runs",
            );
            let is_harmless = is_for_a_service_to_come(path);
            report.add(match is_harmless {
                true => step.but_harmless(),
                false => step,
            });
            (!is_harmless).then_some("open its console")
        }
    }
}

/// Whether the directory of this path is not there, and may be there once its service is started.
fn is_for_a_service_to_come(path: &Path) -> bool {
    let Some(directory) = path.parent() else {
        return false;
    };
    let mut places = OF_SERVICES.iter().map(Path::new);
    places.any(|place| directory != place && directory.starts_with(place))
        && matches!(directory.try_exists(), Ok(false))
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

/// An agent has settings that no other node has, in its file and in its environment.
async fn places(report: &mut Report, settings: &Settings) {
    let Agent {
        listen,
        socket,
        files,
        commands,
    } = &settings.agent;
    let serves = listen.is_some() || socket.is_some() || *files != Files::default();
    let commands = commands.list.is_some() || commands.listen.is_some() || commands.authorities.is_some();
    if !serves && !commands {
        return;
    }
    report.add(match try_places(settings).await {
        Ok(()) => Step::ok(
            "agent",
            "",
            "an agent with these settings can open all that it serves programs with",
        ),
        Err(failed) => refuses("as an agent it ends at its start: ", failed.message),
    });
}

/// Why an agent with these settings does not start.
fn refuses(begins: &str, cause: impl std::fmt::Display) -> Step {
    Step::failed(
        "agent",
        "agent",
        "",
        format!("{begins}{cause}"),
        "if an agent is meant, mend that in its file or environment, unless its flags say otherwise; `antiphon node` does not read these settings; a directory that a service manager makes is there only while the service runs",
    )
    .but_harmless()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_directory_below_those_of_services_is_for_one_to_come() {
        let is = |path: &str| is_for_a_service_to_come(Path::new(path));
        assert!(is("/run/antiphon-no-such/c.sock") && is("/var/run/antiphon-no-such/x/c.sock"));
        assert!(!is("/run/c.sock") && !is("/nodir/c.sock") && !is("/run-antiphon/c.sock") && !is("c.sock"));
        let there = std::fs::read_dir("/run").into_iter().flatten().flatten();
        let mut there = there.map(|entry| entry.path()).filter(|path| path.is_dir());
        assert!(there.all(|directory| !is_for_a_service_to_come(&directory.join("c.sock"))));
    }
}
