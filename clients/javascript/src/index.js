/** A client of the Antiphon agent of this host. README.md shows it in a minute. */

export { connect, Client, Counter, Group, Leadership, Lock, SharedMap, Watch } from "./client.js";
export { AntiphonError, ConnectionLost } from "./errors.js";
