# One connection to an agent: commands out, lines in, and what each line is for.
#
#     channel -> Read -> Take -+-> asked     the reply to an operation, by its number
#                              +-> Events    what a group, a watch or a served verb is told
#                              +-> held      a lock or a leadership is over
#
# When one of the Events has more than the bound, the channel is not read, and TCP and the agent make the
# senders wait. One case is different: the reader of those events may wait for a reply itself, which is behind
# them. It can only wait for what was asked for after it took its last event. While there is such an
# operation, the channel is read on, and the events may grow to their greater bound.
#
# A client that comes back is mixed with Comeback. Then there may be no channel for a while, and lines wait.

namespace eval antiphon {
    variable maxLine [expr {64 << 20}]   ;# from the agent
    variable maxCommand [expr {4 << 20}]
    variable closeWithin 5000            ;# for leaving in order, in milliseconds
}

# `tls`: options of tls::import, to speak TLS.
proc antiphon::Open {address ms {tls ""}} {
    if {$tls ne "" && [catch {package require tls} why]} {
        error "-tls needs the package tls (tcl-tls of Debian): $why"
    }
    if {[regexp {^unix:(.+)$} $address -> path]} {
        if {$tls ne ""} {error "-tls is for addresses of TCP: leave it out at a Unix socket"}
        if {![file exists $path]} {FailToConnect "$address: there is no such socket"}
        # Tcl has no Unix sockets of its own.
        foreach {program arguments} [list socat [list - UNIX-CONNECT:$path] nc [list -U $path]] {
            set program [auto_execok $program]
            if {$program ne ""} {return [open |[list {*}$program {*}$arguments 2>@stderr] r+b]}
        }
        error "for an address that begins with unix: install socat, or nc of OpenBSD"
    }
    if {![regexp {^\[?(.+?)\]?:(\d+)$} $address -> host port]} {
        error "an address is \"host:port\" or \"unix:/path\", not \"$address\""
    }
    if {[catch {socket -async $host $port} channel]} {FailToConnect "$address: $channel"}
    set number [BeginWait]
    fileevent $channel writable [list ::antiphon::EndWait $number there]
    set outcome [Wait $number $ms]
    fileevent $channel writable {}
    set cause [expr {$outcome eq "late" ? "$address did not answer within [expr {$ms / 1000.0}] s" :
        [fconfigure $channel -error]}]
    if {$cause eq "" && $tls ne ""} {set cause [Shake $channel $host $ms $tls]}
    if {$cause eq ""} {return $channel}
    catch {close $channel}
    FailToConnect "$address: $cause"
}

# Begins TLS; what went wrong, if anything did.
proc antiphon::Shake {channel host ms tls} {
    set until [expr {[clock milliseconds] + $ms}]
    try {
        fconfigure $channel -translation binary -blocking 0
        set options [dict merge {-require 1} [expr {[regexp {[a-z]} $host] ? [list -servername $host] : {}}] $tls]
        tls::import $channel -command ::antiphon::Verify {*}$options
        while {![tls::handshake $channel]} {
            set number [BeginWait]
            fileevent $channel readable [list ::antiphon::EndWait $number there]
            set outcome [Wait $number [expr {max(0, $until - [clock milliseconds])}]]
            fileevent $channel readable {}
            if {$outcome eq "late"} {return "no handshake of TLS was done in time"}
        }
    } on error {message} {
        return $message
    }
    return ""
}

# Takes what OpenSSL verified, without the messages that the package writes by itself.
proc antiphon::Verify {option args} {
    if {$option eq "verify"} {return [lindex $args 3]}
}

proc antiphon::FailToConnect {cause} {
    tailcall Fail connection $cause cause $cause
}

oo::class create antiphon::Connection {
    variable channel bound over
    variable rest                   ;# the beginning of a line
    variable cause lastWords ends   ;# why it is over, as the agent said, and the waits for that
    variable closing
    variable asked whys             ;# operations by their numbers; those of `why` in their order
    variable sending                ;# the waits of commands that the connection does not take yet, by numbers
    variable waiting lastNumber     ;# the numbers of all that waits
    variable leaving                ;# groups that are being left, and the numbers of that
    variable full                   ;# the events for which the channel is not read
    variable groups watches served held lost
    variable life                   ;# how often it came back as a new client; numbers of requests are of one life

    constructor {theChannel theBound} {
        lassign [list $theBound 0 0 0 0] bound closing lastNumber over life
        foreach name {cause lastWords ends whys sending waiting leaving full} {set $name {}}
        foreach name {asked groups watches served held lost} {array set $name {}}
        my Attach $theChannel
    }

    destructor {
        if {!$over} {my Lose "this client closed the connection"}
    }

    method Attach {theChannel} {
        set channel $theChannel
        set rest {}
        fconfigure $channel -translation binary -blocking 0 -buffering full
        fileevent $channel readable [list [self] Read]
    }

    # Operations.

    method Check {} {
        if {$over} {antiphon::Fail connection $cause cause $cause}
    }

    # Asks for an operation, and waits for its reply.
    method Ask {op fields} {
        my AskBy Hand $op $fields
    }

    # Asks for what gives something back: it waits for no room.
    method AskNow {op fields} {
        my AskBy Keep $op $fields
    }

    method AskBy {how op fields} {
        set number [incr lastNumber]
        set name [dict get [dict merge {name "" group ""} $fields] [expr {$op eq "join" ? "group" : "name"}]]
        # Of a line that makes no sense the agent repeats the beginning. `why` is answered in its order.
        if {$op ne "why"} {set fields [list id $number {*}$fields]}
        set line [my Format $op $fields]
        if {$op eq "why"} {lappend whys $number}
        set asked($number) [list $op $name [set wait [antiphon::BeginWait]] {}]
        my AddWaiting $number
        my $how $number $line
        lassign [antiphon::Wait $wait] how result
        if {$how eq "error"} {antiphon::Fail {*}$result}
        return $result
    }

    # Sends a command that is not replied to; waits while the connection takes no more.
    method Tell {op fields} {
        set number [incr lastNumber]
        if {[my Hand $number [my Format $op $fields]]} return
        dict set sending $number [set wait [antiphon::BeginWait]]
        my AddWaiting $number
        lassign [antiphon::Wait $wait] outcome failure
        if {$outcome ne "written"} {antiphon::Fail {*}$failure}
    }

    # Sends a command, and waits for nothing.
    method Say {op fields} {
        my Write [my Format $op $fields]
    }

    method Format {op fields} {
        my Check
        set line [antiphon::json::command $op $fields]
        if {[string length $line] > $::antiphon::maxCommand} {
            antiphon::Fail refused "$op: [string length $line] bytes; a command has at most 4 MiB"
        }
        return $line
    }

    # Sends the line of what has this number. False if there is no room; then Written is called when there is.
    method Hand {number line} {
        my Keep $number $line
        if {![chan pending output $channel]} {return 1}
        fileevent $channel writable [list [self] Written]
        return 0
    }

    method Keep {number line} {
        my Write $line
    }

    method Write {line} {
        # If the connection is broken, Read comes to its end, behind what was said before.
        catch {puts -nonewline $channel $line; flush $channel}
        return
    }

    # Whether the agent did what a line says, as far as that is known without a reply. The line has a number if
    # lines are counted.
    method Ran {line} {return maybe}

    method Written {} {
        if {$channel ne ""} {fileevent $channel writable {}}
        foreach number [dict keys $sending] {my Sent $number written}
    }

    # Ends the wait of what is told and not asked.
    method Sent {number outcome} {
        if {![dict exists $sending $number]} return
        set wait [dict get $sending $number]
        dict unset sending $number
        dict unset waiting $number
        antiphon::EndWait $wait $outcome
    }

    method LastNumber {} {return $lastNumber}
    method Life {} {return $life}

    method GroupOf {name} {
        return [expr {[info exists groups($name)] ? $groups($name) : ""}]
    }

    method ForgetWatch {number} {
        set known [info exists watches($number)]
        unset -nocomplain watches($number)
        return $known
    }

    method IsHeld {number} {return [info exists held($number)]}

    method LostOf {number} {
        return [expr {[info exists lost($number)] ? $lost($number) : ""}]
    }

    method ForgetHeld {number} {
        unset -nocomplain held($number) lost($number)
    }

    # The bound of what is unread.

    method AddWaiting {number} {
        dict set waiting $number {}
        my ReadOn
    }

    # Leaving a group is one operation until this client is out. That is behind the reply, and what is unread of
    # other groups may be between them.
    method BeginLeave {name} {
        dict set leaving $name [incr lastNumber]
        my AddWaiting $lastNumber
    }

    method EndLeave {name} {
        if {![dict exists $leaving $name]} return
        dict unset waiting [dict get $leaving $name]
        dict unset leaving $name
    }

    method IsFull {} {
        if {$full eq "" || ![info object isa object $full]} {return 0}
        if {[$full Over] || [$full Bytes] <= $bound} {return 0} ;# what is over grows no more
        set takenAt [$full TakenAt]
        foreach number [dict keys $waiting] {
            if {$number > $takenAt} {return 0}
        }
        return 1
    }

    method ReadOn {} {
        if {$channel ne "" && ![my IsFull]} {fileevent $channel readable [list [self] Read]}
    }

    method Put {events event size} {
        if {![info object isa object $events]} return
        $events Put $event $size
        if {[$events Bytes] > $bound} {set full $events}
    }

    # What the agent says.

    method Read {} {
        if {[catch {read $channel 65536} data]} {return [my Break "the connection broke: $data"]}
        if {$data eq ""} {
            if {[eof $channel]} {my Break "the agent closed the connection"}
            return
        }
        my Parse $data
    }

    method Parse {data} {
        set start 0
        while {[set end [string first \n $data $start]] >= 0} {
            append rest [string range $data $start $end-1]
            set start [expr {$end + 1}]
            set line $rest
            set rest {}
            if {$line eq ""} continue
            if {[catch {my Take [antiphon::json::parse $line] [string length $line]} message]} {
                return [my Lose "the connection broke: $message"] ;# what waits is told, whatever it is
            }
            if {$over} return
        }
        append rest [string range $data $start end]
        if {[string length $rest] > $::antiphon::maxLine} {
            return [my Lose "the agent sent a line of more than $::antiphon::maxLine bytes"]
        }
        if {[my IsFull]} {fileevent $channel readable {}} ;# at most so much as was read at once too late
    }

    # Events of a newer agent are passed over.
    method Take {event size} {
        switch -- [dict get $event event] {
            message {
                dict set event text [encoding convertfrom utf-8 [dict get $event payload]]
                my Put [my GroupOf [dict get $event group]] [dict merge {safe 0 part 0} $event] $size
            }
            bundle {my Put [my GroupOf [dict get $event group]] [dict merge {safe 0} $event] $size}
            view {my Put [my GroupOf [dict get $event group]] [dict merge {causes {}} $event] $size}
            transitional - suspended - resync {my Put [my GroupOf [dict get $event group]] $event $size}
            group_left {my EndGroup [dict get $event group]}
            lost {my TakeLost $event $size}
            refused {my TakeRefused $event $size}
            watching - changed {my TakeOfWatch $event $size}
            request {
                set payload [dict get $event payload]
                set request [list group [dict get $event group] verb [dict get $event verb] \
                    sender [dict get $event from] payload $payload text [encoding convertfrom utf-8 $payload]]
                my TakeRequest [list serve [dict get $event group] [dict get $event verb]] $request $event $size
            }
            command {
                set request [list verb [dict get $event verb] sender [dict get $event from] \
                    args [dict get $event args]]
                my TakeRequest [list serve_command [dict get $event verb]] $request $event $size
            }
            reply {
                if {![dict exists $event id]} return
                if {[dict exists $event error]} {
                    my Finish [dict get $event id] error [my FailureOf $event]
                } else {
                    my Finish [dict get $event id] ok $event
                }
            }
            why {my Finish [lindex $whys 0] ok $event}
            error {my TakeError [dict get $event reason] [dict get $event request]}
        }
    }

    method TakeRequest {key request event size} {
        if {![info exists served($key)]} return
        my Put $served($key) [dict merge $request [list within [expr {[dict get $event within_ms] / 1000.0}] \
            number [dict get $event request] life $life]] $size
    }

    # The arguments of `Fail` for an error and what the reply has beside it.
    method FailureOf {reply} {
        set details [dict get $reply error]
        foreach name {version failures} {
            if {[dict exists $reply $name]} {dict set details $name [dict get $reply $name]}
        }
        list [dict get $details code] [dict get $details reason] {*}$details
    }

    method Finish {number how result} {
        if {![info exists asked($number)]} return
        lassign $asked($number) op name wait
        unset asked($number)
        dict unset waiting $number
        if {$op eq "why"} {set whys [lrange $whys 1 end]}
        if {$how eq "ok" && $op in {lock lead}} {set held($number) {}}
        set isGrant [expr {$how eq "ok" && $op in {lock lead join watch}}]
        antiphon::EndWait $wait [list $how $result] \
            [expr {$isGrant ? [list [self] GiveBack $op $number $name $result] : ""}]
    }

    # The coroutine that waited is gone, and what was granted all the same is given back.
    method GiveBack {op number name result} {
        if {$over} return
        switch -- $op {
            join {
                set group [my GroupOf [antiphon::json::parse [encoding convertto utf-8 $name]]]
                if {$group eq ""} return
                catch {$group destroy}
                my Say leave [list group $name]
            }
            watch {
                if {![info exists watches($number)]} return
                catch {$watches($number) destroy}
                unset watches($number)
                my Say cancel [list of $number]
            }
            default {
                if {![info exists held($number)]} return
                unset held($number)
                my Say [dict get {lock unlock lead resign} $op] [list name $name token [dict get $result token]]
            }
        }
        my ReadOn
    }

    method TakeLost {event size} {
        set name [dict get $event name]
        set why [dict get $event cause]
        switch -- [dict get $event what] {
            group {
                my Put [my GroupOf $name] [list event lost group $name cause $why] $size
                my EndGroup $name
            }
            watch {
                set number [dict get $event id]
                if {[info exists watches($number)]} {
                    if {[info object isa object $watches($number)]} {$watches($number) End lost $why}
                    unset watches($number)
                }
            }
            default {my LoseHeld [dict get $event id] $why}
        }
    }

    method TakeRefused {event size} {
        if {![dict exists $event request]} {
            if {[dict get $event group] eq ""} {set lastWords [dict get $event reason]}
            return
        }
        set sent [lindex [dict get $event request] 1]
        set told {{}} ;# long ones do not come back
        if {[dict exists $sent payload]} {dict set sent payloads [list [dict get $sent payload]]}
        if {[dict exists $sent payloads]} {
            set told [lmap payload [dict get $sent payloads] {
                list payload $payload text [encoding convertfrom utf-8 $payload]
            }]
        }
        foreach said $told {
            my Put [my GroupOf [dict get $event group]] [list event refused group [dict get $event group] \
                reason [dict get $event reason] {*}$said] $size
        }
    }

    method TakeOfWatch {event size} {
        if {![dict exists $event id] || ![info exists watches([dict get $event id])]} return
        if {[dict get $event event] eq "changed"} {
            dict set event text [encoding convertfrom utf-8 [dict get $event value]]
        }
        my Put $watches([dict get $event id]) [dict remove $event id] $size
    }

    # A command that the agent could not carry out, in place of a reply.
    method TakeError {reason request} {
        if {$request eq ""} {
            set lastWords $reason
        } elseif {[regexp {^\{"\w+":\{"id":(\d+)} $request -> number]} {
            my Finish $number error [list refused $reason]
        } elseif {[catch {dict get $request why}] == 0} {
            my Finish [lindex $whys 0] error [list refused $reason]
        } elseif {[catch {dict get [lindex $request 1] id} number] == 0} {
            my Finish $number error [list refused $reason]
        } elseif {[catch {lindex $request 0} op] || $op ni {send send_bundle answer cancel leave}} {
            my Cut "the agent did not understand a command: $reason"
        }
    }

    # The end.

    method EndGroup {name} {
        if {![info exists groups($name)]} return
        if {[info object isa object $groups($name)]} {$groups($name) End}
        unset groups($name)
        my EndLeave $name
    }

    method AllEvents {} {
        set all {}
        foreach registry {groups watches served} {
            foreach {key events} [array get $registry] {
                if {[info object isa object $events]} {lappend all $events}
            }
        }
        return $all
    }

    method LoseHeld {number why} {
        if {![info exists held($number)]} return
        set command $held($number)
        unset held($number)
        set lost($number) $why
        if {$command ne "" && !$closing} {after 0 [list ::antiphon::Run [list {*}$command $why]]}
    }

    method Cut {why} {
        if {$lastWords eq ""} {set lastWords $why}
        my Lose $why
    }

    method Break {why} {my Lose $why}

    method Lose {why} {
        if {$over} return
        set over 1
        catch {close $channel}
        set channel ""
        set cause [expr {$lastWords ne "" ? $lastWords : $closing ? "this client closed the connection" : $why}]
        set failure [list connection $cause ran maybe cause $cause]
        my FailAll $cause
        foreach events [my AllEvents] {
            if {$closing} {$events End} else {$events End {*}$failure}
        }
        foreach number [array names held] {my LoseHeld $number $cause}
        foreach wait $ends {antiphon::EndWait $wait over}
    }

    # All that is under way.
    method FailAll {cause} {
        foreach number [lsort -integer [array names asked]] {
            my Finish $number error [list connection $cause ran [my Ran [lindex $asked($number) 3]] cause $cause]
        }
        foreach number [dict keys $sending] {
            my Sent $number [list lost [list connection $cause ran [my Ran {}] cause $cause]]
        }
    }

    export BeginLeave EndLeave GiveBack
    export Ask AskNow Tell Say Read ReadOn Written LastNumber GroupOf ForgetWatch ForgetHeld IsHeld LostOf Cut Life
}
