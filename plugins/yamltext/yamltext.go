// Package yamltext reads YAML from untrusted sources: it checks the text before a
// parser reads it, and guards against the parser.
//
// It must not know what the text is about.
package yamltext

import (
	"bytes"
	"fmt"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// MaxDepth is how deep a text may nest. The memory that a parser uses grows
// with the square of the depth: 200 KiB of brackets took 15 GB.
const MaxDepth = 200

// Check returns an error with the line where text nests deeper than MaxDepth,
// by brackets or by dashes on one line. Nesting by indentation is limited by
// the text's size, which the caller limits.
func Check(text []byte) error {
	open, dashes, line := 0, 0, 0
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
		}
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			open++
		case token.SequenceEndType, token.MappingEndType:
			open = max(0, open-1)
		case token.SequenceEntryType:
			dashes++
		default:
		}
		if open > MaxDepth || dashes > MaxDepth {
			return fmt.Errorf("line %d: nested too deeply: at most %d levels", line, MaxDepth)
		}
	}
	return nil
}

// Unmarshal checks text, leaves out a byte order mark, and decodes it into the value that into points to, as the
// library does; strict refuses members that the value does not have. A panic of the
// library, which some broken texts cause, is an error.
func Unmarshal(text []byte, strict bool, into any) (err error) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if err = Check(text); err != nil {
		return err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the text is not YAML that can be read: %v", p)
		}
	}()
	if strict {
		return yaml.UnmarshalWithOptions(text, into, yaml.Strict())
	}
	return yaml.Unmarshal(text, into)
}
