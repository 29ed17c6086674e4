package chat

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/berth-eval/berth/plugins/number"
)

const (
	maxJSON   = 4 << 20 // bytes of a reply that is read as JSON
	maxStarts = 100     // braces at which an object may begin
)

// find takes the JSON that matches the schema out of a text: the text itself, or
// the one object in it, whatever stands around it. An object that is part of given
// is a quotation if other text stands around it. Where two different objects match,
// none is meant.
func (s *schema) find(text, given string) (json.RawMessage, error) {
	if s.check.Check([]byte(text)) == nil {
		return json.RawMessage(text), nil
	}
	var found json.RawMessage
	wrong := errors.New("it contains no JSON object")
	rest := text
	for range maxStarts {
		start := strings.IndexByte(rest, '{')
		if start < 0 {
			break
		}
		rest = rest[start:]
		raw, n := Mended(rest)
		if n == 0 {
			if found == nil {
				wrong = errors.New("its JSON object does not end")
			}
			break // what stands in it is only a part of it
		}
		if !json.Valid(raw) {
			rest = rest[1:]
			continue
		}
		written := rest[:n]
		rest = rest[n:]
		if len(written) < len(text) && strings.Contains(given, written) && !isFenced(text) {
			wrong = errors.New("its only JSON object is one that it was given")
			continue
		}
		fitted, err := s.fitted(raw)
		switch {
		case err != nil:
			wrong = err
		case found != nil && !bytes.Equal(found, fitted):
			return nil, errors.New("it contains two different JSON objects that match")
		default:
			found = fitted
		}
	}
	if found == nil {
		return nil, wrong
	}
	return found, nil
}

// isFenced reports whether a text is one block of code.
func isFenced(text string) bool {
	return strings.HasPrefix(text, "```") && strings.HasSuffix(text, "```") && strings.Count(text, "```") == 2
}

// Mended returns the object with which a text begins, as JSON, and its length in
// the text. The length is 0 if the object does not end. Of what models write,
// it mends what has one meaning: line breaks in strings, a backslash that escapes
// nothing, a comma after the last element, and Python's constants.
func Mended(text string) (raw []byte, n int) {
	var out bytes.Buffer
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted && c == '\\' && i+1 < len(text):
			out.WriteByte('\\')
			if strings.IndexByte(`"\/bfnrtu`, text[i+1]) < 0 {
				out.WriteByte('\\')
			} else {
				i++
				out.WriteByte(text[i])
			}
		case quoted && c < ' ':
			fmt.Fprintf(&out, `\u%04x`, c)
		case c == '"':
			quoted = !quoted
			out.WriteByte(c)
		case quoted:
			out.WriteByte(c)
		case c == '{' || c == '[':
			depth++
			out.WriteByte(c)
		case c == '}' || c == ']':
			depth--
			last := bytes.TrimRightFunc(out.Bytes(), unicode.IsSpace)
			out.Truncate(len(bytes.TrimSuffix(last, []byte(","))))
			out.WriteByte(c)
			if depth == 0 {
				return out.Bytes(), i + 1
			}
		case c >= 'A' && c <= 'Z':
			word := text[i : i+len(letters.FindString(text[i:]))]
			out.WriteString(python.Replace(word))
			i += len(word) - 1
		default:
			out.WriteByte(c)
		}
	}
	return nil, 0
}

var (
	letters = regexp.MustCompile(`^[A-Za-z]+`)
	python  = strings.NewReplacer("True", "true", "False", "false", "None", "null")
)

// fitted returns an object with what has the wrong form for the schema, but one
// meaning, in the right form: a number or a truth value that is quoted, a word in
// other letters, an empty list that is left out, a member that is not in the schema. It
// fails if the object does not match then either.
func (s *schema) fitted(raw json.RawMessage) (json.RawMessage, error) {
	if s.check.Check(raw) == nil {
		return raw, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var value any
	var want form
	if err := errors.Join(d.Decode(&value), json.Unmarshal(s.raw, &want)); err != nil {
		return nil, err
	}
	out, err := json.Marshal(want.fit(value))
	if err != nil {
		return nil, err
	}
	return out, s.check.Check(out)
}

// form is what fit knows of a schema.
type form struct {
	Type       any
	Enum       []any
	Properties map[string]form
	Required   []string
	Additional *bool `json:"additionalProperties"`
	Items      *form
}

func (f form) fit(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, of := range f.Properties {
			if member, ok := v[name]; ok {
				v[name] = of.fit(member)
			} else if of.Type == "array" && slices.Contains(f.Required, name) {
				v[name] = []any{}
			}
		}
		if f.Additional != nil && !*f.Additional {
			maps.DeleteFunc(v, func(name string, _ any) bool { _, ok := f.Properties[name]; return !ok })
		}
	case []any:
		if f.Items != nil {
			for i := range v {
				v[i] = f.Items.fit(v[i])
			}
		}
	case string:
		return f.word(v)
	}
	return value
}

// word returns what a string means where the schema wants no string, or one of a few.
func (f form) word(v string) any {
	text := strings.TrimSpace(v)
	switch f.Type {
	case "number", "integer":
		if n, ok := number.Read(text); ok && json.Valid([]byte(text)) {
			return json.Number(text)
		} else if ok {
			return json.Number(strconv.FormatFloat(n, 'g', -1, 64))
		}
	case "boolean":
		if b, err := strconv.ParseBool(strings.ToLower(text)); err == nil && len(text) > 1 {
			return b
		}
	}
	for _, e := range f.Enum {
		if one, ok := e.(string); ok && strings.EqualFold(one, text) {
			return one
		}
	}
	return v
}
