package antiphon

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// A Group is a group that this client is in.
type Group struct {
	*stream
	name string
	gone chan struct{} // closed when this client is out of it
}

// Join comes into a group, whose first View has all members. One goroutine reads the group from now on, by
// Next or Events, until Leave.
func (c *Client) Join(ctx context.Context, group string) (*Group, error) {
	g := &Group{name: group, gone: make(chan struct{})}
	g.stream = &stream{c: c, overrun: g.overrun}
	_, err := c.do(ctx, operation{
		op: "join", fields: fields{"group": group, "bundles": true},
		begin: func(id uint64) error {
			if c.groups[group] != nil {
				return refused("this client has joined %s already", group)
			}
			g.taken = id
			c.groups[group] = g
			return nil
		},
		settled: func(r *reply, wanted bool) {
			if r.Error != nil {
				c.out(group)
			} else if !wanted {
				c.later("leave", fields{"group": group})
			}
		},
	})
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		g.discard()
		return nil, err
	}
	return g, nil
}

// Name is the group's.
func (g *Group) Name() string { return g.name }

// Next waits for the next event: io.EOF behind the last, an error if the connection or the context is over.
// Two goroutines that read one group share its events.
func (g *Group) Next(ctx context.Context) (Event, error) { return as[Event](g.next(ctx)) }

// Events is a loop of what Next gives. It ends behind Lost and after Leave, and behind an error.
func (g *Group) Events(ctx context.Context) iter.Seq2[Event, error] { return all(ctx, g.Next) }

// A SendOption changes how a message is sent.
type SendOption int

const (
	// Safe messages are delivered only when every node of the group holds them.
	Safe SendOption = iota
	// Wait has Send wait until the message is delivered.
	Wait
)

// Send says something to all members, this client included. Without Wait it returns when the line is on its
// way, and a message that is not taken is a Refused in the group.
func (g *Group) Send(ctx context.Context, payload []byte, options ...SendOption) error {
	return g.say(ctx, "send", fields{"group": g.name, "payload": Payload(payload).plain()}, options)
}

// SendBundle says several things in one line. All members are told all of them, with nothing in between, or
// none: each is a Message, with the same Seq and its Part.
func (g *Group) SendBundle(ctx context.Context, payloads [][]byte, options ...SendOption) error {
	if len(payloads) == 0 {
		return refused("a bundle has one payload at least")
	}
	plain := make([]any, len(payloads))
	share := max(1, bundleTextBytes/len(payloads)) // of the line
	for part, payload := range payloads {
		plain[part] = Payload(payload).plainUpTo(share)
	}
	return g.say(ctx, "send_bundle", fields{"group": g.name, "payloads": plain}, options)
}

func (g *Group) say(ctx context.Context, op string, of fields, options []SendOption) error {
	if slices.Contains(options, Safe) {
		of["safe"] = true
	}
	c := g.c
	c.mu.Lock()
	if c.Err() == nil && (c.groups[g.name] != g || g.over) {
		c.mu.Unlock()
		reason := fmt.Sprintf("this client is not in %s any more: join it again", g.name)
		return &Error{Code: ErrNotHeld, Reason: reason, Ran: RanNo}
	}
	if !slices.Contains(options, Wait) {
		defer c.mu.Unlock()
		return c.tell(ctx, op, of)
	}
	c.mu.Unlock()
	_, err := c.do(ctx, operation{op: op, fields: of})
	return err
}

// Leave leaves the group, and waits until this client is out. What is unread is dropped. It is left even if
// the context is over; then Leave does not wait.
func (g *Group) Leave(ctx context.Context) error {
	c := g.c
	c.mu.Lock()
	in := c.groups[g.name] == g
	g.discard()
	if !in {
		c.mu.Unlock()
		return nil
	}
	// Until it is out. That is behind the reply, and what is unread of other groups may be between them.
	id := c.wait()
	c.mu.Unlock()
	defer c.rest(id)
	_, err := c.do(ctx, operation{op: "leave", fields: fields{"group": g.name}, always: true})
	if err != nil && !errors.Is(err, ErrNotHeld) { // it has left already: too much was unread
		return err
	}
	select {
	case <-g.gone:
		return nil
	case <-ctx.Done():
		return over(ctx, RanMaybe)
	}
}

// overrun leaves a group of which too much is unread.
func (g *Group) overrun(any) any {
	g.c.later("leave", fields{"group": g.name})
	cause := fmt.Sprintf("slow: %d MiB were unread while operations waited", g.c.mostBytes>>20)
	defer g.end(nil)
	return &Lost{g.name, cause}
}
