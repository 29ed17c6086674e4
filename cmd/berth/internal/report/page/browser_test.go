package page

import (
	"context"
	"encoding/json"
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

	"github.com/berth-eval/berth/internal/testlevel"
)

// sight is a way to look at the page.
type sight struct {
	name  string
	width int64
	dark  bool
	tasks int
}

// page is what the browser says of the page.
type page struct {
	Title    string `json:"title"`
	Canvases int    `json:"canvases"`
	Buttons  int    `json:"buttons"`
	Wide     int    `json:"wide"` // pixels by which the page is wider than the window
	Options  int    `json:"options"`
	Rows     int    `json:"rows"` // of the list of attempts, after a click into the map
	Table    int    `json:"table"`
	SVG      string `json:"svg"`
	Headings int    `json:"headings"`
}

// clicked clicks into the first field of the map, opens its table and returns what
// there is.
const clicked = `(async () => {
  const press = (on, clientX, clientY) => {
    for (const type of ["pointermove", "mousemove", "mousedown", "pointerdown", "mouseup", "pointerup", "click"])
      on.dispatchEvent(new (type.startsWith("p") ? PointerEvent : MouseEvent)(type, { bubbles: true, clientX, clientY }));
  };
  const canvas = document.querySelector("#chart-heat canvas");
  const r = canvas.getBoundingClientRect();
  for (let x = r.width * 0.4; x < r.width * 0.6; x += 5) for (let y = r.height * 0.4; y < r.height * 0.6; y += 5) {
    if (document.querySelector("#attempts tbody tr")) break;
    press(canvas, r.left + x, r.top + y);
  }
  const details = document.getElementById("heat-table");
  details.open = true;
  await new Promise((done) => setTimeout(done, 200));
  const table = details.querySelectorAll("tbody tr").length;
  details.open = false;
  return {
    title: document.title, canvases: document.querySelectorAll(".chart canvas").length, buttons: document.querySelectorAll(".save button").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, options: document.querySelectorAll("#pick-task option").length,
    rows: document.querySelectorAll("#attempts tbody tr").length, table, headings: document.querySelectorAll("h2").length, svg: "",
  };
})()`

// looked opens the page from the disk and checks what a person would see. The
// browser must report no error and ask for nothing but the file.
func looked(t *testing.T, html []byte, s *sight) {
	t.Helper()
	testlevel.Long(t, "test-e2e")
	program := testlevel.Program(t, "chromium", "chromium")
	file := filepath.Join(t.TempDir(), s.name+".html")
	if err := os.WriteFile(file, html, 0o600); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.Env("TMPDIR="+t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	defer end()
	ctx, end = chromedp.NewContext(ctx)
	defer end()
	ctx, end = context.WithTimeout(ctx, 3*time.Minute)
	defer end()
	var mu sync.Mutex
	var faults, asked []string
	chromedp.ListenTarget(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			faults = append(faults, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			b, _ := json.Marshal(e.Args)
			faults = append(faults, string(e.Type)+": "+string(b))
		case *log.EventEntryAdded:
			faults = append(faults, e.Entry.Text)
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") {
				asked = append(asked, u)
			}
		}
	})
	scheme := "light"
	if s.dark {
		scheme = "dark"
	}
	var got page
	err := chromedp.Run(ctx,
		network.Enable(), log.Enable(), chromedp.EmulateViewport(s.width, 900),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}),
		chromedp.Navigate("file://"+file), chromedp.WaitReady(`html[data-drawn="yes"]`, chromedp.ByQuery),
		chromedp.Evaluate(clicked, &got, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }),
	)
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
	if len(faults) > 0 {
		t.Errorf("%s: the browser says %q", s.name, faults)
	}
	if len(asked) != 1 || asked[0] != "file://"+file {
		t.Errorf("%s: the page asked for %q", s.name, asked)
	}
	if got.Canvases != 4 || got.Buttons != 12 || got.Options != s.tasks || got.Table != s.tasks || got.Rows == 0 || got.Wide > 0 || got.Headings < 10 || strings.Contains(got.Title, "taken") == strings.HasPrefix(got.Title, "taken") {
		t.Errorf("%s: %+v", s.name, got)
	}
}
