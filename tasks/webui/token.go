package webui

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// kind is the kind of a token.
type kind int

const (
	kindName kind = iota
	kindNumber
	kindString
	kindSign
	kindOther // something that no form has, such as a text with a prefix
)

// token is a word of a line of Python. The text of a string is its value.
type token struct {
	kind kind
	text string
	line int
}

// statement is a logical line: brackets and backslashes join several.
type statement struct {
	indent int // columns
	tokens []token
}

const maxDeep = 100 // open brackets

// lexeme matches what comes next in Python: nothing that counts, a string with its
// prefix, the beginning of a string that is not closed, a number, a name or a sign. It
// knows no more of the language than what a list of actions may have.
var lexeme = regexp.MustCompile(`(?s)^(?:` +
	`([ \t\f]+|\\\n|#[^\n]*)|` +
	`(\pL{0,2})("""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|` +
	`(\pL{0,2}["'])|` +
	`(\.?[0-9][0-9a-z_.]*)|` +
	`([\pL_][\pL\pN_]*)|` +
	`(.))`)

// scanPython returns the statements of a text, or the line of what cannot be read.
func scanPython(text string) (all []statement, line int, err error) {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n")
	now, deep := statement{indent: indent(text)}, 0
	line = 1
	for text != "" {
		m := lexeme.FindStringSubmatch(text)
		text = text[len(m[0]):]
		t := token{text: m[0], line: line}
		line += strings.Count(m[0], "\n")
		switch {
		case m[0] == "\n" && deep == 0:
			if len(now.tokens) > 0 {
				all = append(all, now)
			}
			now = statement{indent: indent(text)}
			continue
		case m[0] == "\n", m[1] != "":
			continue
		case m[4] != "", len(m[3]) == 2 && strings.HasPrefix(text, m[3][:1]): // the latter begins a long string
			return all, t.line, errors.New("a string is not closed")
		case m[3] != "":
			t.kind, t.text = literal(strings.ToLower(m[2]), m[3])
		case m[5] != "":
			t.kind = kindNumber
		case m[6] != "":
			t.kind = kindName
		default:
			t.kind = kindSign
			switch t.text {
			case "(", "[", "{":
				if deep++; deep > maxDeep {
					return all, line, fmt.Errorf("more than %d brackets are open", maxDeep)
				}
			case ")", "]", "}":
				deep = max(0, deep-1)
			}
		}
		now.tokens = append(now.tokens, t)
	}
	if len(now.tokens) > 0 {
		all = append(all, now)
	}
	if deep > 0 {
		err = errors.New("a bracket is not closed")
	}
	return all, line, err
}

// indent returns how many columns a line is indented by.
func indent(line string) (columns int) {
	for i := range len(line) {
		switch line[i] {
		case ' ':
			columns++
		case '\t':
			columns += 8 - columns%8
		default:
			return columns
		}
	}
	return columns
}

// literal returns the value of a string with its quotes. f"…" has code in it, and b"…"
// is not text.
func literal(prefix, quoted string) (kind, string) {
	n := 1
	if len(quoted) >= 6 && quoted[1] == quoted[0] {
		n = 3
	}
	text, ok := quoted[n:len(quoted)-n], prefix == "r"
	if prefix == "" || prefix == "u" {
		var plain string
		if plain, ok = unescape(text); ok {
			text = plain
		}
	}
	if !ok {
		return kindOther, text
	}
	return kindString, text
}

// unescape returns the value of a string. Escapes that Python does not know stay.
func unescape(text string) (string, bool) {
	var out strings.Builder
	for text != "" {
		first, rest := text[:1], text[1:]
		switch {
		case first != `\` || rest == "":
			out.WriteString(first)
		case rest[0] == '\'' || rest[0] == '"':
			out.WriteByte(rest[0])
			rest = rest[1:]
		case rest[0] == '\n': // the line continues
			rest = rest[1:]
		default:
			r, _, tail, err := strconv.UnquoteChar(text, 0)
			switch {
			case strings.ContainsRune("01234567N", rune(rest[0])), err != nil && strings.ContainsRune("xuU", rune(rest[0])):
				return "", false
			case err != nil:
				out.WriteString(first)
			default:
				out.WriteRune(r)
				rest = tail
			}
		}
		text = rest
	}
	return out.String(), true
}
