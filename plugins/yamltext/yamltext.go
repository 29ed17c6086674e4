// Package yamltext checks YAML from untrusted sources before a parser reads it.
//
// It must not parse the text; that is left to the parser.
package yamltext

import (
	"fmt"

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
