//! The supervisor half of `antiphon node --witness`: the parent of the node (R10).
//!
//! ```text
//!   parent: one thread, no stdin or stdout            child: the node, with the same arguments, stdin, stdout, stderr
//!     memory for its last vote ────────────────────►  leaves it there
//!     SIGTERM, SIGINT, SIGHUP, SIGQUIT ────────────►  leaves in order, or ends
//!     waits ◄──────────────────────────────────────── exit, or killed
//!     tells the members, then ends with the same code
//! ```
//! If the parent dies first, the child lives on without a witness, and nobody notices. Then signals reach the
//! child only by its own process id.
//!
//! A service manager sees the parent as the process of the service. It must end the service by a signal to
//! the parent or to the whole group. Either way the node gets one signal: the node takes two that come at
//! once for one.

use antiphon::witness::{Death, Handed, Unproven};

use super::super::exit::{Exit, Failed};
use super::super::settings::Settings;
#[cfg(target_os = "linux")]
use super::super::signals::SAME_SIGNAL_WITHIN;
use super::super::signals::Signals as Caught;

#[cfg(target_os = "linux")]
pub(super) use linux::run;

/// The settings do not let it get here.
#[cfg(not(target_os = "linux"))]
pub(super) fn run(_settings: &Settings, _caught: Caught) -> Result<Exit, Failed> {
    Err(Failed::usage("--witness works on Linux only: leave it out"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs::OpenOptions;
    use std::io::{ErrorKind, Write as _};
    use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
    use std::process::{Child, Command, ExitStatus};
    use std::task::Poll;
    use std::time::Duration;

    use antiphon::witness::{Keeper, fresh_incarnation, tell};
    use rustix::process::{Pid, kill_process};
    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::*;

    /// Passed on to the node.
    const PASSED_ON: [SignalKind; 4] = [
        SignalKind::terminate(),
        SignalKind::interrupt(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ];

    /// The child is looked at this often, if no signal says that it has ended.
    const LOOK_EVERY: Duration = Duration::from_secs(1);

    /// Runs the node as a child, and tells of its death. `caught` has the signals that came before.
    pub(in super::super) fn run(settings: &Settings, mut caught: Caught) -> Result<Exit, Failed> {
        let failed = |what: &str, error: std::io::Error| Failed::run(format!("cannot {what}: {error}"));
        let keeper = Keeper::new().map_err(|error| failed("keep the node's last vote", error))?;
        // One thread: there is next to nothing to do.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed("wait for the node", error))?;
        runtime.block_on(async {
            // Before the child: a signal that comes in between is not lost.
            let mut signals = Signals::new().map_err(|error| failed("handle signals", error))?;
            tokio::select! {
                biased;
                _ = caught.next() => return Ok(Exit::Success),
                () = std::future::ready(()) => {}
            }
            let mut child = start(&keeper).map_err(|error| failed("start the node", error))?;
            // If it cannot, they end with this process: a little later.
            let _ = hand_over_stdio();
            let (status, asked) = signals
                .wait(&mut child)
                .await
                .map_err(|error| failed("wait for the node", error))?;
            if ended_before_it_had_begun(status, &keeper) {
                return Ok(Exit::Success);
            }
            // A manager or user that ends the service does not wait for members that cannot be reached.
            let patience = match asked || status.success() {
                true => Duration::ZERO,
                false => settings.profile.unreachable_after * 10,
            };
            let told = tokio::select! {
                told = bear_witness(settings, &keeper, patience) => told,
                () = signals.asked_again() => Err("a signal ended the telling".to_owned()),
            };
            // In order, it has left nothing to tell.
            let tried = |handed: &Handed| handed.taken + handed.absent + handed.unreached > 0;
            if told.as_ref().is_ok_and(tried) || !status.success() {
                report(settings, status, &told);
            }
            Ok(exit(status))
        })
    }

    /// A signal came before the node caught signals: so it ended by that, and had nothing to leave. If the
    /// signal went to the whole group, the node may have ended before this process has read its own.
    fn ended_before_it_had_begun(status: ExitStatus, keeper: &Keeper) -> bool {
        let ends_in_order =
            [SignalKind::terminate(), SignalKind::interrupt()].map(|kind| kind.as_raw_value());
        status
            .signal()
            .is_some_and(|signal| ends_in_order.contains(&signal))
            && keeper.read().is_ok_and(|left| left.is_empty())
    }

    /// This very program, with the same arguments, even if its file was replaced meanwhile.
    fn start(keeper: &Keeper) -> std::io::Result<Child> {
        let mut arguments = std::env::args_os();
        let name = arguments.next().unwrap_or_else(|| "antiphon".into());
        Command::new("/proc/self/exe")
            .arg0(name)
            // `node`; whatever else there is may end with a bare `--`.
            .args(arguments.next())
            .arg("--last-vote")
            .arg(keeper.path())
            .args(arguments)
            .spawn()
    }

    /// The program at the other end of stdin or stdout sees the end of the node at once, not that of this
    /// process.
    fn hand_over_stdio() -> std::io::Result<()> {
        let nothing = OpenOptions::new().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing)?;
        rustix::stdio::dup2_stdout(&nothing)?;
        Ok(())
    }

    struct Signals {
        passed_on: Vec<(SignalKind, Signal)>,
        child: Signal,
    }

    impl Signals {
        fn new() -> std::io::Result<Self> {
            let ignored = ignored_signals();
            // What is ignored stays so in the node, as long as nobody handles it here.
            let is_ignored = |kind: &SignalKind| {
                let leaves_in_order = [SignalKind::terminate(), SignalKind::interrupt()].contains(kind);
                !leaves_in_order && ignored & (1 << (kind.as_raw_value() - 1)) != 0
            };
            let handled = PASSED_ON.into_iter().filter(|kind| !is_ignored(kind));
            let passed_on = handled.map(|kind| Ok((kind, signal(kind)?)));
            Ok(Self {
                passed_on: passed_on.collect::<std::io::Result<_>>()?,
                child: signal(SignalKind::child())?,
            })
        }

        /// Waits until the child is gone: all its threads, and with them all that it could still have done.
        /// And whether it was sent a signal from here.
        async fn wait(&mut self, child: &mut Child) -> std::io::Result<(ExitStatus, bool)> {
            let mut asked = false;
            loop {
                if let Some(status) = child.try_wait()? {
                    return Ok((status, asked));
                }
                tokio::select! {
                    _ = self.child.recv() => {}
                    kind = next_of(&mut self.passed_on) => {
                        asked = true;
                        pass_on(kind, child);
                    }
                    // The process that started this one may have blocked the signal of a child's end.
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        }

        /// Returns at a signal that cannot be the one that has ended the node: many signals go to all
        /// processes of a terminal or service.
        async fn asked_again(&mut self) {
            tokio::time::sleep(SAME_SIGNAL_WITHIN).await;
            std::future::poll_fn(|cx| {
                for (_, signal) in &mut self.passed_on {
                    // However often it came, this is one.
                    let _ = signal.poll_recv(cx);
                }
                Poll::Ready(())
            })
            .await;
            next_of(&mut self.passed_on).await;
        }
    }

    /// The signals that were ignored when this process started, as by `nohup`: bit i is signal i + 1.
    fn ignored_signals() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .unwrap_or(0)
    }

    /// The next of these signals.
    async fn next_of(signals: &mut [(SignalKind, Signal)]) -> SignalKind {
        std::future::poll_fn(|cx| {
            let mut ready = signals
                .iter_mut()
                .filter_map(|(kind, signal)| signal.poll_recv(cx).is_ready().then_some(*kind));
            ready.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Until this process has waited for it, no other process gets its number.
    fn pass_on(kind: SignalKind, child: &Child) {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let signal = rustix::process::Signal::from_named_raw(kind.as_raw_value());
        if let (Some(pid), Some(signal)) = (pid, signal) {
            // Fails only if it has just ended.
            let _ = kill_process(pid, signal);
        }
    }

    /// Tells the members of the death of a child that was waited for.
    async fn bear_witness(
        settings: &Settings,
        keeper: &Keeper,
        patience: Duration,
    ) -> Result<Handed, String> {
        let Some(key) = &settings.key else {
            return Err("there is no cluster key".to_owned());
        };
        let left = keeper.read().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => "another process has what it left: it may live there".to_owned(),
            _ => error.to_string(),
        })?;
        let me = fresh_incarnation().map_err(|error| error.to_string())?;
        let death = Death::of(&settings.cluster, key, left, me).map_err(|why: Unproven| why.to_string())?;
        let addr = settings.advertise.first().or(settings.bind.first());
        let Some(addr) = addr else {
            return Err("the node had no address".to_owned());
        };
        Ok(tell(death, *addr, patience).await)
    }

    fn exit(status: ExitStatus) -> Exit {
        match (status.code(), status.signal()) {
            (Some(code), _) => Exit::OfChild(code),
            (None, Some(signal)) => Exit::Signal(signal),
            (None, None) => Exit::Failure,
        }
    }

    fn report(settings: &Settings, status: ExitStatus, told: &Result<Handed, String>) {
        let what = match told {
            Ok(Handed {
                taken,
                absent,
                unreached,
                ..
            }) => {
                format!("proven to {taken} members, {absent} are not there, {unreached} could not be reached")
            }
            Err(why) => format!("not proven: {why}"),
        };
        let name = &settings.name;
        // The terminal may have gone, and that may be why the node has ended.
        let _ = writeln!(
            std::io::stderr(),
            "antiphon: node {name} has ended ({status}); its death was {what}"
        );
    }
}
