package webui

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
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

// scanner splits Python into statements. It knows no more of the language than
// what a list of actions may have.
type scanner struct {
	text string
	at   int
	line int
	deep int // open brackets
	all  []statement
	now  statement
}

const maxDeep = 100

// scanPython returns the statements of a text, or the line of what cannot be read.
func scanPython(text string) (all []statement, line int, err error) {
	s := &scanner{text: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n"), line: 1}
	s.begin()
	for s.at < len(s.text) && err == nil {
		err = s.next()
	}
	if err == nil && s.deep > 0 {
		err = fmt.Errorf("a bracket is not closed")
	}
	s.end()
	return s.all, s.line, err
}

// begin measures the indentation of a line.
func (s *scanner) begin() {
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case ' ':
			s.now.indent++
		case '\t':
			s.now.indent += 8 - s.now.indent%8
		default:
			return
		}
	}
}

func (s *scanner) end() {
	if len(s.now.tokens) > 0 {
		s.all = append(s.all, s.now)
	}
	s.now = statement{}
}

func (s *scanner) add(k kind, text string) {
	s.now.tokens = append(s.now.tokens, token{k, text, s.line})
}

func (s *scanner) next() error {
	c := s.text[s.at]
	rest := s.text[s.at:]
	switch {
	case c == '\n':
		s.at++
		if s.deep == 0 {
			s.end()
			s.line++
			s.begin()
			return nil
		}
		s.line++
	case c == ' ' || c == '\t' || c == '\f':
		s.at++
	case strings.HasPrefix(rest, "\\\n"):
		s.at += 2
		s.line++
	case c == '#':
		n := strings.IndexByte(rest, '\n')
		if n < 0 {
			n = len(rest)
		}
		s.at += n
	case c == '\'' || c == '"':
		return s.quoted("")
	case c >= '0' && c <= '9' || c == '.' && len(rest) > 1 && rest[1] >= '0' && rest[1] <= '9':
		n := 1
		for n < len(rest) && (rest[n] == '.' || rest[n] == '_' || rest[n] >= '0' && rest[n] <= '9' || rest[n] >= 'a' && rest[n] <= 'z') {
			n++
		}
		s.add(kindNumber, rest[:n])
		s.at += n
	default:
		return s.word(rest)
	}
	return nil
}

// word reads a name, a string with a prefix, or a sign.
func (s *scanner) word(rest string) error {
	r, size := utf8.DecodeRuneInString(rest)
	if r != '_' && !unicode.IsLetter(r) {
		switch r {
		case '(', '[', '{':
			if s.deep++; s.deep > maxDeep {
				return fmt.Errorf("more than %d brackets are open", maxDeep)
			}
		case ')', ']', '}':
			s.deep = max(0, s.deep-1)
		}
		s.add(kindSign, rest[:size])
		s.at += size
		return nil
	}
	n := 0
	for n < len(rest) {
		r, size = utf8.DecodeRuneInString(rest[n:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		n += size
	}
	s.at += n
	if s.at < len(s.text) && (s.text[s.at] == '\'' || s.text[s.at] == '"') && n <= 2 {
		return s.quoted(strings.ToLower(rest[:n]))
	}
	s.add(kindName, rest[:n])
	return nil
}

// quoted reads a string.
func (s *scanner) quoted(prefix string) error {
	quote := s.text[s.at : s.at+1]
	if strings.HasPrefix(s.text[s.at:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	from := s.at + len(quote)
	begin := s.line
	for i := from; i < len(s.text); i++ {
		switch {
		case s.text[i] == '\\' && i+1 < len(s.text):
			if s.text[i+1] == '\n' {
				s.line++
			}
			i++
		case s.text[i] == '\n' && len(quote) == 1:
			return fmt.Errorf("a string is not closed")
		case s.text[i] == '\n':
			s.line++
		case strings.HasPrefix(s.text[i:], quote):
			t := token{kindString, s.text[from:i], begin}
			s.at = i + len(quote)
			switch prefix {
			case "", "u":
				var ok bool
				if t.text, ok = unescape(t.text); !ok {
					t.kind = kindOther
				}
			case "r":
			default: // f"…" has code in it, b"…" is not text
				t.kind = kindOther
			}
			s.now.tokens = append(s.now.tokens, t)
			return nil
		}
	}
	s.line = begin
	return fmt.Errorf("a string is not closed")
}

// unescape returns the value of a string. Escapes that Python does not know stay.
func unescape(text string) (string, bool) {
	var out strings.Builder
	simple := map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': `"`, '\n': "", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v"}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		length := map[byte]int{'x': 2, 'u': 4, 'U': 8}[text[i]]
		if short, ok := simple[text[i]]; ok {
			out.WriteString(short)
		} else if length > 0 {
			if i+length >= len(text) {
				return "", false
			}
			n, err := strconv.ParseUint(text[i+1:i+1+length], 16, 32)
			if err != nil || n > unicode.MaxRune {
				return "", false
			}
			out.WriteRune(rune(n))
			i += length
		} else if text[i] >= '0' && text[i] <= '7' || text[i] == 'N' {
			return "", false
		} else {
			out.WriteByte('\\')
			out.WriteByte(text[i])
		}
	}
	return out.String(), true
}
