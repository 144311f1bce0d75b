# JSON as the agent speaks it, over bytes.
#
# Values become what Tcl has for them: objects dictionaries, arrays lists, null nothing. A dictionary does not
# tell {"base64":"aGk="} from the text `base64 aGk=`. So payloads, which stand under `payload`, `value` and in
# `payloads` and `replies`, become bytes here already.

namespace eval antiphon::json {
    variable escapes {}
    for {set code 0} {$code < 32} {incr code} {
        lappend escapes [format %c $code] [format {\u%04x} $code]
    }
    lappend escapes \" \\\" \\ \\\\
    variable textBytes 600000 ;# a control character has six bytes in JSON, and a command may have 4 MiB
    variable bundleTextBytes 500000 ;# all texts of a bundle: the rest of its 1 MiB may stand beside them as base64
    variable token {"(?:[^"\\]|\\.)*"|[][{}]|[^][{}:,"\s]+}
}

proc antiphon::json::parse {line} {
    variable token
    set tokens [regexp -all -inline $token $line]
    set at 0
    return [Value text]
}

# The value at `at`, as `text`, as `bytes`, or as an object or an array of which `each` member is bytes. In `args`
# a member is none, whatever its name.
proc antiphon::json::Value {as} {
    upvar 1 tokens tokens at at
    set token [lindex $tokens $at]
    incr at
    switch -- [string index $token 0] {
        \" {return [if {$as eq "bytes"} {Bytes $token} else {Text $token}]}
        \[ {
            set list {}
            set kind [expr {$as eq "each" ? "bytes" : "text"}]
            while {[More \]]} {lappend list [Value $kind]}
            return $list
        }
        \{ {
            set object [dict create]
            while {[More \}]} {
                set name [Text [lindex $tokens $at]]
                incr at
                set isBytes [expr {$as eq "each" || $as ne "args" && $name in {payload value}}]
                set kind [expr {$name in {replies payloads} ? "each" : $name eq "args" ? "args" : "text"}]
                dict set object $name [Value [expr {$isBytes ? "bytes" : $kind}]]
            }
            if {$as eq "bytes" && [dict keys $object] eq "base64"} {
                return [binary decode base64 [dict get $object base64]]
            }
            return $object
        }
        n {return ""}
        t {return 1}
        f {return 0}
        default {return $token}
    }
}

proc antiphon::json::More {end} {
    upvar 1 tokens tokens at at
    if {$at >= [llength $tokens]} {error "not JSON: it ends too early"}
    if {[lindex $tokens $at] ne $end} {return 1}
    incr at
    return 0
}

proc antiphon::json::Text {token} {
    set text [encoding convertfrom utf-8 [string range $token 1 end-1]]
    return [if {[string first \\ $text] < 0} {set text} else {subst -nocommands -novariables $text}]
}

proc antiphon::json::Bytes {token} {
    # Without a detour over text, if no escape stands for more than one byte.
    if {[regexp {\\u(?:[^0]|0[^0]|00[^0-7])} $token]} {return [encoding convertto utf-8 [Text $token]]}
    set bytes [string range $token 1 end-1]
    return [if {[string first \\ $bytes] < 0} {set bytes} else {subst -nocommands -novariables $bytes}]
}

proc antiphon::json::quote {text} {
    variable escapes
    if {[regexp {[\x00-\x1f"\\]} $text]} {set text [string map $escapes $text]} ;# which takes long
    return \"$text\"
}

proc antiphon::json::quotes {list} {
    return \[[join [lmap text $list {quote $text}] ,]\]
}

# Those of a bundle, which is one line: each is a text up to its share.
proc antiphon::json::payloads {list binary} {
    variable bundleTextBytes
    set share [expr {max(1, $bundleTextBytes / [llength $list])}]
    return \[[join [lmap data $list {payload $data $binary $share}] ,]\]
}

# A payload: text, or bytes if it is `binary`.
proc antiphon::json::payload {data binary {most ""}} {
    variable textBytes
    if {$most eq ""} {set most $textBytes}
    if {!$binary} {
        if {[string bytelength $data] <= $most} {return [quote $data]}
        set data [Utf8 $data]
    }
    return "{\"base64\":\"[binary encode base64 $data]\"}"
}

# Text as bytes. Of an emoji that came from outside, `string range` may leave a half. That is no character, and
# U+FFFD takes its place.
proc antiphon::json::Utf8 {text} {
    set bytes [encoding convertto utf-8 $text]
    if {[string first \xed $bytes] >= 0} {regsub -all {\xed[\xa0-\xbf][\x80-\xbf]} $bytes \xef\xbf\xbd bytes}
    return $bytes
}

# A command as bytes. The fields are pairs of a name and JSON; those without JSON are left out.
proc antiphon::json::command {op fields} {
    set members {}
    dict for {name value} $fields {
        if {$value ne ""} {lappend members "\"$name\":$value"}
    }
    return [Utf8 "{\"$op\":{[join $members ,]}}\n"]
}
