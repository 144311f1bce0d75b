const MOST_MS = 2 ** 31 - 1; // Node takes a longer time for 1 ms

/** Calls it after this time: never, if that is longer than a timer may be. */
export function after(ms, call) {
  return ms > MOST_MS ? undefined : setTimeout(call, ms);
}
