package view

import (
	"bytes"
	"net/url"
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
			w.answered(t, page)
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
		if _, err := url.Parse(w.address + "/" + page); err == nil {
			w.answered(t, "/"+page)
		}
	})
}

// answered fails if a page is not answered, or if something of a record is an element.
func (w *site) answered(t *testing.T, page string) {
	t.Helper()
	r, err := w.client.Get(w.address + page) //nolint:noctx // the client has a time limit
	if err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err = b.ReadFrom(r.Body); err != nil {
		t.Fatalf("%s: %v", page, err)
	}
	if r.Header.Get("Content-Type") == "text/html; charset=utf-8" {
		safe(t, page, b.String())
	}
}
