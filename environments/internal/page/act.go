package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

// Action is one thing that an agent can do.
type Action struct {
	Name, Group, Doc string
	Parameters       []Parameter
	do               func(context.Context, *Browser, *arguments) error
}

// Parameter is an argument of an action.
type Parameter struct {
	Name, Doc string
	Type      string // of JSON Schema: string, number, integer; strings: a list of them, or one
	Enum      []string
	Default   any // nil: it is required
}

// arguments are those of one call, checked against the parameters.
type arguments struct {
	BID       string   `json:"bid"`
	From      string   `json:"from_bid"`
	To        string   `json:"to_bid"`
	Value     string   `json:"value"`
	Text      string   `json:"text"`
	Key       string   `json:"key"`
	KeyComb   string   `json:"key_comb"`
	Button    string   `json:"button"`
	Modifiers words    `json:"modifiers"`
	Options   words    `json:"options"`
	File      words    `json:"file"`
	URL       string   `json:"url"`
	Reason    string   `json:"reason"`
	X         float64  `json:"x"`
	Y         float64  `json:"y"`
	FromX     float64  `json:"from_x"`
	FromY     float64  `json:"from_y"`
	ToX       float64  `json:"to_x"`
	ToY       float64  `json:"to_y"`
	DX        float64  `json:"delta_x"`
	DY        float64  `json:"delta_y"`
	WaitMS    *float64 `json:"wait_ms"`
	Index     int      `json:"index"`
}

// words is a text or a list of them.
type words []string

// UnmarshalJSON reads both forms.
func (w *words) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(w))
}

// Refusal is why an action could not be done. Its text goes to the agent.
type Refusal struct {
	Type, Text string
}

func (r *Refusal) Error() string { return r.Type + ": " + r.Text }

func refuse(kind, format string, args ...any) error {
	return &Refusal{Type: kind, Text: fmt.Sprintf(format, args...)}
}

// failure returns an error of an action as agents see it: "Type: message".
func failure(err error) string {
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.Error()
	}
	if errors.Is(err, ErrPage) {
		return "PageError: " + err.Error()
	}
	if e, ok := errors.AsType[*cdp.Error](err); ok {
		return "BrowserError: " + e.Error()
	}
	return "Error: " + err.Error()
}

// Act does one action, and observes what is wanted. refused is why the action could
// not be done; the observation is made all the same. err means that the browser
// does not work any more, or that ctx has ended.
func (b *Browser) Act(ctx context.Context, a *Action, args json.RawMessage, want []string) (o Observation, refused string, err error) {
	b.acts.Lock()
	defer b.acts.Unlock()
	in, err := a.arguments(args)
	b.mu.Lock()
	b.seen.action, b.seen.failure = a.Name+string(args), ""
	b.mu.Unlock()
	if err == nil {
		err = a.do(ctx, b, in)
	}
	if ctx.Err() != nil {
		return o, "", context.Cause(ctx)
	}
	if errors.Is(err, cdp.ErrClosed) {
		return o, "", err
	}
	if err != nil {
		refused = failure(err)
		b.mu.Lock()
		b.seen.failure = refused
		b.mu.Unlock()
	} else if err = sleep(ctx, b.set.SlowMo); err != nil {
		return o, "", err
	}
	o, err = b.observe(ctx, want)
	return o, refused, err
}

// arguments reads the arguments of a call, which are an object.
func (a *Action) arguments(text json.RawMessage) (in *arguments, err error) {
	in = &arguments{}
	given := map[string]json.RawMessage{}
	if len(text) > 0 {
		if err = errors.Join(json.Unmarshal(text, &given), json.Unmarshal(text, in)); err != nil {
			return in, refuse("ValueError", "arguments of %s: %s", a.Name, err)
		}
	}
	for _, p := range a.Parameters {
		if _, ok := given[p.Name]; !ok && p.Default == nil {
			return in, refuse("ValueError", "%s needs the argument %s", a.Name, p.Name)
		}
	}
	return in, nil
}

// page adapts an action on the active page.
func page(do func(context.Context, *Browser, *tab, *arguments) error) func(context.Context, *Browser, *arguments) error {
	return func(ctx context.Context, b *Browser, in *arguments) error {
		t, err := b.current(ctx)
		if err != nil {
			return err
		}
		return do(ctx, b, t, in)
	}
}

var (
	bidParameter = Parameter{Name: "bid", Type: "string", Doc: "The element's bid."}
	buttonChoice = Parameter{Name: "button", Type: "string", Enum: []string{"left", "middle", "right"}, Default: "left", Doc: "Button of the mouse."}
	modifiers    = Parameter{Name: "modifiers", Type: "strings", Default: []string{}, Doc: "Keys that are held: Alt, Control, ControlOrMeta, Meta, Shift."}
	xParameter   = Parameter{Name: "x", Type: "number", Doc: "From the left edge of the viewport, in pixels."}
	yParameter   = Parameter{Name: "y", Type: "number", Doc: "From the top edge of the viewport, in pixels."}
)

func text(name, doc string) Parameter { return Parameter{Name: name, Type: "string", Doc: doc} }

func number(name, doc string) Parameter { return Parameter{Name: name, Type: "number", Doc: doc} }

// Actions returns all actions, by group: chat, infeas, misc, bid, coord, nav, tab.
func Actions() []Action {
	return slices.Concat(talk(), byBID(), byPlace(), byURL(), byTab())
}

func talk() []Action {
	nothing := func(context.Context, *Browser, *arguments) error { return nil }
	return []Action{
		{ActionSay, "chat", "Sends a message to the user.", []Parameter{text("text", "The message.")}, nothing},
		{ActionInfeasible, "infeas", "Tells the user that the task cannot be done.", []Parameter{text("reason", "Why.")}, nothing},
		{"noop", "misc", "Does nothing, and waits.", []Parameter{{Name: "wait_ms", Type: "number", Default: 1000, Doc: "How long, in milliseconds."}}, noop},
	}
}

// The actions that speak to the user.
const (
	ActionSay        = "send_msg_to_user"
	ActionInfeasible = "report_infeasible"
)

// maxNoop bounds the time that an agent may wait in one action.
const maxNoop = 30 * time.Second

func noop(ctx context.Context, _ *Browser, in *arguments) error {
	wait := time.Second
	if in.WaitMS != nil {
		wait = time.Duration(min(max(*in.WaitMS, 0), float64(maxNoop/time.Millisecond)) * float64(time.Millisecond))
	}
	return sleep(ctx, wait)
}

func byURL() []Action {
	return []Action{
		{"goto", "nav", "Opens a URL.", []Parameter{text("url", "The URL, with http:// or https://.")}, func(ctx context.Context, b *Browser, in *arguments) error {
			b.mu.Lock()
			t := b.active
			b.mu.Unlock()
			if t == nil {
				var err error
				if t, err = b.newTab(ctx); err != nil {
					return err
				}
			}
			if !slices.ContainsFunc([]string{"http://", "https://", "about:blank"}, func(p string) bool { return strings.HasPrefix(in.URL, p) }) {
				return refuse("ValueError", "the URL %q has to begin with https:// or http://", cut(in.URL))
			}
			return b.navigate(ctx, t, in.URL)
		}},
		{"go_back", "nav", "Goes back to the page before.", nil, page(func(ctx context.Context, b *Browser, t *tab, _ *arguments) error { return b.history(ctx, t, -1) })},
		{"go_forward", "nav", "Goes forward to the next page.", nil, page(func(ctx context.Context, b *Browser, t *tab, _ *arguments) error { return b.history(ctx, t, 1) })},
	}
}

func (b *Browser) history(ctx context.Context, t *tab, by int) error {
	var h struct {
		Current int `json:"currentIndex"`
		Entries []struct {
			ID int `json:"id"`
		} `json:"entries"`
	}
	if err := b.do(ctx, t, "Page.getNavigationHistory", nil, &h); err != nil {
		return err
	}
	to := h.Current + by
	if to < 0 || to >= len(h.Entries) {
		return refuse("NavigationError", "there is no page to go to")
	}
	if err := b.do(ctx, t, "Page.navigateToHistoryEntry", object{"entryId": h.Entries[to].ID}, nil); err != nil {
		return err
	}
	return errors.Join(sleep(ctx, 50*time.Millisecond), b.loaded(ctx)) // until it has begun
}

func byTab() []Action {
	return []Action{
		{"new_tab", "tab", "Opens a new tab.", nil, func(ctx context.Context, b *Browser, _ *arguments) error {
			_, err := b.newTab(ctx)
			return err
		}},
		{"tab_close", "tab", "Closes the active tab.", nil, func(ctx context.Context, b *Browser, _ *arguments) error {
			b.mu.Lock()
			t := b.active
			b.mu.Unlock()
			if t != nil {
				if err := b.closeTab(ctx, t); err != nil {
					return err
				}
			}
			_, err := b.current(ctx)
			return err
		}},
		{"tab_focus", "tab", "Makes another tab the active one.", []Parameter{{Name: "index", Type: "integer", Doc: "Its position, from 0."}}, func(ctx context.Context, b *Browser, in *arguments) error {
			b.mu.Lock()
			if in.Index < 0 || in.Index >= len(b.tabs) {
				n := len(b.tabs)
				b.mu.Unlock()
				return refuse("ValueError", "there is no tab %d: there are %d", in.Index, n)
			}
			t := b.tabs[in.Index]
			b.active = t
			b.mu.Unlock()
			return b.do(ctx, t, "Page.bringToFront", nil, nil)
		}},
	}
}
