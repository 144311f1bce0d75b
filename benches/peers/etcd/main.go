// Takes and gives back locks of etcd: "etcd ENDPOINTS NAME". Prints "connected". A line "CLIENTS one|own WARMUP_S MEASURED_S" has so
// many goroutines do it, each with a session of its own, with one lock for all or each with its own; then it prints "done" and a JSON
// object with "rate", per second. A goroutine that cannot go on prints "failed" and why: the rate is that of the others.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "etcd client:", err)
		os.Exit(1)
	}
}

func serve() error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: strings.Split(os.Args[1], ","), DialTimeout: 30 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := client.Get(ctx, "x")
		cancel()
		if err == nil {
			break
		}
		if tries == 60 {
			return err
		}
		time.Sleep(200 * time.Millisecond)
	}
	fmt.Println("connected")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var clients, warmup, measured int
		var which string
		if _, err := fmt.Sscan(lines.Text(), &clients, &which, &warmup, &measured); err != nil {
			return err
		}
		var taken atomic.Int64
		ctx, cancel := context.WithCancel(context.Background())
		for i := 0; i < clients; i++ {
			name := fmt.Sprintf("/locks/%s-%d", os.Args[2], i)
			if which == "one" {
				name = "/locks/one"
			}
			session, err := concurrency.NewSession(client)
			if err != nil {
				cancel()
				return err
			}
			go func() {
				lock := concurrency.NewMutex(session, name)
				for ctx.Err() == nil {
					err := lock.Lock(ctx)
					if err == nil {
						err = lock.Unlock(ctx)
					}
					if err != nil {
						if ctx.Err() == nil {
							fmt.Println("failed", err)
						}
						return
					}
					taken.Add(1)
				}
			}()
		}
		time.Sleep(time.Duration(warmup) * time.Second)
		before, from := taken.Load(), time.Now()
		time.Sleep(time.Duration(measured) * time.Second)
		rate := float64(taken.Load()-before) / time.Since(from).Seconds()
		cancel()
		fmt.Printf("done {\"rate\":%.1f}\n", rate)
	}
	return nil
}
