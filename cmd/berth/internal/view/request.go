package view

import (
	"bytes"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/trajectory"
)

// request is a request for a page.
type request struct {
	*http.Request
	s *Server
	w http.ResponseWriter
}

// page answers with what handle shows, or with a page that says what is wrong.
func (s *Server) page(handle func(*request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		r := &request{Request: hr, s: s, w: w}
		err := handle(r)
		if err == nil {
			return
		}
		status := http.StatusInternalServerError
		if errors.Is(err, errMissing) || errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		_ = r.s.pages.ExecuteTemplate(w, "error", map[string]any{"Title": "Not shown", "Error": err.Error()})
	}
}

// show writes a page, once all of it is made.
func (r *request) show(name, title string, data map[string]any) error {
	data["Title"], data["Berth"] = title, r.s.o.Berth
	if key := r.URL.Query().Get("said"); key != "" {
		data["Said"] = r.s.answers.of(key)
	}
	var b bytes.Buffer
	if err := r.s.pages.ExecuteTemplate(&b, name, data); err != nil {
		return err
	}
	r.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, err := r.w.Write(bytes.Map(page.Visible, b.Bytes()))
	_ = err // the browser has gone
	return nil
}

// number returns a number of the address that is not negative; 0 if there is none.
func (r *request) number(name string) int64 {
	n, err := strconv.ParseInt(r.FormValue(name), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// with returns the address of the page with another value in its query.
func (r *request) with(name, value string) string {
	q := r.URL.Query() // a new value for each call
	q.Set(name, value)
	return "?" + q.Encode()
}

// plain returns a text of several lines without escape sequences and control
// characters.
func plain(s string) string {
	s = ansi.Strip(strings.ToValidUTF8(s, "�"))
	return strings.Map(func(r rune) rune {
		if r == '\r' || r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			if r == '\r' {
				return -1
			}
			return unicode.ReplacementChar
		}
		return r
	}, s)
}

// part is a text for a page, cut if it is long.
type part struct {
	Text string
	Cut  int // bytes that are not shown
}

// partOf returns the first bytes of a text.
func partOf(s string, most int) part {
	cut := max(0, len(s)-most)
	s = s[:len(s)-cut]
	return part{plain(s), cut}
}

// integrityWords say what the integrity of a result means.
var integrityWords = map[record.Integrity]string{
	record.Checked:  "Nothing was found with which the agent could have influenced the result.",
	record.Exposed:  "The agent could have influenced the result. Nothing shows that it did.",
	record.Violated: "The agent influenced what measured it, so the result cannot be trusted.",
	record.Unknown:  "The attempt was never verified.",
}

// functions are those of the templates. clean is for names and other texts of one
// line.
func functions() template.FuncMap {
	return template.FuncMap{
		"clean":     func(v any) string { return terminal.Ends(fmt.Sprint(v), 400) },
		"path":      url.PathEscape,
		"query":     url.QueryEscape,
		"plain":     plain,
		"pair":      func(a *attempt, s any) any { return map[string]any{"A": a, "Step": s} },
		"shown":     func(a *attempt, s shot, marks []mark) any { return map[string]any{"A": a, "Shot": s, "Marks": marks} },
		"message":   func(c trajectory.Content) part { return partOf(report.MessageText(c), maxText) },
		"cut":       func(v any) part { return partOf(fmt.Sprintf("%s", v), maxText) },
		"pictures":  pictures,
		"radius":    func(width int) int { return max(8, width/36) },
		"integrity": func(i record.Integrity) string { return integrityWords[i] },
		"ms": func(t time.Time) int64 {
			if t.IsZero() {
				return 0
			}
			return t.UnixMilli()
		},
		"when": func(t time.Time) string {
			if t.IsZero() {
				return "–"
			}
			return t.Local().Format("2006-01-02 15:04:05")
		},
		"took": func(from, to time.Time) string {
			if from.IsZero() || to.IsZero() {
				return "–"
			}
			return terminal.Seconds(to.Sub(from))
		},
		"seconds": func(d time.Duration) string { return terminal.Seconds(d) },
		"cost": func(x *float64) string {
			if x == nil {
				return "–"
			}
			return strconv.FormatFloat(*x, 'f', 4, 64)
		},
		"number": func(x *float64) string {
			if x == nil {
				return "none"
			}
			return strconv.FormatFloat(*x, 'f', -1, 64)
		},
		"score": func(x *float64) string {
			if x == nil {
				return "–"
			}
			return strconv.FormatFloat(*x, 'g', 4, 64)
		},
		"kib": func(n int64) string {
			if n < 10<<10 {
				return strconv.FormatInt(n, 10) + " bytes"
			}
			return strconv.FormatInt(n>>10, 10) + " KiB"
		},
	}
}
