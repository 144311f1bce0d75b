// Members of a HashiCorp memberlist cluster with its LAN defaults.
//
//	memberlist member NAME IP PORT SEED      one member; prints "members NAME NAME …" at each change, until it is killed
//	memberlist swarm N JOINS                 N members at once in this process, on loopback: prints "formed MS SIZES", for each
//	                                         of JOINS further members "join OWN_MS EVERYWHERE_MS", and "left MS"
//
// Times count from the start of the first member until each reports all: SIZES are the different numbers of members that any
// reported on the way.
package main

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

const (
	patience = 120 * time.Second
	goodBye  = 5 * time.Second
)

// watcher knows the members that one member knows, by what it is told.
type watcher struct {
	mutex   sync.Mutex
	members map[string]bool
	changed func(members map[string]bool)
}

func (w *watcher) change(node *memberlist.Node, there bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if there {
		w.members[node.Name] = true
	} else {
		delete(w.members, node.Name)
	}
	w.changed(w.members)
}

func (w *watcher) NotifyJoin(node *memberlist.Node)  { w.change(node, true) }
func (w *watcher) NotifyLeave(node *memberlist.Node) { w.change(node, false) }
func (w *watcher) NotifyUpdate(*memberlist.Node)     {}

func create(name, ip string, port int, changed func(map[string]bool)) (*memberlist.Memberlist, error) {
	config := memberlist.DefaultLANConfig()
	config.Name = name
	config.BindAddr = ip
	config.BindPort = port
	config.AdvertiseAddr = ip
	config.AdvertisePort = port
	config.Logger = log.New(io.Discard, "", 0)
	config.LogOutput = nil
	config.Events = &watcher{members: map[string]bool{}, changed: changed}
	return memberlist.Create(config)
}

func member(name, ip, port, seed string) error {
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	list, err := create(name, ip, number, func(members map[string]bool) {
		names := slices.Collect(maps.Keys(members))
		fmt.Println("members", strings.Join(names, " "))
	})
	if err != nil {
		return err
	}
	for {
		// The seed may not be there yet, and this may be the seed.
		if _, err := list.Join([]string{seed}); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	select {}
}

// swarm is what all members of this process report.
type swarm struct {
	mutex sync.Mutex
	// By member.
	now   []int
	sizes []int
	seen  map[int]bool
	// How many members a complete view has, and who waits for all to have it.
	expected int
	done     chan struct{}
}

func (s *swarm) changed(index int) func(map[string]bool) {
	return func(names map[string]bool) {
		members := len(names)
		s.mutex.Lock()
		defer s.mutex.Unlock()
		if index >= len(s.now) {
			// A joiner that has left.
			return
		}
		s.now[index] = members
		if !s.seen[members] {
			s.seen[members] = true
			s.sizes = append(s.sizes, members)
		}
		s.look()
	}
}

// look tells whoever waits once all are complete. The mutex is held.
func (s *swarm) look() {
	for _, members := range s.now {
		if members != s.expected {
			return
		}
	}
	if s.done != nil {
		close(s.done)
		s.done = nil
	}
}

// expect waits until all members report this many.
func (s *swarm) expect(members int, what string) error {
	s.mutex.Lock()
	done := make(chan struct{})
	s.expected, s.done = members, done
	s.look()
	s.mutex.Unlock()
	select {
	case <-done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("did not get %s within %.0f s", what, patience.Seconds())
	}
}

func address(list *memberlist.Memberlist) string {
	return list.LocalNode().Address()
}

func form(count, joins int) error {
	all := &swarm{now: make([]int, count), seen: map[int]bool{}}
	lists := make([]*memberlist.Memberlist, count)
	errs := make(chan error, count)
	begun := time.Now()
	first, err := create("n0", "127.0.0.1", 0, all.changed(0))
	if err != nil {
		return err
	}
	lists[0] = first
	for index := 1; index < count; index++ {
		go func() {
			list, err := create(fmt.Sprintf("n%d", index), "127.0.0.1", 0, all.changed(index))
			if err == nil {
				lists[index] = list
				_, err = list.Join([]string{address(first)})
			}
			errs <- err
		}()
	}
	for index := 1; index < count; index++ {
		if err := <-errs; err != nil {
			return err
		}
	}
	if err := all.expect(count, "all to report all"); err != nil {
		return err
	}
	fmt.Printf("formed %.2f", milliseconds(begun))
	for _, size := range all.sizes {
		fmt.Printf(" %d", size)
	}
	fmt.Println()
	for run := 0; run < joins; run++ {
		time.Sleep(200 * time.Millisecond)
		if err := join(all, first, run); err != nil {
			return err
		}
	}
	begun = time.Now()
	for _, list := range lists {
		go func() {
			errs <- leave(list)
		}()
	}
	for range lists {
		if err := <-errs; err != nil {
			return err
		}
	}
	fmt.Printf("left %.2f\n", milliseconds(begun))
	return nil
}

// join adds one more member, and takes it away again.
func join(all *swarm, first *memberlist.Memberlist, run int) error {
	count := len(all.now)
	own := make(chan struct{}, 1)
	all.mutex.Lock()
	all.now = append(all.now, 0)
	all.mutex.Unlock()
	changed := all.changed(count)
	begun := time.Now()
	joiner, err := create(fmt.Sprintf("j%d", run), "127.0.0.1", 0, func(members map[string]bool) {
		changed(members)
		if len(members) == count+1 {
			select {
			case own <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		return err
	}
	if _, err := joiner.Join([]string{address(first)}); err != nil {
		return err
	}
	select {
	case <-own:
	case <-time.After(patience):
		return fmt.Errorf("did not get the joiner to report all within %.0f s", patience.Seconds())
	}
	ownMs := milliseconds(begun)
	if err := all.expect(count+1, "all to report the joiner"); err != nil {
		return err
	}
	fmt.Printf("join %.2f %.2f\n", ownMs, milliseconds(begun))
	if err := leave(joiner); err != nil {
		return err
	}
	all.mutex.Lock()
	all.now = all.now[:count]
	all.mutex.Unlock()
	return all.expect(count, "the joiner to be gone")
}

// leave says good-bye, for as long as that may take, and ends. When all leave at once, nobody may be left to hear it.
func leave(list *memberlist.Memberlist) error {
	_ = list.Leave(goodBye)
	return list.Shutdown()
}

func milliseconds(begun time.Time) float64 {
	return float64(time.Since(begun).Nanoseconds()) / 1e6
}

func run(args []string) error {
	switch {
	case len(args) == 5 && args[0] == "member":
		return member(args[1], args[2], args[3], args[4])
	case len(args) == 3 && args[0] == "swarm":
		count, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		joins, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		return form(count, joins)
	}
	return fmt.Errorf("usage: memberlist member NAME IP PORT SEED | memberlist swarm N JOINS")
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
}
