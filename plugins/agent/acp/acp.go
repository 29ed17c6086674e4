// Package acp talks to agents that speak the Agent Client Protocol
// (agentclientprotocol.com, version 1) on their standard input and output, as
// they run in the sandbox: a cli.Scaffold whose Dialog is New needs no code that
// reads events.
//
//	Dialog: func(b *cli.Transcript) cli.Dialog { return acp.New(b, acp.Options{Auth: "api-key"}) },
//
// The client offers the agent no files and no terminals: the agent has the
// sandbox to itself and uses the files and terminals of the sandbox. Options
// answers its requests for permission.
//
// A dialog is a state machine that advances with every line. The agent's output
// is not trusted: the dialog keeps in memory only the open calls, and an
// unreadable line does not affect other lines. The package must not know any
// agent.
package acp

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/agent/cli"
	"github.com/berth-eval/berth/plugins/output"
)

// Options configure the dialog with an agent.
type Options struct {
	Auth string // authentication method to request; empty: none
	// Session returns the settings of the session. Nil: the agent's defaults.
	Session func(r *cli.Run) Session
	// Allow says whether a call of this kind may be carried out: read, edit,
	// delete, move, search, execute, think, fetch, switch_mode, other. Nil allows
	// all.
	Allow func(kind string) bool
}

// Session holds the settings of a session.
type Session struct {
	Mode   string            // empty: the agent's own
	Model  string            // empty: the agent's own
	Config map[string]string // other options, by their ids
}

// version of the protocol.
const version = 1

// maxOpen is how many calls may be open at a time; further ones are ignored.
const maxOpen = 4096

// New returns the dialog with one agent.
func New(b *cli.Transcript, o Options) cli.Dialog {
	return &dialog{book: b, o: o, waits: map[string]func(reply){}, calls: map[string]*call{}}
}

// dialog implements cli.Dialog.
type dialog struct {
	book *cli.Transcript
	o    Options

	talk    *cli.Talk
	last    int                    // id of the newest request
	waits   map[string]func(reply) // handlers of the pending requests, by id
	session string
	http    bool // the agent accepts MCP servers over HTTP
	sse     bool
	stopped bool // the agent was asked to end the turn

	calls  map[string]*call // open calls
	text   strings.Builder  // of the message that is being received
	kind   string           // of text: what the update was
	said   string           // the newest message
	called bool             // it has called a tool in this turn
}

// message is any line of the protocol.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	reply
}

type reply struct {
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// why returns the error as text; empty when there is none.
func (r reply) why() string {
	if r.Error == nil {
		return ""
	}
	why := r.Error.Message
	var data struct {
		Details string `json:"details"`
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal(r.Error.Data, &text) == nil:
	case json.Unmarshal(r.Error.Data, &data) == nil && data.Details+data.Message != "":
		text = data.Details + data.Message
	case len(r.Error.Data) > 0 && string(r.Error.Data) != "null":
		text = string(r.Error.Data)
	}
	if text != "" && !strings.Contains(why, text) {
		why += ": " + text
	}
	if why == "" {
		why = fmt.Sprintf("code %d", r.Error.Code)
	}
	return output.Middle(why, 8<<10)
}

// send writes a message.
func (d *dialog) send(m map[string]any) {
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		d.crash("a message to the agent cannot be written as JSON: " + err.Error())
		return
	}
	d.talk.Send(append(b, '\n'))
}

// ask sends a request and passes the answer to then. An error as answer ends
// the turn.
func (d *dialog) ask(method string, params any, then func(json.RawMessage)) {
	d.last++
	d.waits[fmt.Sprint(d.last)] = func(r reply) {
		if why := r.why(); why != "" {
			d.failed(method, why)
			return
		}
		then(r.Result)
	}
	d.send(map[string]any{"id": d.last, "method": method, "params": params})
}

// Begin implements cli.Dialog.
func (d *dialog) Begin(t *cli.Talk) {
	d.talk, d.stopped, d.said, d.called = t, false, "", false
	clear(d.waits) // answers to requests of an earlier turn are ignored
	clear(d.calls)
	if !t.Fresh {
		d.prompt()
		return
	}
	d.session = ""
	d.ask("initialize", map[string]any{
		"protocolVersion":    version,
		"clientInfo":         map[string]any{"name": "berth", "title": "Berth", "version": "1"},
		"clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false}, "terminal": false},
	}, d.initialized)
}

func (d *dialog) initialized(result json.RawMessage) {
	var is struct {
		Version      int `json:"protocolVersion"`
		Capabilities struct {
			MCP struct {
				HTTP bool `json:"http"`
				SSE  bool `json:"sse"`
			} `json:"mcpCapabilities"`
		} `json:"agentCapabilities"`
		Ways []struct {
			ID string `json:"id"`
		} `json:"authMethods"`
		Agent struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"agentInfo"`
	}
	if err := json.Unmarshal(result, &is); err != nil && is.Version == 0 {
		d.crash("the agent's response to initialize cannot be parsed: " + err.Error())
		return
	}
	if is.Version != version {
		d.crash(fmt.Sprintf("the agent speaks version %d of the Agent Client Protocol, Berth speaks version %d", is.Version, version))
		return
	}
	if is.Agent.Name != "" {
		d.book.Log("agent %s %s", is.Agent.Name, is.Agent.Version)
	}
	d.http, d.sse = is.Capabilities.MCP.HTTP, is.Capabilities.MCP.SSE
	if d.o.Auth == "" {
		d.open()
		return
	}
	var ways []string
	for _, w := range is.Ways {
		ways = append(ways, w.ID)
	}
	if !slices.Contains(ways, d.o.Auth) {
		d.crash(fmt.Sprintf("the agent does not support authentication %q: it offers %s", d.o.Auth, strings.Join(ways, ", ")))
		return
	}
	d.ask("authenticate", map[string]any{"methodId": d.o.Auth}, func(json.RawMessage) { d.open() })
}

// open creates the session and applies its settings.
func (d *dialog) open() {
	servers, _ := d.servers()
	d.ask("session/new", map[string]any{"cwd": d.talk.Run.Workdir, "mcpServers": servers}, func(result json.RawMessage) {
		var is struct {
			Session string `json:"sessionId"`
		}
		if json.Unmarshal(result, &is) != nil || is.Session == "" {
			d.crash("the agent created no session")
			return
		}
		d.session = is.Session
		d.book.Session = is.Session
		d.arrange(d.settings())
	})
}

// setting is a request that changes one setting.
type setting struct {
	method string
	params map[string]any
}

func (d *dialog) settings() (list []setting) {
	if d.o.Session == nil {
		return nil
	}
	is := d.o.Session(d.talk.Run)
	if is.Model != "" {
		list = append(list, setting{"session/set_model", map[string]any{"sessionId": d.session, "modelId": is.Model}})
	}
	if is.Mode != "" {
		list = append(list, setting{"session/set_mode", map[string]any{"sessionId": d.session, "modeId": is.Mode}})
	}
	for _, id := range slices.Sorted(maps.Keys(is.Config)) {
		list = append(list, setting{"session/set_config_option", map[string]any{"sessionId": d.session, "configId": id, "value": is.Config[id]}})
	}
	return list
}

// arrange applies the settings one after another, then sends the message.
func (d *dialog) arrange(list []setting) {
	if len(list) == 0 {
		d.prompt()
		return
	}
	d.ask(list[0].method, list[0].params, func(json.RawMessage) { d.arrange(list[1:]) })
}

// servers returns the MCP servers in the form of the protocol, and those that
// the agent cannot reach.
func (d *dialog) servers() (list []any, other []agent.Server) {
	list = []any{}
	for _, s := range d.talk.Run.Servers {
		kind := map[string]string{"stdio": "stdio", "sse": "sse"}[s.Transport]
		switch {
		case kind == "stdio":
			list = append(list, map[string]any{"name": s.Name, "command": s.Command, "args": append([]string{}, s.Args...), "env": pairs(s.Env)})
		case kind == "sse" && d.sse:
			list = append(list, map[string]any{"type": "sse", "name": s.Name, "url": s.URL, "headers": pairs(s.Headers)})
		case kind == "" && d.http:
			list = append(list, map[string]any{"type": "http", "name": s.Name, "url": s.URL, "headers": pairs(s.Headers)})
		default:
			other = append(other, s)
		}
	}
	return list, other
}

func pairs(m map[string]string) []map[string]string {
	out := []map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, map[string]string{"name": k, "value": m[k]})
	}
	return out
}

func (d *dialog) prompt() {
	text := d.talk.Run.Message
	if _, other := d.servers(); d.talk.Run.Turn == 1 {
		text += agent.Told(other, nil)
	}
	d.ask("session/prompt", map[string]any{"sessionId": d.session, "prompt": []any{map[string]string{"type": "text", "text": text}}}, d.ended)
}

// ended handles the response to a prompt: the turn is over.
func (d *dialog) ended(result json.RawMessage) {
	d.flush()
	var is struct {
		Stop  string `json:"stopReason"`
		Usage *usage `json:"usage"`
	}
	if json.Unmarshal(result, &is) != nil && is.Stop == "" {
		d.crash("the agent's response to session/prompt cannot be parsed")
		return
	}
	if d.said == "" && !d.called && (is.Stop == "end_turn" || is.Stop == "refusal") { // a reply without text is in no update
		d.book.Empty(agent.Claim{})
	}
	y := agent.Yield{End: agent.Done, Message: d.said, Reason: is.Stop, Claim: is.Usage.claim()}
	switch is.Stop {
	case "max_turn_requests":
		y.End = agent.MaxSteps
	case "refusal":
		y.End = agent.Refused
	case "cancelled":
		if y.End = agent.Crashed; d.stopped {
			y.End = agent.MaxSteps
		}
	}
	d.talk.Yield(y, nil)
}

// usage is the token usage of a turn as the agent reports it.
type usage struct {
	Input   int64 `json:"inputTokens"`
	Output  int64 `json:"outputTokens"`
	Read    int64 `json:"cachedReadTokens"`
	Written int64 `json:"cachedWriteTokens"`
}

func (u *usage) claim() *agent.Claim {
	if u == nil {
		return nil
	}
	all := u.Input + u.Read + u.Written
	return &agent.Claim{Input: &all, Cached: &u.Read, Output: &u.Output}
}

// failed ends the turn after an error.
func (d *dialog) failed(method, why string) {
	d.flush()
	y, err := d.book.Judge(cli.Exit{Runs: true}, cli.Ending{Wrong: why, Limit: d.stopped})
	if y.Message = d.said; y.End == agent.Crashed {
		y.Reason = method + ": " + why
	}
	d.talk.Yield(y, err)
}

func (d *dialog) crash(why string) {
	d.flush()
	d.talk.Yield(agent.Yield{End: agent.Crashed, Message: d.said, Reason: why}, nil)
}

// Stop implements cli.Dialog.
func (d *dialog) Stop() {
	d.stopped = true
	if d.session != "" {
		d.send(map[string]any{"method": "session/cancel", "params": map[string]any{"sessionId": d.session}})
	}
}

// End implements cli.Dialog.
func (d *dialog) End(x cli.Exit) (agent.Yield, error) {
	d.flush()
	y := x.Crashed("")
	y.Message = d.said
	return y, nil
}
