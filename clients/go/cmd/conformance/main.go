// Command conformance is the driver of the client: see clients/conformance/README.md.
package main

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
	"strings"
	"sync"
	"time"

	antiphon "github.com/antiphon-project/antiphon/clients/go"
)

var (
	ctx     = context.Background()
	printed sync.Mutex
)

// A command has the members of all commands.
type command struct {
	ID      int              `json:"id"`
	Do      string           `json:"do"`
	Address string           `json:"address"`
	Name    string           `json:"name"`
	Node    string           `json:"node"`
	Group   string           `json:"group"`
	Verb    string           `json:"verb"`
	How     string           `json:"how"`
	Map     string           `json:"map"`
	Key     *string          `json:"key"`
	Prefix  string           `json:"prefix"`
	Counter string           `json:"counter"`
	To      any              `json:"to"`
	Payload antiphon.Payload `json:"payload"`
	Value   antiphon.Payload `json:"value"`
	Bundle  bundle           `json:"payloads"`
	Version *uint64          `json:"if_version"`
	Within  *float64         `json:"within"`
	TTL     *float64         `json:"ttl"`
	Grace   float64          `json:"grace"`
	By      int64            `json:"by"`
	Count   int              `json:"count"`
	Safe    bool             `json:"safe"`
	Wait    bool             `json:"wait"`
	Latest  bool             `json:"latest"`
}

type object map[string]any

type bundle []antiphon.Payload

func (b bundle) bytes() [][]byte {
	all := make([][]byte, len(b))
	for part, payload := range b {
		all[part] = payload
	}
	return all
}

// A driver has what its commands name.
type driver struct {
	mu     sync.Mutex
	client *antiphon.Client
	conn   net.Conn
	groups map[string]*joined
	locks  map[string]*antiphon.Lock
	leads  map[string]*antiphon.Leadership

	beginning []byte // of the line that is to be on its way before the next command is done
	begun     chan struct{}
}

type joined struct {
	*antiphon.Group
	flowing sync.Mutex // held while the group is paused
}

func main() {
	d := &driver{begun: make(chan struct{}, 1)}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var c command
		if err := json.Unmarshal(line, &c); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		op := c.Do
		switch {
		case op == "connect":
			op = "hello"
		case op == "lock", op == "lead", op == "call", c.Wait:
		default:
			d.obey(c)
			continue
		}
		// It may take long. The next command begins when this one is on its way.
		d.mu.Lock()
		d.beginning = fmt.Appendf(nil, `{"%s":{"id":`, op)
		select {
		case <-d.begun:
		default:
		}
		d.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			d.obey(c)
		}()
		select {
		case <-d.begun:
		case <-done:
		}
	}
}

// watched tells the driver what is sent.
type watched struct {
	net.Conn
	*driver
}

func (w watched) Write(lines []byte) (int, error) {
	w.mu.Lock()
	if bytes.Contains(lines, w.beginning) {
		select {
		case w.begun <- struct{}{}:
		default:
		}
	}
	w.mu.Unlock()
	return w.Conn.Write(lines)
}

func (d *driver) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	return watched{conn, d}, nil
}

// cut breaks the connection.
func (d *driver) cut() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	socket, ok := d.conn.(interface {
		CloseRead() error
		CloseWrite() error
	})
	if !ok {
		return fmt.Errorf("a %T cannot be cut", d.conn)
	}
	// One of both fails if the other end has done it.
	_, _ = socket.CloseWrite(), socket.CloseRead()
	return nil
}

func say(line object) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // it is made of what came as JSON
	}
	printed.Lock()
	defer printed.Unlock()
	_, _ = os.Stdout.Write(append(text, '\n'))
}

// tell prints an event with more members.
func tell(name string, event any, more object) {
	text, err := json.Marshal(event)
	line := object{}
	if err == nil {
		numbers := json.NewDecoder(bytes.NewReader(text))
		numbers.UseNumber() // versions have 64 bits
		err = numbers.Decode(&line)
	}
	if err != nil {
		panic(err)
	}
	line["event"] = name
	for key, value := range more {
		line[key] = value
	}
	say(line)
}

func (d *driver) obey(c command) {
	ok, err := d.do(c)
	if err != nil {
		say(object{"id": c.ID, "error": plain(err)})
	} else {
		say(object{"id": c.ID, "ok": ok})
	}
}

func plain(err error) any {
	var e *antiphon.Error
	if !errors.As(err, &e) {
		return object{"code": "driver", "reason": err.Error(), "ran": "maybe"}
	}
	of := object{"code": e.Code, "reason": e.Reason, "ran": e.Ran}
	if e.Payload != nil {
		of["payload"] = e.Payload
	}
	if e.Version != 0 {
		of["version"] = e.Version
	}
	if e.Failures != nil {
		of["failures"] = failures(e.Failures)
	}
	return of
}

func failures(of map[string]*antiphon.Error) object {
	all := object{}
	for name, err := range of {
		all[name] = plain(err)
	}
	return all
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func item(item antiphon.Item, err error) (any, error) {
	if err != nil || item.Version == 0 {
		return nil, err
	}
	return object{"value": item.Value, "version": item.Version}, nil
}

// take gives what a map has, and removes it.
func take[T any](d *driver, from map[string]T, name string) (T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	of, ok := from[name]
	delete(from, name)
	if !ok {
		return of, fmt.Errorf("there is no %s here", name)
	}
	return of, nil
}

func (d *driver) do(c command) (any, error) {
	d.mu.Lock()
	client, group := d.client, d.groups[c.Group]
	groups, locks, leads := d.groups, d.locks, d.leads
	d.mu.Unlock()
	var wait []antiphon.WaitOption
	if c.Within != nil {
		wait = append(wait, antiphon.Within(seconds(*c.Within)))
	}
	if client == nil && c.Do != "connect" {
		return nil, errors.New("connect first")
	}
	switch c.Do {
	case "connect":
		client, err := antiphon.Connect(ctx, c.Address, c.Name, antiphon.Dial(d.dial), antiphon.Grace(seconds(c.Grace)))
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.client, d.groups = client, map[string]*joined{}
		d.locks, d.leads = map[string]*antiphon.Lock{}, map[string]*antiphon.Leadership{}
		return object{"member": client.Member()}, nil
	case "cut":
		return nil, d.cut()
	case "close":
		return nil, client.Close()
	case "members":
		members, err := client.Members(ctx)
		if err != nil {
			return nil, err
		}
		nodes := []string{}
		for _, node := range members.Nodes {
			nodes = append(nodes, node.Name)
		}
		return object{"nodes": nodes}, nil
	case "why":
		facts, err := client.Why(ctx, c.Node)
		return object{"facts": facts}, err
	case "join":
		g, err := client.Join(ctx, c.Group)
		if err != nil {
			return nil, err
		}
		group := &joined{Group: g}
		d.mu.Lock()
		groups[c.Group] = group
		d.mu.Unlock()
		go group.follow()
		return nil, nil
	case "leave":
		if _, err := take(d, groups, c.Group); err != nil {
			return nil, err
		}
		return nil, group.Leave(ctx)
	case "send", "send_bundle", "pause", "resume":
		if group == nil {
			return nil, fmt.Errorf("join %s first", c.Group)
		}
		switch c.Do {
		case "pause":
			group.flowing.Lock()
			return nil, nil
		case "resume":
			group.flowing.Unlock()
			return nil, nil
		}
		var options []antiphon.SendOption
		if c.Safe {
			options = append(options, antiphon.Safe)
		}
		if c.Wait {
			options = append(options, antiphon.Wait)
		}
		if c.Do == "send_bundle" {
			return nil, group.SendBundle(ctx, c.Bundle.bytes(), options...)
		}
		return nil, group.Send(ctx, c.Payload, options...)
	case "lock":
		lock, err := client.Lock(ctx, c.Name, wait...)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		locks[c.Name] = lock
		d.mu.Unlock()
		return held("lock", lock), nil
	case "unlock":
		lock, err := take(d, locks, c.Name)
		if err != nil {
			return nil, err
		}
		return nil, lock.Unlock(ctx)
	case "lead":
		lead, err := client.Lead(ctx, c.Name)
		if err != nil {
			return nil, err
		}
		d.mu.Lock()
		leads[c.Name] = lead
		d.mu.Unlock()
		return held("lead", lead.Lock), nil
	case "resign":
		lead, err := take(d, leads, c.Name)
		if err != nil {
			return nil, err
		}
		to, _ := c.To.(string)
		if err := lead.Resign(ctx, to); err != nil {
			d.mu.Lock()
			leads[c.Name] = lead // it leads on, if the node that is named does not wait
			d.mu.Unlock()
			return nil, err
		}
		return nil, nil
	case "get":
		if c.Latest {
			return item(client.Map(c.Map).Latest(ctx, *c.Key))
		}
		return item(client.Map(c.Map).Get(ctx, *c.Key))
	case "put":
		var options []antiphon.PutOption
		if c.Version != nil {
			options = append(options, antiphon.IfVersion(*c.Version))
		}
		if c.TTL != nil {
			options = append(options, antiphon.TTL(seconds(*c.TTL)))
		}
		version, err := client.Map(c.Map).Put(ctx, *c.Key, c.Value, options...)
		return object{"version": version}, err
	case "remove":
		if c.Version != nil {
			return item(client.Map(c.Map).RemoveIf(ctx, *c.Key, *c.Version))
		}
		return item(client.Map(c.Map).Remove(ctx, *c.Key))
	case "watch":
		return nil, watch(client, c)
	case "add":
		value, err := client.Counter(c.Counter).Add(ctx, c.By)
		return object{"value": value}, err
	case "take_ids":
		first, err := client.TakeIDs(ctx, c.Count)
		return object{"first": first, "count": c.Count}, err
	case "serve":
		return nil, client.Serve(ctx, c.Group, c.Verb, handler(client, c.How))
	case "call":
		answers, err := client.Call(ctx, c.Group, c.Verb, target(c.To), c.Payload, wait...)
		if err != nil {
			return nil, err
		}
		return object{"replies": answers.Replies, "failures": failures(answers.Failures)}, nil
	}
	return nil, fmt.Errorf("this driver does not know %q", c.Do)
}

func target(to any) antiphon.Target {
	switch to := to.(type) {
	case []any:
		var names []string
		for _, name := range to {
			names = append(names, fmt.Sprint(name))
		}
		return antiphon.Nodes(names...)
	case string:
		if to == "all" {
			return antiphon.All
		}
	}
	return antiphon.Any
}

func handler(client *antiphon.Client, how string) antiphon.Handler {
	return func(_ context.Context, r *antiphon.Request) ([]byte, error) {
		say(object{"event": "request", "group": r.Group, "verb": r.Verb})
		switch how {
		case "echo":
			return r.Payload, nil
		case "name":
			return []byte(client.Member()), nil
		case "error":
			return nil, errors.New("no")
		}
		select {}
	}
}

func held(what string, lock *antiphon.Lock) object {
	go func() {
		<-lock.Lost()
		var e *antiphon.Error
		errors.As(lock.Cause(), &e)
		say(object{"event": "lost", "what": what, "name": lock.Name, "cause": e.Reason})
	}()
	return object{"token": lock.Token}
}

func (j *joined) follow() {
	for event, err := range j.Events(ctx) {
		if err != nil {
			ended(err, object{"group": j.Name()})
			return
		}
		name := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", event), "*antiphon."))
		tell(name, event, nil)
		j.flowing.Lock()
		j.flowing.Unlock()
	}
}

func watch(client *antiphon.Client, c command) error {
	of := client.Map(c.Map)
	begin, key := of.WatchPrefix, c.Prefix
	if c.Key != nil {
		begin, key = of.Watch, *c.Key
	}
	watch, err := begin(ctx, key)
	if err != nil {
		return err
	}
	go func() {
		more := object{"map": c.Map}
		for {
			event, err := watch.Next(ctx)
			switch event := event.(type) {
			case *antiphon.Watching:
				tell("watching", event, more)
			case *antiphon.Changed:
				if event.Gone != "" {
					say(object{"event": "changed", "map": c.Map, "key": event.Key, "value": nil,
						"version": event.Version, "gone": event.Gone})
				} else {
					tell("changed", event, more)
				}
			}
			if err == io.EOF {
				return
			}
			if err != nil {
				ended(err, more)
				return
			}
		}
	}()
	return nil
}

// ended tells how the events of a group or a map end.
func ended(err error, of object) {
	var e *antiphon.Error
	errors.As(err, &e)
	of["cause"] = e.Reason
	if e.Code == antiphon.ErrConnection {
		of["event"] = "connection_lost"
	} else {
		of["event"], of["what"] = "lost", "watch"
	}
	say(of)
}
