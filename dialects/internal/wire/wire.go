// Package wire holds code that the dialects share: reading and restricting
// requests, and writing answers and events.
package wire

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/berth-eval/berth/plugins/dialect"
)

// Bearer returns the token of an Authorization header; empty if there is none.
func Bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// statuses are those of the gateway's own errors, in every dialect.
var statuses = map[dialect.FailureKind]int{
	dialect.BadToken: http.StatusUnauthorized, dialect.Over: http.StatusForbidden, dialect.BadRequest: http.StatusBadRequest,
	dialect.NotServed: http.StatusNotFound, dialect.Spent: http.StatusForbidden, dialect.Overloaded: http.StatusTooManyRequests,
	dialect.Unreachable: http.StatusBadGateway,
}

// Status returns the status of an error.
func Status(f dialect.Failure) int { return statuses[f.Kind] }

// Failed makes the answer to an error. It tells clients not to retry what cannot work.
func Failed(f dialect.Failure, body any) dialect.Response {
	h := http.Header{"Content-Type": {"application/json"}}
	if f.Retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(math.Ceil(f.Retry.Seconds())), 10))
	}
	if f.Kind != dialect.Overloaded && f.Kind != dialect.Unreachable {
		h.Set("X-Should-Retry", "false") // the libraries of the providers obey it
	}
	return dialect.Response{Status: Status(f), Header: h, Body: dialect.JSON(body)}
}

// Set returns a set of names.
func Set(names ...string) map[string]bool {
	m := map[string]bool{}
	for _, n := range names {
		m[n] = true
	}
	return m
}

// DropTools removes the tools for which drop is true, and the choice of a tool
// if it can no longer be satisfied.
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

// Edit sets the model of a request, and merges the parameters over it if they apply.
func Edit(body *dialect.Object, e dialect.Edit, apply bool) error {
	if e.Model != "" {
		body.SetString("model", e.Model)
	}
	if len(e.Parameters) == 0 || !apply {
		return nil
	}
	return body.Merge(e.Parameters)
}

// SetBearer makes key the only key of a request; an empty key removes all.
func SetBearer(r *http.Request, key string) {
	r.Header.Del("Authorization")
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
}

// SSE makes an event with a name, or without one if name is empty.
func SSE(name string, v any) []byte {
	b := append([]byte("data: "), dialect.JSON(v)...)
	if name != "" {
		b = append([]byte("event: "+name+"\n"), b...)
	}
	return append(b, '\n', '\n')
}

// TypeOf returns the member `type` of a tool, in exactly this spelling: a more
// tolerant reader would also accept "TYPE", and see another tool than the
// provider does. A duplicate or non-string type becomes an unknown type.
func TypeOf(raw json.RawMessage) string {
	kind, times := "", 0
	dialect.Fields(raw, func(name string, v json.RawMessage) {
		if name != "type" || !Given(v) {
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
