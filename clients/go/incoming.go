package antiphon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"time"
)

// Lines of the agent that are told otherwise than they come.
type (
	failed struct {
		Reason  string          `json:"reason"`
		Request json.RawMessage `json:"request"`
	}
	turnedDown struct {
		Group   *string `json:"group"`
		Reason  string  `json:"reason"`
		Request struct {
			Send struct {
				Payload Payload `json:"payload"`
			} `json:"send"`
			Bundle struct {
				Payloads []Payload `json:"payloads"`
			} `json:"send_bundle"`
		} `json:"request"`
	}
	why struct {
		Node  string   `json:"node"`
		Facts []string `json:"facts"`
	}
	loss struct {
		What  string `json:"what"`
		Name  string `json:"name"`
		ID    uint64 `json:"id"`
		Cause string `json:"cause"`
	}
	groupLeft struct {
		Group string `json:"group"`
	}
	watching struct {
		ID uint64 `json:"id"`
		Watching
	}
	changed struct {
		ID uint64 `json:"id"`
		Changed
	}
	took struct {
		Lines uint64 `json:"lines"`
	}
	asking struct {
		Request
		Number   uint64          `json:"request"`
		WithinMS int64           `json:"within_ms"`
		life     context.Context // of the client that is asked
		ctx      context.Context // until nobody waits for the answer
		cancel   context.CancelFunc
	}
	cancelled struct {
		Number uint64 `json:"request"`
	}
)

// A breach is the end of a connection.
type breach struct {
	reason string
	err    error
	final  bool // another connection would not help
}

// read takes in what the agent says, until the connection is over, and so is the last that came in its place.
func (c *Client) read() {
	for lines := c.lines(c.conn); lines != nil; {
		lines = c.comeBack(c.follow(lines))
	}
}

func (c *Client) lines(conn net.Conn) *bufio.Scanner {
	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 0, 64<<10), c.maxLineBytes)
	lines.Split(wholeLines)
	return lines
}

// follow takes in what comes by one connection.
func (c *Client) follow(lines *bufio.Scanner) breach {
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			continue
		}
		event, err := decode(line)
		if err != nil {
			return breach{fmt.Sprintf("the agent said what this client does not understand: %v", err), err, true}
		}
		c.mu.Lock()
		for c.heldUp() {
			_ = c.await(c.ctx, &c.gate)
		}
		c.takeIn(event, len(line))
		if c.grace > 0 {
			c.count(event, len(line))
		}
		c.mu.Unlock()
	}
	switch err := lines.Err(); {
	case err == nil:
		return breach{reason: "the agent closed the connection"}
	case errors.Is(err, bufio.ErrTooLong):
		return breach{fmt.Sprintf("the agent sent a line of more than %d bytes", c.maxLineBytes), err, true}
	default:
		return breach{fmt.Sprintf("the connection broke: %v", err), err, false}
	}
}

// wholeLines splits at the ends of lines. What is cut off by the end of the connection is no line.
func wholeLines(data []byte, _ bool) (int, []byte, error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	return 0, nil, nil
}

func decode(line []byte) (any, error) {
	kind, err := kindOf(line)
	if err != nil {
		return nil, err
	}
	var event any
	switch kind {
	case "reply":
		event = new(reply)
	case "view":
		event = new(View)
	case "message":
		event = new(Message)
	case "bundle":
		event = new(bundle)
	case "transitional":
		event = new(Transitional)
	case "suspended":
		event = new(Suspended)
	case "resync":
		event = new(Resync)
	case "refused":
		event = new(turnedDown)
	case "group_left":
		event = new(groupLeft)
	case "lost":
		event = new(loss)
	case "watching":
		event = new(watching)
	case "changed":
		event = new(changed)
	case "request", "command":
		event = new(asking)
	case "cancelled":
		event = new(cancelled)
	case "took":
		event = new(took)
	case "why":
		event = new(why)
	case "error":
		event = new(failed)
	default: // of a newer agent
		return nil, nil
	}
	err = json.Unmarshal(line, event)
	if b, is := event.(*bundle); is && err == nil && len(b.Payloads) == 0 {
		err = errors.New("a bundle without payloads")
	}
	return event, err
}

// kindOf is the name of an event. It mostly stands first, and the rest need not be looked at for it.
func kindOf(line []byte) (string, error) {
	if rest, first := bytes.CutPrefix(line, []byte(`{"event":"`)); first {
		if kind, _, whole := bytes.Cut(rest, []byte(`"`)); whole {
			return string(kind), nil
		}
	}
	var head struct {
		Event string `json:"event"`
	}
	err := json.Unmarshal(line, &head)
	return head.Event, err
}

// takeIn hands an event on to the goroutine that it is for. The lock is held.
func (c *Client) takeIn(event any, size int) {
	switch e := event.(type) {
	case Event:
		c.inform(e, size)
	case *reply:
		if q := c.asked[e.ID]; q != nil {
			c.settle(q, e)
		}
	case *why:
		if q := c.asking(e.Node); q != nil {
			c.settle(q, &reply{facts: e.Facts})
		}
	case *failed:
		c.failed(e)
	case *turnedDown:
		if e.Group == nil {
			c.lastWords = e.Reason
		} else {
			payloads := e.Request.Bundle.Payloads
			if payloads == nil {
				payloads = []Payload{e.Request.Send.Payload}
			}
			for _, payload := range payloads {
				c.inform(&Refused{*e.Group, e.Reason, payload}, size)
			}
		}
	case *groupLeft:
		c.out(e.Group)
	case *loss:
		switch w, l := c.watches[e.ID], c.held[e.ID]; {
		case e.What == "group":
			c.inform(&Lost{e.Name, e.Cause}, size)
			c.out(e.Name)
		case w != nil:
			w.lose(e.Cause)
		case l != nil:
			l.lose(&Error{Code: ErrLost, Reason: e.Cause, Ran: RanNo})
		}
	case *watching:
		if w := c.watches[e.ID]; w != nil {
			w.put(&e.Watching, size)
		}
	case *changed:
		if w := c.watches[e.ID]; w != nil {
			w.put(&e.Changed, size)
		}
	case *asking:
		if s := c.served[verb{e.Group, e.Verb}]; s != nil {
			e.life = c.life
			e.ctx, e.cancel = context.WithTimeout(c.life, time.Duration(e.WithinMS)*time.Millisecond)
			c.requests[e.Number] = e
			s.put(e, size)
		}
	case *cancelled:
		if request := c.requests[e.Number]; request != nil {
			request.cancel()
		}
	case *took:
		c.letGo(e.Lines)
	}
}

// inform tells a group something.
func (c *Client) inform(e Event, size int) {
	if g := c.groups[e.of()]; g != nil {
		g.put(e, size)
	}
}

// out ends a group: this client is out of it.
func (c *Client) out(group string) {
	if g := c.groups[group]; g != nil {
		delete(c.groups, group)
		g.end(nil)
		close(g.gone)
	}
}

// failed ends what the agent did not understand. It repeats the command, or of a long one the beginning.
func (c *Client) failed(e *failed) {
	var whole map[string]struct {
		ID   uint64 `json:"id"`
		Node string `json:"node"`
	}
	var beginning *string
	var q *question
	if json.Unmarshal(e.Request, &whole) == nil && whole != nil {
		for _, of := range whole {
			if q = c.asked[of.ID]; q == nil && of.Node != "" {
				q = c.asking(of.Node)
			}
		}
	} else if json.Unmarshal(e.Request, &beginning) == nil && beginning != nil {
		if found := firstID.FindStringSubmatch(*beginning); found != nil {
			id, _ := strconv.ParseUint(found[1], 10, 64)
			q = c.asked[id]
		}
	} else {
		c.lastWords = e.Reason
	}
	if q != nil {
		c.settle(q, &reply{Error: refused("%s", e.Reason)})
	}
}

var firstID = regexp.MustCompile(`^\{"\w+":\{"id":(\d+)`)

// asking is the question about a node that was asked first.
func (c *Client) asking(node string) *question {
	var first *question
	for _, q := range c.asked {
		if q.why == node && (first == nil || q.id < first.id) {
			first = q
		}
	}
	return first
}
