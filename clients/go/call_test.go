package antiphon

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestRequestsAreAnswered(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("serve")
		for number, payload := range []string{"yes", "fail", "long"} {
			p.say(`{"event":"request","group":"g","request":%d,"verb":"v","from":"b","payload":%q,"within_ms":1000}`,
				number, payload)
		}
		p.expect(p.reply("answer")["payload"], "YES")
		p.expect(p.reply("answer")["error"], "not this")
		p.reply("answer", `"error":{"code":"refused","reason":"it has 60000 bytes","ran":"no"}`)
		answer := p.heard("answer")
		p.expect([]any{answer["request"], answer["error"]}, []any{2.0, "it has 60000 bytes"})
	})
	err := c.Serve(ctx, "g", "v", func(ctx context.Context, r *Request) ([]byte, error) {
		if _, ok := ctx.Deadline(); !ok || r.From != "b" {
			t.Error(r)
		}
		if string(r.Payload) == "fail" {
			return nil, errors.New("not this")
		}
		return []byte(strings.ToUpper(string(r.Payload))), nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestARequestIsOverWhenItsCallerWaitsNoMore(t *testing.T) {
	begun := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		p.reply("serve")
		for number := range 3 {
			p.say(`{"event":"request","group":"g","request":%d,"verb":"v","from":"b","payload":"%d","within_ms":600000}`,
				number, number)
		}
		<-begun
		p.say(`{"event":"cancelled","request":1}`) // which waits
		p.say(`{"event":"cancelled","request":0}`) // which runs
		p.say(`{"event":"cancelled","request":7}`) // which is not known
		p.expect(p.reply("answer", `"error":{"code":"not_held","reason":"no","ran":"no"}`)["request"], 0.0)
		p.expect(p.reply("answer")["request"], 2.0)
	})
	err := c.Serve(ctx, "g", "v", func(of context.Context, r *Request) ([]byte, error) {
		switch r.Payload.String() {
		case "0":
			close(begun)
			select {
			case <-of.Done():
			case <-time.After(20 * time.Second):
				t.Error("the caller waits no more")
			}
		case "1":
			t.Error("nobody waits for this")
		}
		return r.Payload, of.Err()
	})
	if err != nil {
		t.Error(err)
	}
	for c.locked(func() bool { return c.lastID < 4 || len(c.requests) > 0 }) { // hello, serve, and two answers
		time.Sleep(time.Millisecond)
	}
}

func TestRequestsForWhichThereIsNoRoomAreTurnedAway(t *testing.T) {
	begun, let := make(chan struct{}, 4), make(chan struct{})
	request := func(p *peer, number int) {
		p.say(`{"event":"request","group":"g","request":%d,"verb":"v","from":"b","payload":"","within_ms":1000}`, number)
	}
	c, ctx := connect(t, func(p *peer) {
		p.reply("serve")
		request(p, 0)
		id := p.heard("add")["id"]
		for number := range 3 {
			request(p, number+1)
		}
		p.say(`{"event":"reply","op":"add","id":%v,"value":1}`, id)
		turned := p.heard("answer")
		p.expect([]any{turned["request"], turned["error"]}, []any{3.0, "too many requests wait"})
		close(let)
		for range 3 {
			p.expect(p.reply("answer")["payload"], "")
		}
	}, BufferBytes(100), func(s *settings) { s.mostBytes = 1000 })
	err := c.Serve(ctx, "g", "v", func(context.Context, *Request) ([]byte, error) {
		begun <- struct{}{}
		<-let
		return nil, nil
	})
	if err != nil {
		t.Error(err)
	}
	<-begun
	must(c.Counter("c").Add(ctx, 1))(t)
}

// servesNothing waits until no goroutine serves a verb.
func servesNothing(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if !bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte(".(*Client).answer(")) {
			return
		}
	}
	t.Errorf("a verb is served still:\n%s", stacks[:runtime.Stack(stacks, true)])
}

func TestARequestIsOverAndNothingIsServedWhenTheConnectionIsOver(t *testing.T) {
	for _, closes := range []bool{false, true} { // the client
		begun, over := make(chan struct{}), make(chan error, 1)
		c, ctx := connect(t, func(p *peer) {
			p.reply("serve")
			for number := range 2 { // of which one waits
				p.say(`{"event":"request","group":"g","request":%d,"verb":"v","from":"b","payload":"","within_ms":600000}`, number)
			}
			<-begun
			if !closes {
				p.conn.Close()
			}
		})
		err := c.Serve(ctx, "g", "v", func(of context.Context, _ *Request) ([]byte, error) {
			close(begun) // not twice
			select {
			case <-of.Done():
			case <-time.After(20 * time.Second):
			}
			over <- of.Err()
			return nil, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		if closes {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-over; err != context.Canceled {
			t.Errorf("expected that the request is over, came %v", err)
		}
		<-c.Done()
		isError(t, c.Serve(ctx, "g", "w", nil), ErrConnection, RanNo)
		servesNothing(t)
	}
}

func TestAServeWhoseContextIsOverHasBegunOnlyIfTheAgentSaysSo(t *testing.T) {
	asked := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		for _, failed := range []string{`,"error":{"code":"cancelled","reason":"no","ran":"no"}`, ""} {
			id := p.heard("serve")["id"]
			asked <- struct{}{}
			p.expect(p.heard("cancel"), map[string]any{"of": id})
			p.say(`{"event":"reply","op":"serve","id":%v%s}`, id, failed)
		}
		p.say(`{"event":"request","group":"g","request":1,"verb":"v","from":"b","payload":"yes","within_ms":600000}`)
		p.expect(p.reply("answer")["payload"], "YES")
	})
	handler := func(of context.Context, r *Request) ([]byte, error) {
		return []byte(strings.ToUpper(r.Payload.String())), of.Err()
	}
	serve := func() error {
		waits, cancel := context.WithCancel(ctx)
		go func() {
			<-asked
			cancel()
		}()
		return c.Serve(waits, "g", "v", handler)
	}
	isError(t, serve(), ErrCancelled, RanMaybe)
	servesNothing(t)
	isError(t, serve(), ErrCancelled, RanMaybe)
	isError(t, c.Serve(ctx, "g", "v", handler), ErrRefused, RanNo) // the one before may have begun
}
