package antiphon

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// A Map has keys and values that all nodes share.
type Map struct {
	c    *Client
	name string
}

// Map is the map of this name. It is there as soon as it is used.
func (c *Client) Map(name string) *Map { return &Map{c, name} }

// An Item is what a key has. Version is 0 if it has no value; IfVersion takes it as it is.
type Item struct {
	Value   Payload
	Version uint64
}

// Get reads from the copy of the agent's node.
func (m *Map) Get(ctx context.Context, key string) (Item, error) {
	return m.item(ctx, "get", fields{"map": m.name, "key": key})
}

// Latest reads with all that was written before, anywhere.
func (m *Map) Latest(ctx context.Context, key string) (Item, error) {
	return m.item(ctx, "get", fields{"map": m.name, "key": key, "latest": true})
}

// A PutOption changes how a value is written.
type PutOption func(fields)

// IfVersion writes only if the key has this version; 0: only if it has no value. If not, the error is
// ErrConflict, with the Version that is there.
func IfVersion(version uint64) PutOption { return func(of fields) { of["if_version"] = version } }

// TTL has the value go after this time.
func TTL(d time.Duration) PutOption { return func(of fields) { of["ttl"] = span(d) } }

// Put writes a value, and gives its version.
func (m *Map) Put(ctx context.Context, key string, value []byte, options ...PutOption) (version uint64, err error) {
	of := fields{"map": m.name, "key": key, "value": Payload(value).plain()}
	for _, option := range options {
		option(of)
	}
	r, err := m.c.do(ctx, operation{op: "put", fields: of})
	if err != nil {
		return 0, err
	}
	return r.Version, nil
}

// Remove removes a value, and gives what the key had.
func (m *Map) Remove(ctx context.Context, key string) (Item, error) {
	return m.item(ctx, "remove", fields{"map": m.name, "key": key})
}

// RemoveIf removes a value if it has this version; see IfVersion.
func (m *Map) RemoveIf(ctx context.Context, key string, version uint64) (Item, error) {
	return m.item(ctx, "remove", fields{"map": m.name, "key": key, "if_version": version})
}

func (m *Map) item(ctx context.Context, op string, of fields) (Item, error) {
	r, err := m.c.do(ctx, operation{op: op, fields: of})
	if err != nil {
		return Item{}, err
	}
	item := Item{Version: r.Version}
	err = json.Unmarshal(r.Value, &item.Value)
	return item, err
}

// A Watch tells how a map changes.
type Watch struct {
	*stream
	id uint64
}

// Watch tells what a key has, and then each change. One goroutine reads it, until Close.
func (m *Map) Watch(ctx context.Context, key string) (*Watch, error) {
	return m.watch(ctx, fields{"map": m.name, "key": key})
}

// WatchPrefix is a Watch of all keys that begin so; with an empty prefix of all.
func (m *Map) WatchPrefix(ctx context.Context, prefix string) (*Watch, error) {
	return m.watch(ctx, fields{"map": m.name, "prefix": prefix})
}

func (m *Map) watch(ctx context.Context, of fields) (*Watch, error) {
	w := &Watch{}
	w.stream = &stream{c: m.c, overrun: func(any) any {
		m.c.later("cancel", fields{"of": w.id})
		w.lose("too much was unread while operations waited")
		return nil
	}}
	_, err := m.c.do(ctx, operation{
		op: "watch", fields: of,
		begin: func(id uint64) error {
			w.id, w.taken = id, id
			m.c.watches[id] = w
			return nil
		},
		settled: func(r *reply, wanted bool) {
			if r.Error != nil || !wanted {
				w.close()
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Next waits for the next event: io.EOF after Close, an error if the watch, the connection or the context is
// over.
func (w *Watch) Next(ctx context.Context) (MapEvent, error) { return as[MapEvent](w.next(ctx)) }

// Events is a loop of what Next gives. It ends after Close, and behind an error.
func (w *Watch) Events(ctx context.Context) iter.Seq2[MapEvent, error] { return all(ctx, w.Next) }

// Close ends the watch. What is unread is dropped.
func (w *Watch) Close() {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	w.close()
}

func (w *Watch) close() {
	if w.c.watches[w.id] == w {
		delete(w.c.watches, w.id)
		w.c.later("cancel", fields{"of": w.id})
	}
	w.discard()
}

// lose ends it behind what is unread.
func (w *Watch) lose(cause string) {
	delete(w.c.watches, w.id)
	w.end(&Error{Code: ErrLost, Reason: cause, Ran: RanNo})
}

// A Counter is a number that all nodes share.
type Counter struct {
	c    *Client
	name string
}

// Counter is the counter of this name. It is 0 before it is used.
func (c *Client) Counter(name string) *Counter { return &Counter{c, name} }

// Add adds to it, or subtracts, and gives its new value.
func (n *Counter) Add(ctx context.Context, by int64) (int64, error) {
	r, err := n.c.do(ctx, operation{op: "add", fields: fields{"counter": n.name, "by": by}})
	if err != nil {
		return 0, err
	}
	var value int64
	err = json.Unmarshal(r.Value, &value)
	return value, err
}

// TakeIDs takes as many numbers, of up to 4096, that no other caller is ever given: the first and those
// behind it.
func (c *Client) TakeIDs(ctx context.Context, count int) (first uint64, err error) {
	r, err := c.do(ctx, operation{op: "take_ids", fields: fields{"count": count}})
	if err != nil {
		return 0, err
	}
	return r.First, nil
}
