package view

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/core/experiment"
	"github.com/berth-eval/berth/core/plan"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/run"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/surface"
)

func TestMain(m *testing.M) { runtest.Main(m, nil) }

// going is a run that goes on. Its scheduler, journal and socket are real, and its
// attempts do nothing until they are cancelled, or their turn is ended.
type going struct{ *site }

// looks records that the agent looked at its surface.
func looks(j run.Job) error {
	return j.Attempt.Append(record.SurfaceFile, surface.Line{Time: time.Now(), Kind: "observe", Text: "what is seen"})
}

// goOn runs the trials of a site, from that one on, one attempt at a time. It returns
// when the first one is in the turn of its agent.
func (w *site) goOn(t testing.TB, from int) *going {
	t.Helper()
	p := &plan.Plan{Experiment: &experiment.Experiment{}}
	for _, trial := range w.trials[from:] {
		p.Trials = append(p.Trials, plan.Trial{Trial: trial})
	}
	g := &going{w}
	limits := experiment.RunLimits{Places: experiment.Places{InFlight: new(1)}, Budget: cell.Budget{CostUSD: new(5.0)}}
	c := &run.Control{}
	server, err := control.Serve(t.Context(), control.Options{Store: w.run, Control: c, Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() {
		_, failed := run.Schedule(ctx, run.Spec{Plan: p, Store: w.run, Executor: &runtest.Held{Begin: looks}, Limits: limits, Watch: server.Event, Control: c})
		over <- failed
	}()
	t.Cleanup(func() {
		cancel()
		if left := errors.Join(<-over, server.Close()); left != nil {
			t.Error(left)
		}
	})
	g.wait(t, "the first attempt is in its turn", func(s *control.Status) bool { return len(s.Attempts) > 0 && s.Attempts[0].Phase == record.PhaseTurn })
	return g
}

// wait waits until the state of the run is as f wants it.
func (g *going) wait(t testing.TB, what string, f func(*control.Status) bool) {
	t.Helper()
	testlevel.Eventually(t, what, func() bool { return f(g.status(t)) })
}

// until waits until a page has a text.
func (w *site) until(t testing.TB, path, want string) string {
	t.Helper()
	var page string
	testlevel.Eventually(t, fmt.Sprintf("%s has %q", path, want), func() bool {
		page = w.get(t, path, http.StatusOK)
		return strings.Contains(page, want)
	})
	return page
}

// status is the state of the run as its process says it.
func (g *going) status(t testing.TB) *control.Status {
	t.Helper()
	c, err := control.Find(g.run.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// send sends a form as a browser does, and returns the page to which that leads.
func (w *site) send(t testing.TB, address string, fields url.Values, status int, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.address+address, strings.NewReader(fields.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", w.address)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	for i := 0; i < len(headers); i += 2 {
		if r.Header.Set(headers[i], headers[i+1]); headers[i+1] == "" {
			r.Header.Del(headers[i])
		}
	}
	answer, err := w.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var b bytes.Buffer
	if _, err = b.ReadFrom(answer.Body); err != nil || answer.StatusCode != status {
		t.Fatalf("%s: %v, status %d, want %d: %.600s", address, err, answer.StatusCode, status, b.String())
	}
	if status == http.StatusOK && (answer.Request.Method != http.MethodGet || answer.Request.URL.Fragment != "said") {
		t.Errorf("%s: the answer is that of %s %s", address, answer.Request.Method, answer.Request.URL)
	}
	return b.String()
}

// press fills in the form of a page that has this button, and presses it. It returns
// what the next page says.
func (w *site) press(t testing.TB, path, button string, fill ...string) string {
	t.Helper()
	page, err := html.Parse(strings.NewReader(w.get(t, path, http.StatusOK)))
	if err != nil {
		t.Fatal(err)
	}
	for form := range page.Descendants() {
		fields := url.Values{}
		if form.Data != "form" || !fieldsOf(t, form, button, fields) {
			continue
		}
		if attribute(form, "method") != "post" {
			t.Errorf("%s: the form of %q is not a POST", path, button)
		}
		for i := 0; i < len(fill); i += 2 {
			fields.Set(fill[i], fill[i+1])
		}
		next := w.send(t, attribute(form, "action"), fields, http.StatusOK)
		safe(t, path, next)
		_, said, _ := strings.Cut(next, `<p id="said"`)
		said, _, _ = strings.Cut(said, "</p>")
		return html.UnescapeString(said)
	}
	t.Fatalf("%s has no button %q", path, button)
	return ""
}

// fieldsOf takes in what a form sends if this button of it is pressed; false: it has
// no such button.
func fieldsOf(t testing.TB, form *html.Node, button string, fields url.Values) (found bool) {
	t.Helper()
	for n := range form.Descendants() {
		name, kind := attribute(n, "name"), attribute(n, "type")
		switch {
		case n.Data == "button" && n.FirstChild.Data == button:
			found = true
			fields.Set(name, attribute(n, "value"))
		case n.Data != "input" && n.Data != "textarea":
		case kind == "hidden":
			fields.Set(name, attribute(n, "value"))
		case n.Parent.Data != "label":
			t.Errorf("the field %s has no label", name)
		case kind != "checkbox":
			fields.Set(name, "")
		}
	}
	return found
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// says fails if a sentence lacks a part.
func says(t testing.TB, sentence string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(sentence, part) {
			t.Errorf("the page says %q, want %q in it", sentence, part)
		}
	}
}

func TestARunIsControlledFromItsPage(t *testing.T) {
	t.Parallel()
	w := newSite(t, 6)
	page := "/run/" + filepath.Base(w.run.Dir) + "/"
	if strings.Contains(w.get(t, page, http.StatusOK), "<form") {
		t.Error("a run that no process runs has buttons")
	}
	g := w.goOn(t, 0)
	safe(t, page, w.until(t, page, "The run is <strong>running</strong>"))
	says(t, w.press(t, page, "Pause", "why", "look "+string([]rune(evil))), "Done: paused the run.")
	if s := g.status(t); s.State != control.Paused || !strings.Contains(s.Why, "paused the run: look </script>") {
		t.Errorf("after pause: %+v", s)
	}
	safe(t, page, w.until(t, page, "The run is <strong>paused</strong>"))
	says(t, w.press(t, page, "Change in_flight", "in_flight", "2"), "Done: set in_flight from 1 to 2.")
	for _, r := range []struct{ fields, want string }{{"6", "is more"}, {"none", "is more"}, {"NaN", "not a number"}, {"-1", "above 0"}, {"", "new limit"}, {evil, "not a number"}} {
		says(t, w.press(t, page, "Change the budgets", "cost_usd", r.fields), "Nothing was changed: ", r.want)
	}
	if s := g.status(t); *s.Limits[0].Most != 2 || *s.Limits[1].Most != 5 {
		t.Errorf("limits: %+v", s.Limits)
	}
	says(t, w.press(t, page, "Change the budgets", "cost_usd", "6", "yes", "yes"), "Done: set cost_usd from 5 to 6.")
	says(t, w.get(t, page, http.StatusOK), " of 6.0000 USD, the limit of the run")
	says(t, w.press(t, page, "Change the budgets", "tokens", "1000.5"), "Nothing was changed: ", "whole number")
	says(t, w.press(t, page, "Change the budgets", "tokens", "1000", "requests", "20"), "Done: set tokens from none to 1000, requests from none to 20.")
	says(t, w.get(t, page, http.StatusOK), "budget of 1000 tokens", "budget of 20 requests")
	says(t, w.press(t, page, "Continue"), "Done: continued the run.")
	g.wait(t, "two are in progress", func(s *control.Status) bool { return s.InProgress == 2 })
	says(t, w.press(t, page, "Drain", "why", "the machine is needed"), "Done: drained the run: it stops")
	var did []string
	for _, n := range w.run.Index().Notes {
		did = append(did, n.Intervention.Action)
	}
	if fmt.Sprint(did) != "[pause set set set continue drain]" {
		t.Errorf("recorded: %q", did)
	}
	says(t, w.send(t, page+"control", url.Values{"action": {"end-turn"}}, http.StatusOK), "this page has no action")
}

func TestAnAttemptIsControlledFromItsPage(t *testing.T) {
	t.Parallel()
	w := newSite(t, 2)
	g := w.goOn(t, 0)
	at := func(i int) string { return "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[i].ID + "/1/" }
	safe(t, at(0), w.until(t, at(0), "End the turn early"))
	later, err := w.find(filepath.Base(w.run.Dir), w.trials[0].ID, "1")
	if err != nil {
		t.Fatal(err)
	}
	later.Number = 2 // as if the process made an attempt that the page is not about
	says(t, ask(t.Context(), w.run.Dir, control.Request{Action: control.EndTurn, Trial: w.trials[0].ID, Why: "x"}, later), "Nothing was changed: the attempt is not in progress.")
	says(t, w.press(t, at(0), "End the turn early"), "Nothing was changed: end-turn changes a result")
	says(t, w.press(t, at(0), "End the turn early", "why", "it repeats itself"), "Done: ended the turn of the agent")
	w.until(t, at(1), "Cancel the trial")
	w.until(t, at(0), "ended_early")
	if strings.Contains(w.get(t, at(0), http.StatusOK), "Cancel the trial") {
		t.Error("an attempt that has ended has buttons")
	}
	says(t, w.send(t, at(0)+"control", url.Values{"action": {"cancel"}}, http.StatusOK), "Nothing was changed: the attempt is not in progress.")
	says(t, w.press(t, at(1), "Cancel the trial", "why", "a slip"), "Done: cancelled ")
	w.until(t, at(1), "cancelled it: a slip")
	says(t, w.send(t, at(1)+"control", url.Values{"action": {"pause"}}, http.StatusOK), "this page has no action")
	if x := g.run.Index(); x.Trial(w.trials[0].ID).Attempts[0].Result.AgentEnd != record.EndedEarly || x.Trial(w.trials[1].ID).Outcome() != record.Cancelled {
		t.Errorf("outcomes: %+v", x.Trials)
	}
}

// Only a form of a page of this server, from somebody who has the token, changes
// something.
func TestFormsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	g := w.goOn(t, 0)
	page := "/run/" + filepath.Base(w.run.Dir) + "/"
	stranger := &site{Server: w.Server, client: &http.Client{Timeout: time.Minute}, address: w.address, run: w.run}
	pause := url.Values{"action": {control.Pause}}
	change := func(action string) url.Values {
		if strings.HasSuffix(action, "/note") {
			return url.Values{"action": {"add"}, "label": {"bad task"}}
		}
		return pause
	}
	at := page + "trial/" + w.trials[0].ID + "/1/"
	for _, action := range w.actions(at) {
		w.get(t, action, http.StatusMethodNotAllowed)
		stranger.send(t, action, change(action), http.StatusForbidden)
		stranger.send(t, action+"?token="+strings.Repeat("0", 64), change(action), http.StatusForbidden)
		for _, from := range []struct{ origin, site string }{
			{"http://evil.example", ""}, {"http://evil.example", "cross-site"}, {"http://127.0.0.1:1", "same-site"}, {"http://127.0.0.1:1", ""}, {"null", ""},
		} {
			w.send(t, action, change(action), http.StatusForbidden, "Origin", from.origin, "Sec-Fetch-Site", from.site)
		}
		w.send(t, action, url.Values{"action": {control.Pause}, "why": {strings.Repeat("x", maxForm)}}, http.StatusRequestEntityTooLarge)
	}
	if s := g.status(t); s.State != control.Running || len(w.run.Index().Notes) > 0 || len(labels(t, w.run.Dir).All()) > 0 {
		t.Errorf("a stranger changed the run: %+v", s)
	}
	says(t, w.send(t, page+"control", pause, http.StatusOK, "Sec-Fetch-Site", ""), "Done: paused") // a browser that sends only the origin
	w.send(t, "/run/none/control", pause, http.StatusNotFound)
}

// actions are the addresses of forms, for the attempt at an address.
func (w *site) actions(at string) []string {
	return []string{"/run/" + filepath.Base(w.run.Dir) + "/control", at + "control", at + "note"}
}

// A page says what became of a form, and nothing that the address says.
func TestAnswersOfForms(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	if page := w.get(t, "/?said="+url.QueryEscape("pay me"), http.StatusOK); strings.Contains(page, "pay me") || strings.Contains(page, `id="said"`) {
		t.Error("the page says what its address says")
	}
	first := w.answers.keep(evil)
	safe(t, "said", w.get(t, "/?said="+first, http.StatusOK))
	for range maxAnswers {
		w.answers.keep(strings.Repeat("x", 1<<20))
	}
	if w.answers.of(first) != nil || len(w.answers.all) != maxAnswers || len(w.answers.all[0].Text) > maxSaid {
		t.Errorf("%d answers are kept", len(w.answers.all))
	}
}

func labels(t testing.TB, dir string) *notes.Notes {
	t.Helper()
	n, err := notes.Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestReadersLabelAttempts(t *testing.T) {
	t.Parallel()
	w := newSite(t, 2)
	w.attempt(t, w.trials[0].ID, 1)
	trials := "/run/" + filepath.Base(w.run.Dir) + "/trials"
	at := "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	hostile := `"><script>1</script>`
	says(t, w.press(t, at, "Add the note", "label", " "+hostile+" ", "text", "one\r\n<b>two"), "Done: the attempt has the label")
	says(t, w.press(t, at, "Add the note", "label", "bad task"), `Done: the attempt has the label "bad task".`)
	me := control.NameOf(os.Getuid())
	all := labels(t, w.run.Dir).Of(w.trials[0].ID, 1)
	if len(all) != 2 || all[0].Label != hostile || all[0].Text != "one\n<b>two" || all[0].Author != me || time.Since(all[0].Time) > time.Hour { // it has the time of now, not none
		t.Fatalf("notes: %+v", all)
	}
	for path, parts := range map[string][]string{
		at:     {html.EscapeString("by " + me), "<pre>one\n&lt;b&gt;two</pre>", "<b>bad task</b>"},
		trials: {"&gt;&lt;script&gt;1&lt;/script&gt;; bad task</td>"},
		trials + "?select=" + url.QueryEscape(`"bad task" in notes`): {"1 to 1 of 1 trials"},
	} {
		page := w.get(t, path, http.StatusOK)
		safe(t, path, page)
		says(t, page, parts...)
	}
	for _, wrong := range []struct{ action, label, text string }{
		{"add", "", ""},
		{"add", "a\nb", ""},
		{"add", "\x1b[31m", ""},
		{"add", strings.Repeat("x", 101), ""},
		{"add", "x", strings.Repeat("x", 16<<10+1)},
		{"add", "\xff", ""},
		{"remove", "none", ""},
		{evil, "x", ""},
	} {
		page := w.send(t, at+"note", url.Values{"action": {wrong.action}, "label": {wrong.label}, "text": {wrong.text}}, http.StatusOK)
		safe(t, at, page)
		says(t, page, "Nothing was changed: ")
	}
	w.send(t, "/run/"+filepath.Base(w.run.Dir)+"/trial/"+w.trials[1].ID+"/1/note", url.Values{"action": {"add"}, "label": {"x"}}, http.StatusNotFound)
	says(t, w.press(t, at, "Remove"), "Done: the attempt has no label") // the first one
	if all = labels(t, w.run.Dir).All(); len(all) != 1 || all[0].Label != "bad task" {
		t.Errorf("after the removal: %+v", all)
	}
}

// A folder that cannot be written, and notes that cannot be read, give a sentence.
func TestNotesThatCannotBeKept(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	w.attempt(t, w.trials[0].ID, 1)
	at := "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	if os.Geteuid() != 0 { // whom a mode does not hold up
		if err := os.Chmod(w.run.Dir, 0o500); err != nil {
			t.Fatal(err)
		}
		says(t, w.press(t, at, "Add the note", "label", "x"), "Nothing was changed: write a note into", "permission denied")
		if err := os.Chmod(w.run.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(w.run.Dir, notes.File)); err != nil {
		t.Fatal(err)
	}
	says(t, w.press(t, at, "Add the note", "label", "x"), "Nothing was changed: ", "not a regular file")
	for _, page := range []string{at, "/run/" + filepath.Base(w.run.Dir) + "/trials"} {
		says(t, w.get(t, page, http.StatusOK), "notes of readers: ", "not a regular file")
	}
}
