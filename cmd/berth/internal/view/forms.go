package view

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Bounds of what forms send and of what is kept of their answers.
const (
	maxForm    = 128 << 10 // bytes; the text of a note has up to 48 KiB when it is encoded
	maxAnswers = 64        // the newest ones
	maxSaid    = 8 << 10   // bytes of one answer
)

// answered is the result of a form.
type answered struct {
	key  string
	Time time.Time
	Text string
}

// answers keeps what the next page says of a form. The address of that page has a
// random key and not the text, so that a foreign link cannot make a page say
// something. Safe for concurrent use.
type answers struct {
	mu  sync.Mutex
	all []answered // oldest first
}

// keep keeps a text and returns its key.
func (a *answers) keep(text string) string {
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails
	one := answered{hex.EncodeToString(key[:]), time.Now(), partOf(text, maxSaid).Text}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all[max(0, len(a.all)-maxAnswers+1):], one)
	return one.key
}

// of returns the answer with a key; nil if it is not known, or no longer.
func (a *answers) of(key string) *answered {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.all, func(one answered) bool { return one.key == key })
	if i < 0 {
		return nil
	}
	one := a.all[i]
	return &one
}

// form answers a form with what handle did, as a sentence on the page that handle
// names. It takes forms of its own pages only: the cookie, which Handler asks for,
// is also sent by a page of another server on this host, and a browser says here
// where a form comes from.
func (s *Server) form(handle func(*request) (back, said string, err error)) http.HandlerFunc {
	origin := http.NewCrossOriginProtection()
	return func(w http.ResponseWriter, r *http.Request) {
		if origin.Check(r) != nil {
			http.Error(w, "The form does not come from a page of this server. Nothing was changed.", http.StatusForbidden)
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		if err := r.ParseForm(); err != nil {
			status := http.StatusBadRequest
			if _, long := errors.AsType[*http.MaxBytesError](err); long {
				status = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "The form cannot be read. Nothing was changed.", status)
			return
		}
		s.page(func(q *request) error {
			back, said, err := handle(q)
			if err == nil {
				http.Redirect(w, r, back+"?said="+s.answers.keep(said)+"#said", http.StatusSeeOther)
			}
			return err
		})(w, r)
	}
}

// field is a field of a form without space around it. Browsers end its lines with
// CR LF.
func (r *request) field(name string) string {
	return strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get(name), "\r\n", "\n"))
}
