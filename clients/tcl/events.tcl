# What a group, a watch or a served verb is told, in its order and with a bound.

namespace eval antiphon {
    variable mostBytes [expr {64 << 20}] ;# when the reader waits for a reply
    variable eventBytes 500              ;# about what Tcl takes for an event beside its line
    variable partBytes 100               ;# and for each payload of a bundle
    variable answerBytes 59744           ;# the agent takes no longer answer of a handler
    variable commandAnswerBytes [expr {1 << 20}] ;# the most that a list may allow
}

# Methods in capitals are for the client, not for programs.
oo::class create antiphon::Events {
    variable client waits
    variable events first last bytes ;# from the first that is unread to behind the last
    variable part                    ;# the next of the first, if that is a bundle
    variable takenAt                 ;# the connection's last number when the reader took its last event
    variable over failure dropping
    variable begun                   ;# the agent has said that it is on its way

    constructor {theClient} {
        array set events {}
        lassign [list $theClient {} 0 0 0 0 {} 0 0 0] client waits first last bytes over failure dropping begun part
        set takenAt [$client LastNumber]
    }

    destructor {
        my End
    }

    # Puts the next event into the variable; false behind the last. `-within`: at most so many seconds.
    method next {variable args} {
        upvar 1 $variable event
        set within [dict get [antiphon::Options $args {-within ""}] -within]
        set self [self]
        while {![info exists events($first)]} {
            if {$over} {
                if {$failure eq ""} {return 0}
                antiphon::Fail {*}$failure
            }
            lappend waits [set number [antiphon::BeginWait]]
            set outcome [antiphon::Wait $number [antiphon::Milliseconds $within]]
            if {![info object isa object $self]} {return 0} ;# it was left meanwhile
            if {$outcome eq "late"} {
                # Else they grow with each look of a program to which nothing comes.
                set waits [lsearch -all -inline -exact -not $waits $number]
                antiphon::Fail timeout "nothing came within $within s"
            }
        }
        lassign $events($first) event size
        if {[dict exists $event payloads]} {
            set payloads [dict get $event payloads]
            set payload [lindex $payloads $part]
            set event [dict replace [dict remove $event payloads] event message part $part \
                payload $payload text [encoding convertfrom utf-8 $payload]]
            if {[incr part] < [llength $payloads]} {
                my Taken
                return 1
            }
            set part 0
        }
        unset events($first)
        incr first
        incr bytes -$size
        my Taken
        return 1
    }

    # Calls the command with each event, one after the other, in a coroutine, so it may wait.
    method Follow {command} {
        set self [self]
        try {
            while {[info object isa object $self] && [$self next event]} {antiphon::Run [list {*}$command $event]}
        } trap ANTIPHON {message options} {
            set details [lindex [dict get $options -errorcode] 2]
            antiphon::Run [list {*}$command [dict merge {event over} $details]]
        }
    }

    method Put {event size} {
        if {$over || $dropping} return
        if {$bytes > $::antiphon::mostBytes} {my Overrun $event} else {my Add $event $size}
    }

    method Add {event size} {
        incr size $::antiphon::eventBytes
        if {[dict exists $event payloads]} {
            incr size [expr {$::antiphon::partBytes * [llength [dict get $event payloads]]}]
        }
        set events($last) [list $event $size]
        incr last
        incr bytes $size
        my Wake
    }

    # What is unread and what follows is of no use any more, but the end is.
    method Drop {} {
        array unset events
        set first $last
        lassign {0 0 1} part bytes dropping
        my Taken
    }

    # Nothing follows; the failure, arguments of `Fail`, stands behind the last event.
    method End {args} {
        if {$over} return
        set over 1
        set failure $args
        my Wake
    }

    method Overrun {event} {}

    method Taken {} {
        set takenAt [$client LastNumber]
        $client ReadOn
    }

    method TakenAt {} {return $takenAt}
    method Bytes {} {return $bytes}
    method Over {} {return $over}
    method Begun {} {set begun 1}
    # Whether a client that comes back as a new one asks for it again.
    method IsWanted {} {expr {$begun && !$dropping}}

    method Wake {} {
        foreach number [lindex [list $waits [set waits {}]] 0] {antiphon::EndWait $number woken}
    }

    export Follow Put Drop End TakenAt Bytes Over Begun IsWanted
}

# A group that this client is in.
oo::class create antiphon::Group {
    superclass antiphon::Events
    variable client name

    constructor {theClient theName} {
        next $theClient
        set name $theName
    }

    method name {} {return $name}

    # Says it to all members. `-wait 1`: until it is delivered. `-safe 1`: only when every node of the group
    # holds it. `-binary 1`: the payload is bytes and no text.
    method send {payload args} {
        set given [antiphon::Options $args {-safe 0 -wait 0 -binary 0}]
        my Speak send payload [antiphon::json::payload $payload [dict get $given -binary]] $given
    }

    # Says several things in one line. All members are told all of them, with nothing in between, or none. The
    # options are those of `send`.
    method sendbundle {payloads args} {
        set given [antiphon::Options $args {-safe 0 -wait 0 -binary 0}]
        if {![llength $payloads]} {antiphon::Fail refused "a bundle has one payload at least"}
        my Speak send_bundle payloads [antiphon::json::payloads $payloads [dict get $given -binary]] $given
    }

    method Speak {op what said given} {
        if {[$client GroupOf $name] ne [self]} {
            antiphon::Fail not_held "this client is not in $name any more: join it again"
        }
        set fields [list group [antiphon::json::quote $name] $what $said \
            safe [expr {[dict get $given -safe] ? "true" : ""}]]
        $client [expr {[dict get $given -wait] ? "Ask" : "Tell"}] $op $fields
        return
    }

    # Leaves the group; what is unread is dropped. The command is gone then.
    method leave {} {
        set self [self]
        if {[$client GroupOf $name] eq $self} {
            my Drop
            $client BeginLeave $name
            try {
                $client AskNow leave [list group [antiphon::json::quote $name]]
                while {[info object isa object $self] && [$self next event]} {}
            } trap ANTIPHON {} {
                # Then this client is out in another way.
                if {[info object isa object $client]} {$client EndLeave $name}
            }
        }
        if {[info object isa object $self]} {$self destroy}
    }

    method Overrun {event} {
        my Add [list event lost group $name cause "slow: its reader waited for a reply while too much was unread"] 0
        my End
        catch {$client Say leave [list group [antiphon::json::quote $name]]}
    }
}

# A watch of a map.
oo::class create antiphon::Watch {
    superclass antiphon::Events
    variable client number

    constructor {theClient theNumber} {
        next $theClient
        set number $theNumber
    }

    # Ends the watch. The command is gone then.
    method close {} {
        set self [self]
        my Drop
        if {[$client ForgetWatch $number]} {catch {$client Say cancel [list of $number]}}
        if {[info object isa object $self]} {$self destroy}
    }

    method Overrun {event} {
        my End lost "too much was unread while its reader waited for a reply"
        if {[$client ForgetWatch $number]} {catch {$client Say cancel [list of $number]}}
    }
}

# A verb that this client serves.
oo::class create antiphon::Served {
    superclass antiphon::Events
    variable client

    # Answers with what the command returns for a request, in a coroutine.
    method Answer {command binary} {
        lassign [list [self] $client] self owner
        try {
            while {[info object isa object $self] && [$self next request]} {
                set life [dict get $request life]
                if {$life != [$owner Life]} continue ;# it was asked of the client that this one was before
                try {
                    set answer [uplevel #0 [list {*}$command $request]]
                    set isText [expr {!$binary}]
                    set said [list payload [antiphon::json::payload $answer $binary]]
                } on error {answer} {
                    set isText 1
                    set said [list error [antiphon::json::quote $answer]] ;# whatever it is, the caller is told
                }
                set size [string length [if {$isText} {encoding convertto utf-8 $answer} else {set answer}]]
                # A command is of no group.
                set most [set ::antiphon::[expr {[dict exists $request group] ? "answerBytes" : "commandAnswerBytes"}]]
                if {$size > $most} {set said [list error "\"the answer has $size bytes, and may have $most\""]}
                if {[info object isa object $owner] && $life == [$owner Life]} {
                    catch {$owner Tell answer [list request [dict get $request number] {*}$said]}
                }
            }
        } trap ANTIPHON {} {} ;# the connection is over, which all others are told
    }

    method Overrun {request} {
        catch {$client Say answer [list request [dict get $request number] error {"too many requests wait"}]}
    }

    export Answer
}
