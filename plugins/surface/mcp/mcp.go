// Package mcp offers the surface of a session as tools of the Model Context
// Protocol, so that a command line agent in the sandbox can act on it: one tool
// for each action, and one to observe. The core serves it on a loopback port of
// the sandbox. What passes is checked and recorded by package host, as calls of
// other agents are.
package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/fault"
	"github.com/berth-eval/berth/plugins/sandbox/host"
	"github.com/berth-eval/berth/plugins/surface"
)

const (
	// Path is where the tools are served, over streamable HTTP.
	Path = "/mcp"
	// Name is the name of the server, which agents put before those of its tools.
	Name = "surface"
	// idle is how long a connection without a request is kept.
	idle = 2 * time.Minute
)

// Server serves the tools of one session. Safe for concurrent use.
type Server struct {
	of   environment.Session
	http *http.Server
	pipe *host.Listener
	all  sync.WaitGroup
}

// New returns a server for a session. While the session is closed, requests are
// answered with status 503.
func New(of environment.Session) *Server {
	s := &Server{of: of, pipe: host.NewListener()}
	mux := http.NewServeMux()
	mux.HandleFunc(Path, s.answer)
	s.http = &http.Server{
		Handler: http.MaxBytesHandler(mux, surface.MaxText+64<<10), ReadHeaderTimeout: surface.CallTime, IdleTimeout: idle, MaxHeaderBytes: 64 << 10,
	}
	s.all.Go(func() { _ = s.http.Serve(s.pipe) }) // it returns after Close
	return s
}

// Serve serves a connection and returns when it is closed.
func (s *Server) Serve(c net.Conn) { s.pipe.Serve(c) }

// Close cuts all connections. Idempotent.
func (s *Server) Close() error {
	err := s.http.Close()
	s.all.Wait()
	return err
}

// answer answers one request. Each gets its own server, because the actions
// differ from stage to stage.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	offer, err := s.of.Actions(r.Context())
	switch {
	case errors.Is(err, fault.ErrRevoked):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	tools := s.tools(offer)
	sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return tools },
		&sdk.StreamableHTTPOptions{Stateless: true, JSONResponse: true}).ServeHTTP(w, r)
}

// tools returns a server with the tools for what a stage offers.
func (s *Server) tools(o environment.Offer) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: Name, Version: "1"}, &sdk.ServerOptions{Instructions: instructions(o)})
	for _, a := range o.Actions {
		server.AddTool(&sdk.Tool{Name: a.Name, Description: cmp.Or(a.Doc, "Does "+a.Name+"."), InputSchema: schemaOf(a)},
			func(ctx context.Context, r *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				step, err := s.of.Act(ctx, environment.Call{Name: a.Name, Arguments: r.Params.Arguments}, nil)
				if err != nil {
					return failed(err), nil
				}
				return result(step), nil
			})
	}
	look := observing(o)
	server.AddTool(&sdk.Tool{
		Name: look, Description: "Shows the surface as it is now, without acting.", InputSchema: object,
		Annotations: &sdk.ToolAnnotations{ReadOnlyHint: true},
	}, func(ctx context.Context, _ *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		seen, err := s.of.Observe(ctx, nil)
		if err != nil {
			return failed(err), nil
		}
		return &sdk.CallToolResult{Content: content(seen)}, nil
	})
	return server
}

// instructions tells the model what the server is for.
func instructions(o environment.Offer) string {
	text := "These tools act on the surface of the task. Each returns what the surface shows afterwards; " + observing(o) + " only shows it."
	if o.Steps > 0 {
		text += fmt.Sprintf(" At most %d actions are possible.", o.Steps)
	}
	return text
}

// observing returns the name of the tool that observes: one that no action has.
func observing(o environment.Offer) string {
	name := "observe"
	for slices.ContainsFunc(o.Actions, func(a environment.Action) bool { return a.Name == name }) {
		name += "_surface"
	}
	return name
}

// object is the schema of an action without arguments.
var object = json.RawMessage(`{"type":"object","properties":{}}`)

// schemaOf returns the schema of the arguments of an action. The protocol wants
// the type "object" at the top; package host checks the arguments in any case.
func schemaOf(a environment.Action) json.RawMessage {
	var top map[string]json.RawMessage
	if json.Unmarshal(a.Schema, &top) != nil || top == nil {
		return object
	}
	top["type"] = json.RawMessage(`"object"`)
	b, err := json.Marshal(top)
	if err != nil {
		return object
	}
	return b
}

// failed is the result of a call that did not reach the surface.
func failed(err error) *sdk.CallToolResult {
	return &sdk.CallToolResult{IsError: true, Content: []sdk.Content{&sdk.TextContent{Text: err.Error()}}}
}

// result is what the model sees of a step.
func result(s environment.Step) *sdk.CallToolResult {
	var said []string
	if s.Error != "" {
		said = append(said, "The action failed: "+s.Error)
	}
	switch {
	case s.Done:
		said = append(said, "The episode is over.")
	case s.Truncated:
		said = append(said, "No further action is possible.")
	}
	r := &sdk.CallToolResult{IsError: s.Error != ""}
	if len(said) > 0 {
		r.Content = append(r.Content, &sdk.TextContent{Text: strings.Join(said, " ")})
	}
	if r.Content = append(r.Content, content(s.Observation)...); len(r.Content) == 0 {
		r.Content = []sdk.Content{&sdk.TextContent{Text: "Done."}}
	}
	return r
}

// content turns an observation into content: texts, and pictures as images.
func content(o environment.Observation) (all []sdk.Content) {
	if o.Text != "" {
		all = append(all, &sdk.TextContent{Text: o.Text})
	}
	var parts map[string]json.RawMessage
	if json.Unmarshal(o.JSON, &parts) == nil {
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			text := string(parts[name])
			var plain string
			if json.Unmarshal(parts[name], &plain) == nil {
				text = plain
			}
			all = append(all, &sdk.TextContent{Text: name + ": " + text})
		}
	}
	for _, f := range o.Frames {
		all = append(all, &sdk.ImageContent{Data: f.Data, MIMEType: f.MediaType})
	}
	return all
}

// Of returns what an agent is told about the server at a loopback port of its
// sandbox. The name differs from those of the task's servers.
func Of(port int, others []agent.Server) agent.Server {
	name := Name
	for slices.ContainsFunc(others, func(s agent.Server) bool { return s.Name == name }) {
		name = "berth-" + name
	}
	return agent.Server{Name: name, Transport: "streamable-http", URL: fmt.Sprintf("http://127.0.0.1:%d%s", port, Path)}
}
