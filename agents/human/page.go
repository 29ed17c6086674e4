package main

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-eval/berth/plugins/agent"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/trajectory"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// maxForm is the size of what a form may send, in bytes.
const maxForm = 1 << 20

// page is what a session on a surface has.
type page struct {
	offer []environment.Action
	token string // in the address; who has it is the person
}

// offered asks what the person can do.
func (s *session) offered(ctx context.Context) error {
	offer, err := s.on.Actions(ctx)
	s.offer, s.token = offer.Actions, rand.Text()
	return err
}

// play lets the person act on the surface until the turn ends.
func (s *session) play(ctx context.Context, m agent.Message, r agent.Recorder) (agent.Yield, error) {
	seen, err := s.on.Observe(ctx, nil)
	if err != nil {
		return agent.Yield{}, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return agent.Yield{}, fmt.Errorf("serve the person's page: %w", err)
	}
	p := &playing{s: s, r: r, ctx: ctx, message: strings.TrimSpace(m.Text), seen: seen, over: make(chan result, 1)}
	if limit := m.Time; limit > 0 {
		p.until = time.Now().Add(limit)
	}
	server := &http.Server{Handler: p.routes(l.Addr().String()), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	address := fmt.Sprintf("http://%s/%s/", l.Addr(), s.token)
	file, err := written(s.setup.Scratch, address)
	if err != nil {
		return agent.Yield{}, fmt.Errorf("write the address of the person's page: %w", err)
	}
	defer os.Remove(file)
	if err = r.Log("the address of the person's page is in " + file); err != nil {
		return agent.Yield{}, err
	}
	if s.c.Terminal != "" {
		t, failed := open(s.c.Terminal)
		if failed != nil {
			return agent.Yield{}, failed
		}
		defer t.close()
		t.say(p.message + "\n\n" + rules("Work on the surface of the task at "+address, m, &s.setup))
	}
	select {
	case <-ctx.Done():
		return agent.Yield{}, context.Cause(ctx)
	case end := <-p.over:
		// The browser gets its last page before the server ends.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(closing)
		return end.yield, end.err
	}
}

// written writes the address into a file that only this user can read: others can read
// the log.
func written(dir, address string) (file string, err error) {
	f, err := os.CreateTemp(dir, "page-*.txt")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(address + "\n")
	return f.Name(), errors.Join(err, f.Close())
}

// result is how a turn ended.
type result struct {
	yield agent.Yield
	err   error
}

// playing is a turn on a surface.
type playing struct {
	s       *session
	r       agent.Recorder
	ctx     context.Context // of the turn
	message string
	until   time.Time // zero: no limit
	over    chan result

	mu    sync.Mutex
	seen  environment.Observation
	wrong string // what the surface said of the last action
	done  string // why nothing more can be done; empty: it can
}

// routes serves the page to browsers that have the token. Pages of other sites cannot
// use it: they do not know the token, and the name of the host is compared.
func (p *playing) routes(host string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.show)
	mux.HandleFunc("GET /frame/{n}", p.frame)
	mux.HandleFunc("POST /act", p.act)
	mux.HandleFunc("POST /done", p.yield)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; img-src 'self'; style-src 'unsafe-inline'; script-src 'nonce-"+p.s.token+"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		token, rest, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
		if q.Host != host || subtle.ConstantTimeCompare([]byte(token), []byte(p.s.token)) != 1 {
			http.Error(w, "Use the address that was printed.", http.StatusForbidden)
			return
		}
		q.URL.Path = "/" + rest
		q.Body = http.MaxBytesReader(w, q.Body, maxForm)
		p.mu.Lock()
		defer p.mu.Unlock()
		mux.ServeHTTP(w, q)
	})
}

// part is a part of an observation as text.
type part struct{ Name, Text string }

// field is an argument of an action.
type field struct {
	Name, Doc string
	Choices   []string
	Needed    bool
}

// move is an action as a form.
type move struct {
	Name, Doc string
	Fields    []field
}

func (p *playing) show(w http.ResponseWriter, _ *http.Request) {
	data := map[string]any{
		"Nonce": p.s.token, "Message": p.message, "Wrong": p.wrong, "Done": p.done, "Steps": p.s.steps, "Most": p.s.setup.Limits.MaxSteps,
	}
	if !p.until.IsZero() {
		data["Until"] = p.until.Format("15:04:05")
	}
	var parts []part
	if p.seen.Text != "" {
		parts = append(parts, part{"text", p.seen.Text})
	}
	var members map[string]json.RawMessage
	_ = json.Unmarshal(p.seen.JSON, &members) // the core has checked it
	for _, name := range slices.Sorted(maps.Keys(members)) {
		text := string(members[name])
		var plain string
		if json.Unmarshal(members[name], &plain) == nil {
			text = plain
		}
		parts = append(parts, part{name, text})
	}
	data["Parts"], data["Frames"] = parts, p.seen.Frames
	var moves []move
	for i := range p.s.offer {
		moves = append(moves, form(&p.s.offer[i]))
	}
	data["Moves"] = moves
	_ = pageTemplate.Execute(w, data)
}

// parameters is the schema of an action's arguments.
type parameters struct {
	Properties map[string]struct {
		Description string            `json:"description"`
		Enum        []json.RawMessage `json:"enum"`
		Type        any               `json:"type"`
	} `json:"properties"`
	Required []string `json:"required"`
}

// form describes an action's arguments.
func form(a *environment.Action) move {
	f := move{Name: a.Name, Doc: a.Doc}
	var schema parameters
	_ = json.Unmarshal(a.Schema, &schema) // without one, there are no fields
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		s := schema.Properties[name]
		one := field{Name: name, Doc: s.Description, Needed: slices.Contains(schema.Required, name)}
		for _, v := range s.Enum {
			one.Choices = append(one.Choices, strings.Trim(string(v), `"`))
		}
		if s.Type == "boolean" {
			one.Choices = []string{"true", "false"}
		}
		f.Fields = append(f.Fields, one)
	}
	return f
}

func (p *playing) frame(w http.ResponseWriter, q *http.Request) {
	n, err := strconv.Atoi(q.PathValue("n"))
	if err != nil || n < 0 || n >= len(p.seen.Frames) {
		http.NotFound(w, q)
		return
	}
	f := &p.seen.Frames[n]
	w.Header().Set("Content-Type", "image/"+strings.TrimPrefix(f.MediaType, "image/"))
	_, _ = w.Write(f.Data)
}

// act does what a form says.
func (p *playing) act(w http.ResponseWriter, q *http.Request) {
	i := slices.IndexFunc(p.s.offer, func(a environment.Action) bool { return a.Name == q.PostFormValue("action") })
	switch {
	case p.done != "":
	case i < 0:
		p.wrong = "the surface has no such action"
	default:
		given, err := arguments(&p.s.offer[i], q)
		if err != nil {
			p.wrong = err.Error()
			break
		}
		if err = p.do(environment.Call{Name: p.s.offer[i].Name, Arguments: given}); err != nil {
			p.end(result{err: err}, "the surface failed: "+err.Error())
		}
	}
	http.Redirect(w, q, "/"+p.s.token+"/", http.StatusSeeOther)
}

func (p *playing) do(c environment.Call) error {
	step, err := p.s.on.Act(p.ctx, c, nil)
	if err != nil {
		return err
	}
	p.seen, p.wrong = step.Observation, step.Error
	p.s.steps++
	none, text, id := int64(0), trajectory.Text(step.Error), fmt.Sprint("action-", p.s.steps)
	if err = p.r.Step(trajectory.Step{
		Source: trajectory.Model, LLMCallCount: &none, Message: trajectory.Text(""),
		ToolCalls:   []trajectory.ToolCall{{ID: id, Name: c.Name, Arguments: c.Arguments}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{SourceCallID: id, Content: &text}}},
	}); err != nil {
		return err
	}
	switch {
	case step.Done || step.Truncated:
		p.end(result{yield: agent.Yield{End: agent.Done}}, "The episode is over. Thank you.")
	case p.s.spent():
		p.end(result{yield: agent.Yield{End: agent.MaxSteps, Reason: fmt.Sprintf("the limit of %d steps is reached", p.s.setup.Limits.MaxSteps)}}, "No step is left. Thank you.")
	}
	return nil
}

// end ends the turn, once.
func (p *playing) end(r result, why string) {
	if p.done == "" {
		p.done = why
		p.over <- r
	}
}

// yield ends the turn with the person's words.
func (p *playing) yield(w http.ResponseWriter, q *http.Request) {
	p.end(result{yield: agent.Yield{End: agent.Done, Message: strings.TrimSpace(q.PostFormValue("words"))}}, "Thank you.")
	p.show(w, q)
}

// errArgument is about what a form sent.
var errArgument = errors.New("the action was not done")

// arguments makes the arguments of a call from a form. What the schema wants as a
// text stays one, and all else is read as JSON.
func arguments(a *environment.Action, q *http.Request) (json.RawMessage, error) {
	var schema parameters
	if len(a.Schema) > 0 {
		if err := json.Unmarshal(a.Schema, &schema); err != nil {
			return nil, fmt.Errorf("%w: the schema of %s is not an object: %w", errArgument, a.Name, err)
		}
	}
	given := map[string]any{}
	for name, s := range schema.Properties {
		text := q.PostFormValue("argument-" + name)
		switch {
		case text == "" && (s.Type != "string" || !slices.Contains(schema.Required, name)):
		case s.Type == "string" || !json.Valid([]byte(text)):
			given[name] = text
		default:
			given[name] = json.RawMessage(text)
		}
	}
	return json.Marshal(given)
}
