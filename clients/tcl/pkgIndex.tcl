package ifneeded antiphon 0.1.0 [list apply {dir {
    foreach file {waits.tcl json.tcl events.tcl connection.tcl comeback.tcl client.tcl} {
        uplevel #0 [list source [file join $dir $file]]
    }
    package provide antiphon 0.1.0
}} $dir]
