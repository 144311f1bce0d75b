//! Planted protocol mistakes.
//!
//! Compiled in only by the feature `planted`. A simulator run arms one mistake for its thread; the protocol
//! asks at the place where the mistake would be made. The checkers must notice each: that is what shows that
//! they bite.

use std::cell::Cell;

thread_local! {
    static ARMED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Arms one mistake for the current thread, or none.
pub fn arm(bug: Option<Bug>) {
    ARMED.with(|armed| armed.set(bug));
}

/// Whether any mistake is to be made: then assertions about our own bugs are for the checkers to find.
pub(crate) fn any() -> bool {
    ARMED.with(|armed| armed.get().is_some())
}

/// Whether this mistake is to be made.
pub fn is(bug: Bug) -> bool {
    ARMED.with(|armed| armed.get() == Some(bug))
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        /// A mistake that the protocol makes while armed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Bug { $($(#[doc = $doc])* $name),* }
        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name),*];
            /// What goes wrong.
            pub fn description(self) -> &'static str {
                match self { $(Bug::$name => concat!($($doc),*).trim_ascii()),* }
            }
        }
    };
}

bugs! {
    /// A member delivers old-view messages that arrive after its flush report (R13).
    ReceiveAfterWedge,
    /// A leader decides a cut from its own report alone (R14).
    SkipFlush,
    /// A new leader ignores that someone has already installed a view (R14).
    SkipInstalledView,
    /// The flush is led by the survivor of lowest node rank instead of group rank (R12).
    LeadByNodeRank,
    /// A message that arrives twice is delivered twice.
    ForgetDedup,
    /// A total group delivers a message before its position is known.
    DeliverBeforeOrder,
    /// A message is delivered although an earlier one of its sender is missing.
    DeliverFifoGap,
    /// The cut is what all survivors hold instead of what any of them holds (R15).
    CutIsMinimum,
    /// Of a dead sender, the cut has only what the leader itself holds (R15).
    ForgetDeadSendersMessages,
    /// A message is forgotten once any member holds it, not once all do.
    DropStableTooEarly,
    /// A member reports to a flush and goes on sending and delivering in the old view (R13).
    ReportBeforeWedge,
    /// The elder grants the founding of a group before every member has reported (R12).
    GrantWithoutReports,
    /// The transitional set names all members of the new view.
    TransitionalIsWholeView,
    /// Messages are delivered under a non-primary view (R17).
    DeliverWhileSuspended,
    /// A new group view is given the identity of the previous one.
    ReuseGroupViewId,
    /// A joiner gets its first view before the survivors have installed it (R12).
    JoinerFirst,
    /// A joiner that is to lead and has not heard of its view says that it is no member (R14).
    NobodyHelpsALeaderIn,
    /// Messages queued during a flush are dropped at the view change.
    LoseOwnMessages,
    /// The tail of a total order is delivered in an order of each member's own (R16).
    TailOrderByArrival,
    /// In total order, what is left of a dead sender is delivered behind the cut's order (G20).
    TailOfTheDead,
    /// A view that removes someone is announced under the id of the view before (R5).
    ReuseViewId,
    /// Any voter alone counts as a quorum (R1, R6).
    PromoteMinority,
    /// A proposer that changed its mind proposes the new value under the ballot of the old one (R1).
    TwoValuesPerBallot,
    /// A proof of death is used as if the dead had never voted (R2).
    CertificateWithoutLastVote,
    /// A member votes in a slot whose predecessor it has not installed (R1).
    VoteBeforeInstalling,
    /// A proposer ignores the values that its phase 1 found (R1).
    IgnoreAcceptedValue,
    /// A lifeline that ended with a reset counts as a proof of death (R9).
    FinAfterResetIsProof,
    /// The coordinator sorts the members of a new view by incarnation.
    ForgetSeniorityOrder,
    /// A candidate that misses the others founds a cluster alone (R4).
    FoundAlone,
    /// With an expected number, a majority of the addresses that a node was told of founds (R4).
    FoundByHints,
    /// A node that knows of a primary, or may hear of one from a locator, votes for another one (R4).
    VoteBesideAPrimary,
    /// What a locator does not know that was started a moment ago is taken for not there (R4).
    BelieveAFreshLocator,
    /// Whoever was named first by sources is taken for all that there are (R4).
    TrustTheFirstNamed,
    /// Members tell locators seldom that they are there, whatever happened to these (R4).
    RegisterSeldom,
    /// A node that has lost the majority goes on alone after a while, unasked (R11).
    OverrideUnasked,
    /// A recovery does not say in its view that it left anyone behind (R11).
    OverrideUnseen,
    /// A recovery goes on in the lineage that it leaves (R11).
    OverrideInLineage,
    /// A recovery is done although the node is in a primary view (R11).
    OverridePrimary,
    /// A member that has lost its majority gives way at once to a lighter lineage that an operator made
    /// beside that (R11).
    GiveWayToLighter,
    /// A proof of death is told once, to those who are heard then (R2).
    ProveOnce,
    /// A member without a majority that is in another view than the one that coordinates it says nothing
    /// (R6).
    SettleApart,
    /// A component without a quorum does not say why one that is heard is not in it: that one does not hear
    /// it (G7).
    PartUnaccused,
    /// A member believes in its view until it hears that it was removed (R7).
    BelieveForever,
    /// A member votes another one out although that may still believe, by its answer (R7).
    VoteWhileAnswered,
    /// A member that voted in a slot still answers, itself too (R7).
    AnswerAfterVote,
    /// A view that was just installed votes members out that may believe in the one before (R7).
    VoteAtOnceInANewView,
    /// A leader counts without the dead at once, though they may have answered a moment before (R7).
    CountLateDead,
    /// A member counts what another one was answered (R7).
    AnswersAreAnybodys,
    /// A member takes what another one holds of a third one's messages for what it holds of its own (R17).
    AcksAreAnybodys,
    /// Three senior members that make ticks are enough, whether these renew anybody or not (R7).
    SeniorsSilenceAll,
    /// In a large view, whoever hears a tick that renews anybody believes from then on (R7).
    PulseRenewsWhoHears,
    /// A maker of ticks renews whoever answered it, however few others did (R7).
    PulseWithoutQuorum,
    /// A member that no tick reaches asks nobody for them, or is not heard (R7).
    NobodyGrafts,
    /// What was held back without a lease is delivered all the same (R7).
    DeliverWithoutLease,
    /// A component goes on as a lineage of its own before all its members have acknowledged it (G41).
    SeparateUnacknowledged,
    /// Two components that meet give way to each other, both at once (G41).
    BothGiveWay,
    /// Nobody asks at the addresses of those who were left behind (G41).
    ForgetLeftBehind,
    /// Those who come from another component are named as if they came from another view of it (G41).
    MergeNamesWrongView,
    /// A component without a majority goes on as under `majority` (G41).
    SeparateNever,
    /// A view is decided without a quorum of its own members (R3).
    SkipJointQuorum,
    /// What a process leaves to its witness does not show what it voted (R10).
    WitnessForgetsLastVote,
    /// What a witness says is passed over (R10).
    IgnoreWitness,
    /// A process leaves its witness nothing new when it votes, but when it installs a view (R10).
    LastVoteOfTheInstall,
    /// A vote travels without having been written to the lifelines (R2).
    VoteBeforeLifeline,
    /// A member sends on although some application has not taken a window of its messages (R21).
    IgnoreCredit,
    /// A message that fits no block goes into the log piece by piece, as credit comes, over as many views as
    /// that takes (R22).
    LargeIsNotAtomic,
    /// A piece of a message is delivered as a message (R22).
    DeliverPieces,
    /// An unordered group's cut is what comes before the first gap, and not all that is held (R15).
    PrefixCutForUnordered,
    /// An unordered group delivers what was behind a gap once more when the gap is closed (G9).
    DeliverAgainAfterGap,
    /// An unordered group holds a message back until those before it are there (G33).
    WaitAtGap,
    /// A scoped group delivers a message before the one of its scope that it names (G34).
    ForgetScopeOrder,
    /// At the cut, a scoped group delivers what comes after a message of a dead sender that nobody has (R15,
    /// G34).
    PassScopeGapAtCut,
    /// In an unordered group, a message that comes in pieces is delivered by a flush that has only some of
    /// them (R22).
    DeliverPartOfCut,
    /// The record of an object is sent once half of the members hold the object (R22).
    RecordBeforeAllHold,
    /// Objects that were not sent to the end are forgotten at a view change (R22).
    LoseObjectsAtView,
    /// The objects of a sender that is gone are kept for ever (R22).
    KeepObjectsOfTheDead,
    /// An object counts as whole, and is delivered, when its first chunk is here (R22).
    DeliverIncompleteObject,
    /// A safe message is delivered as soon as it and its place are here (G24).
    SafeOnOwnReceipt,
    /// A safe message is delivered once half of the others hold it (G24).
    SafeOfMajority,
    /// A flush delivers safe messages before the transitional notice, as if the departed held them too (R17).
    SafeBeforeNotice,
    /// A cut with safe messages is delivered before all participants hold it (G25).
    SafeCutUnconfirmed,
    /// In a chain, the last member hands a frame on to the one that it came from first.
    ChainToOrigin,
    /// In a chain, frames are handed on to the member after the next.
    ChainSkipsMember,
    /// Messages that another member supplied count as messages of that member.
    RepairIsSuppliers,
    /// In a chain, a frame is handed on in whatever view and state of a flush the member is.
    HandOnOldViews,
    /// A member is removed as slow that others waited for again and again, although its application reads.
    CallReaderSlow,
    /// A member whose application has stopped reading holds up the others for ever.
    KeepSlowMember,
    /// The leader that is slow itself stays in the group.
    KeepSlowLeader,
    /// In the rotation, nulls at the end of a log are not reported to a flush (R16).
    NullsOnlyOnRows,
    /// In the rotation, the walk goes on past the slot of a member of which nothing is there.
    SkipSilentSlot,
    /// A copy of the token counts as the token (R16).
    TakeTokenTwice,
    /// A member of a wide view that is heard and does not follow into the next one is waited for.
    WaitForWhoIsBehind,
    /// The token of an earlier view counts in the present one (R16).
    TokenOfOldView,
    /// By multicast, what got lost is not sent again.
    TrustMulticast,
    /// Members that do not hear a sender's multicast are not sent to directly.
    EverybodyHears,
    /// A link that failed stays in use although others work.
    StayOnFailedLink,
    /// The failure of one link of several makes the peer doubted.
    LinkFailureIsDeath,
    /// Traffic stays where it went when a link failed, for ever.
    NeverFailBack,
    /// A link that failed is used again as soon as anything is heard of it.
    FailBackAtOnce,
    /// Only the link in use is tried.
    BeatOnLinkInUse,
    /// A majority counts as enough in the fast ballot (R1).
    FastQuorumIsMajority,
    /// Two thirds count as enough in the fast ballot, with or without the most senior member (R1).
    FastQuorumIsTwoThirds,
    /// A leader proposes any of the values cast in the fast ballot, whether or not it may have been decided
    /// (R1).
    RecoverAnyFastVote,
    /// A vote is cast in the fast ballot after a promise to a leader (R1).
    CastAfterPromise,
    /// One observer's word is enough to remove a member, and nothing else is waited for.
    CutOnOneReport,
    /// A cut is proposed as soon as one member is in it, without waiting for others that are about to be.
    CutWithoutQuiet,
    /// Three observers that report a member make its own reports count as those of one that is lost (G35).
    CutByContagion,
    /// In a wide view nobody is in the cut by its own word (G35).
    CutIgnoresOwnWord,
    /// Who hears nobody but others that hear nobody is not in the cut by its own word (G35).
    CutHearsTheDeaf,
    /// A member that hears nobody and is heard is waited for as one of a pair that do not hear each other.
    KeepTheDeaf,
    /// A node that was stopped takes what it missed for the silence of the others (G37).
    AccuseWhenStarved,
    /// Timers that are served late show nothing: only a node that was stopped for long missed anything (G37).
    LateTimersAreNothing,
    /// A frame that is to be passed on is dropped (R20).
    PassOnNothing,
    /// Who is to pass a frame on asks another member to do it, if its own path is dead (R20).
    PassOnThroughAnother,
    /// What was heard through another member is no sign of life (R20).
    RelayedIsNoLife,
    /// A relay that is dead, or passes on nothing, stays in use (R20).
    KeepDeadRelay,
    /// Messages are not passed on, only control (R20).
    RelayControlOnly,
    /// In a wide view no paths are watched, those to members of one's groups neither (R20).
    NobodyWatchesInWideViews,
    /// In a wide view only members of the group pass on for it, and of two there are none (R20).
    BystandersPassOnNothing,
    /// A member of a wide view that hears nobody goes by what it was told of the others (G5).
    CutOffBelieves,
    /// A member of a wide view that lost the primary meets nobody but those on the rings (G5).
    NothingBeyondTheRings,
    /// Nodes that have no vote found a cluster (R3).
    FoundWithoutVotes,
    /// Who has no view asks for a cluster two hundred times as often as it should.
    SeekWithoutPause,
    /// In a wide view a member does not say again that it has lost a path when it has said that much is lost
    /// on it (G5).
    CutOffSaidLossy,
    /// A member that was removed tells the next leader that it is gone, and not why (G7).
    ForgetRemoval,
    /// Heartbeats that may be late do not go as probes (R21).
    NeverProbe,
    /// Whoever is heard by probes alone is never doubted for it (R20).
    ProbesCountForEver,
    /// In the rotation, a run of nulls is sent and not kept for those that miss it.
    ForgetNulls,
    /// Who joins is told of no view before the one that admits it, whoever may lack them (R1).
    AdmitWithoutThePast,
    /// A member that is behind asks nobody that joined since for what it missed (R1).
    PullFromNoStranger,
    /// Who hears a quorum and can decide nothing, since it has accepted a view whose members are gone, waits
    /// for ever (R1, R3).
    StandStill,
    /// A node forgets what a member said in a view before the node installed that view, if the two are no
    /// neighbours there (R13).
    ForgetWhoWasAhead,
    /// A member that was late is taken for one whose path failed, and so are many at once (R20).
    RelayWhenStarved,
    /// A heartbeat that comes early moves all later ones by as much: busy nodes make twice as many (R20).
    BeatsMakeBeats,
    /// A block for which the core has no room is offered behind the others.
    FullLosesOrder,
    /// Of a block for which the core has no room, the last message is sent a second time.
    FullDoublesTheLast,
    /// A sender gives a ticket to two messages.
    GiveATicketTwice,
    /// A block that is joined with those before it forgets its level.
    JoinForgetsLevel,
    /// A node that was not told of a view yet leaves without a word, whoever may have admitted it (G7).
    LeaveUnsaidBeforeAView,
    /// A lineage has no time in it, so that one that is founded later may be lower (G2).
    LineageWithoutTime,
    /// The first view of a lineage has the number 1, whenever it was founded (G2).
    NumberWithoutClock,
    /// A joiner is not told the names of members that departed before it knew them.
    NamelessDeparted,
    /// A direct message is taken in whatever view its receiver is (G44).
    TellInAnyView,
    /// A member that has reported to a flush still takes direct messages of the view that ends (R13, G44).
    TellAfterWedge,
    /// A receiver forgets at a view change how far it has come in what it was told (G44).
    ForgetTellNumbers,
    /// A member takes direct messages that are for another one (G44).
    TakeTellsOfOthers,
    /// A direct message that is sent again is delivered again (G44).
    TakeTellsTwice,
    /// What a receiver had not taken when a view ended is not sent again in the next one (G44).
    LoseUnheardTells,
    /// What was sent to a member that is not in the next view is said to be delivered (G44).
    UnheardIsDelivered,
    /// A receiver does not tell what its application has taken of what it was told (G44).
    ForgetTellCredit,
    /// A replica without the state holds whatever comes, without bound (G28).
    HoldWithoutBound,
    /// A joiner does not apply the first of what it held (G28).
    DropHeld,
    /// A joiner applies again what a later state has already (G28).
    KeepOldHeld,
    /// The last member with the state leaves while joiners wait for it (G28).
    LeaveWithTheState,
    /// A member that was leaving and is removed from the group joins it again (G5).
    ForgetToLeave,
    /// A read of the latest is answered without a place in the order (G45).
    ReadAtOnce,
    /// Members take every stamp as it is, also one that is behind the agreed time (G46).
    TimeGoesBack,
    /// A write for all is answered before the others have applied it (G47).
    AnswerBeforeAll,
    /// A lock table that is restored gives tokens from the beginning (G30).
    ForgetTokens,
    /// A member that departs keeps its locks (G30).
    KeepLocksOfDeparted,
    /// A claim that fits is granted before those that wait (G30).
    OvertakeWaiters,
    /// A call to all is sent twice, and its servers run it twice (G49).
    SendCallsTwice,
    /// A request that was sent and has no answer is said not to have been sent (G49).
    DenyWhatWasSent,
    /// A server says that it is busy, and runs the request later (G49).
    BusyAndRun,
    /// A reply ends the oldest call that waits for its sender (G49).
    MixUpReplies,
    /// A server that gave up a request which had begun says that it had not (G49).
    DenyThatItBegan,
    /// A member that joins a group again numbers its calls from the beginning (G49).
    BeginNumbersAgain,
    /// A call to all forgets a member that departs (G29).
    ForgetTheDeparted,
    /// A call has no deadline at its caller (G49).
    WaitPastItsTime,
    /// A view without a member does not end what waits for it (G49).
    WaitForTheDeparted,
    /// The members that may run a cancelled call are not told (G49).
    CancelInSilence,
    /// Handlers run on when their caller is gone (G49).
    RunForTheDeparted,
    /// Handlers run on when their time is over (G49).
    RunPastItsTime,
    /// A member runs more handlers than it has places (G49).
    RunBeyondPlaces,
    /// A handler that is stopped keeps its place (G49).
    KeepThePlace,
    /// A request for which there is no room is dropped without an answer (G49).
    DropInSilence,
    /// Calls of handlers take the places of calls from outside (G49).
    NoDepths,
    /// A call to all that is known not to be delivered waits for its deadline (G49).
    WaitForTheUndelivered,
    /// A joiner reads from its file first what it wrote last (G28).
    ReadLatestPart,
    /// A joiner loses the first of what it reads back from its file (G28).
    LoseReadBack,
    /// A call for what each member says ends without the last of them (G49).
    LeaveOneOut,
    /// Members with the state take no notice of what a joiner has seen of another one (G50).
    ForgetWhatWasSeen,
    /// A state that rises above another one keeps its time, which may be before what was seen (G50).
    KeepTheTime,
    /// A map that rises above another one leaves its entries at their versions (G50).
    RenewNothing,
    /// A joiner shows what it applies before it serves (G50).
    ShowCatchingUp,
    /// What a member applied that was undone is taken for an earlier point of the state that goes on (G50).
    TakeUndoneForEarlier,
    /// A sequencer that collects rows tells its own one as the mark (G24).
    MarkOfOwnRow,
    /// A new member does not wait until it was told which clients are there (G51).
    KnowAtOnce,
    /// A new member does not count changes of those whose clients it does not know (G51).
    CountTheKnownAlone,
    /// A member says which clients it has while a change of them is under way (G51).
    ListDuringChange,
    /// The clients of a member that is gone stay in the views (G51).
    KeepClientsOfDeparted,
    /// A change of clients is no safe message (G51).
    ChangeUnsafely,
    /// A member does not tell the first message of a bundle of another member's client (G51).
    LoseFirstOfBundle,
    /// A map makes a write whatever version the write's condition names (G45).
    IgnoreVersions,
    /// A table of counters adds twice what it is told to add (G45).
    AddTwice,
    /// A server is given half of the time that its caller waits (G49).
    HalfTheTime,
    /// The clients of a member that is gone vanish from the views, and the view does not say so (G51).
    ClientsGoUnsaid,
    /// The transitional notice names also the clients of members that are not in it (G51).
    NoticeNamesAllClients,
    /// An application is told that more of its object is there than the object has (R22).
    ProgressBeyondTheEnd,
    /// A map does not tell watchers of what is removed (G45).
    GoneKeysUntold,
    /// A table of counters tells of a change without the value before (G45).
    CountsUntold,
    /// A member believes for an eighth of the time for which it may (R7).
    LeaseOfAMoment,
    /// Direct messages do not wait for the lease (R7).
    TellWithoutLease,
    /// A member that comes back is never told what became of its messages (R17).
    ForgetRecords,
    /// No member says that a deadline has come (G46).
    NobodyTicks,
    /// A replica counts the requests that were answered among those that wait (G48).
    CountAllRequests,
    /// No client may say anything once clients have come or gone in a view of the group (G51).
    SilenceAfterChange,
    /// What clients of others said last is told when something follows it (G51).
    KeepTheLastBack,
    /// All members give up the state when one of them leaves (G28).
    ForgetWhenOneLeaves,
    /// All members give up the state when an operator has them go on (G28).
    ForgetAtRecovery,
    /// A member that goes on apart never learns what became of direct messages to the other part (G44).
    NoReceiptsApart,
}
