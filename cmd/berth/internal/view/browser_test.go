package view

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/berth-eval/berth/internal/testlevel"
)

// browser is a browser, and what it complained of.
type browser struct {
	context.Context

	mu     sync.Mutex
	ours   string // address of the site that is looked at
	faults []string
}

// One browser looks at all pages.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	b := openBrowser(t)
	t.Run("pages", b.pages)
	t.Run("scripts", b.scripts)
	t.Run("keyboard", b.keyboard)
	t.Run("live", b.live)
	t.Run("forms", b.forms)
}

// openBrowser starts a browser.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	testlevel.Long(t, "test-e2e")
	program := testlevel.Program(t, "chromium", "chromium")
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.Env("TMPDIR="+t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, end = chromedp.NewContext(ctx)
	t.Cleanup(end)
	ctx, end = context.WithTimeout(ctx, 6*time.Minute)
	t.Cleanup(end)
	b := &browser{Context: ctx}
	chromedp.ListenTarget(ctx, func(event any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			b.faults = append(b.faults, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if !strings.Contains(e.Entry.URL, "/picture?") { // broken
				b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, b.ours) && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") {
				b.faults = append(b.faults, "asked for "+u)
			}
		}
	})
	if err := chromedp.Run(b); err != nil { // it starts the browser
		t.Fatal(err)
	}
	b.run(t, network.Enable(), log.Enable(), chromedp.EmulateViewport(390, 900))
	return b
}

// look goes to a site with its token.
func (b *browser) look(t *testing.T, w *site) {
	t.Helper()
	b.run(t, chromedp.Navigate("about:blank"))
	b.mu.Lock()
	b.ours, b.faults = w.address, nil
	b.mu.Unlock()
	b.run(t, chromedp.Navigate(w.address+"/?token="+w.token))
	t.Cleanup(func() {
		if b.Err() == nil { // the browser of the test alone has ended with it
			b.run(t, chromedp.Navigate("about:blank"))
		}
	})
}

// run does actions one after the other, each within a time.
func (b *browser) run(t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	for i, action := range actions {
		ctx, end := context.WithTimeout(b, 40*time.Second)
		err := chromedp.Run(ctx, action)
		end()
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			t.Fatalf("action %d: %v; the browser says %q", i, err, b.faults)
		}
	}
}

// quiet fails if the browser complained.
func (b *browser) quiet(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		t.Errorf("the browser says %q", b.faults)
	}
	b.faults = nil
}

// dark chooses the colors.
func dark(on bool) chromedp.Action {
	scheme := "light"
	if on {
		scheme = "dark"
	}
	return emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}})
}

// awaited evaluates a script that returns a promise.
func awaited(script string, into any) chromedp.Action {
	return chromedp.Evaluate(script, into, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) })
}

// axe is the source of axe-core.
func axe(t *testing.T) string {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "axe", "axe-core.js.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// faultsOf asks what axe-core says of the page, with that rule alone if it is not empty.
func faultsOf(rule string) string {
	only := ""
	if rule != "" {
		only = `, runOnly: ["` + rule + `"]`
	}
	return `axe.run(document, { resultTypes: ["violations"]` + only + ` }).then((r) => r.violations.filter((v) => ["serious", "critical"].includes(v.impact))
		.flatMap((v) => v.nodes.slice(0, 3).map((n) => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`
}

// pages: in a real browser, 390 pixels wide, in light and in dark: nothing of a record is
// executed, nothing is loaded from elsewhere, no page has to be scrolled sideways, and
// axe-core finds no serious fault.
func (b *browser) pages(t *testing.T) {
	w := newSite(t, 4)
	b.look(t, w)
	w.attempt(t, w.trials[0].ID, 60)
	checks := axe(t)
	var wrong []string // a picture without a text is found
	b.run(t, chromedp.Navigate(w.address), chromedp.Evaluate(`document.body.append(document.createElement("img"))`, nil), chromedp.Evaluate(checks, nil), awaited(faultsOf(""), &wrong))
	if len(wrong) != 1 || !strings.Contains(wrong[0], "image-alt") {
		t.Errorf("axe-core says %q of a picture without a text", wrong)
	}
	for _, path := range w.pages(w.trials[0].ID) {
		if strings.Contains(path, "/steps?") || strings.HasSuffix(path, "/surface") || strings.Contains(path, "/subagent?") {
			continue // is loaded into another page
		}
		b.sound(t, w.address+path, checks)
	}
	b.quiet(t)
}

// sound fails if a page is too wide, or if axe-core, whose source is checks, finds a
// serious fault.
func (b *browser) sound(t *testing.T, address, checks string) {
	t.Helper()
	var title string
	var wide int
	var light, dim []string
	b.run(t, dark(false), chromedp.Navigate(address), chromedp.Title(&title),
		chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &wide),
		chromedp.Evaluate(checks, nil), awaited(faultsOf(""), &light), dark(true), awaited(faultsOf("color-contrast"), &dim))
	if !strings.HasSuffix(title, "– berth") || wide > 0 {
		t.Errorf("%s: title %q, %d pixels too wide", address, title, wide)
	}
	if len(light)+len(dim) > 0 {
		t.Errorf("%s: axe-core says %q, and in the dark %q", address, light, dim)
	}
}

// toReport goes to the place of the report in the page of a run, which is loaded when
// it is seen.
const toReport = `(document.getElementById("more") || document.getElementById("report")).scrollIntoView()`

// scripts: the charts are drawn, terminals are played, sub-agents unfold, and the conversation
// loads as one scrolls.
func (b *browser) scripts(t *testing.T) {
	w := newSite(t, 4)
	b.look(t, w)
	w.attempt(t, w.trials[0].ID, 200)
	run := w.address + "/run/" + filepath.Base(w.run.Dir) + "/"
	var canvases, shots int
	var screen, below string
	var light []string
	b.run(t, chromedp.Navigate(run), chromedp.Evaluate(toReport, nil), chromedp.WaitReady(`html[data-drawn="yes"]`),
		chromedp.Evaluate(`document.querySelectorAll(".chart canvas").length`, &canvases), chromedp.Evaluate(axe(t), nil), awaited(faultsOf(""), &light))
	b.run(t, chromedp.Navigate(run+"trial/"+w.trials[0].ID+"/1/"), chromedp.ScrollIntoView(".terminal"), chromedp.WaitReady(`.terminal[data-drawn="yes"]`),
		chromedp.WaitReady(".ap-term"), chromedp.WaitNotPresent(".terminal:empty"), chromedp.Focus("#step-2 h3 button"), chromedp.KeyEvent(kb.Enter),
		chromedp.Poll(`document.querySelector(".ap-term-text").textContent.includes("again")`, nil),
		chromedp.Evaluate(`document.querySelector(".ap-term-text").textContent.trim()`, &screen),
		chromedp.ScrollIntoView(".film"), chromedp.WaitReady(".film .shot svg rect"), chromedp.Evaluate(`document.querySelectorAll(".film .shot").length`, &shots),
		chromedp.Evaluate(`document.querySelectorAll('details[data-src*="sub.json"]')[0].open = true`, nil),
		chromedp.Poll(`document.querySelector("details .step")?.textContent.includes("I am below")`, nil), chromedp.TextContent("details .step", &below),
		chromedp.ScrollIntoView("#step-40"), chromedp.WaitReady("#step-80"))
	if strings.Contains(screen, "last") {
		t.Errorf("at step 2 the terminal shows %q", screen)
	}
	if canvases < 2 || shots != 2 || len(light) > 0 || !strings.Contains(below, "I am below") {
		t.Errorf("%d charts, %d pictures, axe-core says %q, sub-agent %q", canvases, shots, light, below)
	}
	b.quiet(t)
}

// keyboard: everything that can be used is reached with the keyboard alone, and is seen to have
// the focus.
func (b *browser) keyboard(t *testing.T) {
	w := newSite(t, 2)
	b.look(t, w)
	w.attempt(t, w.trials[0].ID, 2)
	run := w.address + "/run/" + filepath.Base(w.run.Dir) + "/"
	w.goOn(t, 1)
	going := run + "trial/" + w.trials[1].ID + "/1/"
	w.until(t, strings.TrimPrefix(going, w.address), "End the turn early")
	for _, address := range []string{run, run + "trials", run + "trial/" + w.trials[0].ID + "/1/", going} {
		var want int
		var first string
		b.run(t, chromedp.Navigate(address), chromedp.WaitReady("main"), chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(`document.activeElement.textContent`, &first))
		if first != "Skip to the content" {
			t.Errorf("%s: the first stop is %q", address, first)
		}
		var inside bool
		b.run(t, chromedp.KeyEvent(kb.Enter), chromedp.Evaluate(`document.activeElement.id === "main"`, &inside), chromedp.Evaluate(countReachable, &want))
		if !inside {
			t.Errorf("%s: the link does not lead to the content", address)
		}
		missing := []string{"?"}
		for n := 0; n < want+60 && len(missing) > 0; n++ {
			if b.run(t, chromedp.KeyEvent(kb.Tab), chromedp.Evaluate(visited, nil)); n >= want-10 {
				b.run(t, chromedp.Evaluate(notVisited, &missing))
			}
		}
		var unseen []string
		if b.run(t, chromedp.Evaluate(`[...(window.unseen || [])]`, &unseen)); len(missing)+len(unseen) > 0 {
			t.Errorf("%s: not reached: %q; without a mark of the focus: %q", address, missing, unseen)
		}
	}
	b.run(t, chromedp.Navigate(run), chromedp.Focus(`[aria-label="Attempts in flight"]`), chromedp.Evaluate(`window.old = document.activeElement`, nil),
		chromedp.Poll(`!document.contains(window.old)`, nil), chromedp.Poll(`document.activeElement.ariaLabel === "Attempts in flight"`, nil))
	b.quiet(t)
}

const (
	reachable      = `[...document.querySelectorAll("main a[href], main button, main input, main select, main textarea, main summary, main [tabindex='0']")].filter((e) => e.checkVisibility({ visibilityProperty: true }) && !e.closest(".terminal"))`
	countReachable = reachable + `.length`
	named          = `((e) => [e.tagName, e.getAttribute("href"), e.name, e.value, e.getAttribute("aria-label") || e.textContent].join(" "))`
	notVisited     = reachable + `.filter((e) => !window.been.has(` + named + `(e))).map((e) => e.outerHTML.slice(0, 120))`
	visited        = `(() => {
  const at = document.activeElement, style = getComputedStyle(at);
  (window.been ||= new Set()).add(` + named + `(at));
  if (at !== document.body && !at.closest(".terminal") && (style.outlineStyle === "none" || parseFloat(style.outlineWidth) === 0)) (window.unseen ||= new Set()).add(at.outerHTML.slice(0, 120));
})()`
)

// live: what happens appears within a second or two, without a reload, also after a
// connection was lost.
func (b *browser) live(t *testing.T) {
	w := newSite(t, 2)
	b.look(t, w)
	a, err := w.run.Begin(w.trials[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	at := w.address + "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	b.run(t, chromedp.Navigate(at), chromedp.WaitReady("#nosteps"), chromedp.ScrollIntoView("#steps"))
	for n := 1; n <= 3; n++ {
		if n == 3 {
			w.served.CloseClientConnections()
		}
		w.step(t, a, n)
		began := time.Now()
		b.run(t, chromedp.WaitReady(fmt.Sprintf("#step-%d", n)))
		t.Logf("step %d appeared after %v", n, time.Since(began))
	}
	b.mu.Lock()
	b.faults = nil // of the lost connection
	b.mu.Unlock()
}
