// Package wire holds what the folders of the dialects share: how requests are
// read and restricted, and how answers and events are written.
package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-eval/berth/core/gateway/dialect"
)

// Bearer is the token of an Authorization header; empty: there is none.
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Answer is a whole answer in JSON. One that is final says so to the clients
// that look for it.
func Answer(status int, retry time.Duration, body any, final bool) dialect.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(retry.Seconds())), 10))
	}
	if final {
		h.Set("X-Should-Retry", "false") // the vendors' libraries obey it
	}
	return dialect.Response{Status: status, Header: h, Body: dialect.JSON(body)}
}

// inlineKeys are the members in which the dialects carry files in base64.
var inlineKeys = [][]byte{[]byte(`"data"`), []byte(`"url"`), []byte(`"image_url"`), []byte(`"file_data"`)}

// minInline is how long a string must be to count as a file, in bytes.
const minInline = 1024

// Inline says how many bytes of raw are files in base64, and how many files
// there are.
func Inline(raw []byte) (size, count int64) {
	for _, key := range inlineKeys {
		rest := raw
		for {
			i := bytes.Index(rest, key)
			if i < 0 {
				break
			}
			rest = bytes.TrimLeft(rest[i+len(key):], ": \t\r\n")
			if len(rest) == 0 || rest[0] != '"' {
				continue
			}
			rest = rest[1:]
			j := bytes.IndexByte(rest, '"')
			if j < 0 {
				break
			}
			if j >= minInline && bytes.IndexByte(rest[:j], ' ') < 0 {
				size += int64(j)
				count++
			}
			rest = rest[j:]
		}
	}
	return size, count
}

// DropTools removes the tools for which drop is true, and the choice of a tool
// when it can no longer be met.
func DropTools(body *dialect.Object, drop func(json.RawMessage) bool) {
	kept, dropped := 0, 0
	left := Map(body.Get("tools"), func(t json.RawMessage) json.RawMessage {
		if drop(t) {
			dropped++
			return nil
		}
		kept++
		return t
	})
	switch {
	case dropped == 0:
	case kept == 0:
		body.Delete("tools")
		body.Delete("tool_choice")
	default:
		body.Set("tools", left)
	}
}

// Overlay is a JSON object with the members of another over its own. Without
// one of them it is the other.
func Overlay(under, over json.RawMessage) json.RawMessage {
	if under == nil {
		return bytes.Clone(over)
	}
	o, err := dialect.ParseObject(under)
	if err != nil {
		return bytes.Clone(over)
	}
	p, err := dialect.ParseObject(over)
	if err != nil {
		return under
	}
	for _, n := range p.Names() {
		o.Set(n, p.Get(n))
	}
	return o.Bytes()
}

// SetBearer makes key the only key of a request; empty leaves none.
func SetBearer(r *http.Request, key string) {
	r.Header.Del("Authorization")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
}

// Garbage says whether the data of an event is not what a dialect sends: JSON,
// nothing, or the mark at the end.
func Garbage(data []byte) bool {
	return len(data) > 0 && !bytes.Equal(data, []byte("[DONE]")) && !json.Valid(data)
}

// SSE is an event with a name, or without one when name is empty.
func SSE(name string, v any) []byte {
	b := append([]byte("data: "), dialect.JSON(v)...)
	if name != "" {
		b = append([]byte("event: "+name+"\n"), b...)
	}
	return append(b, '\n', '\n')
}

// TypeOf is the member `type` of a tool, spelled like this: a reader that is
// less strict would take "TYPE" for it, too, and see another tool than the
// provider does. What is there twice, or is no text, is a type that nobody knows.
func TypeOf(raw json.RawMessage) string {
	kind, times := "", 0
	dialect.Fields(raw, func(name string, v json.RawMessage) {
		if name != "type" || !given(v) {
			return
		}
		var s string
		if times++; times > 1 || json.Unmarshal(v, &s) != nil {
			s = "type " + string(v[:min(len(v), maxName)])
		}
		kind += s
	})
	return kind
}
