package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// MaxBytes is how large a report may be, and maxData how large the rows of its charts
// and its attempts are in it at most.
const (
	MaxBytes = 2 << 20
	maxData  = 1 << 20
)

// Assets are the templates of a report, its style and its script. The viewer serves
// the same ones.
//
//go:embed page.html page.css page.js
var Assets embed.FS

// whole is what the template of a file gets.
type whole struct {
	*Report

	Policy    template.HTML // content of the security policy, made of digests only
	CSS       template.CSS
	JS        template.JS
	Libraries []Library
}

// Make returns the report of the runs as one file.
func Make(runs []numbers.Run, o *Options) ([]byte, error) {
	if len(runs) == 0 {
		return nil, errors.New("a report needs a run")
	}
	r, err := New(runs, o)
	if err != nil {
		return nil, err
	}
	libraries, err := Libraries()
	if err != nil {
		return nil, err
	}
	t, err := template.New("page").Funcs(Functions()).ParseFS(Assets, "page.html")
	if err != nil {
		return nil, err
	}
	css, _ := Assets.ReadFile("page.css") // they are embedded
	js, _ := Assets.ReadFile("page.js")
	scripts := []string{hash(js)}
	for i := range libraries {
		var h string
		if h, err = libraries[i].hash(); err != nil {
			return nil, err
		}
		scripts = append(scripts, h)
	}
	f := &whole{
		Report: r, CSS: template.CSS(css), JS: template.JS(js), Libraries: libraries, //nolint:gosec // both are ours
		Policy: template.HTML("default-src 'none'; script-src " + strings.Join(scripts, " ") + "; style-src " + hash(css) + //nolint:gosec // digests only
			"; img-src data: blob:; base-uri 'none'; form-action 'none'"),
	}
	var out bytes.Buffer
	if err = t.ExecuteTemplate(&out, "whole", f); err != nil {
		return nil, err
	}
	if out.Len() > MaxBytes {
		return nil, fmt.Errorf("the report has %d bytes, more than %d: report fewer runs or cells", out.Len(), MaxBytes)
	}
	return bytes.Map(Visible, out.Bytes()), nil
}

// Visible replaces control characters, which a reader who prints the file to a
// terminal does not want.
func Visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}

// hash returns a source of a security policy: the digest of a script or a style.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pack makes the data of the script from the charts and the attempts. It leaves out
// the attempts if they are too large.
func (r *Report) pack() error {
	p := r.payload()
	for {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err == nil {
			err = errors.Join(json.NewEncoder(z).Encode(p), z.Close())
		}
		if err != nil {
			return err
		}
		if r.Data = armour(b.Bytes()); len(r.Data) <= maxData || p.Trials == nil {
			r.charts = p.Tables
			return nil
		}
		p.Trials = nil
		r.Notes = append(r.Notes, "the attempts are not listed: the page would be too large. berth show and berth export list them")
	}
}

// armour returns bytes as text that means the same in a script element and in HTML.
func armour(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Functions are those of the templates.
func Functions() template.FuncMap {
	return template.FuncMap{
		"percent":  percent,
		"value":    numbers.Value,
		"share":    numbers.Share,
		"between":  func(in *output.Interval, raw bool) string { return numbers.Between(in, raw, numbers.Value) },
		"interval": func(in *output.Interval, raw bool) string { return numbers.Between(in, raw, numbers.Difference) },
		"points":   numbers.Difference,
		"p":        numbers.P,
		"usd": func(s store.Spend) string {
			switch {
			case s.CostUSD == nil && s.Unpriced:
				return "not known"
			case s.CostUSD == nil:
				return "–"
			case s.Unpriced:
				return "at least " + money(*s.CostUSD)
			default:
				return money(*s.CostUSD)
			}
		},
		"money": money,
		"per": func(s store.Spend, n int) string {
			if s.CostUSD == nil || s.Unpriced || n == 0 {
				return "–"
			}
			return money(*s.CostUSD / float64(n))
		},
		"mean": func(total time.Duration, n int) string {
			if n == 0 {
				return "–"
			}
			return strconv.FormatFloat((total/time.Duration(n)).Seconds(), 'f', 1, 64) + " s"
		},
		"armour": armour,
		"add":    func(a, b int) int { return a + b },
	}
}

// percent prints a fraction in percent.
func percent(x float64) string { return numbers.Value(x, false) }

func money(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}
