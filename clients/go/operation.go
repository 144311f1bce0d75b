package antiphon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"
	"unicode/utf8"
)

// fields are what a command has.
type fields map[string]any

// An operation is a command that the agent replies to.
type operation struct {
	op     string
	fields fields
	why    string // the node of a question that has no id
	always bool   // it is sent even if the context is over: it gives something back

	// Both are called with the lock held. begin comes before the agent can know of it, and may refuse. settled
	// comes once, when the reply is there or there will be none; wanted says whether the caller still waits.
	begin   func(id uint64) error
	settled func(r *reply, wanted bool)
}

// A question is an operation that the agent knows of.
type question struct {
	operation
	id       uint64
	unwanted bool
	answered chan *reply // takes one
}

// A reply has the fields of all replies.
type reply struct {
	ID       uint64             `json:"id"`
	Token    uint64             `json:"token"`
	Version  uint64             `json:"version"`
	First    uint64             `json:"first"`
	Value    json.RawMessage    `json:"value"`
	Welcome  welcomed           `json:"welcome"`
	View     *Members           `json:"view"`
	Commands json.RawMessage    `json:"commands"`
	Replies  map[string]Payload `json:"replies"`
	Failures map[string]*Error  `json:"failures"`
	Error    *Error             `json:"error"`
	facts    []string
}

// welcomed also has what coming back takes.
type welcomed struct {
	Welcome
	Resume  string  `json:"resume"`
	Resumed *uint64 `json:"resumed"`
}

func (r *reply) result() (*reply, error) {
	if r.Error == nil {
		return r, nil
	}
	e := *r.Error
	e.Version, e.Failures = r.Version, r.Failures
	return nil, &e
}

// do asks the agent for something, and waits for the reply. If the context is over first, what is granted all
// the same is given back by settled.
func (c *Client) do(ctx context.Context, o operation) (*reply, error) {
	c.mu.Lock()
	q, err := c.ask(ctx, o)
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer c.rest(q.id)
	select {
	case r := <-q.answered:
		return r.result()
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case r := <-q.answered: // both came at once
		return r.result()
	default:
	}
	q.unwanted = true
	if o.why == "" {
		c.later("cancel", fields{"of": q.id})
	}
	return nil, over(ctx, RanMaybe)
}

// ask sends the command. The lock is held.
func (c *Client) ask(ctx context.Context, o operation) (*question, error) {
	q := &question{operation: o, id: c.wait(), answered: make(chan *reply, 1)}
	id := q.id
	if o.why != "" {
		id = 0
	}
	line, err := command(o.op, id, o.fields)
	if err == nil && o.begin != nil {
		err = o.begin(q.id)
	}
	if err == nil {
		c.asked[q.id] = q
		err = c.push(ctx, line, o.always)
	}
	if err == nil {
		return q, nil
	}
	delete(c.waiting, q.id)
	if _, open := c.asked[q.id]; open {
		c.settle(q, &reply{Error: err.(*Error)})
	}
	return nil, err
}

// settle ends a question. The lock is held.
func (c *Client) settle(q *question, r *reply) {
	delete(c.asked, q.id)
	if q.settled != nil {
		q.settled(r, !q.unwanted)
	}
	q.answered <- r
}

// tell sends a command that has no reply. The lock is held.
func (c *Client) tell(ctx context.Context, op string, of fields) error {
	line, err := command(op, 0, of)
	if err != nil {
		return err
	}
	id := c.wait()
	defer delete(c.waiting, id)
	return c.push(ctx, line, false)
}

// push hands a line to the writer, and waits while many wait there already, or were not taken by the agent.
// The lock is held, and free meanwhile.
func (c *Client) push(ctx context.Context, line []byte, always bool) error {
	for life := c.life; ; {
		if lost := new(Error); errors.As(c.Err(), &lost) {
			return &Error{Code: ErrConnection, Reason: lost.Reason, Ran: RanNo, cause: lost.cause}
		}
		if c.closing {
			return &Error{Code: ErrConnection, Reason: "this client closed the connection", Ran: RanNo}
		}
		if c.life != life {
			return &Error{Code: ErrConnection, Reason: anew, Ran: RanNo}
		}
		if always {
			break
		}
		if ctx.Err() != nil {
			return over(ctx, RanNo)
		}
		if len(c.outgoing) < outgoingBytes && len(c.outgoing)+len(c.kept) < keptBytes {
			break
		}
		if err := c.await(ctx, &c.room); err != nil {
			return err
		}
	}
	c.hand(line)
	return nil
}

// hand hands a line to the writer. The lock is held.
func (c *Client) hand(line []byte) {
	if len(c.outgoing)+len(c.kept) > mostOutgoing {
		c.giveUp("the agent does not read what this client gives back")
		return
	}
	c.outgoing = append(c.outgoing, line...)
	c.wake.ring()
}

// later sends a command that gives something back, and does not wait. The lock is held.
func (c *Client) later(op string, of fields) {
	line, _ := command(op, 0, of) // its texts have been sent before
	c.hand(line)
}

// write writes what is to go out until this connection is over. After an error the reader comes to the end of
// the connection, too, behind what the agent has said before.
func (c *Client) write(conn net.Conn, number int) {
	var written []byte
	for {
		c.mu.Lock()
		for len(c.outgoing) == 0 && !c.owesTook && c.ctx.Err() == nil && c.number == number {
			_ = c.await(c.ctx, &c.wake)
		}
		if c.ctx.Err() != nil || c.number != number {
			c.mu.Unlock()
			return
		}
		lines := c.outgoing
		c.outgoing = written[:0]
		if c.grace > 0 {
			lines = c.keep(lines)
		}
		c.room.ring()
		c.mu.Unlock()
		if _, err := conn.Write(lines); err != nil {
			return
		}
		written = lines
	}
}

// command is a line as the agent reads it. The id stands first: of a long line that makes no sense, the agent
// repeats the beginning alone.
func command(op string, id uint64, of fields) ([]byte, error) {
	for name, value := range of {
		if text, ok := value.(string); ok && !utf8.ValidString(text) {
			return nil, refused("the %s is not UTF-8: %q", name, text)
		}
	}
	if of == nil {
		of = fields{}
	}
	text, err := json.Marshal(of)
	if err != nil {
		return nil, refused("%v", err)
	}
	head := fmt.Sprintf(`{"%s":{`, op)
	if id != 0 {
		head += fmt.Sprintf(`"id":%d`, id)
		if len(of) > 0 {
			head += ","
		}
	}
	if size := len(head) + len(text); size > mostLine { // the agent would end the connection
		return nil, refused("%s has %d bytes, and the agent takes %d: make it shorter", op, size, mostLine)
	}
	return append(append([]byte(head), text[1:]...), '}', '\n'), nil
}

// span is a duration as the agent reads it, in whole milliseconds, rounded up.
func span(d time.Duration) string {
	return fmt.Sprintf("%dms", (d+time.Millisecond-1)/time.Millisecond)
}
