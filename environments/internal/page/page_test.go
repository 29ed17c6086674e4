package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/berth-eval/berth/internal/testlevel"
)

// settings are those of the tests: without waits.
func settings(files fstest.MapFS) Settings {
	s := Settings{Width: 800, Height: 600, ActionTimeout: time.Second, Load: 3 * time.Second}
	if files != nil {
		s.Files = files
	}
	return s
}

// start starts Chromium and opens a page.
func start(t *testing.T, s Settings, url string) *Browser {
	t.Helper()
	return startBehind(t, "", s, url)
}

func startBehind(t *testing.T, proxy string, s Settings, url string) *Browser {
	t.Helper()
	program := testlevel.Program(t, "chromium", "chromium")
	toRead, ours, err := os.Pipe()
	must(t, err)
	answers, toWrite, err := os.Pipe()
	must(t, err)
	dir, err := os.MkdirTemp("", "berth-page")
	must(t, err)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, Arguments(filepath.Join(dir, "profile"), proxy, s)...)
	cmd.ExtraFiles = []*os.File{toRead, toWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, cmd.Start())
	_, _ = toRead.Close(), toWrite.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its processes of pages
		_ = cmd.Wait()
		_ = ours.Close()
		testlevel.Eventually(t, "they have ended", func() bool { return os.RemoveAll(dir) == nil })
	})
	ctx := within(t)
	b, err := New(ctx, answers, ours, s)
	must(t, err)
	must(t, b.Reset(ctx, url))
	return b
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it only ends a test that hangs
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func action(t *testing.T, name string) *Action {
	t.Helper()
	for _, a := range Actions() {
		if a.Name == name {
			return &a
		}
	}
	t.Fatalf("there is no action %q", name)
	return nil
}

// act does an action and returns what is seen then, and why it was refused.
func act(t *testing.T, b *Browser, name string, args map[string]any, want ...string) (map[string]any, string) {
	t.Helper()
	in, err := json.Marshal(args)
	must(t, err)
	o, refused, err := b.Act(within(t), action(t, name), in, want)
	must(t, err)
	return o.Parts, refused
}

// part returns a part of an observation.
func part[T any](t *testing.T, parts map[string]any, kind string) (v T) {
	t.Helper()
	v, ok := parts[kind].(T)
	if !ok {
		t.Fatalf("%s is %T", kind, parts[kind])
	}
	return v
}

func tree(t *testing.T, b *Browser) string {
	t.Helper()
	o, err := b.Observe(within(t), []string{KindAXTree})
	must(t, err)
	got, _ := o.Parts[KindAXTree].(string)
	return got
}

// find returns the bid in the line of the tree that matches.
func find(t *testing.T, b *Browser, pattern string) string {
	t.Helper()
	all := tree(t, b)
	m := regexp.MustCompile(`(?m)^\s*\[(\d+)\] ` + pattern).FindStringSubmatch(all)
	if m == nil {
		t.Fatalf("no line matches %q:\n%s", pattern, all)
	}
	return m[1]
}

const form = `<!doctype html><title>Form</title><body>
<h1>A form</h1>
<input id=name aria-label="Your name"><input type=range id=range aria-label=Size min=0 max=10 value=5>
<select id=kind aria-label=Kind><option value=a>One</option><option value=b>Two</option></select>
<button onclick="document.title=[name_.value, kind.value, range.value].join('|'); out.textContent='sent'">Send</button>
<p id=out></p><button disabled>Never</button>
<div style="height:3000px"></div><button onclick="out.textContent='deep'">Deep</button>
<my-box></my-box><iframe src="inner.html" width=300 height=100></iframe>
<script>
const name_ = document.getElementById('name');
customElements.define('my-box', class extends HTMLElement {
  constructor() { super(); this.attachShadow({mode: 'open'}).innerHTML = '<button onclick="out.textContent=\'shadow\'">Shadow</button>'; }
});
</script>`

func pages() fstest.MapFS {
	return fstest.MapFS{
		"index.html": {Data: []byte(form)},
		"inner.html": {Data: []byte(`<!doctype html><button onclick="parent.out.textContent='inner'">Inner</button>`)},
	}
}

func TestActionsOnElements(t *testing.T) {
	t.Parallel()
	b := start(t, settings(pages()), Origin+"/index.html")
	for _, step := range []struct {
		what string
		do   func() string
		want string // in the tree
	}{
		{"fill", func() string {
			_, r := act(t, b, "fill", map[string]any{"bid": find(t, b, `textbox 'Your name'`), "value": "Ada 'n é"})
			return r
		}, `textbox 'Your name' value='Ada \'n é'`},
		{"fill a range", func() string {
			_, r := act(t, b, "fill", map[string]any{"bid": find(t, b, `slider 'Size'`), "value": "7"})
			return r
		}, `slider 'Size' value=7`},
		{"select", func() string {
			_, r := act(t, b, "select_option", map[string]any{"bid": find(t, b, `combobox 'Kind'`), "options": "Two"})
			return r
		}, `combobox 'Kind' value='Two'`},
		{"click", func() string {
			_, r := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Send'`)})
			return r
		}, "StaticText 'sent'"},
		{"click far below", func() string {
			_, r := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Deep'`)})
			return r
		}, "StaticText 'deep'"},
		{"click in a shadow root", func() string {
			_, r := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Shadow'`)})
			return r
		}, "StaticText 'shadow'"},
		{"click in a frame", func() string {
			_, r := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Inner'`)})
			return r
		}, "StaticText 'inner'"},
	} {
		if refused := step.do(); refused != "" {
			t.Fatalf("%s: %s", step.what, refused)
		}
		if got := tree(t, b); !strings.Contains(got, step.want) {
			t.Fatalf("%s: no %s in\n%s", step.what, step.want, got)
		}
	}
	o, refused := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Never'`)}, KindFailure, KindAction, KindTabs)
	if !strings.Contains(refused, "is disabled") || o[KindFailure] != refused || !strings.HasPrefix(part[string](t, o, KindAction), `click{"bid":`) {
		t.Errorf("a disabled button: %q, %v", refused, o)
	}
	if tabs := part[Tabs](t, o, KindTabs); len(tabs.Titles) != 1 || tabs.Titles[0] != "Ada 'n é|b|7" {
		t.Errorf("the title says what was sent: %+v", tabs)
	}
	if _, refused = act(t, b, "click", map[string]any{"bid": "99999"}); !strings.Contains(refused, `no element with bid "99999"`) {
		t.Errorf("a bid that is none: %q", refused)
	}
}

// Bids stay the same as long as elements live, and boxes and marks agree with what
// the page shows.
func TestObservations(t *testing.T) {
	t.Parallel()
	b := start(t, settings(pages()), Origin+"/")
	o, err := b.Observe(within(t), nil)
	must(t, err)
	for _, k := range Kinds() {
		if _, ok := o.Parts[k]; ok == (k == KindScreenshot || k == KindMarks) {
			t.Errorf("kind %s: in the parts: %t", k, ok)
		}
	}
	if !strings.HasPrefix(string(o.Screenshot), "\x89PNG") || !strings.HasPrefix(string(o.Marks), "\x89PNG") {
		t.Errorf("the screenshot has %d bytes", len(o.Screenshot))
	}
	id := find(t, b, `button 'Send'`)
	e := part[map[string]Element](t, o.Parts, KindElements)[id]
	if e.Box == nil || e.Visible != 1 || !e.Mark || !e.Clickable {
		t.Errorf("button Send: %+v", e)
	}
	if deep := part[map[string]Element](t, o.Parts, KindElements)[find(t, b, `button 'Deep'`)]; deep.Visible != 0 || deep.Mark {
		t.Errorf("a button below the viewport: %+v", deep)
	}
	inner := find(t, b, `button 'Inner'`)
	if parts, refused := act(t, b, "focus", map[string]any{"bid": inner}, KindFocused); refused != "" || parts[KindFocused] != inner {
		t.Errorf("focus in a frame: %q, %v", refused, parts)
	}
	if again := find(t, b, `button 'Send'`); again != id {
		t.Errorf("the bid was %s, and is %s", id, again)
	}
	box := b.box(t, inner)
	if _, refused := act(t, b, "mouse_click", map[string]any{"x": box[0] + box[2]/2, "y": box[1] + box[3]/2}); refused != "" || !strings.Contains(tree(t, b), "StaticText 'inner'") {
		t.Errorf("a click at the box of a button in a frame: %q", refused)
	}
}

// box scrolls to an element and returns where it is.
func (b *Browser) box(t *testing.T, id string) [4]float64 {
	t.Helper()
	if _, refused := act(t, b, "hover", map[string]any{"bid": id}); refused != "" {
		t.Fatal(refused)
	}
	o, err := b.Observe(within(t), []string{KindElements})
	must(t, err)
	return *part[map[string]Element](t, o.Parts, KindElements)[id].Box
}

// No request leaves the sandbox: those to other origins fail, and are counted.
func TestRequestsElsewhereFail(t *testing.T) {
	t.Parallel()
	b := start(t, settings(fstest.MapFS{"index.html": {Data: []byte(`<!doctype html><body><p id=out>wait</p><img src="https://example.com/x.png">
<script>
const tried = [fetch('http://127.0.0.1:1/'), fetch('https://example.com/y'), fetch('/there.txt').then(r => r.text()), fetch('/not'), fetch('/', {method: 'POST'}),
  new Promise((ok, no) => { const w = new Worker('worker.js'); w.onmessage = e => ok(e.data); w.onerror = no; })];
Promise.allSettled(tried).then(all => out.textContent = all.map(r => r.status === 'rejected' ? 'failed' : typeof r.value === 'string' ? r.value : r.value.status).join(' '));
</script>`)}, "there.txt": {Data: []byte("there")}, "worker.js": {Data: []byte(`fetch('https://example.org/').then(() => postMessage('left'), () => postMessage('stayed'))`)}}), Origin+"/")
	want := "failed failed there 404 405 stayed"
	testlevel.Eventually(t, "the page shows the answers", func() bool { return strings.Contains(tree(t, b), want) })
	if n := b.Blocked(); n["example.com"] != 2 || n["127.0.0.1:1"] != 1 {
		t.Errorf("refused requests: %v", n)
	}
	if _, refused := act(t, b, "goto", map[string]any{"url": "https://example.com/"}); !strings.Contains(refused, "ERR_ADDRESS_UNREACHABLE") {
		t.Errorf("goto elsewhere: %q", refused)
	}
	if _, refused := act(t, b, "goto", map[string]any{"url": "file:///etc/passwd"}); !strings.Contains(refused, "has to begin with") {
		t.Errorf("goto a file: %q", refused)
	}
}

// What is graded is read from the application. An agent cannot put a page of its own in
// its place, by its address or in another tab.
func TestTheStateIsTheApplications(t *testing.T) {
	t.Parallel()
	const app, own = "http://app.example", "http://own.example"
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<script>window.state = '%s'</script>", r.Host)
	}))
	t.Cleanup(proxy.Close)
	open := settings(nil)
	open.Open = true
	b := startBehind(t, proxy.URL, open, app)
	if _, refused := act(t, b, "goto", map[string]any{"url": "data:text/html,<script>window.state='won'</script>"}); !strings.Contains(refused, "has to begin with http") {
		t.Errorf("a page in the address: %q", refused)
	}
	state := func() string {
		got, err := b.Evaluate(within(t), "window.state")
		must(t, err)
		return decoded(t, got)
	}
	for _, url := range []string{own, app + "/other", own} {
		for _, in := range []string{"the same tab", "a new tab"} {
			if in == "a new tab" {
				act(t, b, "new_tab", nil)
			}
			if _, refused := act(t, b, "goto", map[string]any{"url": url}); refused != "" {
				t.Error(refused)
			}
			if got := state(); got != "app.example" {
				t.Errorf("after %s in %s the state is that of %q", url, in, got)
			}
		}
	}
}

// A page that computes without end, or has crashed, is an error of the action, and
// the browser can be used on.
func TestPagesThatHangOrCrash(t *testing.T) {
	t.Parallel()
	b := start(t, settings(fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><button onclick="for(;;);">Hang</button>`)},
		"b.html":     {Data: []byte(`<!doctype html><h1>Alive</h1>`)},
	}), Origin+"/")
	parts, refused := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Hang'`)}, KindAXTree, KindURL, KindFailure)
	if failed, _ := parts[KindFailure].(string); !strings.Contains(refused+failed, "does not respond") || parts[KindURL] != Origin+"/" || parts[KindAXTree] != nil {
		t.Errorf("a page that hangs: %q, %v", refused, parts)
	}
	if _, refused = act(t, b, "tab_close", nil); refused != "" {
		t.Errorf("close it: %q", refused)
	}
	if _, refused = act(t, b, "goto", map[string]any{"url": Origin + "/b.html"}); refused != "" || !strings.Contains(tree(t, b), "heading 'Alive'") {
		t.Errorf("after it: %q", refused)
	}
	b.mu.Lock()
	active := b.active
	b.mu.Unlock()
	go func() { _ = b.conn.Do(within(t), active.session, "Page.crash", nil, nil) }()
	testlevel.Eventually(t, "a page has crashed", func() bool {
		_, refused = act(t, b, "keyboard_press", map[string]any{"key": "a"}, KindURL)
		return strings.Contains(refused, "has crashed")
	})
	if _, refused = act(t, b, "goto", map[string]any{"url": Origin + "/b.html"}); refused != "" || !strings.Contains(tree(t, b), "heading 'Alive'") {
		t.Errorf("after a crash: %q", refused)
	}
}

func TestTabsDialogsAndKeys(t *testing.T) {
	t.Parallel()
	b := start(t, settings(fstest.MapFS{
		"index.html": {Data: []byte(`<!doctype html><title>One</title><a href="two.html" target=_blank>Two</a><input aria-label=Field>
<button onclick="document.title = 'said ' + confirm('Really?')">Ask</button><script>const field = document.querySelector('input')</script>`)},
		"two.html": {Data: []byte(`<!doctype html><title>Two</title><h1>Second</h1>`)},
	}), Origin+"/")
	_, refused := act(t, b, "click", map[string]any{"bid": find(t, b, `button 'Ask'`)})
	if refused != "" || strings.Join(b.Dialogs(), ";") != "confirm: Really?" {
		t.Errorf("a dialog: %q, %q", refused, b.Dialogs())
	}
	testlevel.Eventually(t, "the browser knows the new title", func() bool {
		o, err := b.Observe(within(t), []string{KindTabs})
		must(t, err)
		return slices.Equal(part[Tabs](t, o.Parts, KindTabs).Titles, []string{"said false"})
	})
	if _, refused = act(t, b, "click", map[string]any{"bid": find(t, b, `textbox 'Field'`)}); refused != "" {
		t.Error(refused)
	}
	for _, step := range []struct{ name, key, value, want string }{
		{"keyboard_type", "text", "aB? ü\t", "aB? ü"},
		{"keyboard_press", "key", "Shift+Tab", "aB? ü"},
		{"keyboard_press", "key", "End", "aB? ü"},
		{"keyboard_press", "key", "Backspace", "aB? "},
		{"keyboard_press", "key", "Shift+1", "aB? !"},
		{"keyboard_press", "key", "Control+a", "aB? !"},
		{"keyboard_insert_text", "text", "new", "new"},
		{"keyboard_press", "key", "Control+z", "aB? !"},
	} {
		if _, refused = act(t, b, step.name, map[string]any{step.key: step.value}); refused != "" {
			t.Errorf("%s %q: %s", step.name, step.value, refused)
		}
		if got, err := b.Evaluate(within(t), "field.value"); err != nil || decoded(t, got) != step.want {
			t.Fatalf("after %s %q: %s, %v; want %q", step.name, step.value, got, err, step.want)
		}
	}
	for _, step := range []struct {
		name string
		args map[string]any
		want Tabs
	}{
		{"click", map[string]any{"bid": find(t, b, `link 'Two'`)}, Tabs{[]string{Origin + "/", Origin + "/two.html"}, []string{"said false", "Two"}, 1}},
		{"tab_focus", map[string]any{"index": 0}, Tabs{[]string{Origin + "/", Origin + "/two.html"}, []string{"said false", "Two"}, 0}},
		{"goto", map[string]any{"url": Origin + "/two.html"}, Tabs{[]string{Origin + "/two.html", Origin + "/two.html"}, []string{"Two", "Two"}, 0}},
		{"go_back", nil, Tabs{[]string{Origin + "/", Origin + "/two.html"}, []string{"said false", "Two"}, 0}}, // as it was left
		{"go_forward", nil, Tabs{[]string{Origin + "/two.html", Origin + "/two.html"}, []string{"Two", "Two"}, 0}},
		{"tab_close", nil, Tabs{[]string{Origin + "/two.html"}, []string{"Two"}, 0}},
	} {
		parts, no := act(t, b, step.name, step.args, KindTabs)
		if got, _ := json.Marshal(parts[KindTabs]); no != "" || string(got) != jsonText(step.want) {
			t.Errorf("%s: %q, %s; want %s", step.name, no, got, jsonText(step.want))
		}
	}
	for name, args := range map[string]map[string]any{"tab_focus": {"index": 7}, "go_forward": nil, "keyboard_press": {"key": "Strg+x"}, "mouse_click": {"x": -1, "y": 5}} {
		if _, refused = act(t, b, name, args); refused == "" {
			t.Errorf("%s %v is not refused", name, args)
		}
	}
}

func decoded(t *testing.T, raw json.RawMessage) (s string) {
	t.Helper()
	must(t, json.Unmarshal(raw, &s))
	return s
}

func jsonText(v any) string {
	s, _ := json.Marshal(v)
	return string(s)
}

// The profile is in the folder that is removed with the browser.
func TestTheProfileIsWhereItIsRemoved(t *testing.T) {
	t.Parallel()
	for _, proxy := range []string{"", "http://127.0.0.1:1"} {
		if args := Arguments("/x/profile", proxy, Settings{}); !slices.Contains(args, "--user-data-dir=/x/profile") {
			t.Errorf("%q", args)
		}
	}
}
