package antiphon

import (
	"context"
	"errors"
	"strings"
)

// A Target says which nodes a call or a command is for.
type Target struct{ to any }

// Of a call Any is one node that serves the verb, All are those that have served or called in the group. Of a
// command All are those that the list lets be asked, Any is one of them, and the next one as long as it is
// certain that none did it; One is one of them.
var (
	Any = Target{"any"}
	All = Target{"all"}
	One = Target{"one"}
)

// Nodes are those of these names.
func Nodes(names ...string) Target { return Target{append([]string{}, names...)} }

// Answers is what nodes answered to a call or a command, and why the others did not, by their names.
type Answers struct {
	Replies  map[string]Payload
	Failures map[string]*Error
}

// Call has nodes do something. If none of them answers, the error has their Failures.
func (c *Client) Call(
	ctx context.Context, group, verb string, to Target, payload []byte, options ...WaitOption,
) (*Answers, error) {
	of := fields{"group": group, "verb": verb, "to": to.to, "payload": Payload(payload).plain()}
	for _, option := range options {
		option(of)
	}
	return c.answers(ctx, operation{op: "call", fields: of})
}

func (c *Client) answers(ctx context.Context, o operation) (*Answers, error) {
	r, err := c.do(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Answers{r.Replies, r.Failures}, nil
}

// A Handler answers a request; its error is told to the caller. The context is over when the caller does not
// wait any more, or the connection is over, or this client is another one.
type Handler func(ctx context.Context, request *Request) ([]byte, error)

// A verb is served; a command has no group.
type verb struct{ group, name string }

// Serve answers requests of this verb from now on, as long as the client is there: one after the other, in a
// goroutine of their own.
func (c *Client) Serve(ctx context.Context, group, name string, handler Handler) error {
	return c.serve(ctx, verb{group, name}, "serve", fields{"group": group, "verb": name}, handler)
}

func (c *Client) serve(ctx context.Context, v verb, op string, of fields, handler Handler) error {
	s := &stream{c: c, overrun: c.turnAway, begun: operation{op: op, fields: of}}
	_, err := c.do(ctx, operation{
		op: op, fields: of,
		begin: func(id uint64) error {
			if c.served[v] != nil {
				return refused("this client serves %s already", strings.TrimLeft(v.group+" "+v.name, " "))
			}
			s.taken = id
			c.served[v] = s
			go c.answer(s, handler)
			return nil
		},
		settled: func(r *reply, _ bool) {
			if r.Error != nil {
				delete(c.served, v)
				s.discard()
			}
		},
	})
	return err
}

func (c *Client) answer(s *stream, handler Handler) {
	for {
		request, err := as[*asking](s.next(c.ctx))
		if err != nil {
			return
		}
		if request.ctx.Err() == context.Canceled { // nobody waits for it any more
			c.forget(request)
			continue
		}
		payload, err := handler(request.ctx, &request.Request)
		c.forget(request)
		of := fields{"request": request.Number, "payload": Payload(payload).plain()}
		if err != nil {
			of = fields{"request": request.Number, "error": err.Error()}
		}
		var no *Error
		_, err = c.do(request.life, operation{op: "answer", fields: of})
		if errors.As(err, &no) && no.Code == ErrRefused {
			// It is too long. The caller need not wait to hear it.
			of = fields{"request": request.Number, "error": no.Reason}
			_, _ = c.do(request.life, operation{op: "answer", fields: of})
		}
	}
}

func (c *Client) forget(request *asking) {
	c.mu.Lock()
	defer c.mu.Unlock()
	request.cancel()
	if c.requests[request.Number] == request { // and not another life's
		delete(c.requests, request.Number)
	}
}

// turnAway answers a request for which there is no room.
func (c *Client) turnAway(event any) any {
	request := event.(*asking)
	request.cancel()
	delete(c.requests, request.Number)
	c.later("answer", fields{"request": request.Number, "error": "too many requests wait"})
	return nil
}
