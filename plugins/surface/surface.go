// Package surface is what agents and verifiers import about surfaces: the
// client of the surface that the core serves to a session, and the record of
// what was observed and done. Package environment has the contract for plugins
// that have surfaces.
package surface

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
)

// The bounds of a surface. The core does not use one any more that goes beyond
// them.
const (
	CallTime     = 60 * time.Second // of Observe, Act and Capture, and of Reset without SurfaceNeeds.ResetTime
	MaxReset     = time.Hour        // of SurfaceNeeds.ResetTime
	MaxFrame     = 10 << 20         // bytes
	MaxFrames    = 20 << 20         // bytes of all frames of an observation
	MaxText      = 1 << 20          // bytes of a text, of an error and of info
	MaxStructure = 8 << 20          // bytes
	MaxCapture   = 64 << 20         // bytes of all files of a capture
)

// The kinds of lines of the record.
const (
	KindReset   = "reset"   // a stage begins
	KindObserve = "observe" // the agent observed
	KindAct     = "act"     // the agent acted
)

// Line is one line of surface.jsonl: what was done on the surface of an attempt,
// and what it showed then. A simulated user does not see Reward and Info.
type Line struct {
	Time      time.Time       `json:"time"` // when the call began
	Took      time.Duration   `json:"took_ns"`
	Kind      string          `json:"kind"` // reset, observe or act
	Stage     string          `json:"stage"`
	Level     string          `json:"level,omitempty"`     // of a reset
	Seed      int64           `json:"seed,omitempty"`      // of a reset
	Step      int64           `json:"step,omitempty"`      // of an act: 1… within the stage; 0: it was refused without being counted
	Action    string          `json:"action,omitempty"`    // of an act
	Arguments json.RawMessage `json:"arguments,omitempty"` // of an act; a text if the agent sent no JSON
	Error     string          `json:"error,omitempty"`     // why the surface or the core refused the action, or how the call failed
	Done      bool            `json:"done,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
	Reward    *float64        `json:"reward,omitempty"`
	Info      json.RawMessage `json:"info,omitempty"`
	Text      string          `json:"text,omitempty"`
	Structure json.RawMessage `json:"structure,omitempty"`
	Frames    []Frame         `json:"frames,omitempty"`
}

// Frame is a picture of the record. Equal ones are one file.
type Frame struct {
	Name      string `json:"name"` // its kind
	MediaType string `json:"media_type"`
	File      string `json:"file"`   // in the folder frames
	Digest    string `json:"digest"` // sha256:…
	Size      int64  `json:"size"`   // bytes
}

// Client is the surface of a session. Safe for concurrent use: calls are
// answered one after the other. Between turns calls fail with sandbox.ErrRevoked
// and work again in the next turn.
type Client struct {
	environment.Session

	conn *grpc.ClientConn
}

// Dial returns a client for an address that the core passed (agent.Setup.Surface).
// It does not connect yet.
func Dial(address string) (*Client, error) {
	if !strings.HasPrefix(address, "unix:/") {
		return nil, fmt.Errorf("surface address %q: want unix:/path, as the core passes it", address)
	}
	conn, err := grpc.NewClient(address, append(fault.DialOptions(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return nil, fmt.Errorf("surface address %q: %w", address, err)
	}
	return &Client{environment.NewSession(decoding{conn}), conn}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// decoding turns errors into those of a session.
type decoding struct{ grpc.ClientConnInterface }

func (d decoding) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return fault.Sandbox.DecodeCall(ctx, d.ClientConnInterface.Invoke(ctx, method, args, reply, opts...))
}

// Text returns an observation as text for a model: its own text, and then the
// named parts of its structure, each below a heading. A part that is a JSON string
// is its content, and any other part is JSON. What is absent is left out.
func Text(o *environment.Observation, parts []string) string {
	var b strings.Builder
	if o.Text != "" {
		b.WriteString(o.Text + "\n")
	}
	for _, name := range parts {
		if name == environment.KindText {
			continue
		}
		if text := Part(o, name); text != "" {
			fmt.Fprintf(&b, "# %s\n%s\n", name, text)
		}
	}
	return b.String()
}

// Part returns the part of an observation that has that kind, as text; empty: it has
// none.
func Part(o *environment.Observation, kind string) (text string) {
	if kind == environment.KindText {
		return o.Text
	}
	all := map[string]json.RawMessage{}
	_ = json.Unmarshal(o.JSON, &all) // the core has checked that it is an object, or there is none
	if raw, ok := all[kind]; ok && json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	return text
}
