package antiphon

import (
	"context"
	"time"
)

// A Lock is held until Unlock, or until it is lost. Give the Token to what the lock protects: that refuses a
// lower one than it has seen.
type Lock struct {
	Name  string
	Token uint64

	c     *Client
	op    string // what gives it back
	id    uint64 // of the operation that asked for it
	lost  chan struct{}
	cause error
}

// A Leadership is a job that this client leads.
type Leadership struct{ *Lock }

// A WaitOption bounds how long the agent waits.
type WaitOption func(fields)

// Within is how long a Lock waits, without end if not given, and how long the handlers of a Call have, 10 s
// if not given. Unlike a context it is the agent's: the error says what it knows.
func Within(d time.Duration) WaitOption { return func(of fields) { of["within"] = span(d) } }

// Lock waits for a lock. If the context is over first, the lock is not held: what was granted at the same
// moment is given back.
func (c *Client) Lock(ctx context.Context, name string, options ...WaitOption) (*Lock, error) {
	of := fields{"name": name}
	for _, option := range options {
		option(of)
	}
	return c.hold(ctx, name, "lock", "unlock", of)
}

// Lead waits until this client leads a job.
func (c *Client) Lead(ctx context.Context, job string) (*Leadership, error) {
	l, err := c.hold(ctx, job, "lead", "resign", fields{"name": job})
	if err != nil {
		return nil, err
	}
	return &Leadership{l}, nil
}

func (c *Client) hold(ctx context.Context, name, op, back string, of fields) (*Lock, error) {
	l := &Lock{Name: name, c: c, op: back, lost: make(chan struct{})}
	_, err := c.do(ctx, operation{
		op: op, fields: of,
		begin: func(id uint64) error {
			l.id = id
			c.held[id] = l // now, since the loss may be right behind the grant
			return nil
		},
		settled: func(r *reply, wanted bool) {
			l.Token = r.Token
			if r.Error == nil && !wanted {
				c.later(back, l.grant())
			}
			if r.Error != nil || !wanted {
				delete(c.held, l.id)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return l, nil
}

// Lost is closed when the lock is lost, or the connection. After Unlock it is never closed.
func (l *Lock) Lost() <-chan struct{} { return l.lost }

// Cause is why the lock is lost, and nil before.
func (l *Lock) Cause() error {
	select {
	case <-l.lost:
		return l.cause
	default:
		return nil
	}
}

// Unlock gives it back, even if the context is over: that bounds only the wait for the agent's word.
func (l *Lock) Unlock(ctx context.Context) error { return l.giveBack(ctx, l.grant()) }

// Resign gives the job to this node, which must wait for it, or, if it is empty, to the one that has waited
// longest.
func (l *Leadership) Resign(ctx context.Context, to string) error {
	of := l.grant()
	if to != "" {
		of["to"] = to
	}
	return l.giveBack(ctx, of)
}

// Unlock is Resign, to the node that has waited longest.
func (l *Leadership) Unlock(ctx context.Context) error { return l.Resign(ctx, "") }

func (l *Lock) grant() fields { return fields{"name": l.Name, "token": l.Token} }

func (l *Lock) giveBack(ctx context.Context, of fields) error {
	_, err := l.c.do(ctx, operation{
		op: l.op, fields: of, always: true,
		settled: func(r *reply, _ bool) {
			// Without `to` the agent holds it no more, whatever its reply is. If a job cannot be handed over, the
			// agent leads on.
			if r.Error == nil || of["to"] == nil && r.Error.Code != ErrConnection {
				delete(l.c.held, l.id)
			}
		},
	})
	return err
}

// lose tells that it is lost. The client's lock is held.
func (l *Lock) lose(cause error) {
	delete(l.c.held, l.id)
	l.cause = cause
	close(l.lost)
}
