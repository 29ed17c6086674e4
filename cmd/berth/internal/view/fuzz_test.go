package view

import (
	"bytes"
	"testing"

	"github.com/berth-eval/berth/cmd/berth/internal/runtest"
)

// Whatever stands in one file of a run, every page of it is answered, and nothing of
// it becomes an element.
func FuzzRunFolder(f *testing.F) {
	w := newSite(f, 1)
	w.attempt(f, w.trials[0].ID, 3)
	pages := w.pages(w.trials[0].ID)
	runtest.Fuzz(f, w.run.Dir, func(t *testing.T, _ string, _, _ []byte) {
		for _, page := range pages {
			r, err := w.client.Get(w.address + page) //nolint:noctx // the client has a time limit
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			var b bytes.Buffer
			_, err = b.ReadFrom(r.Body)
			_ = r.Body.Close()
			if err != nil {
				t.Fatalf("%s: %v", page, err)
			}
			if r.Header.Get("Content-Type") == "text/html; charset=utf-8" {
				safe(t, page, b.String())
			}
		}
	})
}

// Whatever a link to a page asks for, there is an answer, and nothing of it becomes
// an element.
func FuzzRequest(f *testing.F) {
	w := newSite(f, 1)
	w.attempt(f, w.trials[0].ID, 3)
	for _, page := range w.pages(w.trials[0].ID) {
		f.Add(page)
	}
	f.Fuzz(func(t *testing.T, page string) {
		r, err := w.client.Get(w.address + "/" + page) //nolint:noctx // the client has a time limit
		if err != nil {
			return // no address
		}
		var b bytes.Buffer
		_, err = b.ReadFrom(r.Body)
		_ = r.Body.Close()
		if err != nil {
			t.Fatalf("%s: %v", page, err)
		}
		if r.Header.Get("Content-Type") == "text/html; charset=utf-8" {
			safe(t, page, b.String())
		}
	})
}
