package document

import (
	"regexp"
	"strings"
)

// Bounds of the search for JSON in a text.
const (
	maxFences  = 50 // code blocks, and ends of one that are tried
	maxObjects = 50 // objects that are closed and are not JSON
)

// FromAnswer returns the JSON in what an agent wrote: an object, or a list that
// can be merged into one. It takes the first of these that there is: a code block
// marked as json, the text of a call send_msg_to_user("…"), the whole text, any
// code block, an object between other text.
func FromAnswer(text string) (Object, bool) {
	if o, ok := fenced(text, true); ok {
		return o, true
	}
	if sent, ok := Sent(text); ok {
		if o, ok := fenced(sent, true); ok {
			return o, true
		}
		if o, ok := plain(sent); ok {
			return o, true
		}
	}
	return plain(text)
}

// FromFile returns the JSON in a file: the whole file, also if it is a JSON text
// that holds JSON, or else what FromAnswer finds in it. A file is first read as a
// whole, because the texts in an export may hold anything.
func FromFile(text string) (any, bool) {
	v, err := Parse(text)
	if err != nil {
		return FromAnswer(text)
	}
	inner, ok := v.(string)
	if !ok {
		return v, true
	}
	if v, err = Parse(inner); err == nil {
		return v, true
	}
	return FromAnswer(inner)
}

// plain takes JSON from a text without looking at its meaning.
func plain(text string) (Object, bool) {
	if o, ok := object(text); ok {
		return o, true
	}
	if o, ok := fenced(text, false); ok {
		return o, true
	}
	at := 0
	for range maxObjects {
		start := strings.IndexByte(text[at:], '{')
		if start < 0 {
			break
		}
		at += start
		end := balanced(text[at:])
		if end < 0 {
			at++ // it is never closed, but an object inside it may be
			continue
		}
		if o, ok := object(text[at : at+end]); ok {
			return o, true
		}
		at += end
	}
	return nil, false
}

// object reads a text that is an object, or a list that can be merged into one.
func object(text string) (Object, bool) {
	v, err := Parse(text)
	if err != nil {
		return nil, false
	}
	o, ok := Merged(v).(Object)
	return o, ok
}

// balanced returns the length of the object that s begins with, or -1 if it is
// never closed. Braces in strings do not count.
func balanced(s string) int {
	depth, inside := 0, false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case inside && c == '\\':
			i++
		case c == '"':
			inside = !inside
		case inside:
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

const fence = "```"

var (
	info     = regexp.MustCompile(`^[ \t]*([A-Za-z0-9_+-]*)[ \t]*(?:\r?\n|$)?`)
	sendCall = regexp.MustCompile(`send_msg_to_user\(\s*(?:text\s*=\s*)?("""|'''|"|')`)
)

// fenced returns the JSON of the first code block that is JSON. With marked, only
// blocks marked as json count. A block may hold further fences in its strings, so
// several ends are tried.
func fenced(text string, marked bool) (Object, bool) {
	rest := text
	for range maxFences {
		start := strings.Index(rest, fence)
		if start < 0 {
			break
		}
		rest = rest[start+len(fence):]
		m := info.FindStringSubmatchIndex(rest)
		language := rest[m[2]:m[3]]
		body := rest[m[1]:]
		if marked && !strings.EqualFold(language, "json") {
			continue
		}
		for end, tries := 0, 0; tries < 5; tries++ {
			next := strings.Index(body[end:], fence)
			if next < 0 {
				break
			}
			if o, ok := object(body[:end+next]); ok {
				return o, true
			}
			end += next + len(fence)
		}
	}
	return nil, false
}

// Sent returns the text of the first call send_msg_to_user("…") in a text,
// with its escapes decoded as Python does.
func Sent(text string) (string, bool) {
	m := sendCall.FindStringSubmatchIndex(text)
	if m == nil {
		return "", false
	}
	quote, s := text[m[2]:m[3]], text[m[1]:]
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case strings.HasPrefix(s[i:], quote):
			return out.String(), true
		case s[i] != '\\' || i+1 == len(s):
			out.WriteByte(s[i])
		default:
			i++
			out.WriteString(escape(s[i]))
		}
	}
	return out.String(), true // the end is missing: the object in it may still be whole
}

// escape returns what a backslash and c stand for. An escape that is not known
// here, such as that of a code point, is left to JSON.
func escape(c byte) string {
	switch c {
	case 'n':
		return "\n"
	case 't':
		return "\t"
	case 'r':
		return "\r"
	case '\\', '\'', '"':
		return string(c)
	case '\n':
		return ""
	}
	return `\` + string(c)
}
