package cell

import (
	"bytes"
	"encoding/json"
)

// JSON is v as JSON with sorted keys of maps, no spaces, and "<", ">" and "&" as they
// are; nil if v has no JSON. Raw parts stay as they are, so they must be canonical.
func JSON(v any) json.RawMessage {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return nil
	}
	return bytes.TrimSpace(b.Bytes())
}

// Canonical is v in the one form of JSON in which identities are stored, compared and
// hashed: that of [JSON], also in its raw parts, with numbers as they were written.
// Any other way to write the same gets this form.
func Canonical(v any) json.RawMessage {
	var tree any
	d := json.NewDecoder(bytes.NewReader(JSON(v)))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return nil
	}
	return JSON(tree)
}
