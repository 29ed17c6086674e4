package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/berth-eval/berth/environments/internal/page"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/environment"
)

// opened returns a surface with a target, on the Chromium of this machine.
func opened(t *testing.T, target fstest.MapFS, actions ...action) *open {
	t.Helper()
	testlevel.Program(t, "chromium", "chromium")
	o := &open{spec: environment.SurfaceSpec{Frames: t.TempDir()}, rest: target, files: map[string]string{}, browse: browse}
	o.task = settings{Page: "page", Actions: actions}
	o.config = Config{Program: "chromium", Width: 1920, Height: 1080, Load: time.Second, ActionTimeout: 100 * time.Millisecond}
	o.frames.Folder = o.spec.Frames
	return o
}

// browse starts Chromium without a sandbox.
func browse(ctx context.Context, set page.Settings) (b browsing, err error) {
	toRead, ours, err := os.Pipe()
	if err != nil {
		return b, err
	}
	answers, toWrite, err := os.Pipe()
	if err != nil {
		return b, err
	}
	dir, err := os.MkdirTemp("", "berth-webui")
	if err != nil {
		return b, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "chromium", page.Arguments(filepath.Join(dir, "profile"), "", set)...)
	cmd.ExtraFiles = []*os.File{toRead, toWrite}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err = cmd.Start(); err != nil {
		return b, err
	}
	_, _ = toRead.Close(), toWrite.Close()
	b.explained = func(err error) error { return err }
	b.stop = func(context.Context) {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its processes of pages
		_ = cmd.Wait()
		_ = ours.Close()
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(dir) != nil && time.Now().Before(end); { // until they have ended
			time.Sleep(10 * time.Millisecond) // a context alone is given: no test to end
		}
	}
	if b.Browser, err = page.New(ctx, answers, ours, set); err != nil {
		b.stop(ctx)
	}
	return b, err
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute) // it only ends a test that hangs
	t.Cleanup(cancel)
	return ctx
}

// read are the states of a page as the verifier gets them.
type readState struct {
	Action, Failed string
	Cut            bool
	Strings        []string
	Elements       []readElement
}

type readElement struct {
	ID          int64
	Box         [4]float64
	Displayed   bool
	Descendants int
	Tag, Text   int
	HTML        int
	Attributes  []int
	Style       int
}

// attribute returns an attribute of an element; empty: it has none.
func (s *readState) attribute(e *readElement, name string) string {
	for i := 0; i+1 < len(e.Attributes); i += 2 {
		if s.Strings[e.Attributes[i]] == name {
			return s.Strings[e.Attributes[i+1]]
		}
	}
	return ""
}

func capture(t *testing.T, o *open, files fs.FS) []readState {
	t.Helper()
	c, err := o.elements(within(t), files, true)
	if err != nil {
		t.Fatal(err)
	}
	var all []readState
	for _, raw := range c.States {
		var s readState
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

func html(text string) fstest.MapFS {
	return fstest.MapFS{"index.html": {Data: []byte("<!doctype html><body style='margin:0'>" + text)}}
}

func click(selector string) action {
	return action{Name: "click " + selector, Steps: []step{{Do: "click", element: element{Selector: selector}}}}
}

// An agent writes files, gets a picture of the page and of each of its actions, and
// reads which one failed. The files of the target are not those of its page.
func TestAnAgentSeesItsPage(t *testing.T) {
	t.Parallel()
	target := html("<p id=secret>secret</p>")
	target["style.css"] = &fstest.MapFile{Data: []byte("p { color: red }")}
	target["logo.svg"] = &fstest.MapFile{Data: []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>`)}
	o := opened(t, target, click("#go"), click("#none"))
	first, err := o.Reset(within(t), environment.Start{})
	if err != nil || !strings.Contains(first.Text, "Nothing is written") || len(first.Frames) > 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	text, _ := json.Marshal(map[string]string{"content": `<button id=go onclick="alert(1); document.body.append('gone')">Go</button><img src=logo.svg>` +
		`<script>const r = new XMLHttpRequest(); r.open('GET', 'style.css', false); r.send(); document.getElementById('go').dataset.css = r.status</script>`})
	step, err := o.Act(within(t), environment.Call{Name: "write_html", Arguments: text}, nil)
	if err != nil || step.Error != "" {
		t.Fatalf("%+v, %v", step, err)
	}
	names := ""
	for _, f := range step.Observation.Frames {
		names += f.Name + " " + f.MediaType + ","
		if width, height := size(f.Data); width != 1920 || height != 1080 {
			t.Errorf("%s has %d × %d", f.Name, width, height)
		}
	}
	if names != "page image/png,action_1 image/png," || !strings.Contains(step.Observation.Text, "action 2, click #none: there is no picture. ElementError: css \"#none\": no element matches") {
		t.Errorf("%s\n%s", names, step.Observation.Text)
	}
	again, err := o.Observe(within(t), []string{"text"})
	if err != nil || again.Text != step.Observation.Text || len(again.Frames) > 0 {
		t.Errorf("%+v, %v", again, err)
	}
	states := capture(t, o, written{o.files, o.rest})
	if got := fmt.Sprint(states[0].Strings); strings.Contains(got, "secret") || states[1].Failed != "" || states[2].Failed == "" {
		t.Errorf("%+v", states)
	}
	for _, e := range states[0].Elements {
		switch states[0].Strings[e.Tag] {
		case "IMG":
			if e.Box[2] != 30 {
				t.Errorf("the other files of the task are not served: %+v", e)
			}
		case "BUTTON":
			if got := states[0].attribute(&e, "data-css"); got != "404" {
				t.Errorf("a file of the target that the agent has not written is answered with %q", got)
			}
		}
	}
}

// size returns the width and height of a PNG.
func size(png []byte) (width, height int) {
	if len(png) < 24 {
		return 0, 0
	}
	return int(png[18])<<8 | int(png[19]), int(png[22])<<8 | int(png[23])
}

// A capture has what a page shows: the places, texts and styles of elements, which
// of them can be seen, and which an action left as they were.
func TestACaptureIsWhatThePageShows(t *testing.T) {
	t.Parallel()
	o := opened(t, html(`<div id=a style="width:100px;height:50px;color:rgb(1, 2, 3)">One<b>two</b></div>
<div id=none style="display:none">x</div><div id=clear style="opacity:0">x</div><div id=invisible style="visibility:hidden">x</div>
<div id=left style="position:absolute;left:-500px;width:90px">x</div>
<div style="overflow:hidden;width:100px;height:20px;position:relative"><div style="width:300px;display:flex"><i id=in>in</i><i id=out style="margin-left:200px">out</i></div></div>
<div style="overflow:hidden;height:10px"><div id=free style="position:fixed;top:500px">free</div></div>
<form id=f><input name=attributes value=typed><input name=getBoundingClientRect></form>
<button id=go onclick="document.getElementById('a').textContent='new'">Go</button>
<script>Element.prototype.getBoundingClientRect = () => { throw 1 }; window.getComputedStyle = null; JSON.stringify = () => 'x'; Array.prototype.map = null;</script>`),
		click("#go"))
	states := capture(t, o, o.rest)
	if len(states) != 2 || states[0].Failed+states[1].Failed != "" {
		t.Fatalf("%+v", states)
	}
	shown, html := map[string]bool{}, map[int64]string{}
	for _, e := range states[0].Elements {
		html[e.ID] = states[0].Strings[e.HTML]
		id := states[0].attribute(&e, "id")
		shown[id] = shown[id] || e.Displayed
		if states[0].attribute(&e, "value") == "typed" {
			shown["typed"] = true
		}
		if id == "a" && (e.Box != [4]float64{0, 0, 100, 50} || states[0].Strings[e.Text] != "Onetwo" || e.Descendants != 1 || e.Style < 0) {
			t.Errorf("%+v", e)
		}
	}
	for id, want := range map[string]bool{"a": true, "in": true, "free": true, "f": true, "typed": true, "go": true, "out": false, "left": false, "clear": false, "none": false, "invisible": false} {
		if shown[id] != want {
			t.Errorf("%s is displayed: %t", id, shown[id])
		}
	}
	changed, same := 0, 0
	for _, e := range states[1].Elements {
		switch was, ok := html[e.ID]; {
		case ok && was == states[1].Strings[e.HTML]:
			same++
		default:
			changed++
		}
	}
	if changed != 1 || same != len(states[1].Elements)-1 {
		t.Errorf("%d elements changed, and %d did not", changed, same)
	}
}

// Pages that do harm are captured as far as they can be, in time, and the next one is
// not affected.
func TestPagesThatDoHarm(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, html string
		load, then string // what the failures of the states begin with; empty: there is none
		whole      bool   // it takes up to a minute: only test-engines tries it
	}{
		{name: "50,000 elements", html: `<button id=go>Go</button><script>for (let i = 0; i < 50000; i++) document.body.append(document.createElement('p'))</script>`},
		{name: "an endless animation", html: `<style>@keyframes k { to { transform: rotate(1turn) } } #go { animation: k 1s infinite }</style><button id=go>Go</button><script>(function f() { requestAnimationFrame(f) })()</script>`, whole: true},
		{name: "away when it is clicked", html: `<button id=go onclick="location.href='https://elsewhere.test/'">Go</button>`, whole: true},
		{name: "away at once", html: `<button id=go>Go</button><script>location.href = 'about:blank'</script>`, then: "ElementError: css \"#go\": no element matches"},
		{name: "another window", html: `<button id=go onclick="for (let i = 0; i < 5; i++) window.open('about:blank')">Go</button>`, whole: true},
		{name: "ten alerts", html: `<button id=go onclick="for (let i = 0; i < 10; i++) alert(i)">Go</button>`, whole: true},
		{name: "100 MB of text", html: `<button id=go>Go</button><script>document.body.append(new Comment('x'.repeat(1e8)))</script>`, whole: true},
		{name: "alerts without end", html: `<button id=go>Go</button><script>for (;;) alert(1)</script>`, load: "PageError", then: "PageError", whole: true},
		{name: "a script without end", html: `<button id=go onclick="for (;;);">Go</button>`, then: "PageError", whole: true},
		{name: "100 MB that are shown", html: `<button id=go>Go</button><script>document.body.append('word '.repeat(2e7))</script>`, whole: true},
	} {
		if tt.whole && !testlevel.E2E() {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			if tt.whole {
				t.Parallel()
			}
			began := time.Now()
			o := opened(t, html(tt.html), click("#go"))
			states := capture(t, o, o.rest)
			if took := time.Since(began); took > budget+stopTime || len(states) != 2 { // the promise: these two are the limits of a visit
				t.Fatalf("it took %s for %d states", took, len(states))
			}
			t.Logf("%s, %d elements; %q, %q", time.Since(began).Round(10*time.Millisecond), len(states[0].Elements), states[0].Failed, states[1].Failed)
			switch {
			case tt.name == "100 MB that are shown": // a fast machine may show them
			case !begins(states[0].Failed, tt.load) || !begins(states[1].Failed, tt.then):
				t.Errorf("want %q and %q", tt.load, tt.then)
			case tt.name == "50,000 elements" && (len(states[0].Elements) == 0 || len(states[0].Elements) > maxElements || !states[0].Cut):
				t.Errorf("%d elements, cut: %t", len(states[0].Elements), states[0].Cut)
			}
		})
	}
}

// begins reports whether a failure begins so; nothing: there is none.
func begins(failure, with string) bool {
	return strings.HasPrefix(failure, with) && (with != "" || failure == "")
}

func TestSettingsOfATaskAreChecked(t *testing.T) {
	t.Parallel()
	s := newSurface()
	for _, tt := range []struct{ config, settings, says string }{
		{`{"width": 10}`, ``, "viewport of 10"},
		{`{"load": "1h"}`, ``, "out of range"},
		{``, `{"page": "../x"}`, "leaves the files"},
		{``, `{"actions": [` + strings.Repeat(`{"name": "a"},`, maxActions) + `{"name": "a"}]}`, "51 actions"},
	} {
		n, err := s.Needs(t.Context(), environment.SurfaceRequest{Config: json.RawMessage(tt.config), Settings: json.RawMessage(tt.settings)})
		if err != nil || len(n.Refusals) != 1 || !strings.Contains(n.Refusals[0], tt.says) {
			t.Errorf("%s %s: %q, %v", tt.config, tt.settings, n.Refusals, err)
		}
	}
	if _, err := s.Needs(t.Context(), environment.SurfaceRequest{Settings: json.RawMessage(`{"pages": "x"}`)}); err == nil {
		t.Error("an unknown setting of a task is accepted")
	}
}

// An agent begins with what its repetition has, sees it as text and in pictures, and
// finds it again in a later stage if the task keeps it.
func TestAPageIsBegunWithFiles(t *testing.T) {
	t.Parallel()
	o := opened(t, html(""))
	o.spec.Files = t.TempDir()
	for name, text := range map[string]string{"index.html": "<p>begun\n", "style.css": "p {}"} {
		if err := os.MkdirAll(filepath.Join(o.spec.Files, "start", "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(o.spec.Files, "start", "1", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.task.Start, o.task.Keep = []string{"start/1", ""}, true
	const begun = "```html\n<p>begun\n```\n\n```css\np {}\n```"
	files := func(seen environment.Observation) string {
		var parts struct{ Files string }
		if err := json.Unmarshal(seen.JSON, &parts); err != nil {
			t.Fatal(err)
		}
		return parts.Files
	}
	seen, err := o.Reset(within(t), environment.Start{Seed: 3})
	if err != nil || files(seen) != begun || len(seen.Frames) != 1 || !strings.Contains(seen.Text, "index.html has 9 bytes") {
		t.Fatalf("%+v, %v", seen, err)
	}
	if seen, err = o.Observe(within(t), []string{"page"}); err != nil || len(seen.JSON) > 0 {
		t.Errorf("files that nobody wants: %+v, %v", seen, err)
	}
	if _, err = o.Act(within(t), environment.Call{Name: "write_css", Arguments: json.RawMessage(`{"content":"b {}"}`)}, nil); err != nil {
		t.Fatal(err)
	}
	if seen, err = o.Reset(within(t), environment.Start{Seed: 3}); err != nil || files(seen) != strings.Replace(begun, "p {}", "b {}", 1) || len(seen.Frames) != 1 {
		t.Errorf("a later stage: %+v, %v", seen, err)
	}
	o.task.Keep = false
	if seen, err = o.Reset(within(t), environment.Start{Seed: 2}); err != nil || files(seen) != "" || !strings.Contains(seen.Text, "Nothing is written") {
		t.Errorf("a repetition that begins with nothing: %+v, %v", seen, err)
	}
}
