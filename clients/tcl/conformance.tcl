#!/usr/bin/env tclsh
# The driver of this client: see ../conformance/README.md.

lappend auto_path [file dirname [file normalize [info script]]]
package require antiphon

fconfigure stdin -translation binary -blocking 0
fconfigure stdout -translation binary -buffering line

set long {connect lock lead call} ;# what may wait for others does not hold up what follows
set utf8 ^(?:[join {
    {[\x00-\x7f]} {[\xc2-\xdf][\x80-\xbf]}
    {\xe0[\xa0-\xbf][\x80-\xbf]} {[\xe1-\xec\xee\xef][\x80-\xbf]{2}} {\xed[\x80-\x9f][\x80-\xbf]}
    {\xf0[\x90-\xbf][\x80-\xbf]{2}} {[\xf1-\xf3][\x80-\xbf]{3}} {\xf4[\x80-\x8f][\x80-\xbf]{2}}
} |])*$

# As JSON, in bytes: what a member is, its name tells.
proc json {name value} {
    switch -- $name {
        payload - value {
            if {![regexp $::utf8 $value]} {return "{\"base64\":\"[binary encode base64 $value]\"}"}
            return \"[string map $::antiphon::json::escapes $value]\"
        }
        ok - causes {return [object $value]}
        failures {return "{[join [lmap {node why} $value {string cat [json "" $node] : [object $why]}] ,]}"}
        replies {
            return "{[join [lmap {node reply} $value {
                string cat [json "" $node] : [json payload [dict get $reply payload]]
            }] ,]}"
        }
        error {return [object [dict remove $value cause]]}
        members - joined - left - crashed - transitional - nodes - facts {
            return \[[join [lmap one $value {json "" $one}] ,]\]
        }
        primary - safe {return [expr {$value ? "true" : "false"}]}
        id {if {[string is entier -strict $value]} {return $value}}
        number - seq - part - version - token - entries - first - count - sum {return $value}
        nothing {return null}
    }
    return [encoding convertto utf-8 [antiphon::json::quote $value]]
}

proc object {dict} {
    return "{[join [lmap {name value} $dict {
        set as [expr {$name eq "sum" ? "value" : $name eq "nothing" ? "ok" : $name}] ;# names that tell what they are
        string cat [json "" $as] : [json $name $value]
    }] ,]}"
}

proc say {args} {puts [object $args]}

# A payload of a command is bytes already, and text where it can be.
proc given {bytes} {
    if {[regexp $::utf8 $bytes]} {return [list [encoding convertfrom utf-8 $bytes] -binary 0]}
    return [list $bytes -binary 1]
}

proc some {command names} {
    concat {*}[lmap {name option} $names {
        expr {[dict exists $command $name] ? [list $option [dict get $command $name]] : [continue]}
    }]
}

# Stands between a client and its agent, since Tcl cannot shut down a socket that a client has.
namespace eval relay {
    variable to
    variable last {} ;# the ends of the last connection
    proc start {address} {
        variable to [split $address :]
        set listener [socket -server ::relay::accept -myaddr 127.0.0.1 0]
        return 127.0.0.1:[lindex [fconfigure $listener -sockname] 2]
    }
    proc accept {near args} {
        variable to
        variable last
        if {[catch {socket {*}$to} far]} {return [close $near]}
        set last [list $near $far]
        foreach end $last {fconfigure $end -translation binary -blocking 0 -buffering none}
        fcopy $near $far -command [list ::relay::cut $near $far]
        fcopy $far $near -command [list ::relay::cut $near $far]
    }
    proc cut {near far args} {
        variable last
        foreach end [list $near $far] {catch {close $end}}
        if {$near eq [lindex $last 0]} {set last {}}
    }
}

namespace eval do {
    variable client
    foreach name {groups held paused parked} {
        variable $name
        array set $name {}
    }

    proc connect {command} {
        variable client
        variable groups
        variable held
        set address [dict get $command address]
        if {[dict exists $command grace]} {set address [::relay::start $address]}
        set client [antiphon connect $address {*}[some $command {name -name grace -grace}]]
        array unset groups
        array unset held
        list member [$client member]
    }
    proc cut {command} {
        if {$::relay::last ne ""} {::relay::cut {*}$::relay::last}
    }
    proc close {command} {$::do::client close}
    proc members {command} {list nodes [dict get [$::do::client members] names]}
    proc why {command} {list facts [$::do::client why [dict get $command node]]}
    proc join {command} {
        variable groups
        variable paused
        set group [dict get $command group]
        set paused($group) 0
        set groups($group) [$::do::client join $group -command [list ::do::tell [list group $group]]]
        return
    }
    proc tell {of event} {
        variable paused
        variable parked
        set name [dict get $event event]
        set group [expr {[dict exists $of group] ? [dict get $of group] : ""}]
        if {$name eq "over"} {
            if {[dict get $event code] eq "connection"} {
                say event connection_lost {*}$of cause [dict get $event reason]
            } else {
                say event lost what watch {*}$of cause [dict get $event reason]
            }
            return
        }
        if {[dict exists $event gone]} {dict unset event value}
        say event $name {*}$of {*}[dict remove $event event group map text]
        while {$group ne "" && $paused($group)} {
            set parked($group) [info coroutine]
            yield
        }
    }
    proc leave {command} {$::do::groups([dict get $command group]) leave}
    proc send {command} {
        lassign [given [dict get $command payload]] payload option binary
        set options [some $command {safe -safe wait -wait}]
        $::do::groups([dict get $command group]) send $payload $option $binary {*}$options
    }
    proc send_bundle {command} {
        set payloads [lmap payload [dict get $command payloads] {given $payload}]
        set binary [expr {"1" in [lmap payload $payloads {lindex $payload 2}]}]
        set payloads [expr {$binary ? [dict get $command payloads] : [lmap payload $payloads {lindex $payload 0}]}]
        set options [some $command {safe -safe wait -wait}]
        $::do::groups([dict get $command group]) sendbundle $payloads -binary $binary {*}$options
    }
    proc pause {command} {
        variable paused
        set paused([dict get $command group]) 1
        return
    }
    proc resume {command} {
        variable paused
        variable parked
        set group [dict get $command group]
        set paused($group) 0
        if {[info exists parked($group)]} {after 0 $parked($group)}
        unset -nocomplain parked($group)
    }
    proc lock {command} {
        hold lock [dict get $command name] {*}[some $command {within -within}]
    }
    proc lead {command} {hold lead [dict get $command name]}
    proc hold {what name args} {
        variable held
        set held($name) [$::do::client $what $name {*}$args -lost [list ::do::lost $what $name]]
        list token [$held($name) token]
    }
    proc lost {what name cause} {say event lost what $what name $name cause $cause}
    proc unlock {command} {$::do::held([dict get $command name]) unlock}
    proc resign {command} {$::do::held([dict get $command name]) resign {*}[some $command {to -to}]}
    proc get {command} {
        item [$::do::client map [dict get $command map] get [dict get $command key] {*}[some $command {latest -latest}]]
    }
    proc put {command} {
        lassign [given [dict get $command value]] value option binary
        list version [$::do::client map [dict get $command map] put [dict get $command key] $value $option $binary \
            {*}[some $command {if_version -ifversion ttl -ttl}]]
    }
    proc remove {command} {
        item [$::do::client map [dict get $command map] remove [dict get $command key] \
            {*}[some $command {if_version -ifversion}]]
    }
    proc item {item} {dict remove $item text}
    proc watch {command} {
        set map [dict get $command map]
        set options [some $command {key -key prefix -prefix}]
        $::do::client map $map watch {*}$options -command [list ::do::tell [list map $map]]
        return
    }
    proc add {command} {list sum [$::do::client add [dict get $command counter] [dict get $command by]]}
    proc take_ids {command} {
        set ids [$::do::client takeids [dict get $command count]]
        list first [lindex $ids 0] count [llength $ids]
    }
    proc serve {command} {
        dict with command {$::do::client serve $group $verb [list ::do::answer $how] -binary 1}
    }
    proc answer {how request} {
        say event request group [dict get $request group] verb [dict get $request verb]
        switch -- $how {
            echo {return [dict get $request payload]}
            name {return [encoding convertto utf-8 [$::do::client member]]}
            error {error no}
            never {yield}
        }
    }
    proc call {command} {
        set to [if {[dict get $command to] in {any all}} {list -to [dict get $command to]} else {
            list -nodes [dict get $command to]
        }]
        set payload [expr {[dict exists $command payload] ? [dict get $command payload] : ""}]
        $::do::client call [dict get $command group] [dict get $command verb] $payload {*}$to -binary 1 \
            {*}[some $command {within -within}]
    }
}

proc obey {command} {
    set id [dict get $command id]
    try {
        set result [do::[dict get $command do] $command]
        if {$result eq ""} {say id $id nothing ""} else {say id $id ok $result}
    } trap ANTIPHON {message options} {
        say id $id error [lindex [dict get $options -errorcode] 2]
    } on error {message} {
        say id $id error [list code driver reason $message ran maybe]
    }
}

# Takes lines one after the other; what is long has a coroutine of its own.
proc take {} {
    set number 0
    set rest ""
    fileevent stdin readable [info coroutine]
    while {1} {
        append rest [read stdin]
        while {[set end [string first \n $rest]] >= 0} {
            set command [antiphon::json::parse [string range $rest 0 $end-1]]
            set rest [string range $rest $end+1 end]
            if {[dict get $command do] in $::long || [dict exists $command wait] && [dict get $command wait]} {
                coroutine ::long[incr number] obey $command
            } else {
                fileevent stdin readable {}
                obey $command
                fileevent stdin readable [info coroutine]
            }
        }
        if {[eof stdin]} exit
        yield
    }
}

coroutine ::taking take
vwait forever
