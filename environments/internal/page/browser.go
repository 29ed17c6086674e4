// Package page drives a browser for agents: tabs and what they load, what is
// seen, and actions.
package page

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/berth-eval/berth/environments/internal/cdp"
)

// Origin is the made-up origin of the task's pages. No server has it: the
// surface itself replies.
const Origin = "https://app.test"

// Settings are those of a browser.
type Settings struct {
	Width, Height int    // of the viewport, in CSS pixels
	Files         fs.FS  // the pages at Origin; nil: there are none
	Open          bool   // other requests are let through; they go to the network of the sandbox
	Downloads     string // folder in the sandbox; empty: there are no downloads
	SlowMo        time.Duration
	ActionTimeout time.Duration // of waiting until an element can be acted on
	Settle        time.Duration // before an observation
	Load          time.Duration // of waiting for the content of each page and frame
	Answer        time.Duration // how long a page may take to answer a call; 0: 5 s
	AcceptDialogs bool          // dialogs are accepted; otherwise they are dismissed
	OnePage       bool          // pages that the first one opens are closed at once
}

// ErrPage means that the active page has crashed or does not respond. The browser
// itself works.
var ErrPage = errors.New("the page")

// answerTime is how long a page may usually take to answer a call. One that computes
// without end never does.
const answerTime = 5 * time.Second

// openTime is how long a new page, or a navigation, may take until it begins: a
// browser that has just started, beside others, is slow.
const openTime = 30 * time.Second

// Browser is a running browser. Actions and observations are made one at a time.
type Browser struct {
	conn *cdp.Conn
	set  Settings

	acts sync.Mutex // held by an action or an observation

	mu      sync.Mutex
	context string   // of the browser: cookies and storage since the last Reset
	start   string   // URL that the last Reset opened
	home    []string // origins of the application: of start, and of where that led
	tabs    []*tab   // in the order in which they were opened
	active  *tab
	opened  chan struct{} // closed and replaced when a tab was opened or closed
	blocked map[string]int
	dialogs []string
	names   names
	held    int // modifiers that keyboard_down holds
	seen    seen
}

// tab is a page with its session.
type tab struct {
	target, session string
	ready           chan struct{} // closed when it is prepared
	failed          error         // of preparing it

	// Guarded by Browser.mu.
	url, title string
	crashed    bool
	loading    map[string]bool      // frames whose content is not loaded
	chooser    chan json.RawMessage // gets what the page's file chooser is about, if not nil
	drag       chan json.RawMessage // gets what is dragged, if not nil
}

// seen is what an observation says of the last action.
type seen struct {
	action, failure string
	began           time.Time
}

// New takes over a browser that was just started with its pipe. Reset opens the
// first page.
func New(ctx context.Context, in io.Reader, out io.Writer, s Settings) (*Browser, error) {
	if s.Answer == 0 {
		s.Answer = answerTime
	}
	b := &Browser{set: s, opened: make(chan struct{}), blocked: map[string]int{}, names: newNames()}
	b.conn = cdp.New(in, out, b.happened)
	if err := b.conn.Do(ctx, "", "Target.setDiscoverTargets", object{"discover": true}, nil); err != nil {
		return nil, err
	}
	return b, b.conn.Do(ctx, "", "Target.setAutoAttach", attach, nil)
}

type object = map[string]any

// attach makes the browser wait with each new page until it is prepared.
var attach = object{"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}

// Done is closed when the browser has ended.
func (b *Browser) Done() <-chan struct{} { return b.conn.Done() }

// Blocked returns how many requests were refused, by host.
func (b *Browser) Blocked() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.blocked)
}

// Dialogs returns the texts of the dialogs that pages opened since the last
// Reset.
func (b *Browser) Dialogs() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.dialogs)
}

// Reset closes all pages, forgets cookies and storage, and opens a page.
func (b *Browser) Reset(ctx context.Context, url string) error {
	b.acts.Lock()
	defer b.acts.Unlock()
	b.mu.Lock()
	old := b.context
	b.mu.Unlock()
	var made struct {
		ID string `json:"browserContextId"`
	}
	if err := b.conn.Do(ctx, "", "Target.createBrowserContext", object{"disposeOnDetach": true}, &made); err != nil {
		return err
	}
	b.mu.Lock()
	b.context, b.tabs, b.active, b.dialogs, b.held, b.names = made.ID, nil, nil, nil, 0, newNames()
	b.seen = seen{began: time.Now()}
	b.mu.Unlock()
	if old != "" {
		if err := b.conn.Do(ctx, "", "Target.disposeBrowserContext", object{"browserContextId": old}, nil); err != nil {
			return err
		}
	}
	downloads := object{"behavior": "deny", "browserContextId": made.ID}
	if b.set.Downloads != "" {
		downloads["behavior"], downloads["downloadPath"] = "allow", b.set.Downloads
	}
	if err := b.conn.Do(ctx, "", "Browser.setDownloadBehavior", downloads, nil); err != nil {
		return err
	}
	t, err := b.newTab(ctx)
	if err == nil {
		err = b.navigate(ctx, t, url)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start, b.home = url, nil; t != nil {
		b.home = slices.DeleteFunc([]string{originOf(url), originOf(t.url)}, func(o string) bool { return o == "" })
	}
	return err
}

// originOf returns the origin of a URL; empty: it is not of a server.
func originOf(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// application returns the active page if it is of the application; if not, it makes the
// application's newest page the active one, or opens the application again. What a page
// of another origin says is the agent's, which chooses the pages.
func (b *Browser) application(ctx context.Context) (*tab, error) {
	b.mu.Lock()
	home, start := b.home, b.start
	var own *tab
	for _, t := range append(slices.Clone(b.tabs), b.active) {
		if t != nil && !t.crashed && slices.Contains(home, originOf(t.url)) {
			own = t
		}
	}
	if own != nil {
		b.active = own
	}
	b.mu.Unlock()
	switch {
	case len(home) == 0:
		return b.current(ctx)
	case own == nil:
		t, err := b.newTab(ctx)
		if err != nil {
			return nil, err
		}
		return t, b.navigate(ctx, t, start)
	}
	if err := own.wait(ctx); err != nil {
		return nil, err
	}
	return own, b.do(ctx, own, "Page.bringToFront", nil, nil)
}

// newTab opens an empty page and makes it the active one.
func (b *Browser) newTab(ctx context.Context) (*tab, error) {
	b.mu.Lock()
	id := b.context
	b.mu.Unlock()
	var made struct {
		ID string `json:"targetId"`
	}
	if err := b.conn.Do(ctx, "", "Target.createTarget", object{"url": "about:blank", "browserContextId": id}, &made); err != nil {
		return nil, err
	}
	for {
		b.mu.Lock()
		opened, i := b.opened, b.index(made.ID)
		var t *tab
		if i >= 0 {
			t = b.tabs[i]
			b.active = t
		}
		b.mu.Unlock()
		if t != nil {
			return t, t.wait(ctx)
		}
		select {
		case <-opened:
		case <-b.conn.Done():
			return nil, cdp.ErrClosed
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// index returns the position of a tab; below 0: there is none. The caller holds mu.
func (b *Browser) index(target string) int {
	return slices.IndexFunc(b.tabs, func(t *tab) bool { return t.target == target })
}

// wait waits until a tab is prepared.
func (t *tab) wait(ctx context.Context) error {
	select {
	case <-t.ready:
		return t.failed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// current returns the active tab, and opens one if all were closed.
func (b *Browser) current(ctx context.Context) (*tab, error) {
	b.mu.Lock()
	t := b.active
	crashed := t != nil && t.crashed
	b.mu.Unlock()
	switch {
	case t == nil:
		return b.newTab(ctx)
	case crashed:
		return t, fmt.Errorf("%w has crashed: open another one with goto", ErrPage)
	}
	return t, t.wait(ctx)
}

// do calls a method of a page.
func (b *Browser) do(ctx context.Context, t *tab, method string, params object, out any) error {
	limited, cancel := context.WithTimeoutCause(ctx, b.set.Answer, fmt.Errorf("%w does not respond", ErrPage))
	defer cancel()
	err := b.conn.Do(limited, t.session, method, params, out)
	if err != nil && ctx.Err() == nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		if t.crashed {
			return fmt.Errorf("%w has crashed: open another one with goto", ErrPage)
		}
	}
	return err
}

// unlimited calls a method of a page that may take as long as ctx.
func (b *Browser) unlimited(ctx context.Context, t *tab, method string, params object, out any) error {
	return b.conn.Do(ctx, t.session, method, params, out)
}

// prepare makes a new page as the settings want it, and lets it continue.
func (b *Browser) prepare(t *tab) {
	defer close(t.ready)
	ctx, cancel := context.WithTimeout(context.Background(), openTime)
	defer cancel()
	type step struct {
		method string
		params object
	}
	steps := []step{
		{"Page.enable", nil},
		{"Page.setLifecycleEventsEnabled", object{"enabled": true}},
		{"Inspector.enable", nil},
		{"Fetch.enable", object{"patterns": []object{{"urlPattern": "*"}}}},
		{"Target.setAutoAttach", attach},
		{"Emulation.setDeviceMetricsOverride", object{"width": b.set.Width, "height": b.set.Height, "deviceScaleFactor": 1, "mobile": false}},
		{"Emulation.setScrollbarsHidden", object{"hidden": false}},
		{"Emulation.setFocusEmulationEnabled", object{"enabled": true}},
		{"Page.setInterceptFileChooserDialog", object{"enabled": true}},
		{"Emulation.setLocaleOverride", object{"locale": locale}},
		{"Emulation.setTimezoneOverride", object{"timezoneId": "UTC"}},
		{"Runtime.runIfWaitingForDebugger", nil},
	}
	// A page that another one opens answers some only when it continues.
	results := make([]func(any) error, len(steps))
	for i, s := range steps {
		results[i] = b.conn.Begin(ctx, t.session, s.method, s.params)
	}
	for _, result := range results {
		if t.failed = result(nil); t.failed != nil {
			return
		}
	}
}

// navigate opens a URL in a tab, and waits until its content is loaded, or for the
// time of the settings.
func (b *Browser) navigate(ctx context.Context, t *tab, url string) error {
	b.mu.Lock()
	crashed := t.crashed
	b.mu.Unlock()
	if crashed { // its session is dead
		fresh, err := b.newTab(ctx)
		if err != nil {
			return err
		}
		if err = b.closeTab(ctx, t); err != nil {
			return err
		}
		t = fresh
	}
	var got struct {
		Error string `json:"errorText"`
	}
	limited, cancel := context.WithTimeoutCause(ctx, openTime, fmt.Errorf("%w does not open", ErrPage))
	defer cancel()
	if err := b.conn.Do(limited, t.session, "Page.navigate", object{"url": url}, &got); err != nil {
		return err
	}
	if got.Error != "" {
		return fmt.Errorf("open %s: %s", url, got.Error)
	}
	return b.loaded(ctx)
}

func (b *Browser) closeTab(ctx context.Context, t *tab) error {
	if err := b.conn.Do(ctx, "", "Target.closeTarget", object{"targetId": t.target}, nil); err != nil {
		return err
	}
	b.gone(t.target)
	return nil
}

// loaded waits until the content of all frames of the active page is loaded, or
// for the time of the settings.
func (b *Browser) loaded(ctx context.Context) error {
	for end := time.Now().Add(b.set.Load); ; {
		b.mu.Lock()
		t := b.active // one that was just opened has no URL
		done := t == nil || t.crashed || len(t.loading) == 0 && t.url != ""
		b.mu.Unlock()
		if done || time.Now().After(end) {
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
