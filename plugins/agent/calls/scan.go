package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/berth-eval/berth/plugins/number"
)

// scanner reads calls as Python writes them: calls separated by white space, and
// comments from # to the end of the line. Arguments are literals: texts, numbers,
// True, False, None, lists, tuples and dicts, positional ones before named ones.
type scanner struct {
	text string
	at   int // byte
}

func (s *scanner) calls() ([]Call, error) {
	var all []Call
	for s.space(); s.at < len(s.text); s.space() {
		c, err := s.call()
		if err != nil {
			return nil, err
		}
		if all = append(all, c); len(all) > MaxCalls {
			return nil, tooMany()
		}
	}
	if len(all) == 0 {
		return nil, ErrNone
	}
	return all, nil
}

func (s *scanner) call() (Call, error) {
	c := Call{Name: s.name()}
	if c.Name == "" || !s.take('(') {
		return c, s.wrong("want a call such as click('12')")
	}
	for s.space(); !s.take(')'); s.space() {
		if err := s.argument(&c); err != nil {
			return c, err
		}
		s.space()
		if !s.take(',') && s.peek() != ')' {
			return c, s.wrong("want , or ) after an argument of " + c.Name)
		}
	}
	return c, nil
}

// argument reads a value, or name=value.
func (s *scanner) argument(c *Call) error {
	begin := s.at
	name := s.name()
	s.space()
	if name != "" && s.peek() == '=' {
		s.at++
		s.space()
		v, err := s.value(0)
		if err == nil {
			c.Named = append(c.Named, Named{Name: name, Value: v})
		}
		return err
	}
	s.at = begin
	if len(c.Named) > 0 {
		return s.wrong("an argument without a name comes after one with a name")
	}
	v, err := s.value(0)
	if err == nil {
		c.Positional = append(c.Positional, v)
	}
	return err
}

// value reads a literal and returns it as JSON. Tuples are lists.
func (s *scanner) value(depth int) (json.RawMessage, error) {
	if depth > maxDepth {
		return nil, s.wrong(fmt.Sprintf("lists and dicts are nested deeper than %d", maxDepth))
	}
	c := s.peek()
	switch {
	case c == '[':
		return s.list(']', depth)
	case c == '(':
		return s.list(')', depth)
	case c == '{':
		return s.dict(depth)
	case c == '\'' || c == '"':
		text, err := s.quoted()
		if err != nil {
			return nil, err
		}
		return json.Marshal(text)
	case c == '-' || c == '+' || c == '.' || c >= '0' && c <= '9':
		return s.number()
	}
	begin := s.at
	name := s.name()
	if v, ok := map[string]string{"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}[name]; ok {
		return json.RawMessage(v), nil
	}
	s.at = begin
	return nil, s.wrong("want a text in quotes, a number, True, False, None, a list or a dict")
}

func (s *scanner) list(end byte, depth int) (json.RawMessage, error) {
	all := []json.RawMessage{}
	s.at++
	for s.space(); !s.take(end); s.space() {
		v, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
		s.space()
		comma := s.take(',')
		if !comma && s.peek() != end {
			return nil, s.wrong(fmt.Sprintf("want , or %c in a list", end))
		}
		if end == ')' && !comma && len(all) == 1 { // (x) is x
			s.at++
			return v, nil
		}
	}
	return json.Marshal(all)
}

func (s *scanner) dict(depth int) (json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	s.at++
	for s.space(); !s.take('}'); s.space() {
		key, err := s.value(depth + 1)
		if err != nil {
			return nil, err
		}
		name := string(key) // of a number, as JSON has it
		switch key[0] {
		case '"':
			name = unquoted(key)
		case '[', '{':
			return nil, s.wrong("the key of a dict is a list or a dict")
		}
		if s.space(); !s.take(':') {
			return nil, s.wrong("want : after the key of a dict")
		}
		s.space()
		if all[name], err = s.value(depth + 1); err != nil {
			return nil, err
		}
		s.space()
		if !s.take(',') && s.peek() != '}' {
			return nil, s.wrong("want , or } in a dict")
		}
	}
	return json.Marshal(all)
}

func (s *scanner) number() (json.RawMessage, error) {
	begin := s.at
	for s.at < len(s.text) && strings.IndexByte("+-.0123456789eE", s.text[s.at]) >= 0 {
		s.at++
	}
	word := s.text[begin:s.at]
	f, ok := number.Decimal(word)
	if !ok {
		s.at = begin
		return nil, s.wrong(fmt.Sprintf("%q is not a number that can be sent", shorten(word)))
	}
	if i, err := strconv.ParseInt(strings.TrimPrefix(word, "+"), 10, 64); err == nil {
		return json.Marshal(i)
	}
	return json.Marshal(f)
}

// quoted reads a text in one or three quotes.
func (s *scanner) quoted() (string, error) {
	begin, mark := s.at, s.text[s.at:s.at+1]
	if triple := strings.Repeat(mark, 3); strings.HasPrefix(s.text[s.at:], triple) {
		mark = triple
	}
	var b strings.Builder
	for s.at += len(mark); s.at < len(s.text); {
		switch c := s.text[s.at]; {
		case strings.HasPrefix(s.text[s.at:], mark):
			s.at += len(mark)
			return b.String(), nil
		case c == '\n' && len(mark) == 1:
			s.at = begin
			return "", s.wrong("a text in quotes ends at the end of the line: write \\n, or use three quotes")
		case c == '\\' && s.at+1 < len(s.text):
			if err := s.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			s.at++
		}
	}
	s.at = begin
	return "", s.wrong("a text in quotes has no end")
}

// simple are the escapes of one letter.
var simple = map[byte]string{
	'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': "",
}

// escape reads a backslash and what follows it. Python keeps an unknown escape as
// it is.
func (s *scanner) escape(b *strings.Builder) error {
	c := s.text[s.at+1]
	if text, ok := simple[c]; ok {
		b.WriteString(text)
		s.at += 2
		return nil
	}
	if digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]; digits > 0 {
		end := s.at + 2 + digits
		if end > len(s.text) {
			return s.wrong("an escape in a text is cut off")
		}
		n, err := strconv.ParseUint(s.text[s.at+2:end], 16, 32)
		if err != nil || n > utf8.MaxRune {
			return s.wrong(fmt.Sprintf("%q is not an escape", s.text[s.at:end]))
		}
		b.WriteRune(rune(n))
		s.at = end
		return nil
	}
	b.WriteByte('\\')
	s.at++
	return nil
}

// space skips white space and comments.
func (s *scanner) space() {
	for s.at < len(s.text) {
		r, n := utf8.DecodeRuneInString(s.text[s.at:])
		switch {
		case unicode.IsSpace(r):
			s.at += n
		case r == '#':
			end := strings.IndexByte(s.text[s.at:], '\n')
			if end < 0 {
				end = len(s.text) - s.at
			}
			s.at += end
		default:
			return
		}
	}
}

func (s *scanner) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *scanner) take(c byte) bool {
	if s.at < len(s.text) && s.text[s.at] == c {
		s.at++
		return true
	}
	return false
}

func (s *scanner) name() string {
	begin := s.at
	for s.at < len(s.text) && nameByte(s.text[s.at], s.at > begin) {
		s.at++
	}
	return s.text[begin:s.at]
}

func nameByte(c byte, later bool) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || later && c >= '0' && c <= '9'
}

func isName(s string) bool {
	n := scanner{text: s}
	return s != "" && n.name() == s
}

// wrong returns an error at the current position.
func (s *scanner) wrong(what string) error {
	if s.at >= len(s.text) {
		return errors.New(what + ", and the reply ends")
	}
	line := 1 + strings.Count(s.text[:s.at], "\n")
	return fmt.Errorf("line %d, at %q: %s", line, shorten(s.text[s.at:]), what)
}
