// Package antiphon is a client of the Antiphon agent of this host: groups with ordered messages and views,
// locks, leaders, maps, counters and calls.
//
//	client, err := antiphon.Connect(ctx, "127.0.0.1:7480", "ann")
//	group, err := client.Join(ctx, "chat")
//	err = group.Send(ctx, []byte("hello"))
//	for event, err := range group.Events(ctx) { … }
//
// A Client is one connection, and may be used by many goroutines. Nothing connects again by itself, since
// what was held would not come back.
//
// # Back-pressure
//
// One connection brings everything in one order. Each group, each watch and each served verb has a buffer;
// when one is full, the client stops reading, and the agent and the senders wait. See README.md for the one
// exception, without which a goroutine that reads a group could not wait for a reply.
package antiphon

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	bufferBytes   = 1 << 20  // of what is unread in a group, before the reading stops
	mostBytes     = 64 << 20 // of the same, while its reader may wait for a reply
	maxLineBytes  = 64 << 20 // more than any line of an agent has
	outgoingBytes = 64 << 10 // of lines that wait to be written; then operations wait
	mostOutgoing  = 16 << 20 // of the same, with those that give something back and do not wait
	closeWithin   = 5 * time.Second
)

// A Client is one connection to an agent.
type Client struct {
	conn    net.Conn
	welcome Welcome
	ctx     context.Context // until the connection is over; its cause is an *Error
	end     context.CancelCauseFunc
	settings

	mu        sync.Mutex
	closing   bool
	lastWords string // of the agent, on why it ends the connection

	outgoing []byte // lines to be written
	wake     bell   // there are some
	room     bell   // there are few

	lastID  uint64
	asked   map[uint64]*question // what the agent is to reply to
	waiting map[uint64]struct{}  // goroutines that wait for a reply, or to send, by when they began to
	full    map[*stream]struct{}
	gate    bell // the reader may go on

	groups  map[string]*Group
	watches map[uint64]*Watch
	served  map[verb]*stream
	held    map[uint64]*Lock
}

type settings struct {
	bufferBytes, mostBytes, maxLineBytes int

	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// An Option changes how Connect connects.
type Option func(*settings)

// BufferBytes bounds what is unread of each group, watch and served verb. It is 1 MiB if not given.
func BufferBytes(bytes int) Option { return func(s *settings) { s.bufferBytes = bytes } }

// Dial takes the place of net.Dialer.DialContext.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}

// Connect makes a client of the agent at "host:port" or "unix:/path". In groups it is called by this name, or
// by one that the agent chooses if it is empty. The context is for the connecting alone.
func Connect(ctx context.Context, address, name string, options ...Option) (*Client, error) {
	s := settings{bufferBytes, mostBytes, maxLineBytes, new(net.Dialer).DialContext}
	for _, option := range options {
		option(&s)
	}
	network := "tcp"
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, address = "unix", path
	} else if _, _, err := net.SplitHostPort(address); err != nil {
		return nil, refused(`an address is "host:port" or "unix:/path", not %q`, address)
	}
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, &Error{Code: ErrConnection, Reason: err.Error(), Ran: RanNo, cause: err}
	}
	c := &Client{
		conn: conn, settings: s,
		asked: map[uint64]*question{}, waiting: map[uint64]struct{}{}, full: map[*stream]struct{}{},
		groups: map[string]*Group{}, watches: map[uint64]*Watch{}, served: map[verb]*stream{},
		held: map[uint64]*Lock{},
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	go c.read()
	go c.write()
	hello := fields{}
	if name != "" {
		hello["name"] = name
	}
	r, err := c.do(ctx, operation{op: "hello", fields: hello})
	if err != nil {
		conn.Close()
		return nil, err
	}
	c.welcome = r.Welcome
	return c, nil
}

// Welcome is what the agent has said at the beginning.
func (c *Client) Welcome() Welcome { return c.welcome }

// Member is what this client is called in groups: NODE/CLIENT.
func (c *Client) Member() string { return c.welcome.Node + "/" + c.welcome.Client }

// Done is closed when the connection is over. The agent has freed then what this client held.
func (c *Client) Done() <-chan struct{} { return c.ctx.Done() }

// Err is why the connection is over, and nil before.
func (c *Client) Err() error { return context.Cause(c.ctx) }

// Members are the nodes of the cluster.
func (c *Client) Members(ctx context.Context) (*Members, error) {
	r, err := c.do(ctx, operation{op: "members"})
	if err != nil {
		return nil, err
	}
	return r.View, nil
}

// Why tells what is known about a node, present or gone, one sentence each.
func (c *Client) Why(ctx context.Context, node string) ([]string, error) {
	r, err := c.do(ctx, operation{op: "why", fields: fields{"node": node}, why: node})
	if err != nil {
		return nil, err
	}
	return r.facts, nil
}

// Close leaves everything in order. What is unread is dropped. It waits for the agent, 5 s at most; an error
// says that the agent did not answer, and that the others learn of it as of a crash.
func (c *Client) Close() error {
	c.mu.Lock()
	if !c.closing {
		c.closing = true
		for _, s := range c.streams() {
			s.discard()
		}
		c.gate.ring()
		c.later("leave", nil)
	}
	c.mu.Unlock()
	var err error
	select {
	case <-c.ctx.Done():
	case <-time.After(closeWithin):
		err = &Error{Code: ErrTimeout, Reason: "the agent did not end the connection in order", Ran: RanMaybe}
	}
	c.conn.Close()
	<-c.ctx.Done()
	return err
}

// lose ends everything: the connection is over. Only the reader calls it, behind all that it has read.
func (c *Client) lose(reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		reason = "this client closed the connection"
	} else if c.lastWords != "" {
		reason = c.lastWords
	}
	lost := &Error{Code: ErrConnection, Reason: reason, Ran: RanMaybe, cause: err}
	c.end(lost)
	c.conn.Close()
	for _, q := range c.asked {
		c.settle(q, &reply{Error: lost})
	}
	for _, s := range c.streams() {
		s.end(lost)
	}
	for _, g := range c.groups {
		close(g.gone)
	}
	for _, l := range c.held {
		l.lose(lost)
	}
	c.room.ring()
}

func (c *Client) streams() []*stream {
	var all []*stream
	for _, g := range c.groups {
		all = append(all, g.stream)
	}
	for _, w := range c.watches {
		all = append(all, w.stream)
	}
	for _, s := range c.served {
		all = append(all, s)
	}
	return all
}

// A bell wakes all that wait for it. The client's lock guards it.
type bell struct{ rung chan struct{} }

func (b *bell) ring() {
	if b.rung != nil {
		close(b.rung)
		b.rung = nil
	}
}

// await waits for a bell. The lock is held before and after, and free meanwhile.
func (c *Client) await(ctx context.Context, b *bell) error {
	if b.rung == nil {
		b.rung = make(chan struct{})
	}
	rung := b.rung
	c.mu.Unlock()
	defer c.mu.Lock()
	select {
	case <-rung:
		return nil
	case <-ctx.Done():
		return over(ctx, RanNo)
	}
}
