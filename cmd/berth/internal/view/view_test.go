package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/trajectory"
	"github.com/berth-eval/berth/plugins/verifier"
)

// evil is a text that would do something in a page that does not escape it.
const evil = `</script></pre><script>document.title="taken"</script><img src=x onerror="document.title='taken'"><a href="javascript:1">` + "\x1b[31m\xff\xfe"

// site is a Server with a run and the browser of somebody who has the token.
type site struct {
	*Server

	client  *http.Client
	served  *httptest.Server
	address string
	run     *store.Run
	trials  []store.Trial
}

// newSite makes a run with that many trials.
func newSite(t testing.TB, trials int) *site {
	t.Helper()
	m := &store.Manifest{
		Header: store.Header{Experiment: evil, Berth: "test", Created: time.Now()},
		Cells:  []store.Cell{{Key: "agent=" + evil, Slug: "a", Agent: evil, Environment: "local", Choices: map[string]string{"agent": evil}}},
	}
	for n := range trials {
		id := fmt.Sprintf("%064x", n+1)
		task := fmt.Sprintf("task-%d %s", n/2, evil)
		m.Trials = append(m.Trials, store.Trial{ID: id, Dir: store.TrialDir(task, "a", n%2+1, id), Task: task, TaskDigest: "sha256:1", Dataset: evil, Repetition: n%2 + 1})
	}
	folder := t.TempDir()
	run, err := store.Create(folder, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.Close() })
	s, err := New(t.Context(), Options{Folder: folder, Listen: "127.0.0.1:0", Berth: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.listener.Close() })
	served := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		served.CloseClientConnections() // a browser may still listen for changes
		served.Close()
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &site{Server: s, client: &http.Client{Jar: jar, Timeout: time.Minute}, served: served, address: served.URL, run: run, trials: m.Trials}
	w.get(t, "/?token="+s.token, http.StatusOK)
	return w
}

// get returns an answer, which must have that status.
func (w *site) get(t testing.TB, path string, status int) string {
	t.Helper()
	r, err := w.client.Get(w.address + path) //nolint:noctx // the client has a time limit
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err = b.ReadFrom(r.Body); err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != status {
		t.Fatalf("%s: status %d, want %d: %.600s", path, r.StatusCode, status, b.String())
	}
	if r.Header.Get("Content-Security-Policy") != policy {
		t.Errorf("%s: no policy", path)
	}
	return b.String()
}

// harmless reports whether an attribute is one of ours.
func harmless(element string, a *html.Attribute) bool {
	address := a.Key == "href" || a.Key == "src" || a.Key == "action"
	switch {
	case strings.HasPrefix(a.Key, "on"), a.Key == "style":
		return false
	case strings.Trim(a.Val, "abcdefghijklmnopqrstuvwxyz") == "#", element == "link" && a.Val == "data:,": // on every page
		return true
	}
	return !address || strings.HasPrefix(a.Val, "/") || strings.HasPrefix(a.Val, "?")
}

// safe fails for a page that has an element or an attribute which is not ours.
func safe(t testing.TB, path, page string) {
	t.Helper()
	z := html.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case html.ErrorToken:
			return
		case html.StartTagToken, html.SelfClosingTagToken:
			token := z.Token()
			for _, a := range token.Attr {
				if !harmless(token.Data, &a) {
					t.Errorf("%s: <%s %s=%q>", path, token.Data, a.Key, a.Val)
				}
			}
			if tag := token.String(); token.Data == "script" && !strings.Contains(tag, `src="/assets/`) && !strings.Contains(tag, `type="text/plain"`) {
				t.Errorf("%s: %s", path, token)
			}
		default:
		}
		if raw := z.Raw(); bytes.ContainsAny(raw, "\x1b") || !bytes.Equal(bytes.ToValidUTF8(raw, nil), raw) {
			t.Errorf("%s: control characters or broken UTF-8 in %q", path, raw[:min(len(raw), 200)])
		}
	}
}

// step records a step with hostile texts.
func (w *site) step(t testing.TB, a *store.Attempt, n int) {
	t.Helper()
	content := trajectory.Text(evil)
	if err := a.Append(record.StepsFile, record.Step{Time: time.Now(), Stage: evil, Role: evil, Step: trajectory.Step{
		StepID: int64(n), Source: evil, Message: trajectory.Text(fmt.Sprintf("message %d %s", n, evil)), ModelName: evil, ReasoningContent: evil,
		ToolCalls: []trajectory.ToolCall{{ID: "1", Name: evil, Arguments: json.RawMessage(`{"a":"</pre><script>1</script>"}`)}},
		Observation: &trajectory.Observation{Results: []trajectory.Result{{Content: &content, Subagents: []trajectory.SubagentRef{
			{TrajectoryPath: "agent/sub.json"}, {TrajectoryPath: "agent/sub.json", TrajectoryID: evil}, {TrajectoryPath: evil},
		}}}},
	}}); err != nil {
		t.Fatal(err)
	}
}

// attempt writes an attempt with hostile texts everywhere, and publishes it.
func (w *site) attempt(t testing.TB, trial string, steps int) string {
	t.Helper()
	a, err := w.run.Begin(trial)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	add := func(file string, v any) {
		if err := a.Append(file, v); err != nil {
			t.Fatal(err)
		}
	}
	add(record.TurnsFile, record.Turn{Time: now, Kind: evil, End: evil, Over: evil, Stage: evil, Turn: 1, From: evil, Text: evil, Reason: evil})
	add(record.VerdictsFile, record.Verdict{Time: now, Verdict: verifier.Verdict{
		Verifier: evil, Stage: evil, Decision: evil, Rationale: evil, Handoff: evil, Scores: map[string]verifier.Score{evil: {Value: 1}},
		Checkpoints: []verifier.Checkpoint{{Name: evil, Note: evil}}, Findings: []verifier.Finding{{Code: evil, Text: evil}},
	}})
	add(record.EventsFile, record.Event{Time: now, Type: record.EventPhaseStart, Phase: evil, Stage: evil})
	for n := range steps {
		w.step(t, a, n+1)
	}
	w.files(t, a.Dir(), add)
	score := 1.0
	if err := a.Publish(record.Result{
		Version: 1, Trial: trial, Attempt: a.Number(), Outcome: record.Passed, AgentEnd: evil, Integrity: evil, Reasons: []string{evil}, Score: &score,
		Scores: map[string]float64{evil: 1}, Labels: map[string]string{evil: evil}, Error: &record.Error{Boundary: evil, Phase: evil, Message: evil},
		Findings: []record.Finding{{Finding: verifier.Finding{Code: evil, Severity: evil, Text: evil}, By: evil}}, Usage: []record.Usage{{Role: evil, Model: evil}},
		Phases: []record.Phase{{Name: evil, Start: now, End: now.Add(time.Second), Error: evil}}, Start: now, End: now.Add(time.Second),
	}); err != nil {
		t.Fatal(err)
	}
	return a.Dir()
}

// Nothing of a record becomes an element of any page.
func TestHostileRecordsAreText(t *testing.T) {
	t.Parallel()
	w := newSite(t, 2)
	w.attempt(t, w.trials[0].ID, 3)
	for _, path := range w.pages(w.trials[0].ID) {
		safe(t, path, w.get(t, path, http.StatusOK))
	}
	at := "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	for _, path := range []string{
		"/run/none/", at + "file?name=../../../manifest.jsonl", at + "file?name=/etc/passwd", at + "file?name=" + url.QueryEscape(evil), at + "body?digest=../../../etc/passwd",
		at + "picture?name=frames/broken.png", at + "cast?name=artifacts/a.txt",
		at + "subagent?path=../../x.json", at + "subagent?path=agent/sub.json&id=none", "/run/" + filepath.Base(w.run.Dir) + "/trial/x/1/", at + "../9999999999999999999999/", "/compare?a=1&b=2",
	} {
		safe(t, path, w.get(t, path, http.StatusNotFound))
	}
	for path, want := range map[string]string{
		"file?name=agent/terminal.cast": "<pre>hello\nagain\nlast</pre>", "file?name=artifacts/t.csv": "&lt;b&gt;,2",
		"subagent?path=agent/sub.json":                                             "I am below",
		"subagent?path=agent/sub.json&id=" + url.QueryEscape(string([]rune(evil))): "deeper", "surface": `<circle cx="30" cy="40"`,
		"cast?name=agent/terminal.cast": `[5,"o","\nagain"]`,
	} {
		if page := w.get(t, at+path, http.StatusOK); !strings.Contains(page, want) {
			t.Errorf("%s lacks %q: %s", path, want, page)
		}
	}
	if page := w.get(t, "/run/"+filepath.Base(w.run.Dir)+"/report", http.StatusOK); !strings.Contains(page, `id="chart-leaderboard"`) || !strings.Contains(page, "What was run") {
		t.Errorf("the report lacks charts or facts: %.600s", page)
	}
}

// Only who has the token gets a page, and a wrong one gets nothing.
func TestTokenIsNeeded(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	stranger := &site{Server: w.Server, client: &http.Client{Timeout: time.Minute}, address: w.address, run: w.run}
	for _, path := range []string{"/", "/?token=" + strings.Repeat("0", 64), "/assets/view.js", "/run/" + filepath.Base(w.run.Dir) + "/report"} {
		stranger.get(t, path, http.StatusForbidden)
	}
	if page := w.get(t, "/assets/vega.js", http.StatusOK); len(page) < 100_000 {
		t.Errorf("the library of charts has %d bytes", len(page))
	}
}

// A page of somebody else that leads a browser here under a name of its own gets
// nothing, even with the cookie.
func TestOtherNamesAreRefused(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	for host, want := range map[string]int{"evil.example": 421, "evil.example:80": 421, "localhost.evil.example": 421, "localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.address+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		r.AddCookie(&http.Cookie{Name: w.cookie, Value: w.token})
		answer, err := w.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _ = answer.Body.Close(); answer.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, answer.StatusCode, want)
		}
	}
}

// A page says what is missing or too large, and shows the rest.
func TestDamagedRecords(t *testing.T) {
	t.Parallel()
	w := newSite(t, 2)
	dir := w.attempt(t, w.trials[0].ID, 1)
	f, err := os.OpenFile(filepath.Join(dir, record.StepsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = f.WriteString(`{"step":"` + strings.Repeat("x", 50<<20) + "\"}\nnot JSON\n{\"torn"); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(f.Close(), os.WriteFile(filepath.Join(dir, record.ResultFile), []byte("{"), 0o600), os.Remove(filepath.Join(dir, record.TurnsFile)),
		os.Remove(filepath.Join(dir, record.VerdictsFile)), os.Symlink("/etc/passwd", filepath.Join(dir, record.VerdictsFile)))
	if err != nil {
		t.Fatal(err)
	}
	at := "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	page := w.get(t, at, http.StatusOK)
	safe(t, at, page)
	for _, want := range []string{"Step 2 has 51200 KiB and is not shown here", "Line 3 of steps.jsonl cannot be read", "message 1 ", "There is no result", "verdicts.jsonl: not a regular file"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "root:") || len(page) > 1<<20 {
		t.Errorf("the page has %d bytes, or follows a link", len(page))
	}
	if err = os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if page = w.get(t, at, http.StatusOK); !strings.Contains(page, "only the journal of the run is left") {
		t.Error("the page does not say that the folder was removed")
	}
}

// A conversation is shown in parts, and from the step that the address names.
func TestStepsComeInParts(t *testing.T) {
	t.Parallel()
	w := newSite(t, 1)
	w.attempt(t, w.trials[0].ID, 2000)
	at := "/run/" + filepath.Base(w.run.Dir) + "/trial/" + w.trials[0].ID + "/1/"
	began := time.Now()
	page := w.get(t, at, http.StatusOK)
	t.Logf("an attempt of 2,000 steps: %v, %d KiB", time.Since(began), len(page)>>10)
	if n := strings.Count(page, `<section class="step"`); n != stepsPage {
		t.Errorf("%d steps at first, want %d", n, stepsPage)
	}
	if page = w.get(t, at+"?step=1990", http.StatusOK); !strings.Contains(page, `id="step-1990"`) || strings.Contains(page, `id="step-1989"`) {
		t.Error("the page does not begin at step 1990")
	}
	next := "steps?at=0"
	for n := 1; n <= 2000; {
		part := w.get(t, at+next, http.StatusOK)
		got := strings.Count(part, `<section class="step"`)
		if got == 0 || !strings.Contains(part, fmt.Sprintf(`id="step-%d"`, n)) {
			t.Fatalf("no step %d in the part %s", n, next)
		}
		n += got
		_, rest, _ := strings.Cut(part, `/1/steps?`)
		rest, _, _ = strings.Cut(rest, `"`)
		next = "steps?" + html.UnescapeString(rest)
	}
	if part := w.get(t, at+next, http.StatusOK); strings.Contains(part, "<section") {
		t.Error("there is something after the last step")
	}
}

// Every link of every page leads to a page, and every picture that is not broken is
// shown.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	w := newSite(t, 2)
	w.attempt(t, w.trials[0].ID, 2)
	seen, next := map[string]bool{}, []string{"/"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		r, err := w.client.Get(w.address + path) //nolint:noctx // the client has a time limit
		if err != nil {
			t.Fatal(err)
		}
		page, err := html.Parse(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%s: status %d, %v", path, r.StatusCode, err)
		}
		_ = r.Body.Close()
		for _, at := range links(t, w.address+path, page) {
			if !seen[at] {
				seen[at] = true
				next = append(next, at)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d links were found", len(seen))
	}
}

// links are the addresses of a page, without those of names that are hostile or
// broken: nothing is behind them.
func links(t *testing.T, address string, page *html.Node) (all []string) {
	t.Helper()
	base, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	for n := range page.Descendants() {
		for _, a := range n.Attr {
			if n.Type != html.ElementNode || !slices.Contains([]string{"href", "src", "data-src", "data-more", "data-cast"}, a.Key) || a.Val == "data:," {
				continue
			}
			to, wrong := base.Parse(a.Val)
			if wrong != nil {
				t.Errorf("%s: %q: %v", address, a.Val, wrong)
				continue
			}
			at := to.RequestURI()
			if !slices.ContainsFunc([]string{"broken", "huge", "script%3e", "passwd"}, func(part string) bool { return strings.Contains(strings.ToLower(at), part) }) {
				all = append(all, at)
			}
		}
	}
	return all
}
