package page

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/berth-eval/berth/plugins/environment"
)

// The kinds of observation, as BrowserGym names them.
const (
	KindScreenshot = "screenshot" // a PNG of the viewport
	KindMarks      = "marks"      // the same with a numbered box around each element of the set of marks
	KindAXTree     = "axtree"     // the accessibility tree as text
	KindElements   = "elements"   // Element by bid
	KindURL        = "url"        // of the active page
	KindTabs       = "tabs"
	KindFocused    = "focused" // bid; empty: nothing has the focus
	KindAction     = environment.KindAction
	KindFailure    = environment.KindFailure // "Type: message"; empty: it succeeded
	KindElapsed    = environment.KindElapsed
)

// Kinds returns all kinds.
func Kinds() []string {
	return []string{KindScreenshot, KindMarks, KindAXTree, KindElements, KindURL, KindTabs, KindFocused, KindAction, KindFailure, KindElapsed}
}

// maxText bounds the text of one kind, in bytes.
const maxText = 1 << 20

// Tabs are the pages that are open.
type Tabs struct {
	URLs   []string `json:"urls"`
	Titles []string `json:"titles"`
	Active int      `json:"active"` // position; below 0: there is none
}

// Observation is what is seen: parts by kind, without pictures.
type Observation struct {
	Parts      map[string]any
	Screenshot []byte // a PNG; empty: it is not wanted, or the page does not respond
	Marks      []byte // the same
}

// Observe waits until the page has settled, and looks at what is wanted; empty
// means all kinds. If the page does not respond, only what the browser knows is in
// the observation, with the reason as the error of the last action.
func (b *Browser) Observe(ctx context.Context, want []string) (Observation, error) {
	b.acts.Lock()
	defer b.acts.Unlock()
	return b.observe(ctx, want)
}

func (b *Browser) observe(ctx context.Context, want []string) (o Observation, err error) {
	if len(want) == 0 {
		want = Kinds()
	}
	t, err := b.current(ctx)
	if err == nil {
		err = errors.Join(sleep(ctx, b.set.Settle), b.loaded(ctx))
	}
	if err == nil {
		o, err = b.look(ctx, t, want)
	}
	if err != nil && !errors.Is(err, ErrPage) {
		return Observation{}, err
	}
	if o.Parts == nil {
		o.Parts = map[string]any{}
	}
	if failed := b.refresh(ctx); failed != nil {
		return Observation{}, failed
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil && b.seen.failure == "" {
		b.seen.failure = failure(err)
	}
	tabs := Tabs{URLs: []string{}, Titles: []string{}, Active: slices.Index(b.tabs, b.active)}
	for _, t := range b.tabs {
		tabs.URLs, tabs.Titles = append(tabs.URLs, cut(t.url)), append(tabs.Titles, cut(t.title))
	}
	known := map[string]any{
		KindTabs: tabs, KindAction: b.seen.action, KindFailure: b.seen.failure, KindElapsed: time.Since(b.seen.began).Seconds(), KindURL: "",
	}
	if tabs.Active >= 0 {
		known[KindURL] = tabs.URLs[tabs.Active]
	}
	for kind, v := range known {
		if slices.Contains(want, kind) {
			o.Parts[kind] = v
		}
	}
	return o, nil
}

// refresh asks for the titles of the tabs, whose changes are not events.
func (b *Browser) refresh(ctx context.Context) error {
	var got struct {
		Infos []targetInfo `json:"targetInfos"`
	}
	if err := b.conn.Do(ctx, "", "Target.getTargets", nil, &got); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, info := range got.Infos {
		if i := b.index(info.ID); i >= 0 {
			b.tabs[i].url, b.tabs[i].title = info.URL, info.Title
		}
	}
	return nil
}

// maxWord bounds a URL and a title, in bytes.
const maxWord = 4096

func cut(s string) string { return s[:min(len(s), maxWord)] }

// look asks the page itself.
func (b *Browser) look(ctx context.Context, t *tab, want []string) (o Observation, err error) {
	o.Parts = map[string]any{}
	wants := func(kinds ...string) bool {
		return slices.ContainsFunc(kinds, func(k string) bool { return slices.Contains(want, k) })
	}
	var elements map[string]Element
	if wants(KindElements, KindMarks) {
		s, failed := b.snapshot(ctx, t)
		if failed != nil {
			return o, failed
		}
		elements = s.elements(b.set.Width, b.set.Height)
		if wants(KindElements) {
			o.Parts[KindElements] = elements
		}
	}
	if wants(KindAXTree) {
		if o.Parts[KindAXTree], err = b.axTree(ctx, t, maxText); err != nil {
			delete(o.Parts, KindAXTree)
			return o, err
		}
	}
	if wants(KindFocused) {
		if o.Parts[KindFocused], err = b.focused(ctx, t); err != nil {
			delete(o.Parts, KindFocused)
			return o, err
		}
	}
	if wants(KindScreenshot, KindMarks) {
		o.Screenshot, err = b.screenshot(ctx, t)
	}
	if wants(KindMarks) && err == nil {
		o.Marks, err = marked(o.Screenshot, elements)
	}
	if !wants(KindScreenshot) {
		o.Screenshot = nil
	}
	return o, err
}

func (b *Browser) screenshot(ctx context.Context, t *tab) ([]byte, error) {
	var got struct {
		Data string `json:"data"`
	}
	if err := b.do(ctx, t, "Page.captureScreenshot", object{"format": "png", "optimizeForSpeed": true}, &got); err != nil {
		return nil, err
	}
	return base64.StdEncoding.DecodeString(got.Data)
}

// focused returns the bid of the element that has the focus, in whatever frame or
// shadow root; empty: none has.
func (b *Browser) focused(ctx context.Context, t *tab) (string, error) {
	found, err := b.run(ctx, t, b.do, "Runtime.evaluate", object{"expression": `(() => {
  let e = document.activeElement;
  for (let i = 0; e && i < 100; i++) {
    let inner = null;
    if (e.shadowRoot) inner = e.shadowRoot.activeElement;
    else if (e.tagName === 'IFRAME' || e.tagName === 'FRAME') {
      try { inner = e.contentDocument && e.contentDocument.activeElement; } catch {}
    }
    if (!inner || inner.tagName === 'BODY') break;
    e = inner;
  }
  return e && e.tagName !== 'BODY' && e.tagName !== 'HTML' ? e : null;
})()`})
	if err != nil || found.ID == "" {
		return "", err
	}
	var node struct {
		Node struct {
			Backend int64 `json:"backendNodeId"`
		} `json:"node"`
	}
	if err = b.do(ctx, t, "DOM.describeNode", object{"objectId": found.ID}, &node); err != nil {
		return "", err
	}
	return b.bid(t, node.Node.Backend), nil
}

// run runs a script by a method of the protocol, and returns what it results in. What
// it throws is an error. do is the way to call the method.
func (b *Browser) run(ctx context.Context, t *tab, do func(context.Context, *tab, string, object, any) error, method string, params object) (remote, error) {
	var got struct {
		Result    remote     `json:"result"`
		Exception *exception `json:"exceptionDetails"`
	}
	err := do(ctx, t, method, params, &got)
	if err == nil && got.Exception != nil {
		err = got.Exception
	}
	return got.Result, err
}

type remote struct {
	ID    string          `json:"objectId"`
	Value json.RawMessage `json:"value"`
}

// exception is what a script threw.
type exception struct {
	Text   string `json:"text"`
	Thrown struct {
		Description string `json:"description"`
	} `json:"exception"`
}

func (e *exception) Error() string {
	if e.Thrown.Description != "" {
		return "the script failed: " + cut(e.Thrown.Description)
	}
	return "the script failed: " + cut(e.Text)
}

// Show makes a page of the application the active one: the newest, if it is not one
// already. If there is none, it opens the application again.
func (b *Browser) Show(ctx context.Context) error {
	b.acts.Lock()
	defer b.acts.Unlock()
	_, err := b.application(ctx)
	return err
}

// Evaluate runs a script of the task in the page that Show would show, and returns its
// value as JSON. It waits if that is a promise.
func (b *Browser) Evaluate(ctx context.Context, script string) (json.RawMessage, error) {
	b.acts.Lock()
	defer b.acts.Unlock()
	t, err := b.application(ctx)
	if err != nil {
		return nil, err
	}
	r, err := b.run(ctx, t, b.unlimited, "Runtime.evaluate", object{"expression": script, "awaitPromise": true, "returnByValue": true})
	return r.Value, err
}

// Visit opens a URL in a new page, and returns the text that it shows.
func (b *Browser) Visit(ctx context.Context, url string) (string, error) {
	b.acts.Lock()
	defer b.acts.Unlock()
	t, err := b.newTab(ctx)
	if err != nil {
		return "", err
	}
	if err = b.navigate(ctx, t, url); err != nil {
		return "", err
	}
	r, err := b.run(ctx, t, b.do, "Runtime.evaluate", object{"expression": "document.body ? document.body.innerText : ''", "returnByValue": true})
	if err != nil {
		return "", err
	}
	var text string
	err = json.Unmarshal(r.Value, &text)
	return text, err
}
