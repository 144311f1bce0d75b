package antiphon

import (
	"context"
	"encoding/json"
	"fmt"
)

// Args are a command's, by name: strings, whole numbers, booleans. Those of a Request are string, int64, bool.
type Args map[string]any

// UnmarshalJSON keeps all digits of whole numbers.
func (a *Args) UnmarshalJSON(data []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*a = Args{}
	for name, text := range all {
		var value any
		var number int64
		err := json.Unmarshal(text, &number)
		if err == nil {
			value = number
		} else {
			err = json.Unmarshal(text, &value)
		}
		if err != nil {
			return fmt.Errorf("the argument %s: %w", name, err)
		}
		(*a)[name] = value
	}
	return nil
}

// A CommandOption changes how nodes are commanded. Within is one, too: how long it may take, as long as the
// list says if not given.
type CommandOption = WaitOption

// By is the way to the nodes: "library", which it is if not given, "http", "https", "http_kept", "https_kept",
// "websocket", "resp" or "udp". Of a Command alone.
func By(way string) CommandOption { return func(of fields) { of["by"] = way } }

// NoReply has Command return when the command is in the queues, with the Failures of the nodes whose queue is
// full or that are no members. Of a Command alone.
func NoReply() CommandOption { return func(of fields) { of["reply"] = false } }

// Command has nodes do something of their list of commands. If none of them does it, the error has their
// Failures.
func (c *Client) Command(
	ctx context.Context, verb string, args Args, to Target, options ...CommandOption,
) (*Answers, error) {
	of := fields{"verb": verb, "to": to.to}
	if len(args) > 0 {
		of["args"] = args
	}
	for _, option := range options {
		option(of)
	}
	return c.answers(ctx, operation{op: "command", fields: of})
}

// ServeCommand carries out commands of this verb from now on, which the list of this client's node delivers
// to sessions. They are requests with Args, and answered as those of Serve.
func (c *Client) ServeCommand(ctx context.Context, name string, handler Handler) error {
	return c.serve(ctx, verb{"", name}, "serve_command", fields{"verb": name}, handler)
}

// Commands tells the version of the list, the queues to the peers, when each was last heard, and how many
// commands there were, in JSON.
func (c *Client) Commands(ctx context.Context) (json.RawMessage, error) {
	r, err := c.do(ctx, operation{op: "commands"})
	if err != nil {
		return nil, err
	}
	return r.Commands, nil
}
