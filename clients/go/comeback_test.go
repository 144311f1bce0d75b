package antiphon

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const resumable = `"welcome":{"client":"x","node":"a","cluster":"shop","build":"0.1.0","resume":"KEY"}`

// come makes a client of peers, one after the other: each follows its script, and its end breaks the
// connection. The last one goes on until the client leaves.
func come(t *testing.T, scripts ...func(p *peer)) (*Client, context.Context) {
	t.Helper()
	next, played := 0, make(chan struct{})
	dial := Dial(func(ctx context.Context, _, _ string) (net.Conn, error) {
		if next == len(scripts) {
			return nil, errors.New("there is no further script")
		}
		ours, theirs := net.Pipe()
		p := &peer{t, theirs, bufio.NewScanner(theirs)}
		p.lines.Buffer(nil, 8<<20)
		script, last := scripts[next], next == len(scripts)-1
		next++
		go func() {
			defer theirs.Close()
			if last {
				defer close(played)
			}
			script(p)
			for last && p.lines.Scan() && p.lines.Text() != `{"leave":{}}` {
			}
		}()
		return ours, nil
	})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	c, err := Connect(ctx, "a:1", "x", dial, Grace(5*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		select {
		case <-played:
		case <-ctx.Done():
			t.Error("the last script does not end")
		}
		cancel()
	})
	return c, ctx
}

// welcomes answers a first hello.
func (p *peer) welcomes() { p.expect(p.reply("hello", resumable)["grace"], "5000ms") }

// resumes answers the hello of a client that comes back: it has taken so many lines, and so many of its own
// were taken.
func (p *peer) resumes(has, taken int) {
	hello := p.heard("hello")
	p.expect([]any{hello["resume"], hello["lines"], hello["name"]}, []any{"KEY", float64(has), "x"})
	p.say(`{"event":"reply","op":"hello",%s,"resumed":%d}}`, strings.TrimSuffix(resumable, "}"), taken)
}

func TestWhatIsCutOffInTheMiddleOfALineComesOnceInBothDirections(t *testing.T) {
	var again map[string]any
	c, ctx := come(t,
		func(p *peer) {
			p.welcomes()
			p.reply("join")
			p.say("%s", message(0))
			_, _ = io.WriteString(p.conn, message(1)[:500]) // and of the next command the half is read
			_, _ = io.ReadFull(p.conn, make([]byte, 20))
		},
		func(p *peer) { // breaks again before it has done anything
			p.resumes(3, 2)
		},
		func(p *peer) {
			p.resumes(3, 2)
			p.say("%s", message(1))
			again = p.heard("send")
			p.say("%s", message(2))
			p.reply("add", `"value":1`)
		},
	)
	g := must(c.Join(ctx, "g"))(t)
	must(g.Next(ctx))(t)
	if err := g.Send(ctx, []byte("once")); err != nil {
		t.Error(err)
	}
	for seq := range 2 {
		if m := must(g.Next(ctx))(t).(*Message); m.Seq != uint64(seq+1) {
			t.Errorf("expected message %d, came %d", seq+1, m.Seq)
		}
	}
	must(c.Counter("c").Add(ctx, 1))(t)
	if again["payload"] != "once" {
		t.Error(again)
	}
}

func TestABundleCountsAsOneLineInBothDirections(t *testing.T) {
	c, ctx := come(t,
		func(p *peer) {
			p.welcomes()
			p.reply("join")
			p.say(`{"event":"bundle","group":"g","seq":1,"payloads":["0","1","2"]}`)
			p.heard("send_bundle")
		},
		func(p *peer) {
			p.resumes(3, 3)
			p.reply("send_bundle")
		},
	)
	g := must(c.Join(ctx, "g"))(t)
	for part := range 3 {
		if m := must(g.Next(ctx))(t).(*Message); m.Part != part {
			t.Error(m)
		}
	}
	for _, options := range [][]SendOption{nil, {Wait}} {
		if err := g.SendBundle(ctx, [][]byte{[]byte("one"), []byte("two")}, options...); err != nil {
			t.Error(err)
		}
	}
}

func TestAClientThatIsClosedWhileItsConnectionIsBrokenLeavesInOrder(t *testing.T) {
	closing := make(chan struct{})
	c, _ := come(t,
		func(p *peer) { p.welcomes() },
		func(p *peer) {
			hello := p.heard("hello")
			<-closing
			p.expect(hello["resume"], "KEY")
			p.say(`{"event":"reply","op":"hello",%s,"resumed":1}}`, strings.TrimSuffix(resumable, "}"))
			p.heard("leave")
			p.conn.Close()
		},
	)
	for !c.locked(func() bool { return c.number == 1 }) {
		time.Sleep(time.Millisecond)
	}
	go func() {
		for !c.locked(func() bool { return c.closing }) {
			time.Sleep(time.Millisecond)
		}
		close(closing)
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

func TestAClientThatDoesNotComeBackInTimeIsLost(t *testing.T) {
	ours, theirs := net.Pipe()
	dials := 0
	dial := Dial(func(context.Context, string, string) (net.Conn, error) {
		if dials++; dials > 1 {
			return nil, errors.New("nobody is there")
		}
		return ours, nil
	})
	go func() {
		p := &peer{t, theirs, bufio.NewScanner(theirs)}
		p.reply("hello", resumable)
		p.heard("add")
		theirs.Close()
	}()
	ctx := context.Background()
	c := must(Connect(ctx, "a:1", "", dial, Grace(250*time.Millisecond)))(t)
	began := time.Now()
	_, err := c.Counter("c").Add(ctx, 1)
	e := isError(t, err, ErrConnection, RanMaybe)
	if !strings.Contains(e.Reason, "within 250ms: nobody is there") || time.Since(began) < 250*time.Millisecond || dials < 3 {
		t.Error(e, time.Since(began), dials)
	}
	_, err = Connect(ctx, "a:1", "", Grace(11*time.Second))
	isError(t, err, ErrRefused, RanNo)
}

func TestAClientThatComesBackAsANewOneIsInItsGroupsAgainAndHoldsNothing(t *testing.T) {
	broken, asked := make(chan struct{}), make(chan struct{})
	c, ctx := come(t,
		func(p *peer) {
			p.welcomes()
			p.reply("join")
			p.reply("lock", `"token":7`)
			p.reply("watch")
			p.reply("serve")
			p.reply("serve_command")
			p.say(`{"event":"request","group":"g","request":1,"verb":"v","from":"b","payload":"old","within_ms":9000}`)
			p.heard("add")
			<-broken
		},
		func(p *peer) { // the name is taken still
			p.reply("hello", `"error":{"code":"refused","reason":"another client is called x","ran":"no"}`)
			p.heard("leave")
		},
		func(p *peer) {
			<-asked
			p.reply("hello", resumable)
			again := map[string]any{}
			for range 3 { // in any order
				if !p.lines.Scan() {
					p.fail("%v", p.lines.Err())
				}
				var line map[string]map[string]any
				_ = json.Unmarshal(p.lines.Bytes(), &line)
				for op, of := range line {
					again[op] = of["group"]
					p.say(`{"event":"reply","op":%q,"id":%v}`, op, of["id"])
				}
			}
			p.expect(again, map[string]any{"join": "g", "serve": "g", "serve_command": nil})
			p.say(`{"event":"request","group":"g","request":1,"verb":"v","from":"b","payload":"new","within_ms":9000}`)
			answer := p.reply("answer")
			p.expect([]any{answer["request"], answer["payload"]}, []any{1.0, "new"})
			p.say("%s", viewLine)
			p.reply("send")
		},
	)
	g := must(c.Join(ctx, "g"))(t)
	lock := must(c.Lock(ctx, "till"))(t)
	w := must(c.Map("m").Watch(ctx, "k"))(t)
	begun := make(chan struct{}, 1)
	serve := func(ctx context.Context, r *Request) ([]byte, error) {
		if r.Payload.String() == "old" {
			begun <- struct{}{}
			<-ctx.Done() // this client is another one
		}
		return r.Payload, nil
	}
	if err := errors.Join(c.Serve(ctx, "g", "v", serve), c.ServeCommand(ctx, "flush", serve)); err != nil {
		t.Fatal(err)
	}
	<-begun
	var adding sync.WaitGroup
	add := func(ran Ran) {
		adding.Add(1)
		go func() {
			defer adding.Done()
			_, err := c.Counter("c").Add(ctx, 1)
			isError(t, err, ErrConnection, ran)
		}()
		many := c.asks() + 1
		for c.asks() != many {
			time.Sleep(time.Millisecond)
		}
	}
	add(RanMaybe)
	close(broken)
	for !c.locked(func() bool { return c.number == 1 }) {
		time.Sleep(time.Millisecond)
	}
	add(RanNo) // it is not even written
	close(asked)
	if r := must(g.Next(ctx))(t).(*Resync); r.Cause != anew {
		t.Error(r)
	}
	if v := must(g.Next(ctx))(t).(*View); v.Members[0] != "a/x" {
		t.Error(v)
	}
	adding.Wait()
	<-lock.Lost()
	isError(t, lock.Cause(), ErrLost, RanNo)
	_, err := w.Next(ctx)
	isError(t, err, ErrLost, RanNo)
	if err := g.Send(ctx, []byte("back"), Wait); err != nil {
		t.Error(err)
	}
}

func TestAFullGroupIsLeftBehindItsJoinWhenTheClientIsANewOne(t *testing.T) {
	broken := make(chan struct{})
	c, ctx := come(t,
		func(p *peer) {
			p.welcomes()
			p.reply("join")
			p.say("%s", message(0))
			<-broken
		},
		func(p *peer) {
			p.reply("hello", resumable)
			p.expect(p.reply("join")["group"], "g")
			p.expect(p.heard("leave"), map[string]any{"group": "g"})
			p.say(`{"event":"group_left","group":"g"}`)
			p.reply("join")
		},
	)
	g := must(c.Join(ctx, "g"))(t)
	for c.locked(func() bool { c.mostBytes = 1; return g.size == 0 }) { // it is not read
		time.Sleep(time.Millisecond)
	}
	close(broken)
	for c.locked(func() bool { return c.groups["g"] == g && c.Err() == nil }) {
		time.Sleep(time.Millisecond)
	}
	must(g.Next(ctx))(t)
	if _, lost := must(g.Next(ctx))(t).(*Lost); !lost {
		t.Error("it is read no more, and does not say so")
	}
	must(c.Join(ctx, "g"))(t)
}

func TestSendingWaitsWhileTheAgentTakesNothing(t *testing.T) {
	let := make(chan struct{})
	c, ctx := come(t, func(p *peer) {
		p.welcomes()
		p.reply("join")
		for range 11 {
			p.heard("send")
		}
		<-let
		p.say(`{"event":"took","lines":13}`)
		for range 5 {
			p.heard("send")
		}
	})
	g := must(c.Join(ctx, "g"))(t)
	var sent atomic.Int32
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 16 {
			if err := g.Send(ctx, bytes.Repeat([]byte("x"), 100_000)); err != nil {
				t.Error(err)
			}
			sent.Add(1)
		}
	}()
	for !c.locked(func() bool { return c.room.rung != nil && len(c.outgoing) == 0 && len(c.kept) >= keptBytes }) {
		time.Sleep(time.Millisecond)
	}
	if sent.Load() != 11 {
		t.Errorf("%d messages of 100 kB are kept", sent.Load())
	}
	close(let)
	<-done
}

// A keeper is an agent's side of the protocol. Its connections break after random bytes, in each direction.
type keeper struct {
	t      *testing.T
	mu     sync.Mutex
	random *rand.Rand
	breaks int

	accepted, tookSaid, tookHeard int
	ids                           map[any]bool
	told                          []string
	more                          *sync.Cond
	number                        int // of the connection
}

// A fraying connection breaks when its bytes are used up.
type fraying struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (f *fraying) spend(bytes int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes = min(bytes, f.left)
	f.left -= bytes
	return bytes
}

func (f *fraying) Write(bytes []byte) (int, error) {
	may := f.spend(len(bytes))
	n, err := f.Conn.Write(bytes[:may])
	if n < len(bytes) {
		f.Conn.Close()
		return n, errors.Join(err, io.ErrClosedPipe)
	}
	return n, err
}

func (f *fraying) Read(bytes []byte) (int, error) {
	may := f.spend(len(bytes))
	if may == 0 {
		f.Conn.Close()
		return 0, io.EOF
	}
	n, err := f.Conn.Read(bytes[:may])
	f.mu.Lock()
	f.left += may - n
	f.mu.Unlock()
	return n, err
}

func (k *keeper) dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	conn := net.Conn(theirs)
	if k.breaks > 0 {
		k.breaks--
		conn = &fraying{Conn: theirs, left: 300 + k.random.Intn(30_000)}
	}
	go k.serve(conn, k.number)
	return ours, nil
}

func (k *keeper) serve(conn net.Conn, number int) {
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	lines.Split(wholeLines)
	from := -1
	for lines.Scan() {
		var line map[string]map[string]any
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			k.t.Error(err)
			return
		}
		k.mu.Lock()
		if k.number != number { // another has taken over
			k.mu.Unlock()
			return
		}
		for op, of := range line {
			if from < 0 {
				from = 0
				first := fmt.Sprintf(`{"event":"reply","op":"hello","id":%v,%s}`, of["id"], resumable)
				if of["resume"] != nil {
					from = int(of["lines"].(float64))
					first = fmt.Sprintf(`{"event":"reply","op":"hello",%s,"resumed":%d}}`,
						strings.TrimSuffix(resumable, "}"), k.accepted)
					_, _ = io.WriteString(conn, first+"\n")
					go k.write(conn, number, from)
					continue
				}
				k.accepted++
				k.told = append(k.told, first)
				go k.write(conn, number, from)
				continue
			}
			k.take(op, of)
		}
		k.more.Broadcast()
		k.mu.Unlock()
	}
	k.mu.Lock()
	k.more.Broadcast()
	k.mu.Unlock()
}

func (k *keeper) take(op string, of map[string]any) {
	if op == "took" {
		lines := int(of["lines"].(float64))
		if lines <= k.tookHeard || lines > len(k.told) {
			k.t.Errorf("the client took %d, then %d of %d lines", k.tookHeard, lines, len(k.told))
		}
		k.tookHeard = lines
		return
	}
	k.accepted++
	if id := of["id"]; id != nil {
		if k.ids[id] {
			k.t.Errorf("%s with id %v came twice", op, id)
		}
		k.ids[id] = true
		k.told = append(k.told, fmt.Sprintf(`{"event":"reply","op":%q,"id":%v,"value":%d}`, op, id, len(k.ids)))
	}
	if op == "send" {
		text, _ := json.Marshal(of["payload"])
		k.told = append(k.told, fmt.Sprintf(`{"event":"message","group":"g","payload":%s}`, text))
	}
}

// write tells what was told from this line on, and what was taken.
func (k *keeper) write(conn net.Conn, number, from int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for k.number == number {
		line := ""
		switch {
		case k.accepted >= k.tookSaid+256:
			k.tookSaid = k.accepted
			line = fmt.Sprintf(`{"event":"took","lines":%d}`, k.accepted)
		case from < len(k.told):
			line = k.told[from]
			from++
		default:
			k.more.Wait()
			continue
		}
		k.mu.Unlock()
		_, err := io.WriteString(conn, line+"\n")
		k.mu.Lock()
		if err != nil {
			return
		}
	}
}

func TestAConnectionThatBreaksAnywhereLosesAndRepeatsNothing(t *testing.T) {
	const many = 3000
	for seed := range int64(3) {
		k := &keeper{t: t, random: rand.New(rand.NewSource(seed)), breaks: 40, ids: map[any]bool{}}
		k.more = sync.NewCond(&k.mu)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		c := must(Connect(ctx, "a:1", "x", Dial(k.dial), Grace(10*time.Second)))(t)
		g := must(c.Join(ctx, "g"))(t)
		var working sync.WaitGroup
		working.Add(2)
		go func() {
			defer working.Done()
			for n := range many {
				if err := g.Send(ctx, fmt.Appendf(nil, "%d %s", n, strings.Repeat("x", 80))); err != nil {
					t.Error(err)
				}
			}
		}()
		go func() {
			defer working.Done()
			for range 300 {
				if _, err := c.Counter("c").Add(ctx, 1); err != nil {
					t.Error(err)
				}
			}
		}()
		for n := range many {
			m := must(g.Next(ctx))(t).(*Message)
			if !strings.HasPrefix(m.Payload.String(), fmt.Sprintf("%d x", n)) {
				t.Fatalf("seed %d: expected message %d, came %s", seed, n, m.Payload)
			}
		}
		working.Wait()
		k.mu.Lock()
		if k.breaks > 0 || k.accepted != 1+1+many+300 || len(k.told)-k.tookHeard > 2*tellLines {
			t.Errorf("seed %d: %d breaks were not needed, %d lines came, %d of %d were taken",
				seed, k.breaks, k.accepted, k.tookHeard, len(k.told))
		}
		k.mu.Unlock()
		c.mu.Lock()
		c.giveUp("the test is over")
		c.mu.Unlock()
		<-c.Done()
		cancel()
	}
}

func (c *Client) locked(what func() bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return what()
}
