// Package antiphon is a client of the Antiphon agent of this host: groups with ordered messages and views,
// locks, leaders, maps, counters and calls.
//
//	client, err := antiphon.Connect(ctx, "127.0.0.1:7480", "ann")
//	group, err := client.Join(ctx, "chat")
//	err = group.Send(ctx, []byte("hello"))
//	for event, err := range group.Events(ctx) { … }
//
// A Client is one connection, and may be used by many goroutines. A connection that breaks is over, and what
// was held is free, unless the client has asked for time to come back: see Grace.
//
// # Back-pressure
//
// One connection brings everything in one order. Each group, each watch and each served verb has a buffer;
// when one is full, the client stops reading, and the agent and the senders wait. See README.md for the one
// exception, without which a goroutine that reads a group could not wait for a reply.
package antiphon

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	bufferBytes   = 1 << 20  // of what is unread in a group, before the reading stops
	mostBytes     = 64 << 20 // of the same, while its reader may wait for a reply
	maxLineBytes  = 64 << 20 // more than any line of an agent has
	mostLine      = 4 << 20  // of this client's lines
	outgoingBytes = 64 << 10 // of lines that wait to be written; then operations wait
	mostOutgoing  = 16 << 20 // of the same, with those that give something back and do not wait
	closeWithin   = 5 * time.Second
)

// A Client is one connection to an agent, or several, one after the other, if it comes back.
type Client struct {
	ctx context.Context // until the connection is over; its cause is an *Error
	end context.CancelCauseFunc
	settings

	mu        sync.Mutex
	conn      net.Conn
	welcome   Welcome
	closing   bool
	lastWords string // of the agent, on why it ends the connection

	outgoing []byte // lines to be written
	wake     bell   // there are some
	room     bell   // there are few
	resumption

	lastID  uint64
	asked   map[uint64]*question // what the agent is to reply to
	waiting map[uint64]struct{}  // goroutines that wait for a reply, or to send, by when they began to
	full    map[*stream]struct{}
	gate    bell // the reader may go on

	groups   map[string]*Group
	watches  map[uint64]*Watch
	served   map[verb]*stream
	requests map[uint64]*asking // that are not answered
	held     map[uint64]*Lock
}

type settings struct {
	bufferBytes, mostBytes, maxLineBytes int

	dial             func(ctx context.Context, network, address string) (net.Conn, error)
	network, address string
	tls              *tls.Config
	token            string
	grace            time.Duration
}

// An Option changes how Connect connects.
type Option func(*settings)

// BufferBytes bounds what is unread of each group, watch and served verb. It is 1 MiB if not given.
func BufferBytes(bytes int) Option { return func(s *settings) { s.bufferBytes = bytes } }

// Dial takes the place of net.Dialer.DialContext.
func Dial(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}

// Token is shown to an agent that asks for one.
func Token(token string) Option { return func(s *settings) { s.token = token } }

// TLS has the client speak TLS at a TCP address. Without a ServerName it is the address's host.
func TLS(config *tls.Config) Option { return func(s *settings) { s.tls = config } }

// Connect makes a client of the agent at "host:port" or "unix:/path". In groups it is called by this name, or
// by one that the agent chooses if it is empty. The context is for the connecting alone.
func Connect(ctx context.Context, address, name string, options ...Option) (*Client, error) {
	s := settings{
		bufferBytes: bufferBytes, mostBytes: mostBytes, maxLineBytes: maxLineBytes,
		dial: new(net.Dialer).DialContext, network: "tcp", address: address,
	}
	for _, option := range options {
		option(&s)
	}
	if s.grace < 0 || s.grace > mostGrace {
		return nil, refused("the grace is %v: give 0 to %v", s.grace, mostGrace)
	}
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		s.network, s.address, s.tls = "unix", path, nil
	} else if host, _, err := net.SplitHostPort(address); err != nil {
		return nil, refused(`an address is "host:port" or "unix:/path", not %q`, address)
	} else if s.tls != nil && s.tls.ServerName == "" {
		s.tls = s.tls.Clone()
		s.tls.ServerName = host
	}
	conn, err := s.open(ctx)
	if err != nil {
		return nil, &Error{Code: ErrConnection, Reason: err.Error(), Ran: RanNo, cause: err}
	}
	c := &Client{
		conn: conn, settings: s,
		asked: map[uint64]*question{}, waiting: map[uint64]struct{}{}, full: map[*stream]struct{}{},
		groups: map[string]*Group{}, watches: map[uint64]*Watch{}, served: map[verb]*stream{},
		requests: map[uint64]*asking{}, held: map[uint64]*Lock{},
	}
	c.ctx, c.end = context.WithCancelCause(context.Background())
	c.life, c.endLife = context.WithCancel(c.ctx)
	c.trying, c.stopTrying = context.WithCancel(context.Background())
	c.hello = fields{}
	if name != "" {
		c.hello["name"] = name
	}
	if s.token != "" {
		c.hello["token"] = s.token
	}
	if s.grace > 0 {
		c.hello["grace"] = span(s.grace)
	}
	go c.read()
	go c.write(conn, 0)
	_, err = c.do(ctx, operation{op: "hello", fields: c.hello, settled: func(r *reply, _ bool) {
		if r.Error == nil {
			c.welcome, c.key = r.Welcome.Welcome, r.Welcome.Resume
		}
	}})
	if err != nil {
		c.mu.Lock()
		c.closing = true // it does not come back
		c.stopTrying()
		c.conn.Close()
		c.mu.Unlock()
		return nil, err
	}
	return c, nil
}

// open opens a connection.
func (s *settings) open(ctx context.Context) (net.Conn, error) {
	conn, err := s.dial(ctx, s.network, s.address)
	if err != nil || s.tls == nil {
		return conn, err
	}
	secured := tls.Client(conn, s.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// Welcome is what the agent has said at the beginning; or, if this client came back as a new one, said then.
func (c *Client) Welcome() Welcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.welcome
}

// Member is what this client is called in groups: NODE/CLIENT.
func (c *Client) Member() string {
	w := c.Welcome()
	return w.Node + "/" + w.Client
}

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
	c.stopTrying()
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	conn.Close()
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
	c.stopTrying()
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
