/** Payloads and values: a string is taken as UTF-8. */
export type Payload = string | Uint8Array;

/** Whether it happened all the same. */
export type Ran = "no" | "maybe" | "yes";

export type Code =
  | "conflict" | "timeout" | "cancelled" | "not_held" | "lost" | "unavailable" | "refused" | "unknown" | "failed"
  | "connection";

/** Something was not done. */
export class AntiphonError extends Error {
  readonly code: Code;
  readonly reason: string;
  /** "no": trying again is safe. */
  readonly ran: Ran;
  /** Of a conflict: what the key has. */
  readonly version?: bigint;
  /** Of a handler that failed: what it said. */
  readonly payload?: Uint8Array;
  /** Of a call: why each node gave no answer. */
  readonly failures: Map<string, AntiphonError>;
}

/** The connection to the agent is over. Connect again, as a new client; what this one held is free. */
export class ConnectionLost extends AntiphonError {
  readonly cause: string;
}

export interface ConnectOptions {
  /** What the client is called in groups; without it the agent gives it a name. */
  name?: string;
  /** For the connection and the agent's first answer; 10000 if left out. */
  timeoutMs?: number;
  /** What may be unread of a group, a watch or a served verb; 1 MiB if left out. */
  bufferBytes?: number;
  /** For so long, up to 10000, the client comes back when its connection breaks; not at all if left out. */
  graceMs?: number;
  /** What the agent asks for at its addresses of TCP. */
  token?: string;
  /** The agent speaks TLS: `true`, or options of `tls.connect`, such as `ca`, `cert`, `key`. */
  tls?: boolean | object;
}

/** A client of the agent at "host:port" or "unix:/path". */
export function connect(address: string, options?: ConnectOptions): Promise<Client>;

export class Client implements AsyncDisposable {
  private constructor();
  readonly name: string;
  readonly node: string;
  readonly cluster: string;
  readonly build: string;
  /** What this client is called in groups: NODE/CLIENT. */
  readonly member: string;

  join(group: string): Promise<Group>;
  /** Waits until the lock is held: at most `withinMs`, and until `signal` is aborted. */
  lock(name: string, options?: { withinMs?: number; signal?: AbortSignal }): Promise<Lock>;
  /** Waits until this client leads the job. */
  lead(job: string, options?: { signal?: AbortSignal }): Promise<Leadership>;
  map(name: string): SharedMap;
  counter(name: string): Counter;
  /** Numbers that no other caller is ever given; up to 4096 at once. */
  takeIds(count?: number): Promise<bigint[]>;
  /** Answers such requests with what the handler returns, one after the other. What it throws, the caller is told. */
  serve(group: string, verb: string, handler: Handler): Promise<void>;
  /** An error if none answered; 10000 ms if `withinMs` is left out. */
  call(group: string, verb: string, payload?: Payload, options?: CallOptions): Promise<Answers>;
  /**
   * Has nodes do what their lists of commands allow; an error if none did it. `to`: "all" that may be asked,
   * "one", "any" (the next one, as long as it is certain that none did it), or nodes by name.
   */
  command(verb: string, args: CommandArgs, to: CommandTo, options?: CommandOptions): Promise<Answers>;
  /** Answers commands of a verb that the list delivers to sessions, as `serve` does. */
  serveCommand(verb: string, handler: CommandHandler): Promise<void>;
  /** The list's version, and what commands to peers did. */
  commands(): Promise<Record<string, unknown>>;
  /** The nodes of the cluster, the elder first. */
  members(): Promise<Members>;
  /** What is known about a node, present or gone. */
  why(node: string): Promise<string[]>;
  /** Leaves everything in order. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

type Answer = Payload | undefined | void | Promise<Payload | undefined | void>;
export type Handler = (request: Request) => Answer;
export type CommandHandler = (command: Command) => Answer;

/** What the list says; whole numbers that come with 16 digits or more are strings. */
export type CommandArgs = Readonly<Record<string, string | number | boolean>>;
export type CommandTo = "all" | "one" | "any" | readonly string[];

export interface CommandOptions {
  /** The way to the peer; "library" if left out. */
  by?: "library" | "http" | "https" | "http_kept" | "https_kept" | "websocket" | "resp" | "udp";
  /** false: until it is in the queues, whatever peers do. */
  reply?: boolean;
  /** As long as the list says if left out. */
  withinMs?: number;
  signal?: AbortSignal;
}

export interface CallOptions {
  /** "any" member that serves the verb, "all", or nodes by name. "any" if left out. */
  to?: "any" | "all" | readonly string[];
  withinMs?: number;
  signal?: AbortSignal;
}

interface Events<E> extends AsyncIterable<E> {
  /** The next event, or undefined behind the last; a `timeout` error if none comes in time. */
  nextEvent(withinMs?: number): Promise<E | undefined>;
}

/** A group that this client is in. */
export interface Group extends Events<GroupEvent> {}
export class Group implements AsyncDisposable {
  private constructor();
  readonly name: string;
  /** Says it to all members. `wait`: until it is delivered. `safe`: only when every node of the group holds it. */
  send(payload: Payload, options?: { safe?: boolean; wait?: boolean }): Promise<void>;
  /** Says several things in one line. All members are told all of them, with nothing in between, or none. */
  sendBundle(payloads: readonly Payload[], options?: { safe?: boolean; wait?: boolean }): Promise<void>;
  /** What is unread is dropped. */
  leave(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

declare class Held {
  readonly name: string;
  /** Give it to what is protected: that refuses a lower one than it has seen. */
  readonly token: bigint;
  /** Is aborted when it is lost; its `reason` is an AntiphonError with the cause as `reason`. */
  readonly lost: AbortSignal;
  readonly isHeld: boolean;
}

/** A lock that is held. */
export class Lock extends Held implements AsyncDisposable {
  private constructor();
  unlock(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A job that this client leads. */
export class Leadership extends Held implements AsyncDisposable {
  private constructor();
  /** `to`: the node that leads next, which must wait for it; else the one that has waited longest. */
  resign(options?: { to?: string }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

export interface Item {
  readonly value: Uint8Array;
  readonly text: string;
  readonly version: bigint;
}

/** Keys and values that all nodes share. */
export class SharedMap {
  private constructor();
  readonly name: string;
  /** `latest`: with all that was written before, anywhere. */
  get(key: string, options?: { latest?: boolean }): Promise<Item | null>;
  /** The new version. `ifVersion`: only if the key has this one; 0: only if it has no value. */
  put(key: string, value: Payload, options?: { ifVersion?: bigint | 0; ttlMs?: number }): Promise<bigint>;
  /** What it had. */
  remove(key: string, options?: { ifVersion?: bigint }): Promise<Item | null>;
  /** What is there, and then each change: of one key, of those with a prefix, or of all. */
  watch(of?: { key?: string } | { prefix?: string }): Promise<Watch>;
}

/** A watch of a map. */
export interface Watch extends Events<WatchEvent> {}
export class Watch implements AsyncDisposable {
  private constructor();
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** A number that all nodes share. */
export class Counter {
  private constructor();
  readonly name: string;
  /** Its new value. */
  add(by?: number | bigint): Promise<bigint>;
}

/** The members of a group, as NODE/CLIENT: messages that follow are delivered among these. */
export interface View {
  readonly type: "view";
  readonly group: string;
  readonly id: string;
  readonly members: readonly string[];
  readonly joined: readonly string[];
  readonly left: readonly string[];
  readonly crashed: readonly string[];
  /** Why each of `crashed` is gone. */
  readonly causes: Readonly<Record<string, string>>;
  readonly transitional: readonly string[];
  readonly primary: boolean;
}

/** Something that a member has sent, in the group's order. */
export interface Message {
  readonly type: "message";
  readonly group: string;
  readonly view: string;
  readonly sender: string;
  readonly seq: number;
  /** Of a bundle, whose messages have one `seq`; 0 if it was sent alone. */
  readonly part: number;
  readonly payload: Uint8Array;
  readonly text: string;
  readonly safe: boolean;
}

/** What follows until the group's next view is completed among these members. */
export interface Transitional {
  readonly type: "transitional";
  readonly group: string;
  readonly members: readonly string[];
}

/** Nothing is delivered and nothing can be sent until there is a majority. */
export interface Suspended {
  readonly type: "suspended";
  readonly group: string;
}

/**
 * The agent's node was away, or this client came back as a new one: what it knows of the group may be old. A
 * view follows.
 */
export interface Resync {
  readonly type: "resync";
  readonly group: string;
  readonly cause: string;
}

/** This client is out of the group, and the iteration ends. It may join again. */
export interface Lost {
  readonly type: "lost";
  readonly group: string;
  readonly cause: string;
}

/**
 * A message of this client, sent without `wait`, was not taken. A long payload does not come back: it is null, and of
 * a bundle there is one such event.
 */
export interface Refused {
  readonly type: "refused";
  readonly group: string;
  readonly reason: string;
  readonly payload: Uint8Array | null;
  readonly text: string | null;
}

export type GroupEvent = View | Message | Transitional | Suspended | Resync | Lost | Refused;

/** A watch begins, or begins anew: as many `changed` follow as there are entries. */
export interface Watching {
  readonly type: "watching";
  readonly entries: number;
}

/** A key's value; null, with `gone`, if it has none any more. */
export interface Changed {
  readonly type: "changed";
  readonly key: string;
  readonly value: Uint8Array | null;
  readonly text: string | null;
  readonly version: bigint;
  readonly gone?: "removed" | "expired";
}

export type WatchEvent = Watching | Changed;

/** What a member of the cluster wants done. `withinMs` is how long it waits. */
export interface Request {
  readonly group: string;
  readonly verb: string;
  readonly sender: string;
  readonly payload: Uint8Array;
  readonly text: string;
  readonly withinMs: number;
}

/** What a node wants done, of the list of commands. `withinMs` is how long it waits. */
export interface Command {
  readonly verb: string;
  readonly sender: string;
  readonly args: CommandArgs;
  readonly withinMs: number;
}

/** What nodes answered to a call or a command, and why the others did not, by their names. */
export interface Answers {
  readonly replies: Map<string, { readonly payload: Uint8Array; readonly text: string }>;
  readonly failures: Map<string, AntiphonError>;
}

/** The cluster's present view. */
export interface Members {
  readonly id: string;
  readonly number: bigint;
  readonly primary: boolean;
  readonly nodes: readonly {
    readonly name: string;
    readonly incarnation: string;
    readonly addr: string;
    readonly metadata: Readonly<Record<string, string>>;
  }[];
  readonly names: readonly string[];
}
