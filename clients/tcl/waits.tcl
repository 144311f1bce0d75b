# Waits, errors and options: what the rest of the package stands on.

package require Tcl 8.6
namespace eval antiphon {
    variable lastWait 0
    variable outcomes; array set outcomes {}  ;# of each wait, by its number; empty until there is one
    variable asleep; array set asleep {}      ;# the coroutine that has yielded, by the number of its wait
    namespace export connect
    namespace ensemble create
}

proc antiphon::BeginWait {} {
    variable lastWait
    variable outcomes
    set outcomes([incr lastWait]) {}
    return $lastWait
}

# Waits for the outcome. A coroutine yields; other code runs the event loop. After `ms` the outcome is `late`.
proc antiphon::Wait {number {ms ""}} {
    variable outcomes
    variable asleep
    set timer [expr {$ms eq "" ? "" : [after $ms [list ::antiphon::EndWait $number late]]}]
    while {$outcomes($number) eq ""} {
        if {[info coroutine] eq ""} {
            vwait ::antiphon::outcomes($number)
        } else {
            set asleep($number) [info coroutine]
            yield
        }
    }
    set outcome $outcomes($number)
    unset -nocomplain outcomes($number) asleep($number)
    after cancel $timer
    return $outcome
}

# Ends a wait. `unclaimed` is called if there is no coroutine any more that would learn of it.
proc antiphon::EndWait {number outcome {unclaimed ""}} {
    variable outcomes
    variable asleep
    if {![info exists outcomes($number)] || $outcomes($number) ne ""} return
    set outcomes($number) $outcome
    if {[info exists asleep($number)]} {after 0 [list ::antiphon::Resume $number $unclaimed]}
}

# Other scripts ran since the wait was ended, and may have deleted the coroutine.
proc antiphon::Resume {number unclaimed} {
    variable outcomes
    variable asleep
    if {![info exists asleep($number)]} return
    if {[namespace which -command $asleep($number)] ne ""} {return [$asleep($number)]}
    unset outcomes($number) asleep($number)
    if {[namespace which -command [lindex $unclaimed 0]] ne ""} $unclaimed
}

# Runs a script of the program; what goes wrong in it is told as of any event's script.
proc antiphon::Run {script} {
    try {
        uplevel #0 $script
    } on error {message options} {
        {*}[interp bgerror {}] $message $options
    }
}

# An error of this package: the error code is ANTIPHON, the code, and a dictionary of all there is to know.
proc antiphon::Fail {code reason args} {
    set details [dict merge [dict create code $code reason $reason ran no] $args]
    return -code error -level 2 -errorcode [list ANTIPHON $code $details] "$code: $reason"
}

# The options that are given, over the defaults; others are refused.
proc antiphon::Options {given defaults} {
    set names [dict keys $defaults]
    if {[llength $given] % 2} {
        return -code error -level 2 "[lindex $given end] has no value: options are pairs, of [join $names {, }]"
    }
    foreach name [dict keys $given] {
        if {$name ni $names} {return -code error -level 2 "bad option \"$name\": must be [join $names {, }]"}
    }
    return [dict merge $defaults $given]
}

# A time in seconds as the agent reads it; nothing for nothing.
proc antiphon::Span {seconds} {
    if {$seconds eq ""} {return ""}
    return [Milliseconds $seconds]ms
}

proc antiphon::Milliseconds {seconds} {
    if {$seconds eq ""} {return ""}
    if {![string is double -strict $seconds] || $seconds < 0 || $seconds > 1e12} {
        return -code error "a time is a number of seconds, not \"$seconds\""
    }
    return [expr {wide(ceil($seconds * 1000))}]
}

# A whole number, of up to 64 bits, as it stands in a command: there it may not begin with zeros. Nothing for
# nothing.
proc antiphon::Whole {number} {
    if {$number eq ""} {return ""}
    if {![regexp {^(-?)0*(\d{1,20})$} $number -> sign digits]} {error "expected a whole number, not \"$number\""}
    return $sign$digits
}
