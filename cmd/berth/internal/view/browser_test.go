package view

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// In a real browser nothing of a record is executed, nothing is loaded from
// elsewhere, the charts are drawn, and the conversation loads as one scrolls.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is missing: apt-get install chromium")
	}
	w := newSite(t, 4)
	w.attempt(t, w.trials[0].ID, 200)
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	defer end()
	ctx, end = chromedp.NewContext(ctx)
	defer end()
	ctx, end = context.WithTimeout(ctx, 3*time.Minute)
	defer end()
	var mu sync.Mutex
	var faults []string
	chromedp.ListenTarget(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			faults = append(faults, e.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if !strings.Contains(e.Entry.URL, "/picture?") && !strings.HasSuffix(e.Entry.URL, "/favicon.ico") { // a broken picture
				faults = append(faults, e.Entry.Text+" "+e.Entry.URL)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, w.address) && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") {
				faults = append(faults, "asked for "+u)
			}
		}
	})
	err = chromedp.Run(ctx, network.Enable(), log.Enable(), chromedp.EmulateViewport(390, 900), chromedp.Navigate(w.address+"/?token="+w.token))
	for _, path := range w.pages(w.trials[0].ID) {
		var title string
		var wide int
		if err == nil {
			err = chromedp.Run(ctx, chromedp.Navigate(w.address+path), chromedp.Title(&title),
				chromedp.Evaluate(`document.documentElement.scrollWidth - document.documentElement.clientWidth`, &wide))
		}
		if title == "taken" || title != "" && wide > 0 { // a part without a title is shown within a page
			t.Errorf("%s: title %q, %d pixels too wide", path, title, wide)
		}
	}
	run := w.address + "/run/" + filepath.Base(w.run.Dir) + "/"
	var canvases int
	if err == nil {
		err = chromedp.Run(ctx, chromedp.Navigate(run), chromedp.ScrollIntoView("#charts"), chromedp.WaitReady(`html[data-drawn="yes"]`),
			chromedp.Evaluate(`document.querySelectorAll(".chart canvas").length`, &canvases),
			chromedp.Navigate(run+"trial/"+w.trials[0].ID+"/1/"), chromedp.WaitReady("#step-40"), chromedp.ScrollIntoView("#step-40"), chromedp.WaitReady("#step-80"))
	}
	mu.Lock()
	defer mu.Unlock()
	if err != nil || canvases == 0 || len(faults) > 0 {
		t.Errorf("%v, %d charts, the browser says %q", err, canvases, faults)
	}
}
