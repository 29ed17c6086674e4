package view

import (
	"errors"
	"flag"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var update = flag.Bool("update", false, "make the pictures of docs/view.md anew")

const (
	pictureDir  = "../../../../docs/view" // their folder
	maxPictures = 1_500_000               // bytes of all of them
	tree        = "../../../.."
)

// docs/view.md shows a picture of each page, made by this test from real runs with
// -update.
func TestPictures(t *testing.T) {
	if *update {
		makePictures(t)
	}
	text, err := os.ReadFile(filepath.Join(pictureDir, "..", "view.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(pictureDir)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, f := range files {
		fi, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		size += fi.Size()
		if !strings.Contains(string(text), "(view/"+f.Name()+")") {
			t.Errorf("docs/view.md does not show %s", f.Name())
		}
	}
	if size > maxPictures || len(files) < 8 {
		t.Errorf("%d pictures with %d bytes, want at least 8 with at most %d", len(files), size, maxPictures)
	}
}

// clicks is an experiment in which an agent uses a page in a browser.
var clicks = map[string]string{
	"clicks/berth.hcl": `experiment "clicks" {
  datasets    = [dataset.pages]
  environment = environment.local
  agent       = agent.oracle
}
dataset "pages" {
  format = "harbor"
  path   = "./tasks"
}
environment "local" {
  plugin  = "local"
  surface = "browser"
  surface_config {
    width  = 640
    height = 400
  }
}
agent "oracle" {
  plugin = "oracle"
  oracle = true
}
`,
	"clicks/tasks/form/instruction.md": "Order two cups of tea.\n",
	"clicks/tasks/form/task.toml":      "[metadata.berth.surface]\nfiles = \"tests/site\"\nsteps = 20\nobservations = [\"screenshot\", \"elements\"]\n\n[metadata.berth.surface.settings]\nurl = \"/index.html\"\n",
	"clicks/tasks/form/tests/site/index.html": `<!doctype html><title>Tea</title><body style="margin:0;font:20px sans-serif;background:#eef4ee">
<h1 style="margin:20px 40px">Tea house</h1>
<label style="position:absolute;left:40px;top:110px">Name <input id=name style="font:inherit;width:260px"></label>
<label style="position:absolute;left:40px;top:170px">Cups <select id=cups style="font:inherit"><option>1<option>2<option>3</select></label>
<button style="position:absolute;left:40px;top:240px;font:inherit;padding:8px 24px" onclick="out.textContent = 'Ordered: ' + cups.value + ' for ' + name1.value">Order</button>
<p id=out style="position:absolute;left:40px;top:300px"></p><script>const name1 = document.getElementById('name')</script>`,
	"clicks/tasks/form/solution/actions.jsonl": `{"name": "mouse_click", "arguments": {"x": 240, "y": 124}}
{"name": "keyboard_type", "arguments": {"text": "Ada"}}
{"name": "mouse_click", "arguments": {"x": 90, "y": 262}}
{"name": "noop", "arguments": {}}
`,
	"clicks/tasks/form/tests/test.sh":          "mkdir -p /logs/verifier; echo 1 >/logs/verifier/reward.txt; echo the order was checked\n",
	"clicks/tasks/form/environment/Dockerfile": "FROM debian:bookworm-slim\nWORKDIR /app\n",
}

func makePictures(t *testing.T) {
	t.Helper()
	berth, err := filepath.Abs(filepath.Join(tree, "bin", "berth"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err = errors.Join(os.MkdirAll(pictureDir, 0o755), os.CopyFS(filepath.Join(dir, "quickstart"), os.DirFS(filepath.Join(tree, "examples", "quickstart")))); err != nil { //nolint:gosec // documents
		t.Fatal(err)
	}
	for name, text := range clicks {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil { //nolint:gosec // what sandboxes read
			t.Fatal(err)
		}
	}
	do := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), berth, args...)
		cmd.Dir = dir
		return cmd
	}
	if out, runErr := do("run", "clicks").CombinedOutput(); runErr != nil {
		t.Fatalf("berth run clicks: %v\n%s", runErr, out)
	}
	s, err := New(t.Context(), Options{Folder: filepath.Join(dir, "runs"), Listen: "127.0.0.1:0", Berth: "test"})
	if err != nil {
		t.Fatal(err)
	}
	served := httptest.NewServer(s.Handler())
	t.Cleanup(served.Close)
	w := &site{Server: s, served: served, address: served.URL}
	b := openBrowser(t)
	b.look(t, w)
	if out, runErr := do("run", "quickstart").CombinedOutput(); runErr != nil {
		t.Logf("berth run quickstart: %v\n%s", runErr, out) // trials that fail are a part of it
	}
	stills(t, w, b)
}

// newest is the run of an experiment.
func newest(t *testing.T, w *site, experiment string) *kept {
	t.Helper()
	all, err := w.dirs()
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range all {
		if strings.HasPrefix(filepath.Base(dir), experiment+"-") {
			k, err := w.runs.get(dir, "test")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
	}
	return nil
}

// stills takes a picture of each page.
func stills(t *testing.T, w *site, b *browser) {
	t.Helper()
	quick, clicked := newest(t, w, "quickstart"), newest(t, w, "clicks")
	find := func(k *kept, dir string) *attempt {
		for _, tr := range k.Index.Trials {
			if strings.Contains(tr.Dir, dir) {
				a, err := w.find(filepath.Base(k.Dir), tr.ID, "1")
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
		}
		t.Fatalf("no trial %s", dir)
		return nil
	}
	terminus, oracle, form := find(quick, "fix-script--terminus"), find(quick, "fix-script--oracle"), find(clicked, "form")
	base := address(quick.Dir)
	for _, p := range []struct {
		name, path    string
		width, height int64
		dim           bool
		ready         []chromedp.Action
	}{
		{name: "runs", path: "/", width: 900, height: 300},
		{name: "run", path: base, width: 900, height: 900},
		{name: "charts", path: base, width: 900, height: 700, ready: []chromedp.Action{chromedp.Evaluate(toReport, nil), chromedp.WaitReady(`html[data-drawn="yes"]`), chromedp.Evaluate(toReport, nil)}},
		{name: "trials", path: base + "trials?select=" + url.QueryEscape(`agent == "terminus"`), width: 1000, height: 500},
		{name: "attempt", path: terminus.Page(), width: 900, height: 900, dim: true},
		{name: "terminal", path: terminus.Page(), width: 900, height: 900, ready: []chromedp.Action{
			chromedp.ScrollIntoView(".terminal"), chromedp.WaitReady(`.terminal[data-drawn="yes"] .ap-term`), chromedp.Click("#step-4 h3 button"),
			chromedp.Evaluate(`document.getElementById("terminals").scrollIntoView()`, nil), chromedp.Poll(`document.querySelector(".ap-term-text").textContent.includes("top-words")`, nil),
		}},
		{name: "surface", path: form.Page(), width: 1000, height: 420, ready: []chromedp.Action{chromedp.ScrollIntoView(".film"), chromedp.WaitReady(".film .shot svg circle"), chromedp.Sleep(time.Second), chromedp.Evaluate(`document.getElementById("surface").scrollIntoView()`, nil)}},
		{name: "requests", path: terminus.Page() + "exchanges", width: 900, height: 400},
		{name: "compare", path: "/compare?a=" + url.QueryEscape(terminus.Key()) + "&b=" + url.QueryEscape(oracle.Key()), width: 1000, height: 600},
		{name: "phone", path: terminus.Page(), width: 390, height: 700},
	} {
		var shot []byte
		actions := append([]chromedp.Action{dark(p.dim), chromedp.EmulateViewport(p.width, p.height), chromedp.Navigate(w.address + p.path), chromedp.WaitReady("main")}, p.ready...)
		b.run(t, append(actions, chromedp.CaptureScreenshot(&shot))...)
		t.Logf("%s: %d KiB", p.name, len(shot)>>10)
		if err := os.WriteFile(filepath.Join(pictureDir, p.name+".png"), shot, 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
}
