# Coming back when the connection broke: mixed into a client that asks for time for it.
#
# Lines count from 1, in each direction, but for `took`. What the agent has not taken is kept, to be said again
# by the next connection. While there is none, what is asked for waits.
#
# What is kept has a bound, on which the agent counts: it reads a client's `took` behind the client's other
# lines, and it may stop reading beyond so much that it has not confirmed. So what finds no room waits. What
# gives something back does not wait.

namespace eval antiphon {
    variable again 100             ;# milliseconds between two tries
    variable keptBytes 1048576     ;# with so many, there is no room
    variable sayLines 256          ;# the agent is told of so many lines at the latest,
    variable sayBytes 65536        ;# or of so many bytes
    variable maxWelcome 65536
}

oo::class create antiphon::Comeback {
    variable channel rest over lastWords closing asked waiting sending whys groups watches served held life
    variable grace hello address tls ;# as it was connected
    variable key                     ;# by which the agent knows this client
    variable taken said takenBytes   ;# of the agent's lines, and those that it was told of; bytes since
    variable sent written            ;# of this client's lines, and those that went into a connection
    variable kept keptBytes          ;# the last that were sent
    variable noRoom                  ;# lines that wait for room, by the numbers of what they are of, in their order

    method Prepare {theGrace theHello theAddress theTls} {
        lassign [list $theGrace $theHello $theAddress $theTls {}] grace hello address tls key
        my BeginCounting 0
    }

    method BeginCounting {lines} {
        lassign [list $lines $lines $lines 0 0 0] taken sent written said takenBytes keptBytes
        lassign {} kept noRoom
    }

    method Hello {fields} {
        next $fields
        if {$key eq ""} {antiphon::Fail refused "this agent keeps no clients: leave -grace out"}
    }

    method Welcomed {welcome} {
        if {[dict exists $welcome resume]} {set key [dict get $welcome resume]}
        next $welcome
    }

    # Counting.

    method Write {line} {
        lappend kept $line
        incr keptBytes [string length $line]
        incr sent
        if {$channel ne ""} {
            set written $sent
            next $line
        }
        return $sent
    }

    method Hand {number line} {
        dict set noRoom $number $line
        my UseRoom
        return [expr {![dict exists $noRoom $number]}]
    }

    method Keep {number line} {
        set sentAs [my Write $line]
        if {[info exists asked($number)]} {lset asked($number) 3 $sentAs}
    }

    # Says what waits for room, in its order.
    method UseRoom {} {
        while {[dict size $noRoom] && $keptBytes < $::antiphon::keptBytes && !$closing} {
            dict for {number line} $noRoom break
            dict unset noRoom $number
            my Keep $number $line
            my Sent $number written
        }
    }

    method Ran {line} {expr {$line eq "" || $line > $written ? "no" : "maybe"}}

    method Take {event size} {
        if {[dict get $event event] eq "took"} {
            my Took [dict get $event lines]
            return [my UseRoom]
        }
        next $event $size
        incr taken
        incr takenBytes [expr {$size + 1}]
        if {$channel ne "" && ($taken - $said >= $::antiphon::sayLines || $takenBytes >= $::antiphon::sayBytes)} {
            lassign [list $taken 0] said takenBytes
            catch {puts -nonewline $channel "{\"took\":{\"lines\":$taken}}\n"; flush $channel}
        }
    }

    # The agent has taken so many lines. After it said `resumed`, it may say fewer, which it took before.
    method Took {lines} {
        if {![string is entier -strict $lines] || $lines > $written} {
            error "the agent says that it took $lines of $written lines"
        }
        set count [expr {max(0, $lines - ($sent - [llength $kept]))}]
        foreach line [lrange $kept 0 $count-1] {incr keptBytes -[string length $line]}
        set kept [lrange $kept $count end]
    }

    # The connection.

    method Break {why} {
        if {$key eq "" || $closing} {return [my Lose $why]}
        if {$lastWords ne ""} {set why $lastWords}
        catch {close $channel}
        lassign {} channel lastWords
        lassign [list $taken 0] said takenBytes
        coroutine ::antiphon::coroutine[incr ::antiphon::lastCoroutine] [self] ComeBack $why
    }

    # Tries until the agent welcomes this client. In a coroutine; after each wait the client may be gone.
    method ComeBack {why} {
        set self [self]
        set until [expr {[clock milliseconds] + $grace}]
        set reason "the agent did not answer"
        set line [antiphon::json::command hello [list {*}$hello resume [antiphon::json::quote $key] lines $taken id 0]]
        while {[set left [expr {$until - [clock milliseconds]}]] > 0} {
            set opened {}
            try {
                set opened [antiphon::Open $address $left $tls]
                lassign [antiphon::Greet $opened $line [expr {max(0, $until - [clock milliseconds])}]] welcome more
            } on error message {
                set reason $message
                set welcome {}
            }
            if {![info object isa object $self] || $over} {
                catch {close $opened}
                return
            }
            if {$welcome ne {}} {
                return [my Back $opened $welcome $more "this client came back as a new one: $why"]
            }
            catch {close $opened}
            antiphon::Wait [antiphon::BeginWait] [expr {max(0, min($::antiphon::again, $until - [clock milliseconds]))}]
            if {![info object isa object $self] || $over} return
        }
        my Lose "$why; it did not come back within [expr {$grace / 1000.0}] s: $reason"
    }

    method Back {opened welcome more cause} {
        my Attach $opened
        if {[catch {
            if {[dict exists $welcome resumed]} {
                my Resume [dict get $welcome resumed]
            } else {
                my BeginAnew $welcome $cause
            }
        } message]} {return [my Lose "the connection broke: $message"]}
        my Parse $more
    }

    method Resume {lines} {
        my Took $lines
        set written $sent
        catch {puts -nonewline $channel [::join $kept ""]; flush $channel}
        my UseRoom
    }

    # The agent knows nothing of this client any more. The program is told so of all that it had or waits for.
    method BeginAnew {welcome cause} {
        incr life
        my FailAll $cause
        my BeginCounting 1
        if {$closing} {return [my Say leave {}]}
        my Welcomed $welcome
        set mine {}
        foreach {name events} [array get groups] {
            if {[info object isa object $events] && [$events IsWanted]} {
                my Again join [list group [antiphon::json::quote $name] bundles true] [list GroupLost $name $cause]
                lappend mine $events $name
            } else {
                my EndGroup $name ;# it was about to be joined, or left
            }
        }
        foreach {served_ events} [array get served] {
            if {[info object isa object $events] && [$events IsWanted]} {
                my Again [lindex $served_ 0] [my ServeFields $served_] [list ServeLost $served_ $cause]
            }
        }
        foreach number [lsort -integer [array names held]] {my LoseHeld $number $cause}
        foreach {number events} [array get watches] {
            if {[info object isa object $events]} {$events End lost $cause}
        }
        array unset watches
        foreach {events name} $mine {
            my Put $events [list event resync group $name cause $cause] [string length $cause]
        }
    }

    # Asks for what this client had. `failed` is called with the reason if the agent refuses.
    method Again {op fields failed} {
        coroutine ::antiphon::coroutine[incr ::antiphon::lastCoroutine] [self] AskAgain $op $fields $failed
    }

    method AskAgain {op fields failed} {
        try {
            my Ask $op $fields
        } trap {ANTIPHON connection} {} {
            # Then it is asked for again, or the whole client is lost.
        } trap ANTIPHON {message} {
            my {*}$failed $message
        }
    }

    method GroupLost {name cause reason} {
        my TakeLost [list what group name $name cause "$cause, and could not join: $reason"] 0
    }

    method ServeLost {what cause reason} {
        my Cut "$cause, and could not [lindex $what 0] [lindex $what end]: $reason"
    }

    export ComeBack AskAgain Prepare
}

# Says the first line of a new connection. The agent's welcome, and what came behind it.
proc antiphon::Greet {channel line ms} {
    variable maxWelcome
    set until [expr {[clock milliseconds] + $ms}]
    fconfigure $channel -translation binary -blocking 0 -buffering full
    puts -nonewline $channel $line
    flush $channel
    set said ""
    while {[set end [string first \n $said]] < 0} {
        set number [BeginWait]
        fileevent $channel readable [list ::antiphon::EndWait $number there]
        set outcome [Wait $number [expr {max(0, $until - [clock milliseconds])}]]
        fileevent $channel readable {}
        if {$outcome eq "late"} {error "the agent did not answer"}
        append said [read $channel]
        if {[string first \n $said] < 0 && ([eof $channel] || [string length $said] > $maxWelcome)} {
            error "the agent closed the connection"
        }
    }
    set reply [json::parse [string range $said 0 $end-1]]
    if {[dict exists $reply welcome]} {return [list [dict get $reply welcome] [string range $said $end+1 end]]}
    # The name is still taken, the token is wrong, too many are there: this connection is not to be kept.
    catch {puts $channel "{\"leave\":{}}"; flush $channel}
    error [dict get [dict merge {reason "the agent did not welcome this client"} $reply \
        [expr {[dict exists $reply error] ? [dict get $reply error] : {}}]] reason]
}
