# A client: what a program has of one connection to an agent.

# A client of the agent at "host:port" or "unix:/path". `-name`: what it is called in groups. `-within`:
# seconds, for the connection and the agent's first answer. `-buffer`: bytes that may be unread of a group, a
# watch or a served verb. `-grace`: for so many seconds it comes back when its connection breaks. `-token`: what
# the agent asks for. `-tls`: options of tls::import, to speak TLS.
proc antiphon::connect {address args} {
    set given [Options $args {-name "" -within 10 -buffer 1048576 -grace 0 -token "" -tls ""}]
    set ms [Milliseconds [dict get $given -within]]
    set grace [Milliseconds [dict get $given -grace]]
    if {$grace > 10000} {error "-grace is at most 10 s, not [dict get $given -grace]"}
    set hello {}
    foreach option {-name -token} {
        set value [dict get $given $option]
        if {$value ne ""} {lappend hello [string range $option 1 end] [json::quote $value]}
    }
    set client [Client new [Open $address $ms [dict get $given -tls]] [dict get $given -buffer]]
    if {$grace} {
        lappend hello grace "\"${grace}ms\""
        oo::objdefine $client mixin Comeback
        $client Prepare $grace $hello $address [dict get $given -tls]
    }
    set timer [after $ms [list $client Cut "$address did not answer within [dict get $given -within] s"]]
    try {
        $client Hello $hello
    } on error {message options} {
        $client destroy
        return -options $options $message
    } finally {
        after cancel $timer
    }
    return $client
}

oo::class create antiphon::Client {
    superclass antiphon::Connection
    variable over closing ends groups watches served held lost ;# of the connection
    variable welcome lastName

    constructor {args} {
        set lastName 0
        next {*}$args
    }


    method name {} {return [dict get $welcome client]}
    method node {} {return [dict get $welcome node]}
    method cluster {} {return [dict get $welcome cluster]}
    # What this client is called in groups.
    method member {} {return [my node]/[my name]}

    # A group to take events from. `-command`: is called with each event instead, in a coroutine.
    method join {group args} {
        set command [dict get [antiphon::Options $args {-command ""}] -command]
        my Check
        if {[info exists groups($group)]} {antiphon::Fail refused "this client has joined $group already"}
        set groups($group) [antiphon::Group create [my NewName] [self] $group]
        set joined $groups($group)
        try {
            my Ask join [list group [antiphon::json::quote $group] bundles true]
        } on error {message options} {
            if {[info object isa object $joined]} {$joined destroy}
            catch {unset groups($group)}
            return -options $options $message
        }
        my Begin $command $joined Follow $command
        return $joined
    }

    # Waits until the lock is held; `-within`: at most so many seconds. `-lost`: is called with the cause if
    # it is lost.
    method lock {name args} {
        set given [antiphon::Options $args {-within "" -lost ""}]
        set within [antiphon::Span [dict get $given -within]]
        set limit [expr {$within eq "" ? "" : "\"$within\""}]
        my Hold antiphon::Lock lock $name [list within $limit] [dict get $given -lost]
    }

    # Waits until this client leads the job.
    method lead {job args} {
        my Hold antiphon::Leadership lead $job {} [dict get [antiphon::Options $args {-lost ""}] -lost]
    }

    # get KEY ?-latest 1?, put KEY VALUE ?-ifversion V? ?-ttl SECONDS? ?-binary 1?, remove KEY ?-ifversion V?,
    # watch ?-key K? ?-prefix P? ?-command C?
    method map {map do args} {
        set methods {get MapGet put MapPut remove MapRemove watch MapWatch}
        if {![dict exists $methods $do]} {error "bad operation \"$do\": must be [join [dict keys $methods] {, }]"}
        my [dict get $methods $do] [antiphon::json::quote $map] {*}$args
    }

    method MapGet {map key args} {
        set latest [dict get [antiphon::Options $args {-latest 0}] -latest]
        my Item [my Ask get [list map $map key [antiphon::json::quote $key] latest [expr {$latest ? "true" : ""}]]]
    }

    method MapPut {map key value args} {
        set given [antiphon::Options $args {-ifversion "" -ttl "" -binary 0}]
        set ttl [antiphon::Span [dict get $given -ttl]]
        set fields [list map $map key [antiphon::json::quote $key] \
            value [antiphon::json::payload $value [dict get $given -binary]] \
            if_version [antiphon::Whole [dict get $given -ifversion]] ttl [expr {$ttl eq "" ? "" : "\"$ttl\""}]]
        dict get [my Ask put $fields] version
    }

    method MapRemove {map key args} {
        set version [antiphon::Whole [dict get [antiphon::Options $args {-ifversion ""}] -ifversion]]
        my Item [my Ask remove [list map $map key [antiphon::json::quote $key] if_version $version]]
    }

    method MapWatch {map args} {
        set given [antiphon::Options $args {-key "" -prefix "" -command ""}]
        set fields [list map $map]
        foreach option {-key -prefix} {
            if {[dict exists $args $option]} {
                lappend fields [string range $option 1 end] [antiphon::json::quote [dict get $given $option]]
            }
        }
        my Check
        set number [expr {[my LastNumber] + 1}]
        set watch [antiphon::Watch create [my NewName] [self] $number]
        set watches($number) $watch
        try {
            my Ask watch $fields
        } on error {message options} {
            if {[info object isa object $watch]} {$watch destroy}
            catch {unset watches($number)}
            return -options $options $message
        }
        my Begin [dict get $given -command] $watch Follow [dict get $given -command]
        return $watch
    }

    # Adds to a counter; its new value.
    method add {counter {by 1}} {
        dict get [my Ask add [list counter [antiphon::json::quote $counter] by [antiphon::Whole $by]]] value
    }

    # Numbers that no other caller is ever given.
    method takeids {{count 1}} {
        set count [antiphon::Whole $count]
        set first [dict get [my Ask take_ids [list count $count]] first]
        set ids {}
        for {set at 0} {$at < $count} {incr at} {lappend ids [expr {$first + $at}]}
        return $ids
    }

    # Answers such requests with what the command returns for each, one after the other, in a coroutine.
    method serve {group verb command args} {
        my Serve [list serve $group $verb] $command $args
    }

    # Answers commands of a verb that the list delivers to sessions, likewise.
    method servecommand {verb command args} {
        my Serve [list serve_command $verb] $command $args
    }

    method Serve {key command options} {
        set binary [dict get [antiphon::Options $options {-binary 0}] -binary]
        my Check
        if {[info exists served($key)]} {antiphon::Fail refused "this client serves [lindex $key end] already"}
        set served($key) [antiphon::Served create [my NewName] [self]]
        set serves $served($key)
        try {
            my Ask [lindex $key 0] [my ServeFields $key]
        } on error {message options} {
            if {[info object isa object $serves]} {$serves destroy}
            catch {unset served($key)}
            return -options $options $message
        }
        my Begin $command $serves Answer $command $binary
        return
    }

    method ServeFields {key} {
        set verb [list verb [antiphon::json::quote [lindex $key end]]]
        if {[lindex $key 0] eq "serve"} {lappend verb group [antiphon::json::quote [lindex $key 1]]}
        return $verb
    }

    # `-to any` or `-to all`, or `-nodes LIST`. A dictionary of `replies` and `failures` by nodes; an error if
    # no node answered.
    method call {group verb payload args} {
        set given [antiphon::Options $args {-to any -nodes "" -within "" -binary 0}]
        set within [antiphon::Span [dict get $given -within]]
        set to [if {[dict exists $args -nodes]} {antiphon::json::quotes [dict get $given -nodes]
        } else {antiphon::json::quote [dict get $given -to]}]
        my Answers [my Ask call [list group [antiphon::json::quote $group] verb [antiphon::json::quote $verb] to $to \
            payload [antiphon::json::payload $payload [dict get $given -binary]] \
            within [expr {$within eq "" ? "" : "\"$within\""}]]]
    }

    # Has nodes do what their lists of commands allow. `-to all`, `one` or `any`, or `-nodes LIST`.
    # `arguments`: a dictionary; whole numbers, true and false go as such, but those that `-text` names.
    # `-by`: the way. `-reply 0`: until it is in the queues.
    method command {verb arguments args} {
        set given [antiphon::Options $args {-to "" -nodes "" -by "" -reply 1 -within "" -text ""}]
        set within [antiphon::Span [dict get $given -within]]
        set by [dict get $given -by]
        set to [if {[dict exists $args -nodes]} {antiphon::json::quotes [dict get $given -nodes]
        } else {antiphon::json::quote [dict get $given -to]}]
        if {$to eq {""}} {error "which nodes? Give -to all, one or any, or -nodes LIST"}
        set members [lmap {name value} $arguments {
            set isPlain [regexp {^(?:-?(?:0|[1-9]\d{0,18})|true|false)$} $value]
            if {!$isPlain || $name in [dict get $given -text]} {set value [antiphon::json::quote $value]}
            string cat [antiphon::json::quote $name] : $value
        }]
        my Answers [my Ask command [list verb [antiphon::json::quote $verb] args "{[join $members ,]}" to $to \
            by [expr {$by eq "" ? "" : [antiphon::json::quote $by]}] \
            reply [expr {[dict get $given -reply] ? "" : "false"}] \
            within [expr {$within eq "" ? "" : "\"$within\""}]]]
    }

    # The list's version, and what commands to peers did.
    method commands {} {
        dict get [my Ask commands {}] commands
    }

    method Answers {reply} {
        set reply [dict merge {replies {} failures {}} $reply]
        set replies [dict map {node payload} [dict get $reply replies] {
            list payload $payload text [encoding convertfrom utf-8 $payload]
        }]
        list replies $replies failures [dict get $reply failures]
    }

    # The cluster's present view: its `nodes`, the elder first, and their `names`.
    method members {} {
        set view [dict get [my Ask members {}] view]
        set nodes [dict get $view members]
        list id [dict get $view id] number [dict get $view number] primary [dict get $view primary] \
            names [lmap node $nodes {dict get $node name}] nodes $nodes
    }

    # What is known about a node, present or gone.
    method why {node} {
        dict get [my Ask why [list node [antiphon::json::quote $node]]] facts
    }

    # Leaves everything in order. The command is gone then, and those of all that it made.
    method close {} {
        set self [self]
        set closing 1
        foreach events [my AllEvents] {$events Drop}
        if {!$over} {
            my Say leave {}
            lappend ends [set number [antiphon::BeginWait]]
            antiphon::Wait $number $::antiphon::closeWithin
        }
        if {[info object isa object $self]} {$self destroy}
    }

    # What these stand on.

    method Hello {fields} {
        my Welcomed [dict get [my Ask hello $fields] welcome]
    }

    method Welcomed {theWelcome} {set welcome $theWelcome}

    method Hold {class op name fields command} {
        set reply [my Ask $op [list name [antiphon::json::quote $name] {*}$fields]]
        set number [dict get $reply id]
        set lock [$class create [my NewName] [self] $number $name [dict get $reply token]]
        if {[info exists held($number)]} {
            set held($number) $command
        } elseif {$command ne ""} {
            after 0 [list ::antiphon::Run [list {*}$command $lost($number)]]
        }
        return $lock
    }

    method Item {reply} {
        if {![dict exists $reply version]} {return {}}
        set value [dict get $reply value]
        list value $value text [encoding convertfrom utf-8 $value] version [dict get $reply version]
    }

    method NewName {} {
        return [self namespace]::[incr lastName]
    }

    # Has events handled in a coroutine, once the caller knows of them. Without a command the program takes them.
    method Begin {command events args} {
        $events Begun
        if {$command ne ""} {after 0 [list ::antiphon::Start $events {*}$args]}
    }

    export Hello
}

namespace eval antiphon {variable lastCoroutine 0}

proc antiphon::Start {events args} {
    variable lastCoroutine
    if {[info object isa object $events]} {
        coroutine ::antiphon::coroutine[incr lastCoroutine] $events {*}$args
    }
}

# What is held. Give the token to what it protects: that refuses a lower one than it has seen.
oo::class create antiphon::Held {
    variable client number name token

    constructor {theClient theNumber theName theToken} {
        lassign [list $theClient $theNumber $theName $theToken] client number name token
    }

    destructor {
        if {[info object isa object $client]} {$client ForgetHeld $number}
    }

    method name {} {return $name}
    method token {} {return $token}
    method isheld {} {return [$client IsHeld $number]}
    # Why it was lost; empty if it was not.
    method lost {} {return [$client LostOf $number]}

    method GiveBack {op to} {
        set self [self]
        try {
            $client AskNow $op [list name [antiphon::json::quote $name] token $token to $to]
        } on error {message options} {
            # Without `to` the agent holds it no more, whatever its reply is. If a job cannot be handed over, the agent
            # leads on. What is lost is remembered.
            if {$to eq "" && [info object isa object $self] && [info object isa object $client] && [my isheld]} {
                $client ForgetHeld $number
            }
            return -options $options $message
        }
        if {[info object isa object $self]} {$self destroy}
    }
}

# A lock. The command is gone when it is given back.
oo::class create antiphon::Lock {
    superclass antiphon::Held

    method unlock {} {my GiveBack unlock ""}
}

# A job that this client leads. The command is gone when it is given back.
oo::class create antiphon::Leadership {
    superclass antiphon::Held

    # `-to`: the node that leads next, which must wait for it; else the one that has waited longest.
    method resign {args} {
        set to [dict get [antiphon::Options $args {-to ""}] -to]
        my GiveBack resign [expr {$to eq "" ? "" : [antiphon::json::quote $to]}]
    }
}
