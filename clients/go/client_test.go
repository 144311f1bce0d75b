package antiphon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

const (
	viewLine = `{"event":"view","group":"g","id":"1.1","members":["a/x"],"joined":["a/x"],"left":[],"crashed":[],` +
		`"transitional":[],"primary":true}`
	welcome = `"welcome":{"client":"x","node":"a","cluster":"shop","build":"0.1.0"}`
)

// A peer is the agent's side of a connection, and follows a script.
type peer struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Scanner
}

// connect makes a client of a peer, which answers hello, follows the script, and ends when the client leaves.
func connect(t *testing.T, script func(p *peer), options ...Option) (*Client, context.Context) {
	t.Helper()
	ours, theirs := net.Pipe()
	p := &peer{t, theirs, bufio.NewScanner(theirs)}
	p.lines.Buffer(nil, 8<<20)
	scripted, played := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(played)
		defer theirs.Close()
		p.reply("hello", welcome)
		func() {
			defer close(scripted)
			script(p)
		}()
		for p.lines.Scan() && p.lines.Text() != `{"leave":{}}` {
		}
	}()
	dial := Dial(func(context.Context, string, string) (net.Conn, error) { return ours, nil })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // machines are busy
	c, err := Connect(ctx, "a:1", "x", append(options, dial)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-scripted:
		case <-ctx.Done():
			t.Error("the peer's script does not end")
		}
		cancel()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-played
	})
	return c, ctx
}

// heard is the next line, which must be this command.
func (p *peer) heard(op string) map[string]any {
	if !p.lines.Scan() {
		p.fail("expected %s, came the end: %v", op, p.lines.Err())
	}
	var line map[string]map[string]any
	if err := json.Unmarshal(p.lines.Bytes(), &line); err != nil || line[op] == nil {
		p.fail("expected %s, came %s (%v)", op, p.lines.Bytes(), err)
	}
	return line[op]
}

func (p *peer) fail(format string, of ...any) {
	p.t.Errorf(format, of...)
	runtime.Goexit()
}

func (p *peer) say(format string, of ...any) {
	if _, err := fmt.Fprintf(p.conn, format+"\n", of...); err != nil {
		p.fail("the client does not read: %v", err)
	}
}

// reply answers the next line, which must be this command.
func (p *peer) reply(op string, more ...string) map[string]any {
	asked := p.heard(op)
	if asked["id"] == nil {
		asked["id"] = 0
	}
	p.say(`{%s}`, strings.Join(append([]string{`"event":"reply"`, fmt.Sprintf(`"op":%q,"id":%v`, op, asked["id"])},
		more...), ","))
	return asked
}

func (p *peer) expect(came any, expected any) {
	if !reflect.DeepEqual(came, expected) {
		p.fail("expected %v, came %v", expected, came)
	}
}

func message(seq int) string {
	return fmt.Sprintf(`{"event":"message","group":"g","view":"1.1","sender":"a/x","seq":%d,"payload":%q}`,
		seq, strings.Repeat("x", 1000))
}

func (p *peer) messages(count int) {
	for seq := range count {
		p.say("%s", message(seq))
	}
}

func must[T any](of T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return of
	}
}

func isError(t *testing.T, err error, code Code, ran Ran) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || !errors.Is(err, code) || e.Ran != ran {
		t.Fatalf("expected %s with ran %s, came %#v", code, ran, err)
	}
	return e
}

func TestALineMayComeInPieces(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		for _, b := range []byte(viewLine + "\n" + `{"event":"message","group":"g","payload":"grüße"}` + "\n") {
			_, _ = p.conn.Write([]byte{b})
		}
	})
	g := must(c.Join(ctx, "g"))(t)
	v := must(g.Next(ctx))(t).(*View)
	m := must(g.Next(ctx))(t).(*Message)
	if v.Members[0] != "a/x" || m.Payload.String() != "grüße" {
		t.Errorf("%v %v", v, m)
	}
}

func TestALongLineIsTakenAndOneThatIsTooLongEndsTheConnection(t *testing.T) {
	long := strings.Repeat("x", 3<<20)
	c, ctx := connect(t, func(p *peer) {
		p.reply("get", fmt.Sprintf(`"value":%q,"version":7`, long))
		p.heard("get")
		_, _ = io.WriteString(p.conn, strings.Repeat("x", 5<<20))
	}, func(s *settings) { s.maxLineBytes = 4 << 20 })
	item := must(c.Map("m").Get(ctx, "k"))(t)
	if item.Value.String() != long || item.Version != 7 {
		t.Error("the value is another one")
	}
	_, err := c.Map("m").Get(ctx, "k")
	if e := isError(t, err, ErrConnection, RanMaybe); !strings.Contains(e.Reason, "4194304 bytes") {
		t.Error(e)
	}
}

func TestWhatIsCutOffByTheEndOfTheConnectionIsNoLine(t *testing.T) {
	c, _ := connect(t, func(p *peer) {
		_, _ = io.WriteString(p.conn, `{"event":"mess`)
		p.conn.Close()
	})
	<-c.Done()
	if e := isError(t, c.Err(), ErrConnection, RanMaybe); e.Reason != "the agent closed the connection" {
		t.Error(e)
	}
}

func TestRepliesInAnyOrderFindWhatWasAsked(t *testing.T) {
	first := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		one := p.heard("add")
		close(first)
		two := p.heard("add")
		p.say(`{"event":"reply","id":%v,"value":-5}`, two["id"])
		p.say(`{"event":"reply","id":%v,"value":9223372036854775807}`, one["id"])
	})
	go func() {
		<-first
		if value := must(c.Counter("c").Add(ctx, 2))(t); value != -5 {
			t.Error(value)
		}
	}()
	if value := must(c.Counter("c").Add(ctx, 1))(t); value != 1<<63-1 {
		t.Error(value)
	}
}

func TestAnErrorHasItsCodeAndWhatIsThere(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		put := p.reply("put", `"version":8`, `"error":{"code":"conflict","reason":"k has version 8","ran":"no"}`)
		p.expect(put["if_version"], 7.0)
		p.expect(put["ttl"], "251ms")
		p.reply("call", `"failures":{"b":{"code":"failed","reason":"no","ran":"yes","payload":"why"}}`,
			`"error":{"code":"failed","reason":"nobody","ran":"yes"}`)
	})
	_, err := c.Map("m").Put(ctx, "k", []byte("v"), IfVersion(7), TTL(250*time.Millisecond+1))
	if e := isError(t, err, ErrConflict, RanNo); e.Version != 8 {
		t.Error(e.Version)
	}
	_, err = c.Call(ctx, "g", "v", Nodes("b"), nil)
	if e := isError(t, err, ErrFailed, RanYes); string(e.Failures["b"].Payload) != "why" {
		t.Error(e.Failures)
	}
}

func TestAnErrorLineInPlaceOfAReplyIsTheAnswer(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.say(`{"event":"error","reason":"no","request":{"take_ids":{"count":-1,"id":%v}}}`, p.heard("take_ids")["id"])
		// Of a long line the agent repeats the beginning.
		p.heard("put")
		line, _ := json.Marshal(p.lines.Text()[:200] + "…")
		p.say(`{"event":"error","reason":"too long a ttl","request":%s}`, line)
		p.heard("why")
		p.say(`{"event":"error","reason":"no","request":{"why":{"node":"b"}}}`)
		p.heard("why")
		p.say(`{"event":"why","node":"b","facts":["joined"]}`)
	})
	_, err := c.TakeIDs(ctx, -1)
	isError(t, err, ErrRefused, RanNo)
	_, err = c.Map("m").Put(ctx, "k", make([]byte, 10_000))
	isError(t, err, ErrRefused, RanNo)
	_, err = c.Why(ctx, "b")
	isError(t, err, ErrRefused, RanNo)
	if facts := must(c.Why(ctx, "b"))(t); facts[0] != "joined" {
		t.Error(facts)
	}
	_, err = c.Map("m").Get(ctx, "\xff")
	isError(t, err, ErrRefused, RanNo)
	_, err = Connect(ctx, "localhost", "x")
	isError(t, err, ErrRefused, RanNo)
}

func TestALockForWhichNobodyWaitsAnyMoreIsGivenBack(t *testing.T) {
	asked := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		id := p.heard("lock")["id"]
		close(asked)
		p.expect(p.heard("cancel"), map[string]any{"of": id})
		// It was granted before the agent has read that.
		p.say(`{"event":"reply","op":"lock","id":%v,"token":7}`, id)
		p.expect(p.heard("unlock"), map[string]any{"name": "till", "token": 7.0})
	})
	waits, cancel := context.WithCancel(ctx)
	go func() {
		<-asked
		cancel()
	}()
	_, err := c.Lock(waits, "till")
	isError(t, err, ErrCancelled, RanMaybe)
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, err = c.Lock(waits, "till")
	isError(t, err, ErrCancelled, RanNo) // and nothing is sent
}

func TestALockIsGivenBackAlthoughTheContextIsOver(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("lock", `"token":7`)
		p.expect(p.heard("unlock")["token"], 7.0)
	})
	lock := must(c.Lock(ctx, "till", Within(time.Second)))(t)
	late, cancel := context.WithDeadline(ctx, time.Now())
	defer cancel()
	err := lock.Unlock(late)
	isError(t, err, ErrTimeout, RanMaybe)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestALossRightBehindTheGrantIsTold(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		id := p.reply("lock", `"token":18446744073709551615`)["id"]
		p.say(`{"event":"lost","what":"lock","name":"x","token":7,"id":%v,"cause":"lease"}`, id)
		p.reply("unlock", `"error":{"code":"not_held","reason":"no","ran":"no"}`)
	})
	lock := must(c.Lock(ctx, "x"))(t)
	<-lock.Lost()
	if e := isError(t, lock.Cause(), ErrLost, RanNo); e.Reason != "lease" || lock.Token != 1<<64-1 {
		t.Error(e, lock.Token)
	}
	isError(t, lock.Unlock(ctx), ErrNotHeld, RanNo)
}

func TestALockIsNotHeldAfterUnlockAndAJobIsLedUntilItIsHandedOver(t *testing.T) {
	unavailable := `"error":{"code":"unavailable","reason":"no majority","ran":"maybe"}`
	c, ctx := connect(t, func(p *peer) {
		p.reply("lock", `"token":7`)
		p.reply("unlock", unavailable)
		p.reply("lead", `"token":8`)
		p.reply("resign", unavailable)
		p.reply("resign", unavailable)
	})
	holds := func(l *Lock) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.held[l.id] == l
	}
	lock := must(c.Lock(ctx, "till"))(t)
	isError(t, lock.Unlock(ctx), ErrUnavailable, RanMaybe)
	job := must(c.Lead(ctx, "job"))(t)
	isError(t, job.Resign(ctx, "b"), ErrUnavailable, RanMaybe)
	if holds(lock) || !holds(job.Lock) {
		t.Error(holds(lock), holds(job.Lock))
	}
	isError(t, job.Unlock(ctx), ErrUnavailable, RanMaybe)
	if holds(job.Lock) {
		t.Error("it leads on")
	}
}

func TestAJoinForWhichNobodyWaitsAnyMoreIsLeftAgain(t *testing.T) {
	asked, left := make(chan struct{}), make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		id := p.heard("join")["id"]
		close(asked)
		p.heard("cancel")
		p.say(`{"event":"reply","op":"join","id":%v}`, id)
		p.messages(100) // more than a buffer has, and nobody reads
		p.expect(p.heard("leave"), map[string]any{"group": "g"})
		p.say(`{"event":"group_left","group":"g"}`)
		close(left)
		p.reply("members")
		p.reply("join")
	}, BufferBytes(10_000))
	waits, cancel := context.WithCancel(ctx)
	go func() {
		<-asked
		cancel()
	}()
	_, err := c.Join(waits, "g")
	isError(t, err, ErrCancelled, RanMaybe)
	<-left
	must(c.Members(ctx))(t)
	must(c.Join(ctx, "g"))(t)
}

func TestAGroupIsToldInOneStreamUntilItIsOver(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		for _, line := range []string{
			viewLine, `{"group":"g","payload":{"base64":"/wD+"},"safe":true,"event":"message"}`,
			`{"event":"refused","group":"g","reason":"no","fatal":false,"request":{"send":{"group":"g","payload":"p"}}}`,
			`{"event":"something new","group":"g"}`, `{"event":"resync","group":"g","cause":"away"}`,
			`{"event":"lost","what":"group","name":"g","cause":"slow: why"}`,
		} {
			p.say("%s", line)
		}
	})
	g := must(c.Join(ctx, "g"))(t)
	var told []string
	for event, err := range g.Events(ctx) {
		told = append(told, fmt.Sprintf("%T", event)+fmt.Sprint(err))
	}
	expected := "[*antiphon.View<nil> *antiphon.Message<nil> *antiphon.Refused<nil> *antiphon.Resync<nil> *antiphon.Lost<nil>]"
	if fmt.Sprint(told) != expected {
		t.Error(told)
	}
	isError(t, g.Send(ctx, nil), ErrNotHeld, RanNo)
	if err := g.Leave(ctx); err != nil {
		t.Error(err)
	}
}

func TestABundleIsToldAsMessagesWithTheirParts(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.expect(p.reply("join")["bundles"], true)
		p.say(`{"event":"bundle","group":"g","view":"1.1","sender":"a/x","seq":7,"safe":true,` +
			`"payloads":["one",{"base64":"/wD+"},"","gr\u00fc\u00dfe"]}`)
		p.say(`{"event":"message","group":"g","view":"1.1","sender":"a/x","seq":8,"part":3,"payload":"part"}`)
	})
	g := must(c.Join(ctx, "g"))(t)
	for part, payload := range []string{"one", "\xff\x00\xfe", "", "grüße"} {
		expected := &Message{"g", "1.1", "a/x", 7, Payload(payload), true, part}
		if m := must(g.Next(ctx))(t); !reflect.DeepEqual(m, expected) {
			t.Errorf("expected %v, came %v", expected, m)
		}
	}
	if m := must(g.Next(ctx))(t).(*Message); m.Seq != 8 || m.Part != 3 || g.size != 0 {
		t.Error(m, g.size)
	}
}

func TestARefusedMessageThatDoesNotComeBackHasNoPayload(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		for _, request := range []string{
			`{"send":{"group":"g"}}`, `{"send_bundle":{"group":"g"}}`, `{"send":{}}`, `{"send":{"payload":""}}`,
		} {
			p.say(`{"event":"refused","group":"g","reason":"no","fatal":false,"request":%s}`, request)
		}
	})
	g := must(c.Join(ctx, "g"))(t)
	for _, payload := range []Payload{nil, nil, nil, {}} {
		if r := must(g.Next(ctx))(t); !reflect.DeepEqual(r, &Refused{"g", "no", payload}) {
			t.Errorf("expected the payload %#v, came %#v", payload, r)
		}
	}
}

func TestSeveralPayloadsAreSaidInOneLineAndRefusedOneByOne(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		asked := p.reply("send_bundle")
		p.expect(asked["payloads"], []any{"one", map[string]any{"base64": "/wD+"}, ""})
		p.expect([]any{asked["group"], asked["safe"]}, []any{"g", true})
		p.expect(p.heard("send_bundle"), map[string]any{"group": "g", "payloads": []any{"<two>"}})
		p.say(`{"event":"refused","group":"g","reason":"no","request":{"send_bundle":{"payloads":["p",{"base64":"/w=="}]}}}`)
	})
	g := must(c.Join(ctx, "g"))(t)
	if err := g.SendBundle(ctx, [][]byte{[]byte("one"), {255, 0, 254}, nil}, Safe, Wait); err != nil {
		t.Error(err)
	}
	if err := g.SendBundle(ctx, [][]byte{[]byte("<two>")}); err != nil {
		t.Error(err)
	}
	for _, payload := range []string{"p", "\xff"} {
		if r := must(g.Next(ctx))(t).(*Refused); r.Reason != "no" || string(r.Payload) != payload {
			t.Error(r)
		}
	}
	isError(t, g.SendBundle(ctx, nil), ErrRefused, RanNo)
	long := []byte(strings.Repeat("\xff", 2<<20))
	isError(t, g.SendBundle(ctx, [][]byte{long, long}, Wait), ErrRefused, RanNo)
}

func TestNoBundleWithinItsBoundsMakesALineThatIsTooLong(t *testing.T) {
	even, mixed := make([][]byte, 4096), make([][]byte, 4096)
	for part := range even {
		even[part], mixed[part] = make([]byte, 253), make([]byte, 122)
	}
	mixed[4095] = make([]byte, 540_000)
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		for _, payloads := range [][][]byte{even, mixed} {
			p.reply("send_bundle")
			var line map[string]struct{ Payloads []Payload }
			if err := json.Unmarshal(p.lines.Bytes(), &line); err != nil {
				p.fail("%v", err)
			}
			said := line["send_bundle"].Payloads
			p.expect(len(said), len(payloads))
			for part, payload := range payloads {
				if !bytes.Equal(said[part], payload) {
					p.fail("the payload %d is another", part)
				}
			}
		}
	})
	g := must(c.Join(ctx, "g"))(t)
	for _, payloads := range [][][]byte{even, mixed} {
		if err := g.SendBundle(ctx, payloads, Wait); err != nil {
			t.Error(err)
		}
	}
}

func TestABundleStopsTheReadingUntilItsLastMessageIsTaken(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.say(`{"event":"bundle","group":"g","seq":7,"payloads":["x"%s]}`, strings.Repeat(`,"x"`, 299))
	}, BufferBytes(10_000))
	g := must(c.Join(ctx, "g"))(t)
	for !c.holdsUp() {
		runtime.Gosched()
	}
	for part := range 300 {
		if m := must(g.Next(ctx))(t).(*Message); m.Part != part || c.holdsUp() != (part < 299) {
			t.Fatal(m, part)
		}
	}
}

func TestAGroupThatNobodyReadsStopsTheReading(t *testing.T) {
	said := make(chan int, 1000)
	replied := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		lock := p.heard("lock")["id"]
		p.reply("join")
		for seq := range 1000 {
			p.say("%s", message(seq))
			said <- seq
		}
		p.say(`{"event":"reply","op":"lock","id":%v,"token":7}`, lock)
	}, BufferBytes(10_000))
	// It waits since before the group was joined: so it is not what reads the group.
	go func() {
		defer close(replied)
		must(c.Lock(ctx, "till"))(t)
	}()
	for c.asks() == 0 {
		runtime.Gosched()
	}
	g := must(c.Join(ctx, "g"))(t)
	for !c.holdsUp() {
		runtime.Gosched()
	}
	// What was said is in the buffer, or in that of the lines.
	if many := len(said); many > 10+64+2 {
		t.Errorf("%d messages were read although nobody takes them", many)
	}
	select {
	case <-replied:
		t.Error("the reply is behind what is not read")
	default:
	}
	for seq := range 1000 {
		if m := must(g.Next(ctx))(t).(*Message); m.Seq != uint64(seq) {
			t.Fatal(seq, m.Seq)
		}
	}
	<-replied
}

func TestAReaderThatWaitsForAReplyGetsIt(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.messages(1000)
		p.reply("lock", `"token":7`)
		p.messages(1000)
		p.reply("unlock")
		p.heard("send")
	}, BufferBytes(10_000))
	g := must(c.Join(ctx, "g"))(t)
	lock := must(c.Lock(ctx, "till"))(t)
	must(g.Next(ctx))(t)
	if err := lock.Unlock(ctx); err != nil {
		t.Error(err)
	}
	for seq := 1; seq < 2000; seq++ {
		if m := must(g.Next(ctx))(t).(*Message); m.Seq != uint64(seq%1000) {
			t.Fatal(seq, m.Seq)
		}
	}
	if err := g.Send(ctx, []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestAReaderMayLeaveAnotherGroup(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.reply("join")
		p.messages(1000)
		p.reply("leave")
		p.messages(1000) // of the group that is read, while the other one is being left
		p.say(`{"event":"group_left","group":"h"}`)
	}, BufferBytes(10_000))
	g, other := must(c.Join(ctx, "g"))(t), must(c.Join(ctx, "h"))(t)
	must(g.Next(ctx))(t)
	within, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if err := other.Leave(within); err != nil {
		t.Error(err)
	}
	for seq := 1; seq < 2000; seq++ {
		if m := must(g.Next(ctx))(t).(*Message); m.Seq != uint64(seq%1000) {
			t.Fatal(seq, m.Seq)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		t.Error(c.waiting)
	}
}

func TestAWaitThatWentOnWhenAnEventWasTakenIsNotTheReaders(t *testing.T) {
	replied := make(chan struct{})
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		id := p.heard("add")["id"]
		p.messages(1000)
		p.say(`{"event":"reply","op":"add","id":%v,"value":1}`, id)
	}, BufferBytes(10_000))
	g := must(c.Join(ctx, "g"))(t)
	go func() {
		defer close(replied)
		must(c.Counter("c").Add(ctx, 1))(t)
	}()
	must(g.Next(ctx))(t)
	for !c.holdsUp() {
		runtime.Gosched()
	}
	for seq := 1; seq < 1000; seq++ {
		if event, ok := must(g.Next(ctx))(t).(*Message); !ok {
			t.Fatalf("expected message %d, came %v", seq, event)
		}
	}
	<-replied
}

func TestAReaderThatWaitsWhileTooMuchComesIsOutOfTheGroup(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		id := p.heard("lock")["id"]
		p.messages(100)
		p.say(`{"event":"reply","op":"lock","id":%v,"token":7}`, id)
		p.expect(p.heard("leave"), map[string]any{"group": "g"})
		p.say(`{"event":"group_left","group":"g"}`)
	}, BufferBytes(3000), func(s *settings) { s.mostBytes = 10_000 })
	g := must(c.Join(ctx, "g"))(t)
	must(c.Lock(ctx, "till"))(t)
	var last Event
	count := 0
	for event, err := range g.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		last = event
		count++
	}
	if lost, ok := last.(*Lost); !ok || !strings.HasPrefix(lost.Cause, "slow") || count > 12 {
		t.Error(count, last)
	}
}

func TestAWatchBeginsWithWhatIsThereAndMayBeLost(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		asked := p.reply("watch")
		p.expect(asked["prefix"], "u/")
		for _, line := range []string{
			`{"event":"watching","map":"m","id":%v,"entries":1}`,
			`{"event":"changed","map":"m","id":%v,"key":"u/1","value":"v","version":7}`,
			`{"event":"changed","map":"m","id":%v,"key":"u/1","value":null,"version":8,"gone":"expired"}`,
			`{"event":"lost","what":"watch","name":"m","id":%v,"cause":"no majority"}`,
		} {
			p.say(line, asked["id"])
		}
		asked = p.reply("watch")
		p.expect(p.heard("cancel")["of"], asked["id"])
	})
	w := must(c.Map("m").WatchPrefix(ctx, "u/"))(t)
	if e := must(w.Next(ctx))(t).(*Watching); e.Entries != 1 {
		t.Error(e)
	}
	if e := must(w.Next(ctx))(t).(*Changed); string(e.Value) != "v" || e.Version != 7 {
		t.Error(e)
	}
	if e := must(w.Next(ctx))(t).(*Changed); e.Value != nil || e.Gone != "expired" {
		t.Error(e)
	}
	_, err := w.Next(ctx)
	isError(t, err, ErrLost, RanNo)
	w.Close() // says nothing more
	w = must(c.Map("m").Watch(ctx, "k"))(t)
	w.Close()
	if _, err := w.Next(ctx); err != io.EOF {
		t.Error(err)
	}
}

func TestALostConnectionIsToldToAllThatWait(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.reply("lock", `"token":7`)
		p.say("%s", message(1))
		p.say(`{"event":"refused","group":null,"reason":"8192 programs are served","fatal":true}`)
		p.heard("add")
		p.conn.Close()
	})
	g := must(c.Join(ctx, "g"))(t)
	lock := must(c.Lock(ctx, "x"))(t)
	_, err := c.Counter("c").Add(ctx, 1)
	if e := isError(t, err, ErrConnection, RanMaybe); e.Reason != "8192 programs are served" {
		t.Error(e)
	}
	<-lock.Lost()
	isError(t, lock.Cause(), ErrConnection, RanMaybe)
	must(g.Next(ctx))(t)
	_, err = g.Next(ctx)
	isError(t, err, ErrConnection, RanMaybe)
	isError(t, g.Send(ctx, nil), ErrConnection, RanNo)
	isError(t, g.Leave(ctx), ErrConnection, RanNo)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestABundleOfNothingEndsTheConnection(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.say(`{"event":"bundle","group":"g","seq":7,"payloads":[]}`)
	})
	g := must(c.Join(ctx, "g"))(t)
	_, err := g.Next(ctx)
	if e := isError(t, err, ErrConnection, RanMaybe); !strings.Contains(e.Reason, "a bundle without payloads") {
		t.Error(e)
	}
}

func TestAContextEndsTheWaitForAnEvent(t *testing.T) {
	c, ctx := connect(t, func(p *peer) {
		p.reply("join")
		p.heard("leave")
		p.say(`{"event":"group_left","group":"g"}`)
	})
	g := must(c.Join(ctx, "g"))(t)
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	_, err := g.Next(short)
	isError(t, err, ErrTimeout, RanNo)
	isError(t, g.Leave(short), ErrTimeout, RanMaybe)
	<-g.gone
}

func TestNoPayloadMakesALineThatIsTooLong(t *testing.T) {
	for _, payload := range []string{
		strings.Repeat("\x01", 1048570), strings.Repeat("ä", 524285), strings.Repeat("\xff", 1048570), "", "<&>",
	} {
		line := must(command("send", 0, fields{"group": "g", "payload": Payload(payload).plain()}))(t)
		var back struct{ Send struct{ Payload Payload } }
		if err := json.Unmarshal(line, &back); err != nil || string(back.Send.Payload) != payload || len(line) > 4<<20 {
			t.Error(err, len(line))
		}
	}
}

func TestEveryEventOfTheGoldenFileIsUnderstood(t *testing.T) {
	golden, err := os.ReadFile("../../crates/antiphon-api/golden/events.txt")
	if err != nil {
		t.Skip("not in the repository")
	}
	// The ids of this client are numbers.
	for _, line := range strings.Split(strings.ReplaceAll(string(golden), `"id":"p"`, `"id":5`), "\n") {
		// A client is told no payload in a file.
		if strings.HasPrefix(line, "{") && !strings.Contains(line, `"file"`) {
			if _, err := decode([]byte(line)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
}

func (c *Client) asks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asked)
}

func (c *Client) holdsUp() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heldUp()
}
