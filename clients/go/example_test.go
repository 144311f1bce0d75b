package antiphon_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	antiphon "github.com/antiphon-project/antiphon/clients/go"
)

// A client that says something in a group, and prints what all say.
func Example() {
	ctx := context.Background()
	client, err := antiphon.Connect(ctx, "127.0.0.1:7480", "ann")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	group, err := client.Join(ctx, "chat")
	if err != nil {
		log.Fatal(err)
	}
	if err := group.Send(ctx, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	for event, err := range group.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch event := event.(type) {
		case *antiphon.View:
			fmt.Println("members:", event.Members)
		case *antiphon.Message:
			fmt.Println(event.Sender, "says", event.Payload)
		}
	}
}

// One at a time, among all programs of the cluster.
func ExampleClient_Lock() {
	ctx := context.Background()
	client, err := antiphon.Connect(ctx, "unix:/run/shop.sock", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock, err := client.Lock(ctx, "till")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Unlock(ctx)
	select {
	case <-lock.Lost():
		log.Fatal(lock.Cause())
	default:
		fmt.Println("what is protected gets the token", lock.Token)
	}
}

// Read, change, and write if nothing came between.
func ExampleMap_Put() {
	ctx := context.Background()
	client, err := antiphon.Connect(ctx, "127.0.0.1:7480", "")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	notes := client.Map("notes")
	for {
		item, err := notes.Latest(ctx, "today")
		if err != nil {
			log.Fatal(err)
		}
		_, err = notes.Put(ctx, "today", append(item.Value, "another line\n"...), antiphon.IfVersion(item.Version))
		if !errors.Is(err, antiphon.ErrConflict) {
			break
		}
	}
}
