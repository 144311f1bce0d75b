/**
 * A client of the Antiphon agent of this host: groups with ordered messages and views, locks, leaders, maps,
 * counters and calls. {@link io.antiphon.Client#connect(String, String)} is where to begin.
 */
package io.antiphon;
