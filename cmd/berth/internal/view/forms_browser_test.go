package view

import (
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/berth-eval/berth/cmd/berth/internal/control"
	"github.com/berth-eval/berth/cmd/berth/internal/notes"
)

// keepsFocus: a button keeps the focus when its part of the page is made anew.
func (b *browser) keepsFocus(t *testing.T, w *site, at string) {
	t.Helper()
	const mine = `Remove the label bad task`
	b.run(t, chromedp.Navigate(w.address+at), chromedp.WaitReady("#notes"), chromedp.Focus(`button[aria-label="`+mine+`"]`))
	if err := write(w.run.Dir, &notes.Note{Trial: w.trials[1].ID, Attempt: 1, Label: "of another reader"}); err != nil {
		t.Fatal(err)
	}
	var focused string
	b.run(t, chromedp.WaitReady(`button[aria-label="Remove the label of another reader"]`), chromedp.Evaluate(`document.activeElement.getAttribute("aria-label") || ""`, &focused))
	if focused != mine {
		t.Errorf("the focus is on %q, want %q", focused, mine)
	}
}

// forms: a run and an attempt are controlled, and labelled, with the keyboard. What a
// person has typed stays while the page follows the run.
func (b *browser) forms(t *testing.T) {
	w := newSite(t, 3)
	b.look(t, w)
	w.attempt(t, w.trials[0].ID, 1)
	g := w.goOn(t, 1)
	run := "/run/" + filepath.Base(w.run.Dir) + "/"
	at := run + "trial/" + w.trials[1].ID + "/1/"
	w.until(t, at, "End the turn early")
	checks := axe(t)
	for _, path := range []string{run, at} {
		b.sound(t, w.address+path, checks)
	}
	var said, typed string
	const why = `#buttons input[name="why"]`
	b.run(t, chromedp.Navigate(w.address+run), chromedp.SendKeys(why, "look"), chromedp.WaitReady("html[data-renewed]"), chromedp.Value(why, &typed),
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.WaitReady("#said"), chromedp.Text("#said", &said))
	says(t, said, "Done: paused the run.")
	if s := g.status(t); typed != "look" || s.State != control.Paused {
		t.Errorf("typed %q, and the run is %+v", typed, s)
	}
	b.sound(t, w.address+run, checks)
	b.run(t, chromedp.Navigate(w.address+run), chromedp.SendKeys(`input[name="cost_usd"]`, "7"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(" "),
		chromedp.KeyEvent(kb.Enter), chromedp.WaitReady("#said"), chromedp.Text("#said", &said))
	says(t, said, "Done: set cost_usd from 5 to 7.")
	b.run(t, chromedp.Navigate(w.address+at), chromedp.SendKeys(`input[name="label"][required]`, "bad task"), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent("one"), chromedp.KeyEvent(kb.Enter), chromedp.KeyEvent("two"),
		chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter), chromedp.WaitReady("#said"), chromedp.Text("#said", &said))
	says(t, said, `Done: the attempt has the label "bad task".`)
	if all := labels(t, w.run.Dir).All(); len(all) != 1 || all[0].Text != "one\ntwo" {
		t.Errorf("notes: %+v", all)
	}
	b.sound(t, w.address+at, checks)
	b.keepsFocus(t, w, at)
	b.run(t, chromedp.Navigate(w.address+at), chromedp.SendKeys(`input[name="why"][required]`, "it repeats itself"), chromedp.KeyEvent(kb.Enter), chromedp.WaitReady("#said"), chromedp.Text("#said", &said))
	says(t, said, "Done: ended the turn of the agent")
	b.quiet(t)
}
