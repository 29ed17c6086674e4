package page

import (
	"bytes"
	"compress/gzip"
	"embed"
	"fmt"
	"io"
)

//go:embed vega
var vendored embed.FS

// Library is a JavaScript library, as it was published.
type Library struct {
	Name, Version string
	Licence       string // its text
	Packed        []byte // the minified source, with gzip
}

// Libraries returns the libraries that draw the charts, in the order in which they
// have to be loaded. Their versions are those of scripts/vendor-charts.
func Libraries() ([]Library, error) {
	all := []Library{{Name: "vega", Version: "6.4.0"}, {Name: "vega-lite", Version: "6.5.0"}, {Name: "vega-embed", Version: "7.3.0"}}
	for i := range all {
		l := &all[i]
		licence, err := vendored.ReadFile("vega/" + l.Name + ".LICENSE")
		if err != nil {
			return nil, err
		}
		l.Licence = string(licence)
		if l.Packed, err = vendored.ReadFile("vega/" + l.Name + ".js.gz"); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// hash returns the source of the library for a security policy.
func (l *Library) hash() (string, error) {
	r, err := gzip.NewReader(bytes.NewReader(l.Packed))
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.Name, err)
	}
	b, err := io.ReadAll(r)
	return hash(b), err
}
