/** Something was not done. `ran` says whether it happened all the same: "no", "maybe" or "yes". */
export class AntiphonError extends Error {
  name = "AntiphonError";

  constructor(code, reason, ran = "no", { version, payload, failures = new Map() } = {}) {
    super(`${code}: ${reason}`);
    this.code = code;
    this.reason = reason;
    this.ran = ran;
    this.version = version; // of a conflict: what the key has
    this.payload = payload; // of a handler that failed: what it said
    this.failures = failures; // of a call: why each node gave no answer
  }
}

/** The connection to the agent is over. Connect again, as a new client; what this one held is free. */
export class ConnectionLost extends AntiphonError {
  name = "ConnectionLost";

  constructor(cause, ran = "maybe") {
    super("connection", cause, ran);
    this.cause = cause;
  }
}
