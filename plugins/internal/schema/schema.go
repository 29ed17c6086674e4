// Package schema checks JSON against a JSON Schema that others wrote.
//
// It loads nothing that a schema refers to.
package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const maxSchema = 256 << 10 // bytes of a schema

// Schema is a compiled schema. Safe for concurrent use.
type Schema struct{ s *jsonschema.Schema }

// Compile reads a schema of at most 256 KiB.
func Compile(raw json.RawMessage) (*Schema, error) {
	const name = "file:///schema.json"
	if len(raw) > maxSchema {
		return nil, fmt.Errorf("it has %d bytes, at most %d are allowed", len(raw), maxSchema)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	if err = c.AddResource(name, doc); err != nil {
		return nil, err
	}
	s, err := c.Compile(name)
	if err != nil {
		return nil, err
	}
	return &Schema{s}, nil
}

// Check returns what of a text is not one JSON value, or not as the schema says.
func (s *Schema) Check(text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("it is not one JSON value: %w", err)
	}
	if err := s.s.Validate(v); err != nil {
		_, what, _ := strings.Cut(err.Error(), "\n") // the first line names the schema
		return errors.New(what)
	}
	return nil
}

// nothing is a loader that refuses every address.
type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %q: write that schema into it, under $defs", url)
}
