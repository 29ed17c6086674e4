package page

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed"
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
	"github.com/berth-eval/berth/cmd/berth/internal/report/charts"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
)

// MaxBytes is how large a report may be.
const MaxBytes = 2 << 20

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// view is what the template gets.
type view struct {
	*model

	Policy    template.HTML // content of the security policy, made of digests only
	CSS       template.CSS
	JS        template.JS
	Libraries []packed
	Data      string // base64 of the payload, compressed
	Has       func(string) bool
	Axes      []string
}

// packed is a library in the page.
type packed struct {
	ID, Name, Version, Licence, Base64 string
}

// Make returns the report of the runs.
func Make(runs []numbers.Run, o *Options) ([]byte, error) {
	if len(runs) == 0 {
		return nil, errors.New("a report needs a run")
	}
	m, err := newModel(runs, o)
	if err != nil {
		return nil, err
	}
	libraries, hashes, err := unpacked()
	if err != nil {
		return nil, err
	}
	t, err := template.New("page").Funcs(functions()).Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	p := m.payload()
	for {
		v := &view{model: m, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Libraries: libraries, Has: p.has} //nolint:gosec // both are ours
		for i := range p.Charts {
			if strings.HasPrefix(p.Charts[i].ID, "axis") {
				v.Axes = append(v.Axes, p.Charts[i].ID)
			}
		}
		scripts := append([]string{hash([]byte(pageJS))}, hashes...)
		v.Policy = template.HTML("default-src 'none'; script-src " + strings.Join(scripts, " ") + "; style-src " + hash([]byte(pageCSS)) + //nolint:gosec // digests only
			"; img-src data: blob:; base-uri 'none'; form-action 'none'")
		if v.Data, err = pack(p); err != nil {
			return nil, err
		}
		var out bytes.Buffer
		if err = t.Execute(&out, v); err != nil {
			return nil, err
		}
		if out.Len() <= MaxBytes {
			return bytes.Map(visible, out.Bytes()), nil
		}
		if !m.shrink(p) {
			return nil, fmt.Errorf("the report has %d bytes, more than %d: report fewer runs or cells", out.Len(), MaxBytes)
		}
	}
}

// visible replaces control characters, which a reader who prints the file to a
// terminal does not want.
func visible(r rune) rune {
	if unicode.IsControl(r) && r != '\n' && r != '\t' {
		return '?'
	}
	return r
}

// shrink leaves something out of a report that is too large; false if there is
// nothing left that could be.
func (m *model) shrink(p *payload) bool {
	switch {
	case p.Trials != nil:
		p.Trials = nil
		m.Notes = append(m.Notes, "the attempts are not listed: the file would have more than 2 MiB. berth show and berth export list them")
	case len(m.Pairs) > 100:
		m.MorePair += len(m.Pairs) - 100
		m.Pairs = m.Pairs[:100]
	case p.has("heat"):
		delete(p.Tables, "heat")
		kept := p.Charts[:0]
		for _, c := range p.Charts {
			if c.ID != "heat" {
				kept = append(kept, c)
			}
		}
		p.Charts = kept
		m.Notes = append(m.Notes, "there is no heat map: the file would have more than 2 MiB")
	default:
		return false
	}
	return true
}

// unpacked returns the libraries for the page, and the digests of their sources
// for its policy.
func unpacked() (all []packed, hashes []string, err error) {
	libraries, err := charts.Libraries()
	if err != nil {
		return nil, nil, err
	}
	for i := range libraries {
		l := &libraries[i]
		source, err := l.Source()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, packed{"lib-" + l.Name, l.Name, l.Version, l.Licence, armour(l.Packed)})
		hashes = append(hashes, hash(source))
	}
	return all, hashes, nil
}

// hash returns a source of a security policy: the digest of a script or a style.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pack returns the payload as base64 of compressed JSON.
func pack(p *payload) (string, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return "", err
	}
	if err = errors.Join(json.NewEncoder(z).Encode(p), z.Close()); err != nil {
		return "", err
	}
	return armour(b.Bytes()), nil
}

// armour returns bytes as text that means the same in a script element and in HTML.
func armour(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// functions are those of the template.
func functions() template.FuncMap {
	return template.FuncMap{
		"percent": percent,
		"value":   numbers.Value,
		"share": func(x *float64, raw bool) string {
			if x == nil {
				return "–"
			}
			return numbers.Value(*x, raw)
		},
		"between": func(in *output.Interval, raw bool) string {
			if in == nil {
				return "–"
			}
			return numbers.Value(in.Low, raw) + " to " + numbers.Value(in.High, raw)
		},
		"interval": func(in *output.Interval, raw bool) string {
			if in == nil {
				return "–"
			}
			return points(in.Low, raw) + " to " + points(in.High, raw)
		},
		"points": points,
		"p":      numbers.P,
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
		"add": func(a, b int) int { return a + b },
	}
}

// percent prints a fraction in percent.
func percent(x float64) string { return numbers.Value(x, false) }

// points prints a difference of success rates, in points.
func points(x float64, raw bool) string {
	s := numbers.Value(x, raw)
	if s == "0.0" || x <= 0 {
		return s
	}
	return "+" + s
}

func money(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}
