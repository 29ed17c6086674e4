package view

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	_ "image/gif"  // formats of pictures
	_ "image/jpeg" // formats of pictures
	"image/png"
	"io"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"

	_ "golang.org/x/image/webp" // formats of pictures

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/core/gateway"
	"github.com/berth-eval/berth/core/gateway/recording"
	"github.com/berth-eval/berth/core/record"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// Bounds of a picture, and of a recording of a terminal.
const (
	maxPicture = 20 << 20 // bytes
	maxPixels  = 25_000_000
	maxCast    = 16 << 20 // bytes that a player gets
)

// decoding limits how many pictures are decoded at the same time, since each may
// take 100 MB.
var decoding = make(chan struct{}, 2)

// isPicture reports whether a file is shown as a picture.
func isPicture(name string) bool {
	return slices.Contains([]string{".png", ".jpg", ".jpeg", ".gif", ".webp"}, strings.ToLower(path.Ext(name)))
}

// raw serves the file of an attempt that the address names, as read makes it.
func (s *Server) raw(kind string, read func(r *request, dir, name string) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, hr *http.Request) {
		r := &request{Request: hr, s: s, w: w}
		a, err := s.attempt(r)
		var b []byte
		if err == nil {
			b, err = read(r, a.dir, r.FormValue("name"))
		}
		if err != nil {
			http.Error(w, "the file is not shown: "+err.Error(), http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", kind)
		_, _ = w.Write(b)
	}
}

// picture decodes a picture and writes it again, so that a browser gets nothing but
// pixels.
func picture(r *request, dir, name string) ([]byte, error) {
	b, err := untrusted.Read(dir, name, maxPicture)
	if err != nil {
		return nil, err
	}
	return redraw(r, b)
}

// isCast reports whether a file is a recording of a terminal.
func isCast(name string) bool { return path.Ext(name) == ".cast" }

// cast reads the beginning of a recording of a terminal. The script of the page leaves
// out what the player would not understand.
func cast(_ *request, dir, name string) ([]byte, error) {
	if !isCast(name) {
		return nil, errors.New("it is not a recording of a terminal")
	}
	f, err := untrusted.Open(dir, name, maxFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxCast))
}

// bounded returns an error for a picture that is too large to decode.
func bounded(c *image.Config) error {
	if c.Width <= 0 || c.Height <= 0 || c.Width > maxPixels/c.Height {
		return fmt.Errorf("it has %d × %d pixels, at most %d are shown", c.Width, c.Height, maxPixels)
	}
	return nil
}

// redraw decodes a picture and returns it as PNG.
func redraw(r *request, b []byte) ([]byte, error) {
	c, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if err = bounded(&c); err != nil {
		return nil, err
	}
	select {
	case decoding <- struct{}{}:
		defer func() { <-decoding }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	i, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, i)
	return out.Bytes(), err
}

// filePage shows a file of an attempt: as a picture or a recording of a terminal, or a
// part of it as text.
func (s *Server) filePage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	name := r.FormValue("name")
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return fmt.Errorf("%w: %q is not a file of the attempt", errMissing, name)
	}
	data := map[string]any{"A": a, "File": name, "Picture": isPicture(name)}
	if isPicture(name) {
		data["Shot"] = shotOf(a.dir, name)
		return r.show("file", name, data)
	}
	at := r.number("at")
	text, size, next, err := chunk(a.dir, name, at)
	if err != nil {
		return err
	}
	if isCast(name) {
		data["Cast"] = true
		text = said(text)
	}
	data["Text"], data["Size"], data["At"], data["Next"], data["More"] = text, size, at, next, next < size && next > at
	return r.show("file", name, data)
}

// said returns what a terminal recording (asciicast) wrote, without its times.
func said(text string) string {
	var b strings.Builder
	for l := range strings.Lines(text) {
		var event []json.RawMessage
		var kind, out string
		if json.Unmarshal([]byte(l), &event) != nil || len(event) != 3 {
			continue
		}
		if json.Unmarshal(event[1], &kind) == nil && kind == "o" && json.Unmarshal(event[2], &out) == nil {
			b.WriteString(out)
		}
	}
	return plain(b.String())
}

// exchangesPage lists the requests to models, as they were recorded.
func (s *Server) exchangesPage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	lines, next, err := report.ReadPart(a.dir, record.ExchangesFile, r.number("at"), 50)
	if err != nil {
		return err
	}
	type exchange struct {
		gateway.Exchange

		Line      part
		Size      int64
		Long, Bad bool
	}
	var all []exchange
	for _, l := range lines {
		x := exchange{Line: partOf(string(l.Text), maxText), Size: l.Size, Long: l.Text == nil}
		x.Bad = !x.Long && json.Unmarshal(l.Text, &x.Exchange) != nil
		all = append(all, x)
	}
	return r.show("exchanges", "Requests to models", map[string]any{"A": a, "All": all, "Next": next, "More": len(lines) > 0})
}

// bodyPage shows a part of a body of an exchange.
func (s *Server) bodyPage(r *request) error {
	a, err := s.attempt(r)
	if err != nil {
		return err
	}
	b, err := recording.Fetch(filepath.Join(a.dir, record.ModelDir), r.FormValue("digest"))
	if err != nil {
		return errors.Join(errMissing, err)
	}
	var pretty bytes.Buffer
	if len(b) < 4<<20 && json.Indent(&pretty, b, "", "  ") == nil {
		b = pretty.Bytes()
	}
	at := min(r.number("at"), int64(len(b)))
	to := min(at+maxChunk, int64(len(b)))
	return r.show("body", "Body of a request", map[string]any{
		"A": a, "Digest": r.FormValue("digest"), "Text": plain(string(b[at:to])), "Size": int64(len(b)), "Next": to, "More": to < int64(len(b)),
	})
}
