package main

import (
	"encoding/json"
	"testing"
)

// Whatever an application returns as its state, what is recorded of it is JSON.
func FuzzState(f *testing.F) {
	f.Add(`{"a":1}`)
	f.Fuzz(func(t *testing.T, text string) {
		if b, err := join(state{}, text); err == nil && !json.Valid(b) {
			t.Errorf("%q became %q", text, b)
		}
	})
}
