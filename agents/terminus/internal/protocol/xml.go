package protocol

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseXML reads a reply in tags. It is not strict XML: text between tags is
// taken literally, so that keystrokes need no escapes.
func parseXML(text string) (Reply, error) {
	var r Reply
	body, before, after, ok := r.tag(text, "response", true)
	if !ok {
		if !strings.Contains(text, "<commands") && !strings.Contains(text, "<task_complete") {
			return r, errors.New("there is no <response> in the reply")
		}
		r.warn("the <response> tags are missing")
		body = text
	}
	if strings.TrimSpace(before) != "" {
		r.warn("there is text before <response>, which was ignored")
	}
	if strings.TrimSpace(after) != "" {
		r.warn("there is text after </response>, which was ignored")
	}
	commands, head, tail, has := r.tag(body, "commands", true)
	rest := body
	if has {
		rest = head + tail // keystrokes must not be taken for tags
	}
	for _, f := range []struct {
		name string
		to   *string
	}{{"analysis", &r.Analysis}, {"plan", &r.Plan}} {
		inner, _, _, ok := r.tag(rest, f.name, true)
		if !ok {
			r.warn("<%s> is missing", f.name)
		}
		*f.to = strings.TrimSpace(r.plain(inner))
	}
	if done, _, _, ok := r.tag(rest, "task_complete", true); ok {
		r.Complete = r.yes(r.plain(done))
	}
	r.unknown(rest)
	if !has {
		if r.Complete {
			return r, nil
		}
		return r, errors.New("<commands> is missing: it holds <keystrokes duration=\"…\"> elements, and may be empty")
	}
	if strings.Contains(tail, "<commands") {
		r.warn("there is more than one <commands>: only the first was used")
	}
	if err := r.keystrokes(commands); err != nil {
		if !r.Complete {
			return r, err
		}
		r.Commands = nil
		r.warn("the commands were ignored: %s", err)
	}
	return r, nil
}

// tag finds the first element with a name. It returns the text in it, before it
// and after it. If lenient is set, an element that is not closed extends to the
// end, with a warning.
func (r *Reply) tag(text, name string, lenient bool) (inner, before, after string, ok bool) {
	open := strings.Index(text, "<"+name)
	for open >= 0 && !strings.ContainsRune(" \t\r\n/>", next(text[open+1+len(name):])) {
		more := strings.Index(text[open+1:], "<"+name)
		if more < 0 {
			return "", "", "", false
		}
		open += 1 + more
	}
	if open < 0 {
		return "", "", "", false
	}
	end := strings.IndexByte(text[open:], '>')
	if end < 0 {
		return "", "", "", false
	}
	end += open
	if text[end-1] == '/' {
		return "", text[:open], text[end+1:], true
	}
	closing := "</" + name + ">"
	at := strings.Index(text[end:], closing)
	if at < 0 {
		if lenient {
			r.warn("%s is missing: everything to the end was taken", closing)
		}
		return text[end+1:], text[:open], "", true
	}
	return text[end+1 : end+at], text[:open], text[end+at+len(closing):], true
}

// next returns the first character of s, or 0 at its end, which is in no tag.
func next(s string) rune {
	for _, c := range s {
		return c
	}
	return 0
}

var anyTag = regexp.MustCompile(`<([a-z_]+)[ \t\r\n/>]`)

// unknown warns about unknown tags.
func (r *Reply) unknown(text string) {
	var told []string
	for _, m := range anyTag.FindAllStringSubmatch(text, -1) {
		if name := m[1]; !slices.Contains(fields, name) && name != "response" && name != "keystrokes" && !slices.Contains(told, name) && len(told) < 5 {
			told = append(told, name)
			r.warn("there is no element <%s>: it was ignored", clip(name))
		}
	}
}

var (
	attribute = regexp.MustCompile(`([A-Za-z_]+)[ \t]*=[ \t]*("[^"]*"|'[^']*'|[^ \t>/]+)`)
	entity    = regexp.MustCompile(`&(lt|gt|amp|quot|apos);`)
)

// plain removes CDATA brackets around text, because no program wants them as
// input.
func (r *Reply) plain(text string) string {
	in, ok := strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), "<![CDATA[")
	if !ok {
		return text
	}
	in, ok = strings.CutSuffix(strings.TrimRight(in, " \t\r\n"), "]]>")
	if !ok {
		return text
	}
	r.warn("text needs no CDATA: it was taken out")
	return in
}

// keystrokes reads the elements of <commands>.
func (r *Reply) keystrokes(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for n := 1; ; n++ {
		inner, before, after, ok := r.tag(text, "keystrokes", true)
		if !ok {
			if n == 1 {
				return errors.New("<commands> holds no <keystrokes>")
			}
			if strings.TrimSpace(text) != "" {
				r.warn("there is text between the <keystrokes>, which was ignored")
			}
			return nil
		}
		if strings.TrimSpace(before) != "" {
			r.warn("there is text before the <keystrokes> of command %d, which was ignored", n)
		}
		c := Command{Keystrokes: r.plain(inner), Duration: DefaultDuration}
		opening := text[len(before):]
		opening = opening[:strings.IndexByte(opening, '>')]
		for _, a := range attribute.FindAllStringSubmatch(opening, -1) {
			if a[1] == "duration" {
				c.Duration = r.duration(n, strings.Trim(a[2], `"'`))
			} else {
				r.warn("<keystrokes> has no attribute %q: it was ignored", clip(a[1]))
			}
		}
		if e := entity.FindString(inner); e != "" {
			r.warn("command %d holds %s, which was typed as it is: write the character itself", n, e)
		}
		if strings.Contains(inner, "<keystrokes") {
			return fmt.Errorf("command %d is not closed before the next one begins", n)
		}
		r.Commands = append(r.Commands, c)
		text = after
	}
}
