package antiphon

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// An Event is what a group tells: a *View, *Message, *Transitional, *Suspended, *Resync, *Lost or *Refused.
type Event interface{ of() string }

// A View has the members of a group, as NODE/CLIENT. Messages that follow are delivered among these.
type View struct {
	Group        string            `json:"group"`
	ID           string            `json:"id"`
	Members      []string          `json:"members"`
	Joined       []string          `json:"joined"`
	Left         []string          `json:"left"`
	Crashed      []string          `json:"crashed"`
	Causes       map[string]string `json:"causes"` // why each of the crashed is gone
	Transitional []string          `json:"transitional"`
	Primary      bool              `json:"primary"`
}

// A Message is something that a member has sent, in the group's order.
type Message struct {
	Group   string  `json:"group"`
	View    string  `json:"view"`
	Sender  string  `json:"sender"`
	Seq     uint64  `json:"seq"`
	Payload Payload `json:"payload"`
	Safe    bool    `json:"safe"`
	Part    int     `json:"part"` // of a bundle, whose messages have one Seq
}

// Transitional says that what follows until the group's next view is completed among these members.
type Transitional struct {
	Group   string   `json:"group"`
	Members []string `json:"members"`
}

// Suspended says that nothing is delivered and nothing can be sent until there is a majority.
type Suspended struct {
	Group string `json:"group"`
}

// Resync says that the agent's node was away: what this client knows of the group may be old. A view follows.
type Resync struct {
	Group string `json:"group"`
	Cause string `json:"cause"`
}

// Lost says that this client is out of the group. It is the last event; the client may join again.
type Lost struct {
	Group string `json:"group"`
	Cause string `json:"cause"`
}

// Refused says that a message of this client, sent without Wait, was not taken.
type Refused struct {
	Group   string  `json:"group"`
	Reason  string  `json:"reason"`
	Payload Payload `json:"payload"` // nil if it is long: then it does not come back, of a bundle none
}

func (v *View) of() string         { return v.Group }
func (m *Message) of() string      { return m.Group }
func (t *Transitional) of() string { return t.Group }
func (s *Suspended) of() string    { return s.Group }
func (r *Resync) of() string       { return r.Group }
func (l *Lost) of() string         { return l.Group }
func (r *Refused) of() string      { return r.Group }

// A MapEvent is what a watch tells: a *Watching or a *Changed.
type MapEvent interface{ ofMap() }

// Watching says that a watch begins, or begins anew: as many Changed follow as there are entries.
type Watching struct {
	Entries int `json:"entries"`
}

// Changed has a key's value, or why it has none any more: Gone is "removed" or "expired" then.
type Changed struct {
	Key     string  `json:"key"`
	Value   Payload `json:"value"`
	Version uint64  `json:"version"`
	Gone    string  `json:"gone"`
}

func (*Watching) ofMap() {}
func (*Changed) ofMap()  {}

// A Request is what a node of the cluster wants done: a call, with a Payload, or a command, with Args.
type Request struct {
	Group   string  `json:"group"` // empty of a command
	Verb    string  `json:"verb"`
	From    string  `json:"from"` // the node that calls
	Payload Payload `json:"payload"`
	Args    Args    `json:"args"`
}

// Members is the cluster's present view: its nodes, the elder first.
type Members struct {
	Number  uint64 `json:"number"`
	Primary bool   `json:"primary"`
	Nodes   []Node `json:"members"`
}

// A Node is a member of the cluster: an agent, for example.
type Node struct {
	Name        string            `json:"name"`
	Incarnation string            `json:"incarnation"`
	Addr        string            `json:"addr"`
	Metadata    map[string]string `json:"metadata"`
}

// A Welcome is what the agent has said to a new client.
type Welcome struct {
	Client  string `json:"client"` // what this client is called at its node
	Node    string `json:"node"`
	Cluster string `json:"cluster"`
	Build   string `json:"build"` // the agent's
}

// A Payload is the bytes of a message, a value, a request. In JSON it is a string if it is UTF-8, and
// {"base64":"…"} if not.
type Payload []byte

// textBytes is how long a text may be: JSON has six bytes for each control character, and a line 4 MiB.
const textBytes = 600_000

// bundleTextBytes is how long all texts of a bundle may be: the rest of its 1 MiB may stand beside them as base64.
const bundleTextBytes = 500_000

func (p Payload) String() string { return string(p) }

// MarshalJSON writes it as the agent takes it.
func (p Payload) MarshalJSON() ([]byte, error) { return json.Marshal(p.plain()) }

func (p Payload) plain() any { return p.plainUpTo(textBytes) }

// plainUpTo is what stands for it in JSON: a text if it is one of so many bytes at most.
func (p Payload) plainUpTo(most int) any {
	if len(p) <= most && utf8.Valid(p) {
		return string(p)
	}
	return map[string][]byte{"base64": p}
}

// UnmarshalJSON reads both forms. Of null it makes nil.
func (p *Payload) UnmarshalJSON(data []byte) error {
	if data[0] == '"' && bytes.IndexByte(data, '\\') < 0 { // mostly, and then it is taken as it is
		*p = append(Payload{}, data[1:len(data)-1]...)
		return nil
	}
	if data[0] == '{' {
		var binary struct {
			Base64 []byte `json:"base64"`
		}
		err := json.Unmarshal(data, &binary)
		*p = binary.Base64
		return err
	}
	var text *string
	err := json.Unmarshal(data, &text)
	*p = nil
	if text != nil {
		*p = Payload(*text)
	}
	return err
}
