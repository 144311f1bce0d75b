package antiphon

import (
	"context"
	"io"
	"iter"
)

const (
	eventBytes = 500 // about what an event takes beside its line
	partBytes  = 50  // and each payload of a bundle
)

// A bundle is messages that came in one line. Each is made when it is taken.
type bundle struct {
	Message
	Payloads []Payload `json:"payloads"`
	taken    int
}

func (b *bundle) take() *Message {
	m := b.Message
	m.Payload, m.Part = b.Payloads[b.taken], b.taken
	b.taken++
	return &m
}

func (b *bundle) isOver() bool { return b.taken == len(b.Payloads) }

// A stream has events in their order until they are read, and what comes behind the last. The client's lock
// guards it.
type stream struct {
	c       *Client
	overrun func(event any) any // what takes the place of an event beyond the most; nil: nothing
	events  []sized
	size    int
	taken   uint64    // the last wait that had begun when an event was taken, or the stream began
	begun   operation // of a served verb: what has begun it
	over    bool      // nothing more comes
	err     error     // what it ends with; nil: in order
	more    bell
}

type sized struct {
	event any
	size  int
}

func (s *stream) put(event any, size int) {
	if s.over {
		return
	}
	if s.size > s.c.mostBytes {
		if event = s.overrun(event); event == nil {
			return
		}
	}
	size += eventBytes
	if b, ok := event.(*bundle); ok {
		size += partBytes * len(b.Payloads)
	}
	s.events = append(s.events, sized{event, size})
	s.size += size
	if s.size > s.c.bufferBytes && !s.over {
		s.c.full[s] = struct{}{}
	}
	s.more.ring()
}

// end says that nothing more comes behind what is unread.
func (s *stream) end(err error) {
	if !s.over {
		s.over, s.err = true, err
	}
	// It does not grow any more.
	delete(s.c.full, s)
	s.c.gate.ring()
	s.more.ring()
}

// discard ends it, without what is unread.
func (s *stream) discard() {
	s.events, s.size = nil, 0
	s.end(nil)
}

// next waits for an event and takes it; io.EOF, or its error, behind the last.
func (s *stream) next(ctx context.Context) (any, error) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return nil, over(ctx, RanNo)
	}
	s.taken = c.lastID
	for len(s.events) == 0 {
		if s.over && s.err != nil {
			return nil, s.err
		}
		if s.over {
			return nil, io.EOF
		}
		if err := c.await(ctx, &s.more); err != nil {
			return nil, err
		}
	}
	s.taken = c.lastID // it may have waited for this one
	first := s.events[0]
	if b, ok := first.event.(*bundle); ok {
		if first.event = b.take(); !b.isOver() {
			c.gate.ring()
			return first.event, nil
		}
	}
	s.events[0] = sized{}
	s.events = s.events[1:]
	s.size -= first.size
	if s.size <= c.bufferBytes {
		delete(c.full, s)
	}
	c.gate.ring()
	return first.event, nil
}

// wait notes that a goroutine waits from now on, for a reply or to send, until rest. The lock is held.
func (c *Client) wait() (id uint64) {
	c.lastID++
	c.waiting[c.lastID] = struct{}{}
	c.gate.ring()
	return c.lastID
}

func (c *Client) rest(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// heldUp says whether the reading stops: a stream is full, and its reader comes to read it without a further
// line.
//
// The reader may be waiting for a reply that is behind what is unread. It waits then since it has taken the
// last event. So a wait that began before is another goroutine's, and one that began after may be the
// reader's.
func (c *Client) heldUp() bool {
	if len(c.full) == 0 || c.closing {
		return false
	}
	var newest uint64
	for id := range c.waiting {
		newest = max(newest, id)
	}
	for s := range c.full {
		if newest <= s.taken {
			return true
		}
	}
	return false
}

// as makes an event of what a stream has.
func as[T any](event any, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return event.(T), nil
}

// all makes a loop of what next gives, until io.EOF.
func all[T any](ctx context.Context, next func(context.Context) (T, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for {
			event, err := next(ctx)
			if err == io.EOF || !yield(event, err) || err != nil {
				return
			}
		}
	}
}
