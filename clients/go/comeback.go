package antiphon

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

const (
	mostGrace  = 10 * time.Second
	tryEach    = 100 * time.Millisecond
	keptBytes  = 1 << 20 // of lines that the agent has not taken; then operations wait
	tellLines  = 256     // of the agent, after which it is told that they were taken
	tellBytes  = 64 << 10
	anew       = "the connection broke, and this client came back as a new one"
	firstLines = 1 // hello, and the reply to it
)

// Grace has the client come back by itself if its connection breaks, for up to this time, 10 s at most. For so
// long the agent holds its place: it goes on where it was, and nobody sees a change.
//
// If the time was over, or the agent is another process, the client comes back as a new one of the same name.
// It joins its groups again, which are told Resync, and serves its verbs again. What it held and watched is
// lost. Operations under way fail with ErrConnection; messages that were sent without Wait may be lost.
func Grace(d time.Duration) Option { return func(s *settings) { s.grace = d } }

// A resumption is what coming back takes. The client's lock guards it.
type resumption struct {
	hello  fields          // how the client introduced itself
	key    string          // by which it comes back; empty: it does not
	number int             // of the connection, from 0
	life   context.Context // until this client is over; another begins if it comes back as a new one

	endLife    context.CancelFunc
	trying     context.Context // to come back
	stopTrying context.CancelFunc

	kept  []byte // lines that were written, and that the agent may not have taken
	given uint64 // lines before those

	taken    uint64 // lines of the agent
	untold   int    // of those, since it was told
	bytes    int    // of the untold
	owesTook bool   // it is time to tell it
}

// count counts a line of the agent.
func (c *Client) count(event any, size int) {
	if _, ok := event.(*took); ok {
		return
	}
	c.taken++
	c.untold++
	c.bytes += size
	if c.untold >= tellLines || c.bytes >= tellBytes {
		c.owesTook = true
		c.wake.ring()
	}
}

// keep notes what is written now, and appends how much was taken if it is time.
func (c *Client) keep(lines []byte) []byte {
	c.kept = append(c.kept, lines...)
	if !c.owesTook {
		return lines
	}
	c.untold, c.bytes, c.owesTook = 0, 0, false
	return fmt.Appendf(lines, `{"took":{"lines":%d}}`+"\n", c.taken)
}

// letGo forgets what the agent has taken: so many lines in all.
func (c *Client) letGo(lines uint64) {
	for c.given < lines {
		end := bytes.IndexByte(c.kept, '\n')
		if end < 0 {
			break
		}
		c.kept = c.kept[end+1:]
		c.given++
	}
	c.room.ring()
}

// giveUp ends the connection for good. The lock is held.
func (c *Client) giveUp(reason string) {
	c.lastWords, c.key = reason, ""
	c.conn.Close()
}

// comeBack makes another connection in place of one that broke, and has its lines; nil if that is the end.
func (c *Client) comeBack(broke breach) *bufio.Scanner {
	c.mu.Lock()
	if c.key == "" || c.closing || broke.final {
		c.mu.Unlock()
		c.lose(broke.reason, broke.err)
		return nil
	}
	c.number++ // which ends the writer
	c.wake.ring()
	c.conn.Close()
	ctx, cancel := context.WithTimeout(c.trying, c.grace)
	c.mu.Unlock()
	defer cancel()
	var why error
	for {
		lines, err := c.connectAgain(ctx)
		if err == nil {
			return lines
		}
		if why == nil || ctx.Err() == nil {
			why = err
		}
		select {
		case <-ctx.Done():
			c.lose(fmt.Sprintf("%s, and this client did not come back within %v: %v", broke.reason, c.grace, why), why)
			return nil
		case <-time.After(tryEach):
		}
	}
}

// connectAgain tries once.
func (c *Client) connectAgain(ctx context.Context) (*bufio.Scanner, error) {
	conn, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(ctx, func() { conn.Close() })
	lines := c.lines(conn)
	welcome, err := c.introduce(conn, lines)
	cut()
	if err == nil {
		err = c.goOn(ctx, conn, welcome)
	}
	if err != nil { // what the agent made of it, nobody needs
		_ = conn.SetWriteDeadline(time.Now().Add(tryEach))
		_, _ = conn.Write([]byte(`{"leave":{}}` + "\n"))
		conn.Close()
		return nil, err
	}
	return lines, nil
}

// goOn goes on by this connection.
func (c *Client) goOn(ctx context.Context, conn net.Conn, welcome *welcomed) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case welcome.Resumed != nil:
		if err := c.resume(*welcome.Resumed); err != nil {
			return err
		}
	case c.closing: // the one that was to leave has gone
		c.stopTrying()
		return errors.New(anew)
	default:
		c.startAnew(welcome)
	}
	if welcome.Resume != "" {
		c.key = welcome.Resume
	}
	c.conn, c.lastWords = conn, ""
	go c.write(conn, c.number)
	return nil
}

// introduce says hello again, and has the answer.
func (c *Client) introduce(conn net.Conn, lines *bufio.Scanner) (*welcomed, error) {
	c.mu.Lock()
	hello := fields{"resume": c.key, "lines": c.taken}
	for name, value := range c.hello {
		hello[name] = value
	}
	c.untold, c.bytes, c.owesTook = 0, 0, false
	c.mu.Unlock()
	line, err := command("hello", 0, hello)
	if err == nil {
		_, err = conn.Write(line)
	}
	if err != nil {
		return nil, err
	}
	for lines.Scan() {
		event, err := decode(lines.Bytes())
		if err != nil {
			return nil, err
		}
		switch e := event.(type) {
		case *reply:
			_, err := e.result()
			return &e.Welcome, err
		case *failed:
			return nil, errors.New(e.Reason)
		case *turnedDown:
			return nil, errors.New(e.Reason)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return nil, errors.New("the agent closed the connection")
}

// resume goes on as the same client, of which the agent has taken so many lines.
func (c *Client) resume(lines uint64) error {
	if c.letGo(lines); c.given != lines {
		return fmt.Errorf("the agent says that it took %d lines, and this client knows of %d", lines, c.given)
	}
	c.outgoing = append(c.kept, c.outgoing...)
	c.kept = nil
	return nil
}

// startAnew goes on as a new client, which joins and serves what the one before did.
func (c *Client) startAnew(welcome *welcomed) {
	unsent := map[uint64]bool{}
	for _, line := range bytes.Split(c.outgoing, []byte("\n")) {
		if id := firstID.FindSubmatch(line); id != nil {
			number, _ := strconv.ParseUint(string(id[1]), 10, 64)
			unsent[number] = true
		}
	}
	for id, q := range c.asked {
		ran := RanMaybe
		if unsent[id] {
			ran = RanNo
		}
		c.settle(q, &reply{Error: &Error{Code: ErrConnection, Reason: anew, Ran: ran}})
	}
	c.outgoing, c.kept = nil, nil
	c.given, c.taken = firstLines, firstLines
	c.welcome = welcome.Welcome
	c.endLife()
	c.life, c.endLife = context.WithCancel(c.ctx)
	for _, l := range c.held {
		l.lose(&Error{Code: ErrLost, Reason: anew, Ran: RanNo})
	}
	for _, w := range c.watches {
		w.lose(anew)
	}
	clear(c.requests)
	for _, s := range c.served {
		s.events, s.size = nil, 0
		delete(c.full, s)
		c.again(s.begun, func(e *Error) { c.giveUp(anew + ", and could not serve again: " + e.Reason) })
	}
	for name, g := range c.groups {
		if g.over { // it was being left
			c.out(name)
			continue
		}
		c.again(operation{op: "join", fields: fields{"group": name, "bundles": true}}, func(e *Error) {
			c.inform(&Lost{name, anew + ", and could not join again: " + e.Reason}, 0)
			c.out(name)
		})
		g.put(&Resync{name, anew}, 0) // which leaves the group if too much is unread
	}
	c.gate.ring()
	c.room.ring()
}

// again asks for what this client had. Nobody waits for the reply.
func (c *Client) again(o operation, failed func(*Error)) {
	o.always, o.begin = true, nil
	o.settled = func(r *reply, _ bool) {
		if r.Error != nil && r.Error.Code != ErrConnection {
			failed(r.Error)
		}
	}
	if q, err := c.ask(context.Background(), o); err == nil {
		delete(c.waiting, q.id)
	}
}
