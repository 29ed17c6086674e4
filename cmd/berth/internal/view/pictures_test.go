package view

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/png"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	xdraw "golang.org/x/image/draw"

	"github.com/berth-eval/berth/internal/testlevel"
)

var update = flag.Bool("update", false, "make the pictures of docs/view.md anew")

const (
	pictureDir  = "../../../../docs/view" // their folder
	maxPictures = 1_500_000               // bytes of all of them
	tree        = "../../../.."
)

// docs/view.md shows a picture of each page and a film of a run, made by this test
// from real runs with -update.
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
	if size > maxPictures || len(files) < 9 {
		t.Errorf("%d pictures with %d bytes, want at least 9 with at most %d", len(files), size, maxPictures)
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
	hcl := filepath.Join(dir, "quickstart", "berth.hcl")
	text, err := os.ReadFile(hcl)
	if err != nil {
		t.Fatal(err)
	}
	longer := strings.Replace(string(text), "  environment = environment.local\n", "  environment = environment.local\n  repeat      = 6\n  limits {\n    in_flight = 2\n  }\n", 1)
	if err = os.WriteFile(hcl, []byte(longer), 0o600); err != nil {
		t.Fatal(err)
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
	run := do("run", "quickstart")
	if err = run.Start(); err != nil {
		t.Fatal(err)
	}
	film(t, w, b, run)
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

// film takes pictures of the page of a run until the run has ended.
func film(t *testing.T, w *site, b *browser, run *exec.Cmd) {
	t.Helper()
	testlevel.Eventually(t, "the run has begun", func() bool { return newest(t, w, "quickstart") != nil })
	k := newest(t, w, "quickstart")
	b.run(t, chromedp.EmulateViewport(900, 620), chromedp.Navigate(w.address+address(k.Dir)), chromedp.WaitReady("main"))
	done := make(chan error, 1)
	go func() { done <- run.Wait() }()
	var shots []*image.RGBA
	for over := false; !over; {
		select {
		case err := <-done:
			if err != nil {
				t.Logf("berth run quickstart: %v", err)
			}
			over = true
			time.Sleep(2 * time.Second) // until the page, which asks from time to time, has the end
		case <-time.After(600 * time.Millisecond):
		}
		var shot []byte
		b.run(t, chromedp.CaptureScreenshot(&shot))
		shots = append(shots, scaled(t, shot, 720))
	}
	step := max(1, len(shots)/16)
	g, p := &gif.GIF{}, append(paletteOf(shots...), color.Transparent)
	var before *image.Paletted
	for i, s := range shots {
		if i%step > 0 && i < len(shots)-1 {
			continue
		}
		frame := painted(s, p[:len(p)-1])
		only := image.NewPaletted(frame.Rect, p)
		for at, c := range frame.Pix {
			if only.Pix[at] = c; before != nil && before.Pix[at] == c {
				only.Pix[at] = uint8(len(p) - 1) // as it was
			}
		}
		before = frame
		g.Image, g.Delay, g.Disposal = append(g.Image, only), append(g.Delay, 70), append(g.Disposal, gif.DisposalNone)
	}
	g.Delay[len(g.Delay)-1] = 300
	var out bytes.Buffer
	if err := gif.EncodeAll(&out, g); err != nil {
		t.Fatal(err)
	}
	save(t, "film.gif", out.Bytes())
}

func save(t *testing.T, name string, b []byte) {
	t.Helper()
	t.Logf("%s: %d KiB", name, len(b)>>10)
	if err := os.WriteFile(filepath.Join(pictureDir, name), b, 0o644); err != nil { //nolint:gosec // a document
		t.Fatal(err)
	}
}

// scaled decodes a picture and scales it to a width.
func scaled(t *testing.T, b []byte, width int) *image.RGBA {
	t.Helper()
	i, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out := image.NewRGBA(image.Rect(0, 0, width, i.Bounds().Dy()*width/i.Bounds().Dx()))
	xdraw.ApproxBiLinear.Scale(out, out.Rect, i, i.Bounds(), draw.Src, nil)
	return out
}

// paletteOf returns the colors that pictures have most of: with few of them, files are
// small.
func paletteOf(all ...*image.RGBA) (p color.Palette) {
	count := map[color.RGBA]int{}
	for _, i := range all {
		for at := 0; at < len(i.Pix); at += 4 {
			count[color.RGBA{i.Pix[at] &^ 15, i.Pix[at+1] &^ 15, i.Pix[at+2] &^ 15, 255}]++ // near ones are one
		}
	}
	type often struct {
		color.RGBA

		n int
	}
	var colors []often
	for c, n := range count {
		colors = append(colors, often{c, n})
	}
	slices.SortFunc(colors, func(a, b often) int {
		return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	for _, c := range colors[:min(len(colors), 96)] {
		p = append(p, color.RGBA{c.R | c.R>>4, c.G | c.G>>4, c.B | c.B>>4, 255})
	}
	return p
}

func painted(i *image.RGBA, p color.Palette) *image.Paletted {
	out := image.NewPaletted(i.Rect, p)
	draw.Draw(out, i.Rect, i, image.Point{}, draw.Src)
	return out
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
		{name: "trials", path: base + "trials?select=" + url.QueryEscape(`agent == "terminus"`) + "&sort=tokens", width: 1000, height: 500},
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
		var out bytes.Buffer
		picture := scaled(t, shot, int(p.width))
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, painted(picture, paletteOf(picture))); err != nil {
			t.Fatal(err)
		}
		save(t, p.name+".png", out.Bytes())
	}
}
